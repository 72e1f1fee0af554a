//! The HTTP front over real sockets, plain and encrypted: any bytes are answered or refused, and the next client is served.

#![no_main]

use std::fs;
use std::future::{Future, pending, ready};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lanewatch::export::AgentState;
use lanewatch::export::http::{App, HttpOptions, ReportSource, serve};
use lanewatch::export::web::Web;
use lanewatch::watch::HostReport;
use libfuzzer_sys::fuzz_target;
use tokio::net::TcpListener;

/// A host before its first pass.
struct Nothing;

impl ReportSource for Nothing {
    fn report(&self, _: Duration, _: Duration) -> Pin<Box<dyn Future<Output = Option<Arc<HostReport>>> + Send + '_>> {
        Box::pin(ready(None))
    }

    fn latest(&self) -> Option<Arc<HostReport>> {
        None
    }
}

/// With TLS and a password.
fn configuration() -> Web {
    let folder = tempfile::tempdir().expect("a directory");
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(folder.path().join("a.crt"), certificate.pem()).expect("a file");
    fs::write(folder.path().join("a.key"), key.serialize_pem()).expect("a file");
    let path = folder.path().join("web.yml");
    fs::write(&path, "tls_server_config: {cert_file: a.crt, key_file: a.key}\n").expect("a file");
    Web::load(&path).expect("a configuration")
}

/// Where the plain server and the encrypted one listen.
fn servers() -> [SocketAddr; 2] {
    static SERVERS: OnceLock<[SocketAddr; 2]> = OnceLock::new();
    *SERVERS.get_or_init(|| {
        [false, true].map(|encrypted| {
            let (sender, address) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                    let app = Arc::new(App::new(Arc::new(Nothing), HttpOptions::default(), AgentState::default()));
                    if encrypted {
                        app.set_web(configuration());
                    }
                    sender.send(listener.local_addr().expect("an address")).expect("a receiver");
                    serve(vec![listener], app, pending()).await;
                });
            });
            address.recv().expect("an address")
        })
    })
}

fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    // It may be refused before all of it is written.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fuzz_target!(|bytes: &[u8]| {
    for address in servers() {
        exchange(address, bytes);
    }
    let [plain, _] = servers();
    let answer = exchange(plain, b"GET /-/healthy HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "the next client is served");
});
