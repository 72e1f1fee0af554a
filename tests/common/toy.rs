//! A toy HTTP server: something to scrape before there is anything, and somewhere to push to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Answers every request with one text, until it is dropped.
pub struct Toy {
    /// Where it listens.
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Toy {
    /// A server on a port of its own, on loopback.
    pub fn serve(body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let received = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let (stopped, kept, body) = (Arc::clone(&stop), Arc::clone(&received), body.to_owned());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // A client that goes away early is its own business.
                if let Ok(request) = stream.and_then(|stream| answer(stream, &body)) {
                    let mut kept = kept.lock().unwrap();
                    if kept.len() < MOST {
                        kept.push(request);
                    }
                }
            }
        });
        Self { address, received, stop, thread: Some(thread) }
    }

    /// Bodies of the first requests that it answered.
    pub fn received(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        received.iter().map(|body| String::from_utf8_lossy(body).into_owned()).filter(|body| !body.is_empty()).collect()
    }
}

impl Drop for Toy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the loop that waits for a client.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How many requests are kept.
const MOST: usize = 1000;

/// Answers, and gives the body of the request.
fn answer(mut stream: TcpStream, body: &str) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !is_whole(&request) {
        match stream.read(&mut buffer)? {
            0 => return Ok(Vec::new()),
            length => request.extend(&buffer[..length]),
        }
    }
    let kind = "text/plain; version=0.0.4";
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let head = request.windows(4).position(|window| window == b"\r\n\r\n");
    Ok(head.map(|end| request.split_off(end + 4)).unwrap_or_default())
}

/// Whether the head has come, and as much of a body as it says.
fn is_whole(request: &[u8]) -> bool {
    let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")).and_then(|text| text.trim().parse().ok());
    request.len() >= end + 4 + length.unwrap_or(0)
}
