//! Pictures of the dashboards: Grafana's own components in a real browser, over what the real Prometheus answers.
//! `pictures/app.tsx` says what of it is Grafana's and what is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::browser::Browser;
use crate::common::run::to_its_end;
use crate::fill::{END, START};
use crate::lint::{panels, text};
use crate::queries::{Filled, filled, interpolated};
use crate::shipped;

/// A dashboard, what is chosen in it, and how much of it is in the picture, in rows of Grafana's grid.
type Picture = (&'static str, &'static [(&'static str, &'static str)], u32);

const PICTURES: [Picture; 6] = [
    ("lanewatch-fleet", &[("instance", FLEET)], 36),
    ("lanewatch-host", &[("instance", "node16:10015")], 56),
    ("lanewatch-sriov", &[("instance", "node17:10015")], 55),
    ("lanewatch-capacity", &[("instance", FLEET)], 43),
    ("lanewatch-probes", &[("instance", FLEET)], 32),
    ("lanewatch-exporter", &[("instance", FLEET)], 23),
];

/// All but the host that only the encoder's test knows: it has no clock.
const FLEET: &str = "node(0.|1[0-79]):10015";

const WIDTH: u32 = 1290;

fn answers(prometheus: &Filled, dashboard: &Value, chosen: &[(&str, &str)]) -> Value {
    let chosen = chosen.iter().copied().collect();
    let mut answers = Map::new();
    for panel in panels(dashboard) {
        let mut of = Map::new();
        for target in panel["targets"].as_array().unwrap() {
            let query = interpolated(dashboard, text(target, "expr"), &chosen);
            of.insert(
                text(target, "refId").to_owned(),
                Value::Array(prometheus.query(&query, target["instant"] == true)),
            );
        }
        answers.insert(panel["id"].to_string(), Value::Object(of));
    }
    Value::Object(answers)
}

/// The page's program, made of the packages that `make dashboards-pictures` has installed.
fn program() -> (PathBuf, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join(".cache/pictures");
    fs::copy(root.join("tests/dashboards/pictures/app.tsx"), folder.join("app.tsx")).unwrap();
    let mut command = Command::new(folder.join("node_modules/.bin/esbuild"));
    command.current_dir(&folder).args(["app.tsx", "--bundle", "--minify", "--outfile=app.js", "--log-level=error"]);
    command.args(["--define:process.env.NODE_ENV=\"production\"", "--loader:.svg=dataurl", "--loader:.ttf=empty"]);
    let made = to_its_end(command, Duration::from_secs(120));
    assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
    (folder.join("app.js"), folder.join("app.css"))
}

/// The dashboard with all of its rows unfolded.
fn unfolded(dashboard: &Value) -> Value {
    let (mut panels, mut down) = (Vec::new(), 0);
    let moved = |panel: &Value, down: u64| {
        let mut panel = panel.clone();
        panel["gridPos"]["y"] = json!(panel["gridPos"]["y"].as_u64().unwrap() + down);
        panel
    };
    for panel in dashboard["panels"].as_array().unwrap() {
        panels.push(moved(panel, down));
        let Some(inner) = panel["panels"].as_array().filter(|inner| !inner.is_empty()) else { continue };
        panels.extend(inner.iter().map(|panel| moved(panel, down)));
        let bottom = |panel: &Value| panel["gridPos"]["y"].as_u64().unwrap() + panel["gridPos"]["h"].as_u64().unwrap();
        down += inner.iter().map(bottom).max().unwrap() - panel["gridPos"]["y"].as_u64().unwrap() - 1;
    }
    let mut dashboard = dashboard.clone();
    dashboard["panels"] = Value::Array(panels);
    dashboard
}

/// A page that draws a dashboard. Its clock stands at the last scrape.
fn page(dashboard: &Value, answers: &Value) -> PathBuf {
    let (script, style) = program();
    let data =
        json!({ "dashboard": dashboard, "answers": answers, "range": { "from": START * 1000, "to": END * 1000 } });
    let now = END * 1000;
    let html = format!(
        "<!doctype html><meta charset=utf-8><link rel=stylesheet href='{}'>\
         <style>body {{ background: #f4f5f5; overflow: hidden }}</style><div id=root></div>\
         <script>Date.now = () => {now}; Object.assign(window, {})</script><script src='{}'></script>",
        style.display(),
        data.to_string().replace('<', "\\u003c"),
        script.display(),
    );
    let path = script.with_file_name(format!("{}.html", text(dashboard, "uid")));
    fs::write(&path, html).unwrap();
    path
}

#[test]
#[ignore = "writes docs/images/dashboards/*.webp: make dashboards-pictures"]
fn the_pictures_of_the_dashboards() {
    let (Some(prometheus), Some(browser)) = (filled(), Browser::start()) else { return };
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images/dashboards");
    fs::create_dir_all(&images).unwrap();
    for (name, chosen, rows) in PICTURES {
        let dashboard = &unfolded(&shipped()[name]);
        let page = page(dashboard, &answers(prometheus, dashboard, chosen));
        let height = 48 + rows * 30;
        browser.resize(WIDTH, height);
        browser.open(&format!("file://{}", page.display()));
        let end = Instant::now() + Duration::from_secs(30);
        let wanted = panels(dashboard).count();
        let drawn = loop {
            let drawn = browser.run("return [window.drawn || [], document.title]");
            if drawn[0].as_array().is_some_and(|panels| panels.len() == wanted) {
                break drawn[0].clone();
            }
            assert!(Instant::now() < end, "{name}: {drawn} {:?}", browser.complaints());
            thread::sleep(Duration::from_millis(200));
        };
        thread::sleep(Duration::from_secs(2));
        let errors = browser.complaints();
        // Grafana's fonts and icons are files of its server, not of its packages.
        let broken: Vec<_> = errors.iter().filter(|line| !line.contains("/public/")).collect();
        assert!(broken.is_empty(), "{name}: {broken:?}");
        println!("{name}: {drawn}");
        fs::write(images.join(format!("{name}.webp")), browser.picture(WIDTH, height, "webp")).unwrap();
    }
}
