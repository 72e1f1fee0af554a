//! A real Chromium, driven over WebDriver.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::http;
use crate::common::run::{Server, free_address};
use crate::common::tools::{Tool, require};

/// A browser without a window, and its one page.
pub(crate) struct Browser {
    driver: Server,
    session: String,
}

impl Browser {
    /// Starts one; none where Chromium or its driver is not installed.
    pub(crate) fn start() -> Option<Self> {
        let (chromium, chromedriver) = (require(Tool::Chromium)?, require(Tool::Chromedriver)?);
        let (address, directory) = (free_address(), TempDir::new().unwrap());
        let profile = directory.path().join("profile");
        let mut command = std::process::Command::new(chromedriver);
        command.arg(format!("--port={}", address.port()));
        let driver = Server::spawn(command, address, directory, "/status");
        let profile = format!("--user-data-dir={}", profile.display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            &profile,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        }}});
        let session = post(address, "/session", &wanted)["sessionId"].as_str().unwrap().to_owned();
        Some(Self { driver, session })
    }

    fn command(&self, path: &str, arguments: &Value) -> Value {
        post(self.driver.address, &format!("/session/{}{path}", self.session), arguments)
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Opens a page and waits until it is loaded.
    pub(crate) fn open(&self, url: &str) {
        self.command("/url", &json!({ "url": url }));
    }

    /// The page becomes so wide and so high, in pixels.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    #[allow(dead_code, reason = "the dashboards have one light")]
    /// The person before it likes `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &features);
    }

    /// What a script gives that ends in `return`.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// What the browser complained of since the last call: errors, refused styles, files that could not be had.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let lines = self.command("/se/log", &json!({ "type": "browser" }));
        lines.as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// A picture of the top of the page, as `png` or `webp`.
    pub(crate) fn picture(&self, width: u32, height: u32, format: &str) -> Vec<u8> {
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let picture = self.devtools("Page.captureScreenshot", &json!({ "format": format, "clip": clip }));
        from_base64(picture["data"].as_str().unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser would outlive its driver; killing both is the driver's group's business.
        let path = format!("/session/{}", self.session);
        let _ = http::request(self.driver.address, "DELETE", &path, &[]);
    }
}

fn post(address: SocketAddr, path: &str, document: &Value) -> Value {
    let answer = http::post(address, path, &document.to_string()).unwrap();
    let value: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer.status, 200, "{path}: {value}");
    value["value"].clone()
}

fn from_base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = LETTERS.iter().position(|known| *known == letter).expect("base64");
        bits = bits << 6 | u32::try_from(value).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    bytes
}

#[test]
fn base64_is_read() {
    assert_eq!(from_base64("bGFuZXdhdGNo"), b"lanewatch");
    assert_eq!(from_base64("bGFuZXM="), b"lanes");
    assert_eq!(from_base64("bGFuZQ=="), b"lane");
}
