//! The web configuration: TLS, client certificates, users, headers and a rate limit, in the format of Prometheus'
//! exporters.

mod access;
mod client;
mod file;
mod rate_limit;
mod tls;
mod users;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{HeaderName, HeaderValue};
use rustls::ServerConfig;

use access::Access;
pub use client::TlsRejection;
pub use file::{SourceFiles, WebError};
pub use rate_limit::TokenBucket;
pub(super) use rate_limit::{AttemptLimits, origin};
pub use users::{AuthOutcome, Users};

/// A web configuration in force.
#[derive(Default)]
pub struct Web {
    /// How connections are encrypted; `None` if they are not.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether a certificate that a client shows is verified.
    pub verifies_clients: bool,
    /// When the server's certificate expires.
    pub certificate_expires: Option<SystemTime>,
    /// The users who may ask; `None` if everyone may.
    pub users: Option<Users>,
    /// Headers that every response gets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The rate limit of requests.
    pub rate: Option<TokenBucket>,
    /// The files it was made from.
    pub files: SourceFiles,
    /// What works but the operator should know, one sentence each.
    pub remarks: Vec<String>,
    access: Access,
}

impl Web {
    /// Reads a file and what it names.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key, a value that is not allowed, a key that is not the certificate's.
    pub fn load(path: &Path) -> Result<Self, WebError> {
        let mut files = SourceFiles::default();
        files.add(path);
        let file = file::read(path)?;
        let mut remarks = Vec::new();
        let tls = file.tls_server_config.as_ref().filter(|tls| !tls.is_empty());
        let tls = tls.map(|tls| tls::build(path, tls, &mut files, &mut remarks)).transpose()?;
        let http = file.http_server_config.unwrap_or_default();
        if http.http2 == Some(true) {
            remarks.push("http_server_config.http2: connections use HTTP/1.1; HTTP/2 is not supported".to_owned());
        }
        let hashes = file.basic_auth_users.unwrap_or_default();
        if tls.is_none() && !hashes.is_empty() {
            remarks.push(
                "basic_auth_users without tls_server_config: passwords cross the network in clear text".to_owned(),
            );
        }
        let access = Access { tls: tls.as_ref().map(|tls| tls.access.clone()), passwords: !hashes.is_empty() };
        let web = Self {
            users: (!hashes.is_empty()).then(|| Users::new(path, hashes, &mut remarks)).transpose()?,
            headers: headers(path, http.headers.unwrap_or_default())?,
            rate: file.rate_limit.map(|rate| rate_limit::parse(path, &rate, &mut remarks)).transpose()?.flatten(),
            verifies_clients: tls.as_ref().is_some_and(|tls| tls.verifies_clients),
            certificate_expires: tls.as_ref().and_then(|tls| tls.expires),
            tls: tls.map(|tls| tls.config),
            files,
            remarks,
            access,
        };
        if web.files.are_current() { Ok(web) } else { Err(WebError::Changing(path.to_owned())) }
    }

    /// Checks the text of a file without opening what it names.
    ///
    /// # Errors
    /// The file cannot be read, an unknown key, a value that is not allowed.
    pub fn check_text(path: &Path) -> Result<(), WebError> {
        let file = file::read(path)?;
        let http = file.http_server_config.unwrap_or_default();
        let hashes = file.basic_auth_users.unwrap_or_default();
        headers(path, http.headers.unwrap_or_default())?;
        file.rate_limit.map(|rate| rate_limit::parse(path, &rate, &mut Vec::new())).transpose()?;
        if !hashes.is_empty() {
            Users::new(path, hashes, &mut Vec::new())?;
        }
        Ok(())
    }

    /// Knows the users that `before` knew.
    pub fn inherit(&mut self, before: &Self) {
        if let (Some(users), Some(before)) = (&mut self.users, &before.users) {
            users.inherit(before);
        }
    }

    /// Checks that this configuration asks for no less than `before`. A file that is half written, or was emptied,
    /// must not open what was closed.
    ///
    /// # Errors
    /// Someone would get in who did not before.
    pub fn no_weaker_than(&self, before: &Self, path: &Path) -> Result<(), WebError> {
        let message = "asks clients for less than before: restart the agent, or run it with --web.allow-weaker-reload";
        self.access.weaker_than(&before.access).map_or(Ok(()), |key| Err(WebError::value(path, key, message)))
    }

    /// Whether clients that `before` let in may not get in any more.
    pub fn is_stricter_than(&self, before: &Self) -> bool {
        before.access.weaker_than(&self.access).is_some()
    }

