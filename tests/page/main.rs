//! The status page as a browser shows it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod browser;
#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use browser::Browser;
use common::host::{GEN3, GEN4, HostTree, LinkEnd};
use common::http;
use common::run::Server;
use serde_json::Value;
use tempfile::TempDir;

/// Waits until the host's status is critical: the finding has held for long enough.
fn until_critical(server: &Server) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let findings: Value = serde_json::from_slice(&server.get("/api/v1/findings").body).unwrap();
        if findings["status"] == "critical" {
            return;
        }
        assert!(Instant::now() < end, "{findings:#}\n{}", server.log());
        thread::sleep(Duration::from_millis(1100));
    }
}

/// Two cards at 200 Gb/s; the link of the second one has trained to 8 GT/s x8.
fn served() -> (Server, TempDir) {
    let mut host = HostTree::new(2);
    host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    let directory = TempDir::new().unwrap();
    host.write(directory.path()).unwrap();
    let server =
        Server::start("serve", &["--path.rootfs", directory.path().to_str().unwrap(), "--web.public-snapshot"]);
    until_critical(&server);
    (server, directory)
}

fn text(browser: &Browser, selector: &str) -> String {
    let script = format!("return [...document.querySelectorAll('{selector}')].map(e => e.innerText).join('\\n')");
    browser.run(&script).as_str().unwrap().to_owned()
}

/// A colour or length as the browser computed it.
fn style(browser: &Browser, selector: &str, property: &str) -> String {
    let script = format!("return getComputedStyle(document.querySelector('{selector}')).{property}");
    browser.run(&script).as_str().unwrap_or_else(|| panic!("{selector} {property}")).to_owned()
}

#[test]
fn a_browser_shows_what_is_wrong_in_every_light_and_width() {
    let Some(browser) = Browser::start() else { return };
    let (server, _host) = served();
    let url = format!("http://{}/", server.address);
    browser.resize(1280, 900);
    browser.open(&url);

    assert_eq!(browser.run("return document.title"), "lanewatch: CRITICAL on node17");
    assert_eq!(text(&browser, "h1"), "CRITICAL\nnode17");
    assert_eq!(text(&browser, ".path .name"), "mlx5_0\nmlx5_1");
    let findings = text(&browser, ".finding");
    for part in ["pcie_below_port_rate · link_degraded", "pcie_degraded · speed_and_width", "reseat the card"] {
        assert!(findings.contains(part), "{part:?} in {findings}");
    }
    assert_eq!(text(&browser, "#mlx5_0 .bar.full b"), "252.1 Gb/s\n200 Gb/s");
    assert_eq!(
        text(&browser, "#mlx5_1 .bar.degraded"),
        "63.0 Gb/s\n8 GT/s x8\nTHE LIMIT\n\
         degraded in speed and width: both ends support 16 GT/s x16 = 252.1 Gb/s"
    );
    assert_eq!(text(&browser, ".limit"), "THE LIMIT", "one link is the limit, and only one");

    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        the_limit_is_not_to_be_missed(&browser, scheme);
    }
    let ground = |scheme: &str| {
        browser.prefer(scheme);
        style(&browser, "body", "backgroundColor")
    };
    assert_ne!(ground("light"), ground("dark"));

    for width in [1280, 1040, 600, 390, 320] {
        browser.resize(width, 900);
        let wide = browser.run("return document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} pixels at {width}");
    }
    every_link_leads_somewhere(&browser, &server);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// What is wrong has the colour of what is wrong, and nothing that is well has it.
fn the_limit_is_not_to_be_missed(browser: &Browser, scheme: &str) {
    let bad = style(browser, "#mlx5_1 .limit", "backgroundColor");
    assert_eq!(style(browser, "#mlx5_1 .fill", "backgroundColor"), bad, "{scheme}");
    assert_eq!(style(browser, "#mlx5_1 .verdict", "color"), bad, "{scheme}");
    assert_eq!(style(browser, ".finding.critical", "borderLeftColor"), bad, "{scheme}");
    assert_eq!(style(browser, ".finding.critical", "borderLeftWidth"), "5px", "{scheme}");
    assert_eq!(style(browser, "#mlx5_1", "borderLeftColor"), bad, "{scheme}");
    assert_ne!(style(browser, "#mlx5_0 .fill", "backgroundColor"), bad, "{scheme}");
    let pipe = style(browser, "#mlx5_1 .bar.degraded .pipe", "backgroundImage");
    assert!(pipe.contains("repeating-linear-gradient"), "{scheme}: {pipe}");
    assert_eq!(style(browser, "#mlx5_0 .bar.full .pipe", "backgroundImage"), "none");
    // 63.0 of 200 Gb/s, of a tube 7rem wide; and thinner than a link that carries all.
    let pixels = |selector, property| style(browser, selector, property).trim_end_matches("px").parse::<f64>().unwrap();
    let part = pixels("#mlx5_1 .fill", "width") / pixels("#mlx5_1 .tube", "width");
    assert!((part - 0.32).abs() < 0.01, "{scheme}: {part}");
    assert!(pixels("#mlx5_1 .degraded .pipe", "height") < pixels("#mlx5_0 .full .pipe", "height"), "{scheme}");
}

fn every_link_leads_somewhere(browser: &Browser, server: &Server) {
    let links = browser.run("return [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))");
    let links: Vec<&str> = links.as_array().unwrap().iter().map(|link| link.as_str().unwrap()).collect();
    for wanted in ["/metrics", "/api/v1/findings", "/api/v1/events", "/api/v1/snapshot", "#mlx5_1"] {
        assert!(links.contains(&wanted), "{wanted} in {links:?}");
    }
    for link in links {
        match link.strip_prefix('#') {
            Some(id) => {
                let found = browser.run(&format!("return document.getElementById('{id}') !== null"));
                assert_eq!(found, true, "{link}");
            }
            None => assert_eq!(http::get(server.address, link).unwrap().status, 200, "{link}"),
        }
    }
}

#[test]
#[ignore = "writes docs/images/page.png: make screenshot"]
fn the_picture_in_the_readme() {
    const WIDTH: u32 = 1280;
    let Some(browser) = Browser::start() else { return };
    let demo = Server::start::<&str>("demo", &[]);
    until_critical(&demo);
    browser.resize(WIDTH, 1200);
    browser.prefer("light");
    browser.open(&format!("http://{}/", demo.address));
    let end = "return Math.ceil([...document.querySelectorAll('.path')].pop().getBoundingClientRect().bottom) + 24";
    let height = u32::try_from(browser.run(end).as_u64().unwrap()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images/page.png");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, browser.picture(WIDTH, height, "png")).unwrap();
}
