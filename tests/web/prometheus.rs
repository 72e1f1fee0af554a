//! A real Prometheus with a client certificate and a password.

use std::fs;

use super::fixture::{Fixture, PASSWORD, tls, users};
use crate::common::tools::Prometheus;

fn scrape(fixture: &Fixture, certificate: &str, password: &str) -> String {
    let at = fixture.directory.path().display();
    let file = fixture.path("password");
    fs::write(&file, password).unwrap();
    format!(
        "    scheme: https\n    basic_auth:\n      username: alice\n      password_file: {}\n    tls_config:\n      \
         ca_file: {at}/ca.crt\n      cert_file: {at}/{certificate}.crt\n      key_file: {at}/{certificate}.key\n",
        file.display()
    )
}

#[test]
fn it_scrapes_with_what_is_asked_for_and_not_without() {
    let lines = ["client_auth_type: RequireAndVerifyClientCert", "client_ca_file: ca.crt"];
    let fixture = Fixture::new().start(&format!("{}{}", tls(&lines), users()));
    let table = [("good", PASSWORD, true), ("good", "wrong", false), ("foreign", PASSWORD, false)];
    for (certificate, password, admitted) in table {
        let more = scrape(&fixture, certificate, password);
        let Some(prometheus) = Prometheus::scraping_with(fixture.address, &more) else { return };
        prometheus.wait_for("up", |series| series.first().is_some_and(|(_, up)| (*up > 0.5) == admitted));
        if admitted {
            prometheus.wait_for("lanewatch_device_info", |series| series.len() == 2);
        } else {
            // A scrape that comes late on a busy machine fails for another reason first.
            let why = if password == PASSWORD { "tls" } else { "401" };
            prometheus.wait_for_target(|health, error| health == "down" && error.contains(why));
        }
    }
}
