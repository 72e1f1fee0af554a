//! `tls_server_config`: certificate, versions, cipher suites, and what clients must show.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::ring::{cipher_suite as suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ProtocolVersion, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use x509_cert::der::Decode as _;

use super::client;
use super::file::{Secret, Tls, WebError, pem};

/// The TLS configuration of the server.
pub(super) struct TlsSetup {
    pub(super) config: Arc<ServerConfig>,
    pub(super) expires: Option<SystemTime>,
    pub(super) verifies_clients: bool,
}

/// Cipher suites by their names in the format, those of TLS 1.3 first.
const SUITES: [(&str, SupportedCipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

const VERSIONS: [(&str, &SupportedProtocolVersion); 2] = [("TLS12", &TLS12), ("TLS13", &TLS13)];

fn curve(name: &str) -> Option<&'static dyn SupportedKxGroup> {
    match name {
        "X25519" => Some(kx_group::X25519),
        "CurveP256" => Some(kx_group::SECP256R1),
        "CurveP384" => Some(kx_group::SECP384R1),
        _ => None,
    }
}

/// Builds it from the file; adds the files it was read from to `files`, and what the operator should know to
/// `remarks`.
pub(super) fn build(
    path: &Path,
    tls: &Tls,
    files: &mut Vec<PathBuf>,
    remarks: &mut Vec<String>,
) -> Result<TlsSetup, WebError> {
    let mut pem = |name: &str, inline: Option<&str>, file: Option<&Path>| {
        pem(path, name, inline.filter(|text| !text.is_empty()), file.filter(|f| !f.as_os_str().is_empty()), files)
    };
    let needed = |name: &str| {
        WebError::value(
            path,
            format!("tls_server_config.{name}_file"),
            "is missing; TLS needs a certificate and its key",
        )
    };
    let certificate = pem("cert", tls.cert.as_deref(), tls.cert_file.as_deref())?.ok_or_else(|| needed("cert"))?;
    let key =
        pem("key", tls.key.as_ref().map(Secret::expose), tls.key_file.as_deref())?.ok_or_else(|| needed("key"))?;
    let authorities = pem("client_ca", tls.client_ca.as_deref(), tls.client_ca_file.as_deref())?;
    if let Some(file) = &key.file
        && std::fs::metadata(file).is_ok_and(|meta| meta.permissions().mode() & 0o007 != 0)
    {
        remarks.push(format!("{}: everyone on this host can read or change the private key", file.display()));
    }
    let chain = certificate.certificates(path)?;
    let private = PrivateKeyDer::from_pem_slice(&key.bytes)
        .map_err(|_| key.wrong(path, "holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, not encrypted)"))?;
    let provider = Arc::new(provider(path, tls)?);
    let clients = client::verifier(path, tls, authorities.as_ref(), &provider)?;
    let expires = chain.first().and_then(expiry);
    if expires.is_some_and(|expires| expires < SystemTime::now()) {
        remarks.push(certificate.wrong(path, "the certificate has expired").to_string());
    }
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(path, tls)?)
        .map_err(|error| WebError::value(path, "tls_server_config", error.to_string()))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, private)
        .map_err(|error| key.wrong(path, &format!("does not go with the certificate: {error}")))?;
    config.ignore_client_order = tls.prefer_server_cipher_suites.unwrap_or(true);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let verifies_clients = client::are_verified(tls);
    Ok(TlsSetup { config: Arc::new(config), expires, verifies_clients })
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate.validity.not_after.to_system_time())
}

fn versions(path: &Path, tls: &Tls) -> Result<Vec<&'static SupportedProtocolVersion>, WebError> {
    let version = |key: &str, written: Option<&str>, default: ProtocolVersion| match written {
        None | Some("") => Ok(default),
        Some(text) => {
            VERSIONS.iter().find(|(name, _)| *name == text).map(|(_, found)| found.version).ok_or_else(|| {
                WebError::value(path, format!("tls_server_config.{key}"), format!("{text:?} can be TLS12 or TLS13"))
            })
        }
    };
    let least = version("min_version", tls.min_version.as_deref(), ProtocolVersion::TLSv1_2)?;
    let most = version("max_version", tls.max_version.as_deref(), ProtocolVersion::TLSv1_3)?;
    let range = u16::from(least)..=u16::from(most);
    let versions: Vec<_> =
        VERSIONS.iter().map(|(_, found)| *found).filter(|found| range.contains(&u16::from(found.version))).collect();
    if versions.is_empty() {
        return Err(WebError::value(path, "tls_server_config.max_version", "is below min_version"));
    }
    Ok(versions)
}

/// Suites and curves. As in Go a list of suites is about TLS 1.2; those of 1.3 are restricted only by naming some.
fn provider(path: &Path, tls: &Tls) -> Result<CryptoProvider, WebError> {
    let mut provider = default_provider();
    let wanted = tls.cipher_suites.as_deref().unwrap_or_default();
    if !wanted.is_empty() {
        let mut suites = Vec::new();
        for name in wanted {
            let Some((_, suite)) = SUITES.iter().find(|(known, _)| known == name) else {
                let message = format!("{name:?} is none of {}", SUITES.map(|(known, _)| known).join(", "));
                return Err(WebError::value(path, "tls_server_config.cipher_suites", message));
            };
            suites.push(*suite);
        }
        let is_13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
        if !suites.iter().any(is_13) {
            suites.extend(provider.cipher_suites.iter().copied().filter(is_13));
        }
        if !suites.iter().any(|suite| !is_13(suite)) {
            suites.extend(provider.cipher_suites.iter().copied().filter(|suite| !is_13(suite)));
        }
        provider.cipher_suites = suites;
    }
    let curves = tls.curve_preferences.as_deref().unwrap_or_default();
    if !curves.is_empty() {
        let known = |name: &String| {
            curve(name).ok_or_else(|| {
                let message = format!("{name:?} is none of X25519, CurveP256, CurveP384");
                WebError::value(path, "tls_server_config.curve_preferences", message)
            })
        };
        provider.kx_groups = curves.iter().map(known).collect::<Result<_, _>>()?;
    }
    Ok(provider)
}
