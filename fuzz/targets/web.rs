//! The web configuration: whatever it becomes, it never asks for less than the one in force without being refused.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use lanewatch::export::web::Web;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const STRICT: &str = "tls_server_config:\n  cert_file: a.crt\n  key_file: a.key\n  \
    client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n  client_allowed_sans: [one]\n  \
    min_version: TLS13\n";

fn folder() -> &'static (TempDir, Web) {
    static FOLDER: OnceLock<(TempDir, Web)> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
        for name in ["a", "ca"] {
            let key = rcgen::KeyPair::generate().expect("a key");
            let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a certificate");
            let certificate = params.self_signed(&key).expect("a certificate");
            fs::write(folder.path().join(format!("{name}.crt")), certificate.pem()).expect("a file");
            fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).expect("a file");
        }
        let path = folder.path().join("strict.yml");
        fs::write(&path, STRICT).expect("a file");
        let strict = Web::load(&path).expect("a strict configuration");
        (folder, strict)
    })
}

fuzz_target!(|text: &str| {
    let (folder, strict) = folder();
    let path: PathBuf = folder.path().join("web.yml");
    // Nothing but what is here is opened.
    if text.contains("..") || text.contains(": /") || fs::write(&path, text).is_err() {
        return;
    }
    if let Ok(web) = Web::load(&path)
        && web.no_weaker_than(strict, &path).is_ok()
    {
        assert!(web.tls.is_some() && web.authenticates_everyone() && !strict.is_stricter_than(&web));
    }
});
