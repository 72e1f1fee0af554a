//! What a server may do wrong, and the one line that is said of it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::cost::peak_of;
use crate::common::run::{Output, free_address, lanewatch, program};
use crate::odd::{EMPTY, Manner, Odd};

fn audit(url: &str, more: &[&str]) -> Output {
    let mut arguments = vec!["audit", "--prometheus", url];
    arguments.extend(more);
    lanewatch(&arguments)
}

/// The one line on standard error of an audit that could not be done.
fn complaint(manner: Manner, more: &[&str]) -> String {
    let server = Odd::serve(manner);
    let output = audit(&server.url(), more);
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    let line = output.stderr.trim_end();
    let prefix = format!("lanewatch: {}/api/v1/query: ", server.url());
    line.strip_prefix(&prefix).unwrap_or_else(|| panic!("{line:?} does not name {prefix}")).to_owned()
}

fn status(line: &'static str, body: &str) -> Manner {
    Manner::Status(line, body.to_owned())
}

#[test]
fn a_status_is_said_with_the_servers_own_words_and_what_may_help() {
    for (manner, expected) in [
        (
            status("401 Unauthorized", "Unauthorized\n"),
            "401 Unauthorized: Unauthorized (see --username, --password-file, --bearer-token-file)",
        ),
        (status("401 Unauthorized", "no org id\n"), "401 Unauthorized: no org id (set one with --tenant)"),
        (
            status("404 Not Found", "404 page not found"),
            "404 Not Found: 404 page not found (is there a path before /api/v1?)",
        ),
        (
            status(
                "422 Unprocessable Entity",
                r#"{"status":"error","errorType":"execution","error":"query\n processing would load too many samples"}"#,
            ),
            "422 Unprocessable Entity: execution: query processing would load too many samples",
        ),
        (
            status("400 Bad Request", r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#),
            "400 Bad Request: bad_data: parse error",
        ),
        (
            status("503 Service Unavailable", "<html>\n<b>no backend</b>"),
            "503 Service Unavailable: <html> <b>no backend</b>",
        ),
        (status("500 Internal Server Error", ""), "500 Internal Server Error"),
    ] {
        assert_eq!(complaint(manner, &[]), expected);
    }
    let server = Odd::serve(status("302 Found", "see there"));
    assert!(audit(&server.url(), &[]).stderr.contains("302 Found"));
}

#[test]
fn what_is_no_answer_is_said_so() {
    for (body, expected) in [
        (r#"{"status":"success","data":{"resultType":"vec"#, "EOF while parsing"),
        ("<html>log in</html>", "expected value"),
        (r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#, "matrix"),
    ] {
        let line = complaint(status("200 OK", body), &[]);
        assert!(line.starts_with("not a response of the Prometheus API: ") && line.contains(expected), "{line}");
    }
    let line = complaint(status("200 OK", r#"{"status":"error","errorType":"timeout","error":"too slow"}"#), &[]);
    assert_eq!(line, "timeout: too slow");
    assert!(complaint(Manner::CutOff(EMPTY.to_owned()), &[]).contains("end of file before message length reached"));
    assert!(!complaint(Manner::HangUp, &[]).is_empty());
}

#[test]
fn a_server_that_is_silent_or_does_not_stop_costs_no_more_than_is_allowed() {
    let start = Instant::now();
    let line = complaint(Manner::Silent, &["--timeout", "500ms"]);
    assert_eq!(line, "no response within 500ms; raise it with --timeout");
    assert!(start.elapsed() < Duration::from_secs(20));
    let line = complaint(Manner::Endless, &["--max-answer", "2"]);
    assert!(line.starts_with("the response is longer than 2 MiB; allow more with --max-answer"), "{line}");
}

#[test]
fn an_answer_in_chunks_of_one_byte_costs_no_more_than_its_bytes() {
    let measured = |manner: Manner| {
        let server = Odd::serve(manner);
        let mut command = program();
        command.args(["audit", "--prometheus", &server.url(), "--timeout", "120s", "--time", "2026-01-01T00:00:00Z"]);
        let (most, code) = peak_of(command);
        assert_eq!((code, server.requests().len()), (Some(1), 2), "there are no hosts");
        most
    };
    let (usual, bytes) = (measured(Manner::Status("200 OK", EMPTY.to_owned())), measured(Manner::Bytes(512 << 10)));
    println!("{} MiB, {} MiB with 512 KiB in chunks of one byte", usual >> 20, bytes >> 20);
    // A buffer that grows has up to three times its content while it moves.
    assert!(bytes < usual + (16 << 20), "{} MiB instead of {} MiB", bytes >> 20, usual >> 20);
}

#[test]
fn a_server_that_is_busy_is_asked_again() {
    let server = Odd::serve(Manner::BusyUntil(2, "503 Service Unavailable"));
    let output = audit(&server.url(), &["--time", "2026-01-01T00:00:00Z"]);
    assert_eq!(output.stderr, "lanewatch: the server has no lanewatch_build_info at that time\n");
    assert_eq!((output.code, server.requests().len()), (Some(1), 4), "three for the first query, one for the second");
    let server = Odd::serve(Manner::BusyUntil(2, "401 Unauthorized"));
    audit(&server.url(), &["--time", "1h"]);
    assert_eq!(server.requests().len(), 1, "a refusal is not asked for twice");
}

#[test]
fn nobody_there_is_said_so() {
    let address = free_address();
    let output = audit(&format!("http://{address}"), &[]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains(&address.to_string()) && output.stderr.contains("Connection refused"), "{output:?}");
    let output = audit("http://nowhere.invalid:9090", &[]);
    assert!(
        output.code == Some(1) && output.stderr.contains("http://nowhere.invalid:9090/api/v1/query: "),
        "{output:?}"
    );
    assert_eq!(output.stderr.lines().count(), 1);
}

#[test]
fn a_selector_that_is_none_is_a_wrong_command_line() {
    let server = Odd::serve(status("200 OK", EMPTY));
    let output = audit(&server.url(), &["--match", "site=ams"]);
    assert_eq!((output.code, server.requests().len()), (Some(2), 0), "{output:?}");
    assert!(
        output
            .stderr
            .starts_with("lanewatch: --match: \"site=ams\" is not a list of matchers: expected a value in quotes ")
    );
    // What only the server can tell: a pattern that is none.
    let body = r#"{"status":"error","errorType":"bad_data","error":"error parsing regexp: missing closing ]"}"#;
    let server = Odd::serve(status("400 Bad Request", body));
    let output = audit(&server.url(), &["--match", "site=~\"[\""]);
    let line = "lanewatch: --match site=~\"[\": the server says bad_data: error parsing regexp: missing closing ]\n";
    assert_eq!((output.code, output.stderr.as_str()), (Some(2), line));
}

#[test]
fn an_address_that_leads_elsewhere_is_said_so() {
    let server = Odd::serve(status("200 OK", EMPTY));
    for path in ["/api/v1", "/api/v1/query"] {
        let output = audit(&format!("{}{path}", server.url()), &[]);
        assert_eq!((output.code, server.requests().len()), (Some(2), 0), "{output:?}");
        let end = format!("give the part before /api/v1: {}\n", server.url());
        assert!(output.stderr.ends_with(&end), "{output:?}");
    }
    // A server in plain text does not wait for the end of what it takes for a request.
    let server = Odd::serve(Manner::AtOnce);
    let output = audit(&server.url().replace("http://", "https://"), &["--timeout", "20s"]);
    assert_eq!(output.code, Some(1));
    assert!(
        output.stderr.contains(": the server does not speak TLS; should the URL start with http://? "),
        "{}",
        output.stderr
    );
    let words = "Client sent an HTTP request to an HTTPS server.\n";
    let line = complaint(status("400 Bad Request", words), &[]);
    assert_eq!(line, format!("400 Bad Request: {} (is it https://?)", words.trim()));
    let output = audit(&server.url(), &["--username", "a", "--password-file", "/nonexistent"]);
    let line = "lanewatch: /nonexistent: No such file or directory (os error 2)\n";
    assert_eq!((output.code, output.stderr.as_str()), (Some(2), line));
}

#[test]
fn every_request_says_who_asks() {
    let directory = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (token, password) = (file("token", "s3cret\n"), file("password", "pass:word\n"));
    let asked = |more: &[&str]| {
        let server = Odd::serve(status("200 OK", EMPTY));
        let output = audit(&server.url(), &[&["--time", "1h"], more].concat());
        assert!(!output.stderr.contains("s3cret") && !output.stderr.contains("pass:word"));
        let requests = server.requests();
        assert!(!requests.is_empty(), "{output:?}");
        requests[0].to_ascii_lowercase()
    };
    let request = asked(&["--bearer-token-file", &token, "--tenant", "Team-A", "--header", "X-Extra: one"]);
    assert!(request.starts_with("post /api/v1/query http/1.1\r\n"), "{request}");
    for line in ["authorization: bearer s3cret\r\n", "x-scope-orgid: team-a\r\n", "x-extra: one\r\n"] {
        assert!(request.contains(line), "{request}");
    }
    let request = asked(&["--username", "ops", "--password-file", &password]);
    // "ops:pass:word" in base64, in lower case as the rest.
    assert!(request.contains("authorization: basic b3bzonbhc3m6d29yza==\r\n"), "{request}");
}

#[test]
fn a_wrong_command_line_is_refused_before_anybody_is_asked() {
    let missing = Path::new("/nonexistent/ca.pem").display().to_string();
    for (more, expected) in [
        (&["--by", "rack-1"][..], "\"rack-1\" is not a label name"),
        (&["--identity", "job"], "--identity must include instance"),
        (&["--fail-on", "lost"], "\"lost\" cannot be limited"),
        (&["--fail-on", "slot>3"], "slot is a bandwidth"),
        (&["--header", "nonsense"], "\"nonsense\" is not a header"),
        (&["--time", "noon"], "\"noon\" is not a time: give an age"),
        (&["--history", "soon"], "\"soon\" is not a time such as"),
        (&["--username", "ops"], "--password-file"),
        (&["--shard", "0"], "0 is not in 1.."),
        (&["--ca-file", &missing], "/nonexistent/ca.pem: "),
    ] {
        let output = audit("http://127.0.0.1:1", more);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(expected), "{more:?}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
    let output = audit("http://ops:pass@prometheus:9090", &[]);
    assert!(output.code == Some(2) && !output.stderr.contains("pass@"), "{output:?}");
    let output = lanewatch(&["audit"]);
    assert!(output.code == Some(2) && output.stderr.contains("--prometheus"), "{output:?}");
    let output = audit("http://127.0.0.1:1", &["--bearer-token-file", "/nonexistent/token"]);
    assert!(output.code == Some(2) && output.stderr.contains("/nonexistent/token"), "{output:?}");
}
