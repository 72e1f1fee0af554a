//! The real curl.

use std::process::Command;

use super::fixture::Fixture;
use crate::common::certs::Pair;
use crate::common::tools::{Tool, require};

/// What curl made of it: the status, or that there was no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Status(u16),
    NoConnection,
}

/// Asks for a path over TLS with these arguments; none where there is no curl.
pub fn curl(fixture: &Fixture, path: &str, client: Option<&Pair>, more: &[&str]) -> Option<Outcome> {
    let mut command = Command::new(require(Tool::Curl)?);
    command.args([
        "--silent",
        "--show-error",
        "--max-time",
        "20",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
    ]);
    command.arg("--cacert").arg(&fixture.ca);
    if let Some(client) = client {
        command.arg("--cert").arg(&client.certificate).arg("--key").arg(&client.key);
    }
    command.args(more).arg(format!("https://{}{path}", fixture.address));
    let output = command.output().unwrap();
    let status = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0);
    Some(if output.status.success() { Outcome::Status(status) } else { Outcome::NoConnection })
}
