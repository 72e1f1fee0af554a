//! The smallest HTTP client that tests need: one request a connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, without chunks.
    pub body: Vec<u8>,
}

impl Response {
    /// A header; the name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// GET without headers of its own.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    request(address, "GET", path, &[])
}

/// A request with these headers, and no body.
pub fn request(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> io::Result<Response> {
    exchange(address, method, path, headers, "")
}

/// POST of a JSON document.
pub fn post(address: SocketAddr, path: &str, document: &str) -> io::Result<Response> {
    let length = document.len().to_string();
    let headers = [("Content-Type", "application/json"), ("Content-Length", &length)];
    exchange(address, "POST", path, &headers, document)
}

/// A request with these headers and this body.
pub fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    head.push_str(body);
    stream.write_all(head.as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    // Not every server closes a connection because it is asked to.
    while !is_whole(&answer) {
        match stream.read(&mut buffer)? {
            0 => break,
            length => answer.extend(&buffer[..length]),
        }
    }
    parse(&answer, method == "HEAD").ok_or_else(|| io::Error::other("not an HTTP answer"))
}

/// Whether the head has come, and as much of a body as it says.
fn is_whole(answer: &[u8]) -> bool {
    parse(answer, false).is_some_and(|answer| answer.header("content-length").is_some())
}

fn parse(answer: &[u8], head_only: bool) -> Option<Response> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body = &answer[end + 4..];
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let length = headers.iter().find(|(name, _)| name == "content-length").map(|(_, value)| value.parse::<usize>());
    let body = match length {
        _ if head_only => Vec::new(),
        _ if chunked => unchunk(body)?,
        // An answer that was cut off is no answer.
        Some(length) if length != Ok(body.len()) => return None,
        _ => body.to_vec(),
    };
    Some(Response { status, headers, body })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend(rest.get(line + 2..line + 2 + size)?);
        rest = rest.get(line + 4 + size..)?;
    }
}
