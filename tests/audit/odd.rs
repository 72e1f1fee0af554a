//! A server that answers every request in the same way, right or wrong.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How it answers.
#[derive(Clone)]
pub(crate) enum Manner {
    /// With a status line and a body.
    Status(&'static str, String),
    /// With fewer bytes than it promised.
    CutOff(String),
    /// With bytes that do not end.
    Endless,
    /// With an empty vector and so many blanks, each byte in a chunk of its own.
    Bytes(usize),
    /// Not at all.
    Silent,
    /// By hanging up.
    HangUp,
    /// That it did not understand, whatever the first bytes are.
    AtOnce,
    /// With the status until it was asked so often, then with an empty vector.
    BusyUntil(usize, &'static str),
}

/// A server on loopback; it ends with the test's process.
pub(crate) struct Odd {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

pub(crate) const EMPTY: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;

impl Odd {
    pub(crate) fn serve(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (manner, seen) = (manner.clone(), Arc::clone(&seen));
                // A client that goes away early is its own business.
                thread::spawn(move || stream.and_then(|stream| answer(stream, &manner, &seen)));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, heads and bodies.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, manner: &Manner, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let (mut request, mut buffer) = (String::new(), [0; 4096]);
    let at_once = matches!(manner, Manner::AtOnce);
    while !is_whole(&request) && (request.is_empty() || !at_once) {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => request.push_str(&String::from_utf8_lossy(&buffer[..length])),
        }
    }
    let before = {
        let mut seen = seen.lock().unwrap();
        seen.push(request);
        seen.len() - 1
    };
    let mut whole = |status: &str, body: &str| {
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    };
    match manner {
        Manner::Status(status, body) => whole(status, body),
        Manner::BusyUntil(times, status) if before < *times => whole(status, "busy"),
        Manner::BusyUntil(..) => whole("200 OK", EMPTY),
        Manner::CutOff(body) => {
            let length = body.len() + 10;
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
        }
        Manner::Endless => {
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{{\"status\":\"")?;
            let junk = vec![b'x'; 65536];
            loop {
                stream.write_all(&junk)?;
            }
        }
        Manner::Bytes(blanks) => {
            write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")?;
            let chunks = |bytes: &[u8]| -> Vec<u8> {
                bytes.iter().flat_map(|byte| [b'1', b'\r', b'\n', *byte, b'\r', b'\n']).collect()
            };
            let blank = chunks(&[b' '; 4096]);
            for _ in 0..blanks / 4096 {
                stream.write_all(&blank)?;
            }
            stream.write_all(&chunks(EMPTY.as_bytes()))?;
            stream.write_all(b"0\r\n\r\n")
        }
        Manner::Silent => {
            thread::sleep(Duration::from_secs(120));
            Ok(())
        }
        Manner::HangUp => Ok(()),
        Manner::AtOnce => whole("400 Bad Request", ""),
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}
