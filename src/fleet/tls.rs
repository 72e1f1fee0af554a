//! TLS towards a Prometheus server: whom it trusts, and who it says it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Files and choices of a client.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    /// Certificates of authorities in PEM; the system's when none is named.
    pub authorities: Option<PathBuf>,
    /// The client's own certificate (chain) and key in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Believe every server.
    pub insecure: bool,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Anything else.
    #[error("TLS: {0}")]
    Other(String),
}

fn file(path: &Path, why: &impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|error| file(path, &error))?;
    if all.is_empty() { Err(file(path, &"no certificate in it")) } else { Ok(all) }
}

/// Makes the client's configuration.
///
/// # Errors
/// A file that cannot be read or holds nothing of use.
pub fn config(files: &TlsFiles) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let other = |error: rustls::Error| TlsError::Other(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(other)?;
    let builder = if files.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
    } else {
        let mut roots = RootCertStore::empty();
        match &files.authorities {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| file(path, &error))?;
                }
            }
            // What the system has and cannot be used is no fault of ours; a server that needs it will be refused.
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        builder.with_root_certificates(roots)
    };
    match &files.identity {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => {
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, &error))?;
            builder.with_client_auth_cert(certificates(chain)?, secret).map_err(|error| file(chain, &error))
        }
    }
}

/// Believes every certificate, and still sees to it that the server has the key to it.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let directory = tempfile::TempDir::new().unwrap();
        let empty = directory.path().join("empty.pem");
        std::fs::write(&empty, "no certificate\n").unwrap();
        let missing = directory.path().join("none.pem");
        for path in [&empty, &missing] {
            let files = TlsFiles { authorities: Some(path.clone()), ..TlsFiles::default() };
            assert!(config(&files).unwrap_err().to_string().starts_with(&path.display().to_string()));
            let files = TlsFiles { identity: Some((path.clone(), path.clone())), ..TlsFiles::default() };
            assert!(config(&files).unwrap_err().to_string().starts_with(&path.display().to_string()));
        }
        assert!(config(&TlsFiles::default()).is_ok());
        assert!(config(&TlsFiles { insecure: true, ..TlsFiles::default() }).is_ok());
    }
}