    /// Whether everyone who gets an answer has shown who they are: by a password, or by a certificate that was verified.
    pub fn authenticates_everyone(&self) -> bool {
        self.access.passwords || self.access.tls.as_ref().is_some_and(|tls| tls.mandatory && tls.authorities.is_some())
    }
}

/// The headers that may be set, and their allowed values; an empty list allows any.
const ALLOWED: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

/// The headers that are set; an empty value sets none.
fn headers(path: &Path, written: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, WebError> {
    let mut headers = Vec::new();
    for (name, value) in written.into_iter().filter(|(_, value)| !value.is_empty()) {
        let key = format!("http_server_config.headers.{name}");
        let Some((known, values)) = ALLOWED.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)) else {
            let names = ALLOWED.map(|(known, _)| known).join(", ");
            return Err(WebError::value(path, key, format!("this header cannot be set; allowed are {names}")));
        };
        if !values.is_empty() && !values.iter().any(|allowed| allowed.eq_ignore_ascii_case(&value)) {
            let message = format!("{value:?} is not allowed; use {}", values.join(" or "));
            return Err(WebError::value(path, key, message));
        }
        match (HeaderName::try_from(*known), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => headers.push((name, value)),
            _ => return Err(WebError::value(path, key, "not a valid header value")),
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::IpAddr;
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    /// `open sesame` at the least cost.
    fn hash() -> String {
        bcrypt::hash("open sesame", 4).unwrap()
    }

    struct Folder(TempDir);

    impl Folder {
        /// A folder with a certificate and its key, and the key of another.
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            for name in ["one", "two"] {
                let key = rcgen::KeyPair::generate().unwrap();
                let certificate =
                    rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
                fs::write(directory.path().join(format!("{name}.crt")), certificate.pem()).unwrap();
                fs::write(directory.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
            }
            Self(directory)
        }

        fn load(&self, text: &str) -> Result<Web, String> {
            let path = self.0.path().join("web.yml");
            fs::write(&path, text).unwrap();
            Web::load(&path).map_err(|error| error.to_string())
        }

        /// Why a configuration is refused, without the folder's name.
        fn refusal(&self, text: &str) -> String {
            match self.load(text) {
                Ok(_) => panic!("accepted: {text}"),
                Err(error) => error.replace(&format!("{}/", self.0.path().display()), ""),
            }
        }
    }

    #[test]
    fn nothing_is_asked_for_by_nothing() {
        let folder = Folder::new();
        for text in ["", "# nothing\n", "---\n", "tls_server_config:\n", "basic_auth_users: {}\n", "rate_limit:\n"] {
            let web = folder.load(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert!(
                web.tls.is_none() && web.users.is_none() && web.rate.is_none() && web.headers.is_empty(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn the_whole_format_is_understood() {
        let folder = Folder::new();
        let text = format!(
            "tls_server_config:\n  cert_file: one.crt\n  key_file: one.key\n  client_auth_type: RequireAndVerifyClientCert\n  \
         client_ca_file: two.crt\n  client_allowed_sans: [prometheus.example.org, 192.0.2.1]\n  min_version: TLS12\n  \
         max_version: TLS13\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n  \
         prefer_server_cipher_suites: false\n  curve_preferences: [CurveP256, X25519]\nhttp_server_config:\n  http2: true\n  \
         headers:\n    Strict-Transport-Security: max-age=63072000\n    X-Frame-Options: deny\n    \
         X-Content-Type-Options: nosniff\n    X-XSS-Protection: '0'\n    Content-Security-Policy: ''\n\
         basic_auth_users:\n  alice: {}\nrate_limit:\n  interval: 500ms\n  burst: 20\n",
            hash()
        );
        let web = folder.load(&text).unwrap();
        let tls = web.tls.unwrap();
        assert!(!tls.ignore_client_order);
        let suites: Vec<_> =
            tls.crypto_provider().cipher_suites.iter().map(rustls::SupportedCipherSuite::suite).collect();
        assert_eq!(suites.len(), 4, "one of TLS 1.2 and all three of 1.3: {suites:?}");
        assert_eq!(tls.crypto_provider().kx_groups.len(), 2);
        assert_eq!(web.headers.len(), 4);
        assert_eq!(web.files.paths().len(), 4);
        assert!(web.users.is_some() && web.rate.is_some() && web.certificate_expires.is_some());
        assert!(web.remarks.iter().any(|remark| remark.contains("HTTP/2 is not supported")), "{:?}", web.remarks);
    }

    #[test]
    fn certificates_may_stand_in_the_file_itself() {
        let folder = Folder::new();
        let indented = |name: &str| fs::read_to_string(folder.0.path().join(name)).unwrap().replace('\n', "\n    ");
        let text = format!(
            "tls_server_config:\n  cert: |\n    {}\n  key: |\n    {}\n",
            indented("one.crt"),
            indented("one.key")
        );
        assert!(folder.load(&text).unwrap().tls.is_some());
    }

    #[test]
    fn what_is_wrong_is_said_with_file_key_and_what_is_allowed() {
        let folder = Folder::new();
        let tls = "tls_server_config:\n  cert_file: one.crt\n  key_file: one.key\n  ";
        let table: [(String, &[&str]); 24] = [
            (
                "tls_server_confg: {}".into(),
                &["web.yml:1:1: ", "tls_server_confg", "tls_server_config", "basic_auth_users"],
            ),
            (format!("{tls}cert_fil: x"), &["web.yml:4:3: ", "cert_fil", "cert_file", "client_auth_type"]),
            (format!("{tls}client_auth_type: Always"), &["client_auth_type: \"Always\"", "RequireAndVerifyClientCert"]),
            (format!("{tls}client_ca_file: two.crt"), &["client_ca_file: is set, but client_auth_type"]),
            (format!("{tls}client_allowed_sans: [a]"), &["client_allowed_sans: is set"]),
            (format!("{tls}min_version: TLS9"), &["min_version: \"TLS9\" is not TLS12 or TLS13"]),
            (format!("{tls}min_version: TLS13\n  max_version: TLS12"), &["max_version: is below min_version"]),
            (
                format!("{tls}cipher_suites: [TLS_INVENTED_WITH_AES_128]"),
                &["cipher_suites: ", "is not one of TLS_AES_256"],
            ),
            (format!("{tls}curve_preferences: [CurveP521]"), &["curve_preferences: ", "X25519, CurveP256, CurveP384"]),
            ("tls_server_config:\n  cert_file: one.crt".into(), &["web.yml: tls_server_config.key_file: is missing"]),
            ("tls_server_config:\n  key_file: one.key".into(), &["web.yml: tls_server_config.cert_file: is missing"]),
            (
                "tls_server_config:\n  cert_file: one.crt\n  key_file: two.key".into(),
                &["tls_server_config.key_file: two.key does not match the certificate"],
            ),
            (
                "tls_server_config:\n  cert_file: one.key\n  key_file: one.key".into(),
                &["tls_server_config.cert_file: one.key holds no certificate"],
            ),
            (
                "tls_server_config:\n  cert_file: one.crt\n  key_file: one.crt".into(),
                &["tls_server_config.key_file: one.crt holds no private key"],
            ),
            (
                "tls_server_config:\n  cert_file: none.crt\n  key_file: one.key".into(),
                &["tls_server_config.cert_file: none.crt: No such file"],
            ),
            (
                "http_server_config:\n  headers:\n    X-Mine: a".into(),
                &["headers.X-Mine: ", "Strict-Transport-Security"],
            ),
            (
                "http_server_config:\n  headers:\n    X-Frame-Options: ok".into(),
                &["X-Frame-Options", "deny or sameorigin"],
            ),
            ("basic_auth_users:\n  alice: open-sesame".into(), &["basic_auth_users.alice: is not a bcrypt hash"]),
            ("rate_limit:\n  interval: soon\n  burst: 1".into(), &["rate_limit.interval: \"soon\"", "500ms"]),
            ("rate_limit:\n  interval: 200y\n  burst: 1".into(), &["rate_limit.interval: \"200y\"", "100 years"]),
            ("rate_limit:\n  interval: 1y\n  burst: 4294967295".into(), &["rate_limit.burst: ", "100 years"]),
            (
                "http_server_config:\n  http2: perhaps".into(),
                &["web.yml:2:10: http_server_config.http2: is not true or false"],
            ),
            ("basic_auth_users: [a]".into(), &["web.yml:1:19: basic_auth_users: is not a mapping"]),
            ("rate_limit: {burst: -1}".into(), &["web.yml:1:21: rate_limit.burst: is not a whole number from 0"]),
        ];
        for (text, parts) in table {
            let error = folder.refusal(&text);
            for part in parts {
                assert!(error.contains(part), "{part:?} is not in {error:?} of\n{text}");
            }
            assert!(!error.contains('\n') && error.starts_with("web.yml"), "{error}");
        }
    }

    /// Each kind of file that other exporters take, and what of it is remarked on here.
    #[test]
    fn what_other_exporters_take_is_taken() {
        let folder = Folder::new();
        let roots = folder.0.path().join("two.crt");
        let of_system = rustls_native_certs::load_native_certs().certs.is_empty();
        let tls = "tls_server_config:\n  cert_file: one.crt\n  key_file: one.key\n  ";
        let verify = format!("{tls}client_auth_type: VerifyClientCertIfGiven\n  ");
        let given = format!("{verify}client_ca_file: {}\n  ", roots.display());
        let suites = "cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256, \
             TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA]";
        let hash = |cost: u32| format!("$2y${cost:02}{}", &hash()[6..]);
        let table: [(String, Option<&str>); 22] = [
            (verify.clone(), Some("every CA that this system trusts")),
            (format!("{tls}client_auth_type: RequireAndVerifyClientCert"), Some("every CA that this system trusts")),
            (format!("{tls}client_auth_type: RequireAnyClientCert"), None),
            (format!("{tls}client_auth_type: RequireClientCert"), None),
            (format!("{tls}client_auth_type: RequestClientCert"), None),
            (format!("{tls}client_auth_type: RequestClientCert\n  client_allowed_sans: [one]"), None),
            (format!("{given}client_allowed_sans: [one, two]"), None),
            (format!("{given}client_allowed_sans: []"), None),
            (format!("{given}{suites}"), Some("ignored: TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, TLS_ECDHE_ECDSA")),
            (format!("{given}cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]"), Some("ignored: TLS_RSA")),
            (
                format!("{given}curve_preferences: [CurveP256, CurveP384, CurveP521, X25519]"),
                Some("ignored: CurveP521"),
            ),
            (format!("{given}min_version: TLS10"), Some("TLS12 is the oldest")),
            (format!("{given}min_version: TLS11\n  max_version: TLS12"), Some("TLS12 is the oldest")),
            (format!("{given}prefer_server_cipher_suites: false\n  min_version: TLS12\n  max_version: TLS12"), None),
            (format!("{tls}cert: x"), Some("cert_file is used instead")),
            (format!("{tls}\nhttp_server_config: {{http2: false}}"), None),
            (
                "http_server_config:\n  headers:\n    X-XSS-Protection: 1\n    X-Frame-Options: deny\n    \
                 Content-Security-Policy: \"default-src 'self' *.example.net\""
                    .into(),
                None,
            ),
            (
                format!("basic_auth_users:\n  a: {}\n  b: {}\n  c: {}", hash(10), hash(12), hash(18)),
                Some("basic_auth_users.c: has cost 18"),
            ),
            ("rate_limit:\n  interval: 0\n  burst: 0".into(), None),
            ("rate_limit:\n  interval: \"1s\"\n  burst: 0".into(), Some("every request is answered with 429")),
            ("rate_limit: {interval: 1.5s, burst: 3}".into(), None),
            (String::new(), None),
        ];
        for (text, remark) in table {
            if of_system && remark.is_some_and(|remark| remark.contains("this system")) {
                // Without authorities in the system nobody could get in.
                assert!(folder.refusal(&text).contains("client_ca_file"), "{text}");
                continue;
            }
            let web = folder.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let remarks: Vec<_> = web.remarks.iter().filter(|remark| !remark.contains("private key")).collect();
            match remark {
                Some(remark) => assert!(remarks.iter().any(|one| one.contains(remark)), "{remark}: {remarks:?}"),
                None => assert!(
                    remarks.iter().all(|one| one.contains("clear text") || one.contains("HTTP/2")),
                    "{text}: {remarks:?}"
                ),
            }
        }
    }

    #[test]
    fn what_is_left_out_weakens_nothing() {
        let folder = Folder::new();
        let tls = "tls_server_config:\n  cert_file: one.crt\n  key_file: one.key\n  ";
        let suites = |text: &str| {
            let web = folder.load(&format!("{tls}{text}")).unwrap();
            let provider = web.tls.as_ref().unwrap().crypto_provider().clone();
            let old = provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count();
            (old, provider.cipher_suites.len() - old)
        };
        assert_eq!(
            suites("cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]"),
            (0, 3),
            "nothing of TLS 1.2 that was not named"
        );
        assert_eq!(suites("cipher_suites: [TLS_AES_128_GCM_SHA256]"), (0, 1));
        // Nothing remains.
        for text in [
            "max_version: TLS12\n  cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]",
            "curve_preferences: [CurveP521]",
            "max_version: TLS11",
        ] {
            folder.refusal(&format!("{tls}{text}"));
        }
        // No name is allowed, which is not the same as any.
        let nobody =
            folder.load(&format!("{tls}client_auth_type: RequestClientCert\n  client_allowed_sans: []")).unwrap();
        let anyone = folder.load(&format!("{tls}client_auth_type: RequestClientCert")).unwrap();
        assert!(anyone.no_weaker_than(&nobody, Path::new("web.yml")).is_err());
    }

    #[test]
    fn no_secret_is_in_a_complaint() {
        let folder = Folder::new();
        for text in [
            "basic_auth_users: hunter2-is-secret",
            "basic_auth_users: [hunter2-is-secret]",
            "basic_auth_users:\n  alice: hunter2-is-secret",
            "basic_auth_users:\n  alice: [hunter2-is-secret]",
            "basic_auth_users:\n  alice: {hunter2-is-secret: 1}",
            "basic_auth_users:\n  alice: \"hunter2-is-secret",
            "tls_server_config:\n  cert: x\n  key: hunter2-is-secret",
            "tls_server_config: hunter2-is-secret",
        ] {
            let error = folder.refusal(text);
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_file_that_opens_what_was_closed_is_refused() {
        let folder = Folder::new();
        let tls = "tls_server_config:\n  cert_file: one.crt\n  key_file: one.key\n";
        let users = format!("basic_auth_users:\n  alice: {}\n", hash());
        let closed = folder.load(&format!("{tls}{users}")).unwrap();
        let table =
            [("", Some("tls_server_config")), (tls, Some("basic_auth_users")), (&users, Some("tls_server_config"))];
        for (text, gone) in table {
            let after = folder.load(text).unwrap();
            let error = after.no_weaker_than(&closed, Path::new("web.yml")).unwrap_err().to_string();
            assert!(error.contains(gone.unwrap()) && error.contains("restart"), "{error}");
        }
        let open = folder.load("").unwrap();
        assert!(closed.no_weaker_than(&open, Path::new("web.yml")).is_ok());
    }

    #[test]
    fn a_key_that_everyone_can_read_is_remarked_on() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new();
        let key = folder.0.path().join("one.key");
        for (mode, remarked) in [(0o600, false), (0o640, false), (0o644, true)] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let web = folder.load("tls_server_config:\n  cert_file: one.crt\n  key_file: one.key\n").unwrap();
            assert_eq!(web.remarks.iter().any(|remark| remark.contains("private key")), remarked, "{mode:o}");
        }
    }

    fn users(names: &[&str]) -> Users {
        let folder = Folder::new();
        let list: Vec<String> = names.iter().map(|name| format!("  {name}: {}\n", hash())).collect();
        folder.load(&format!("basic_auth_users:\n{}", list.concat())).unwrap().users.unwrap()
    }

    fn basic(text: &str) -> HeaderValue {
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(text))).unwrap()
    }

    async fn authenticate(users: &Users, peer: u8, text: &str) -> AuthOutcome {
        users.authenticate(Some(IpAddr::from([192, 0, 2, peer])), Some(&basic(text))).await
    }

    #[tokio::test]
    async fn right_ones_may_and_all_others_may_not() {
        let users = users(&["alice", "bob"]);
        for _ in 0..3 {
            assert_eq!(authenticate(&users, 1, "alice:open sesame").await, AuthOutcome::Accepted);
            assert_eq!(authenticate(&users, 1, "bob:open sesame").await, AuthOutcome::Accepted);
        }
        for text in
            ["alice:Open sesame", "alice:", "alice", "", ":open sesame", "carol:open sesame", "Alice:open sesame"]
        {
            assert_eq!(authenticate(&users, 2, text).await, AuthOutcome::Rejected, "{text}");
        }
        assert_eq!(users.authenticate(None, None).await, AuthOutcome::Rejected);
        for header in ["", "Basic", "Basic ", "Basic !!!", "Bearer YWxpY2U6b3BlbiBzZXNhbWU=", "Basic /////w=="] {
            let header = HeaderValue::from_str(header).unwrap();
            assert_eq!(users.authenticate(None, Some(&header)).await, AuthOutcome::Rejected, "{header:?}");
        }
        let lower = HeaderValue::try_from(format!("basic {}", STANDARD.encode("alice:open sesame"))).unwrap();
        assert_eq!(users.authenticate(None, Some(&lower)).await, AuthOutcome::Accepted);
    }

    #[tokio::test]
    async fn attempts_run_out_and_known_passwords_do_not_care() {
        let users = users(&["alice"]);
        assert_eq!(authenticate(&users, 1, "alice:open sesame").await, AuthOutcome::Accepted);
        let mut verdicts = Vec::new();
        for n in 0..40 {
            verdicts.push(authenticate(&users, 1, &format!("alice:{n}")).await);
        }
        assert_eq!(verdicts.first(), Some(&AuthOutcome::Rejected));
        assert!(
            verdicts.iter().filter(|verdict| **verdict == AuthOutcome::TooManyAttempts).count() >= 20,
            "{verdicts:?}"
        );
        // The known one, and one known to be wrong, cost no attempt.
        assert_eq!(authenticate(&users, 1, "alice:open sesame").await, AuthOutcome::Accepted);
        assert_eq!(authenticate(&users, 1, "alice:0").await, AuthOutcome::Rejected);
        // Nor has somebody else lost any.
        assert_eq!(authenticate(&users, 2, "alice:something").await, AuthOutcome::Rejected);
    }

    #[tokio::test]
    async fn an_address_has_one_limit_whatever_names_it_tries() {
        let users = users(&["alice"]);
        let mut tried = 0;
        for n in 0..64 {
            tried += usize::from(authenticate(&users, 1, &format!("user{n}:x")).await == AuthOutcome::Rejected);
        }
        assert!(tried <= 12, "{tried} of 64 names were tried");
    }

    #[tokio::test]
    async fn who_logged_in_need_not_after_a_reload_unless_the_hash_changed() {
        let folder = Folder::new();
        let (alice, bob) = (hash(), hash());
        let text = |bob: &str| format!("basic_auth_users:\n  alice: {alice}\n  bob: {bob}\n");
        let before = folder.load(&text(&bob)).unwrap();
        let users = before.users.as_ref().unwrap();
        for name in ["alice", "bob"] {
            let verdict = authenticate(users, 1, &format!("{name}:open sesame")).await;
            assert_eq!(verdict, AuthOutcome::Accepted);
        }
        let mut after = folder.load(&text(&bcrypt::hash("another", 4).unwrap())).unwrap();
        after.inherit(&before);
        let users = after.users.as_ref().unwrap();
        // Someone uses up every attempt of the address.
        for n in 0..40 {
            authenticate(users, 1, &format!("alice:{n}")).await;
        }
        assert_eq!(authenticate(users, 1, "alice:open sesame").await, AuthOutcome::Accepted);
        assert_ne!(authenticate(users, 2, "bob:open sesame").await, AuthOutcome::Accepted);
        assert_eq!(authenticate(users, 2, "bob:another").await, AuthOutcome::Accepted);
    }

    #[tokio::test]
    async fn whoever_fails_keeps_nobody_else_waiting() {
        let folder = Folder::new();
        let costly = bcrypt::hash("open sesame", 9).unwrap();
        let web = folder.load(&format!("basic_auth_users:\n  alice: {costly}\n")).unwrap();
        let users = Arc::new(web.users.unwrap());
        let crowd: Vec<_> = (0..10)
            .map(|n| {
                let users = Arc::clone(&users);
                tokio::spawn(async move { authenticate(&users, 1, &format!("alice:{n}")).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(authenticate(&users, 2, "alice:open sesame").await, AuthOutcome::Accepted);
        // At most the first of theirs is ahead of the right one: all others wait in a lane of their own.
        let done = crowd.iter().filter(|one| one.is_finished()).count();
        assert!(done <= 5, "{done} of 10 wrong ones came first");
        for one in crowd {
            one.await.unwrap();
        }
    }

    #[tokio::test]
    async fn those_who_come_at_once_share_one_trial() {
        let users = Arc::new(users(&["alice"]));
        let all: Vec<_> = (0..12)
            .map(|_| {
                let users = Arc::clone(&users);
                tokio::spawn(async move { authenticate(&users, 1, "alice:open sesame").await })
            })
            .collect();
        let mut right = 0;
        for one in all {
            right += usize::from(one.await.unwrap() == AuthOutcome::Accepted);
        }
        assert!(right >= 10, "{right}");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "\\PC{0,200}") {
            let _ = file::parse(Path::new("web.yml"), &text);
        }

        #[test]
        fn no_yaml_like_text_breaks_the_parser(text in "[a-z_:\\-\\[\\]{}&*!|>\"' \n]{0,200}") {
            let _ = file::parse(Path::new("web.yml"), &text);
        }
    }
}
