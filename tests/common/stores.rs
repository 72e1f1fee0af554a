//! Real servers that keep series: Prometheus over what it scrapes or was given, VictoriaMetrics over what it was given.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::http;
use super::rules::hastened;
use super::run::{Server, free_address, to_its_end};
use super::tools::{Tool, require};

/// A Prometheus with this configuration, whose files are in `directory` and whose series are in `data` below it; `more`
/// flags. None where it is not installed.
pub fn prometheus(directory: TempDir, config: &str, more: &[&str]) -> Option<Server> {
    let (program, address) = (require(Tool::Prometheus)?, free_address());
    let file = directory.path().join("prometheus.yml");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
    command.arg(format!("--web.listen-address={address}")).args(more);
    Some(Server::spawn(command, address, directory, "/-/ready"))
}

/// A Prometheus with this configuration that evaluates these rule files of the project, their waits cut to seconds.
pub fn evaluating(config: &str, rules: &[&str]) -> Option<Server> {
    let directory = TempDir::new().unwrap();
    let name = |path: &str| Path::new(path).file_name().unwrap().to_string_lossy().into_owned();
    let names: Vec<String> = rules.iter().map(|path| name(path)).collect();
    for (path, name) in rules.iter().zip(&names) {
        fs::write(directory.path().join(name), hastened(path)).unwrap();
    }
    prometheus(directory, &format!("{config}rule_files: [{}]\n", names.join(", ")), &[])
}

/// A Prometheus that has what `write` writes as OpenMetrics, in blocks that promtool made of it within `patience`, and
/// scrapes nothing.
pub fn prometheus_of(write: impl FnOnce(&mut BufWriter<File>), patience: Duration, more: &[&str]) -> Option<Server> {
    let promtool = require(Tool::Promtool)?;
    let directory = TempDir::new().unwrap();
    let (samples, data) = (directory.path().join("samples.om"), directory.path().join("data"));
    let mut out = BufWriter::new(File::create(&samples).unwrap());
    write(&mut out);
    out.flush().unwrap();
    fs::create_dir(&data).unwrap();
    let mut command = Command::new(promtool);
    command.args(["tsdb", "create-blocks-from", "openmetrics", "--quiet"]).arg(&samples).arg(&data);
    let made = to_its_end(command, patience);
    assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
    fs::remove_file(samples).unwrap();
    prometheus(directory, "scrape_configs: []\n", more)
}

/// A VictoriaMetrics that was given these lines; none where it is not installed.
pub fn victoria_of(lines: &str) -> Option<Server> {
    let program = require(Tool::VictoriaMetrics)?;
    let (directory, address) = (TempDir::new().unwrap(), free_address());
    let mut command = Command::new(program);
    command.arg(format!("-storageDataPath={}", directory.path().join("data").display()));
    command.arg(format!("-httpListenAddr={address}")).arg("-retentionPeriod=1");
    let server = Server::spawn(command, address, directory, "/health");
    let answer = http::post(address, "/api/v1/import/prometheus", lines).unwrap();
    assert_eq!(answer.status, 204, "{}", answer.text());
    // What was taken in is not to be searched at once; this makes it so.
    assert_eq!(server.get("/internal/force_flush").status, 200);
    Some(server)
}
