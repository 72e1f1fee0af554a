//! A real Prometheus with TLS, client certificates and passwords.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::run::{Group, Output, free_address, lanewatch};
use crate::common::tools::{Tool, require, skip};

/// Of the password `right`.
const HASH: &str = "$2b$04$F.T5yXhSMiZijpOzj39yu.LHNH1SGboLP0Ci3KZnGLPHy4BcV/OGG";

/// An authority, a server's and a client's certificate with their keys: `ca.pem`, `server.pem`, `server.key` and so on.
/// Whether there is a program that makes them.
fn certificates(directory: &Path) -> bool {
    fs::write(directory.join("openssl.cnf"), "[req]\ndistinguished_name = name\n[name]\n").unwrap();
    let issued = ["-CA", "ca.pem", "-CAkey", "ca.key"];
    for (name, extension, by) in [
        ("ca", "basicConstraints=critical,CA:TRUE", &[][..]),
        ("server", "subjectAltName=IP:127.0.0.1", &issued),
        ("client", "extendedKeyUsage=clientAuth", &issued),
    ] {
        let mut command = Command::new("openssl");
        command.current_dir(directory).args(["req", "-x509", "-config", "openssl.cnf", "-nodes", "-days", "2"]);
        command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-addext", extension]).args(by);
        command.args([
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            &format!("{name}.key"),
            "-out",
            &format!("{name}.pem"),
        ]);
        match command.output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => return false,
        }
    }
    true
}

#[test]
fn who_may_ask_gets_through_and_who_may_not_is_told_why() {
    let Some(program) = require(Tool::Prometheus) else { return };
    let (directory, address) = (TempDir::new().unwrap(), free_address());
    if !certificates(directory.path()) {
        skip("openssl is not installed (tests/setup.sh installs it)");
        return;
    }
    let file = |name: &str| directory.path().join(name).display().to_string();
    for (name, text) in [
        ("prometheus.yml", "scrape_configs: []\n".to_owned()),
        ("right", "right\n".to_owned()),
        ("wrong", "wrong\n".to_owned()),
        (
            "web.yml",
            format!(
                "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n  client_ca_file: ca.pem\n  \
                 client_auth_type: RequireAndVerifyClientCert\nbasic_auth_users:\n  auditor: '{HASH}'\n"
            ),
        ),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let mut command = Command::new(program);
    command
        .arg(format!("--config.file={}", file("prometheus.yml")))
        .arg(format!("--web.config.file={}", file("web.yml")));
    command.arg(format!("--storage.tsdb.path={}", file("data"))).arg(format!("--web.listen-address={address}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(file("log")).unwrap());
    let _group = Group::spawn(&mut command);
    let url = format!("https://{address}");
    let (ca, certificate, key, right, wrong) =
        (file("ca.pem"), file("client.pem"), file("client.key"), file("right"), file("wrong"));
    let audit = |more: &[&str]| -> Output { lanewatch(&[&["audit", "--prometheus", &url][..], more].concat()) };
    let client = ["--cert-file", &certificate, "--key-file", &key];
    let password = ["--username", "auditor", "--password-file", &right];
    let trust = ["--ca-file", &ca];
    let through = |output: &Output| output.stderr.contains("the server has no lanewatch_build_info");

    let end = Instant::now() + Duration::from_secs(60);
    let output = loop {
        let output = audit(&[&trust[..], &client, &password].concat());
        // Not there yet, or there and not yet ready.
        if through(&output) || Instant::now() > end {
            break output;
        }
        thread::sleep(Duration::from_millis(200));
    };
    assert!(through(&output), "{output:?}\n{}", fs::read_to_string(file("log")).unwrap());
    let output = audit(&[&["--insecure-skip-verify"][..], &client, &password].concat());
    assert!(through(&output), "{output:?}");
    for (more, expected) in [
        (
            [&trust[..], &client, &["--username", "auditor", "--password-file", &wrong]].concat(),
            "401 Unauthorized: Unauthorized",
        ),
        ([&trust[..], &client].concat(), "401 Unauthorized: Unauthorized"),
        ([&client[..], &password].concat(), "invalid peer certificate"),
        ([&trust[..], &password].concat(), "ertificate"),
    ] {
        let output = audit(&more);
        assert_eq!((output.code, output.stderr.lines().count()), (Some(1), 1), "{output:?}");
        assert!(output.stderr.starts_with(&format!("lanewatch: {url}/api/v1/query: ")), "{output:?}");
        assert!(output.stderr.contains(expected), "{output:?}, expected {expected}");
    }
    let output = lanewatch(&["audit", "--prometheus", &format!("http://{address}")]);
    assert!(output.code == Some(1) && output.stderr.contains("400 Bad Request"), "{output:?}");
}
