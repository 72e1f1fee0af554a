//! Who gets in: every way to ask clients for certificates, with every kind of certificate, with and without passwords.

use super::curl::Outcome::{NoConnection, Status};
use super::curl::curl;
use super::fixture::{Fixture, PASSWORD, tls, users};
use crate::common::certs::Pair;
use crate::common::http;

fn clients(fixture: &Fixture) -> [(&'static str, Option<&Pair>); 5] {
    [
        ("none", None),
        ("good", Some(&fixture.good)),
        ("another name", Some(&fixture.other_name)),
        ("expired", Some(&fixture.expired)),
        ("another authority", Some(&fixture.foreign)),
    ]
}

#[test]
fn client_certificates() {
    // Columns: none, good, another name, expired, another authority.
    let ca = "client_ca_file: ca.crt";
    let names = "client_allowed_sans: [prometheus.example.org]";
    let table: [(&[&str], [bool; 5]); 8] = [
        (&["client_auth_type: NoClientCert"], [true; 5]),
        (&["client_auth_type: RequestClientCert"], [true; 5]),
        (&["client_auth_type: RequireAnyClientCert"], [false, true, true, true, true]),
        (&["client_auth_type: RequireAnyClientCert", names], [false, true, false, true, true]),
        (&["client_auth_type: VerifyClientCertIfGiven", ca], [true, true, true, false, false]),
        (&["client_auth_type: RequireAndVerifyClientCert", ca], [false, true, true, false, false]),
        (&["client_auth_type: RequireAndVerifyClientCert", ca, names], [false, true, false, false, false]),
        (
            &["client_auth_type: RequireAndVerifyClientCert", ca, "client_allowed_sans: [192.0.2.9]"],
            [false, true, false, false, false],
        ),
    ];
    for (lines, admitted) in table {
        let fixture = Fixture::new().start(&tls(lines));
        for ((name, client), admitted) in clients(&fixture).into_iter().zip(admitted) {
            for version in ["--tlsv1.3", "--tls-max=1.2"] {
                let version: Vec<&str> = version.split('=').collect();
                let Some(outcome) = curl(&fixture, "/metrics", client, &version) else { return };
                let expected = if admitted { Status(200) } else { NoConnection };
                assert_eq!(outcome, expected, "{lines:?}, {name}, {version:?}\n{}", fixture.log());
            }
        }
    }
}

#[test]
fn passwords_with_and_without_certificates() {
    let (right, wrong) = (format!("alice:{PASSWORD}"), "alice:open".to_owned());
    let unknown = format!("bob:{PASSWORD}");
    let credentials: [(&str, Vec<&str>, u16); 4] = [
        ("none", vec![], 401),
        ("right", vec!["--user", &right], 200),
        ("wrong", vec!["--user", &wrong], 401),
        ("unknown", vec!["--user", &unknown], 401),
    ];
    for mode in ["NoClientCert", "RequireAndVerifyClientCert\n  client_ca_file: ca.crt"] {
        let required = mode.starts_with("Require");
        let config = format!("{}{}", tls(&[&format!("client_auth_type: {mode}")]), users());
        let fixture = Fixture::new().start(&config);
        for (name, client) in clients(&fixture) {
            for (which, arguments, status) in &credentials {
                for path in ["/metrics", "/", "/-/healthy", "/api/v1/findings", "/nothing"] {
                    let Some(outcome) = curl(&fixture, path, client, arguments) else { return };
                    let admitted = !required || matches!(name, "good" | "another name");
                    let found = if path == "/nothing" && *status == 200 { 404 } else { *status };
                    let expected = if admitted { Status(found) } else { NoConnection };
                    assert_eq!(outcome, expected, "{mode}, {name}, {which}, {path}\n{}", fixture.log());
                }
            }
        }
        let log = fixture.log();
        for secret in [PASSWORD, "$2", "sesame", "YWxpY2U"] {
            assert!(!log.contains(secret), "{secret} is in the log: {log}");
        }
        assert!(log.contains("wrong user name or password") || required, "{log}");
    }
}

#[test]
fn versions_suites_and_curves() {
    let table: [(&[&str], &[&str], bool); 9] = [
        (&["min_version: TLS13"], &["--tls-max", "1.2"], false),
        (&["min_version: TLS13"], &["--tlsv1.3"], true),
        (&["max_version: TLS12"], &["--tlsv1.3"], false),
        (&["max_version: TLS12"], &["--tlsv1.2"], true),
        (&[], &["--tls-max", "1.1", "--tlsv1.0", "--ciphers", "DEFAULT@SECLEVEL=0"], false),
        (
            &["cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]"],
            &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"],
            false,
        ),
        (
            &["cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]"],
            &["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384"],
            true,
        ),
        (&["curve_preferences: [CurveP384]"], &["--curves", "X25519"], false),
        (&["curve_preferences: [CurveP384]"], &["--curves", "P-384"], true),
    ];
    for (lines, arguments, admitted) in table {
        let fixture = Fixture::new().start(&tls(lines));
        let Some(outcome) = curl(&fixture, "/metrics", None, arguments) else { return };
        let expected = if admitted { Status(200) } else { NoConnection };
        assert_eq!(outcome, expected, "{lines:?}, {arguments:?}\n{}", fixture.log());
    }
}

#[test]
fn headers_rate_and_plain_http_on_an_encrypted_port() {
    let headers =
        "http_server_config:\n  headers:\n    Strict-Transport-Security: max-age=60\n    X-Frame-Options: deny\n";
    let fixture = Fixture::new().start(&format!("{headers}rate_limit:\n  interval: 1h\n  burst: 3\n"));
    let answers: Vec<_> = (0..5).map(|_| http::get(fixture.address, "/-/healthy").unwrap()).collect();
    assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 200, 200, 429, 429]);
    for answer in &answers {
        assert_eq!(answer.header("strict-transport-security"), Some("max-age=60"));
        assert_eq!(answer.header("x-frame-options"), Some("deny"));
    }
    assert_eq!(answers[4].header("retry-after"), Some("1"));

    let fixture = Fixture::new().start(&tls(&[]));
    let answer = http::get(fixture.address, "/metrics").unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (400, "this is an HTTPS server: use an https:// URL\n"));
}
