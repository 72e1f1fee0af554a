//! `tls_server_config`: certificate, versions, cipher suites, and what clients must show.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::ring::{cipher_suite as suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ProtocolVersion, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use x509_cert::der::Decode as _;

use super::access::TlsAccess;
use super::client;
use super::file::{Secret, SourceFiles, Tls, WebError, pem};

/// The TLS configuration of the server.
pub(super) struct TlsSetup {
    pub(super) config: Arc<ServerConfig>,
    pub(super) expires: Option<SystemTime>,
    pub(super) verifies_clients: bool,
    pub(super) access: TlsAccess,
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
    files: &mut SourceFiles,
    remarks: &mut Vec<String>,
) -> Result<TlsSetup, WebError> {
    for (name, both) in [
        ("cert", tls.cert.is_some() && tls.cert_file.is_some()),
        ("key", tls.key.is_some() && tls.key_file.is_some()),
        ("client_ca", tls.client_ca.is_some() && tls.client_ca_file.is_some()),
    ] {
        if both {
            remarks.push(format!("{}: tls_server_config.{name}: {name}_file is used instead", path.display()));
        }
    }
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
    let versions = versions(path, tls, remarks)?;
    let provider = Arc::new(provider(path, tls, &versions, remarks)?);
    let clients = client::verifier(path, tls, authorities.as_ref(), &provider, remarks)?;
    let oldest_version = versions.iter().map(|version| u16::from(version.version)).min().unwrap_or_default();
    let access = TlsAccess { oldest_version, ..clients.access };
    let expires = chain.first().and_then(expiry);
    if expires.is_some_and(|expires| expires < SystemTime::now()) {
        remarks.push(certificate.wrong(path, "the certificate has expired").to_string());
    }
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| WebError::value(path, "tls_server_config", error.to_string()))?
        .with_client_cert_verifier(clients.verifier)
        .with_single_cert(chain, private)
        .map_err(|error| key.wrong(path, &format!("does not match the certificate: {error}")))?;
    config.ignore_client_order = tls.prefer_server_cipher_suites.unwrap_or(true);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsSetup { config: Arc::new(config), expires, verifies_clients: access.authorities.is_some(), access })
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate.validity.not_after.to_system_time())
}

/// Versions that the format knows and that are not offered.
const OLD_VERSIONS: [&str; 2] = ["TLS10", "TLS11"];

fn versions(
    path: &Path,
    tls: &Tls,
    remarks: &mut Vec<String>,
) -> Result<Vec<&'static SupportedProtocolVersion>, WebError> {
    let version = |key: &str, text: &str| {
        VERSIONS.iter().find(|(name, _)| *name == text).map(|(_, found)| found.version).ok_or_else(|| {
            WebError::value(path, format!("tls_server_config.{key}"), format!("{text:?} is not TLS12 or TLS13"))
        })
    };
    let least = match tls.min_version.as_deref() {
        None | Some("") => ProtocolVersion::TLSv1_2,
        Some(old) if OLD_VERSIONS.contains(&old) => {
            remarks.push(format!(
                "{}: tls_server_config.min_version: TLS12 is the oldest version supported",
                path.display()
            ));
            ProtocolVersion::TLSv1_2
        }
        Some(text) => version("min_version", text)?,
    };
    let most = match tls.max_version.as_deref() {
        None | Some("") => ProtocolVersion::TLSv1_3,
        Some(text) => version("max_version", text)?,
    };
    let range = u16::from(least)..=u16::from(most);
    let versions: Vec<_> =
        VERSIONS.iter().map(|(_, found)| *found).filter(|found| range.contains(&u16::from(found.version))).collect();
    if versions.is_empty() {
        return Err(WebError::value(path, "tls_server_config.max_version", "is below min_version"));
    }
    Ok(versions)
}

/// Suites that the format knows and that are not offered: without forward secrecy, or with CBC.
const OLD_SUITES: [&str; 8] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

/// Curves that the format knows and that are not offered.
const OTHER_CURVES: [&str; 1] = ["CurveP521"];

/// Suites and curves. As in Go a list of suites is about TLS 1.2; those of 1.3 are restricted only by naming some. What
/// is known and not offered is left out, as long as something remains.
fn provider(
    path: &Path,
    tls: &Tls,
    versions: &[&SupportedProtocolVersion],
    remarks: &mut Vec<String>,
) -> Result<CryptoProvider, WebError> {
    let mut provider = default_provider();
    let wanted = tls.cipher_suites.as_deref().unwrap_or_default();
    if !wanted.is_empty() {
        let key = "tls_server_config.cipher_suites";
        let (mut suites, mut left_out) = (Vec::new(), Vec::new());
        for name in wanted {
            match SUITES.iter().find(|(known, _)| known == name) {
                Some((_, suite)) => suites.push(*suite),
                None if OLD_SUITES.contains(&name.as_str()) => left_out.push(name.as_str()),
                None => {
                    let message = format!("{name:?} is not one of {}", SUITES.map(|(known, _)| known).join(", "));
                    return Err(WebError::value(path, key, message));
                }
            }
        }
        let is_13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
        if !suites.iter().any(is_13) {
            suites.extend(provider.cipher_suites.iter().copied().filter(is_13));
        }
        let remains =
            |suite: &SupportedCipherSuite| versions.iter().any(|version| version.version == suite.version().version);
        if !suites.iter().any(remains) {
            let names = SUITES.map(|(known, _)| known).join(", ");
            return Err(WebError::value(path, key, format!("has none for the supported versions: {names}")));
        }
        remark_left_out(path, key, &left_out, remarks);
        provider.cipher_suites = suites;
    }
    let wanted = tls.curve_preferences.as_deref().unwrap_or_default();
    if !wanted.is_empty() {
        let key = "tls_server_config.curve_preferences";
        let (mut curves, mut left_out) = (Vec::new(), Vec::new());
        for name in wanted {
            match curve(name) {
                Some(curve) => curves.push(curve),
                None if OTHER_CURVES.contains(&name.as_str()) => left_out.push(name.as_str()),
                None => {
                    let message = format!("{name:?} is not one of X25519, CurveP256, CurveP384");
                    return Err(WebError::value(path, key, message));
                }
            }
        }
        if curves.is_empty() {
            let message = "has none of the supported curves: X25519, CurveP256, CurveP384";
            return Err(WebError::value(path, key, message));
        }
        remark_left_out(path, key, &left_out, remarks);
        provider.kx_groups = curves;
    }
    Ok(provider)
}

fn remark_left_out(path: &Path, key: &str, names: &[&str], remarks: &mut Vec<String>) {
    if !names.is_empty() {
        remarks.push(format!("{}: {key}: not supported, ignored: {}", path.display(), names.join(", ")));
    }
}
