//! What a client's certificate must be, and why a client gets no encrypted connection.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::access::{Authorities, TlsAccess};
use super::file::{Pem, Tls, WebError};

const MODES: [&str; 5] = [
    "NoClientCert",
    "RequestClientCert",
    "RequireAnyClientCert",
    "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
];

/// Verifies the certificates of clients, and what it asks for.
pub(super) struct ClientCheck {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) access: TlsAccess,
}

/// The verifier that `client_auth_type` names.
pub(super) fn verifier(
    path: &Path,
    tls: &Tls,
    authorities: Option<&Pem>,
    provider: &Arc<CryptoProvider>,
    remarks: &mut Vec<String>,
) -> Result<ClientCheck, WebError> {
    let (mandatory, verified) = match tls.client_auth_type.as_deref().unwrap_or_default() {
        "" | "NoClientCert" => return none(path, tls, authorities),
        "RequestClientCert" => (false, false),
        "RequireAnyClientCert" | "RequireClientCert" => (true, false),
        "VerifyClientCertIfGiven" => (false, true),
        "RequireAndVerifyClientCert" => (true, true),
        other => {
            let message = format!("{other:?} is not one of {}", MODES.join(", "));
            return Err(WebError::value(path, "tls_server_config.client_auth_type", message));
        }
    };
    // An empty list allows no name, as in other exporters; only a missing one allows any.
    let names: Option<BTreeSet<String>> = tls.client_allowed_sans.clone().map(BTreeSet::from_iter);
    // A client without a certificate has no name.
    let mandatory = mandatory || names.is_some();
    let (chain, known) = match (verified, authorities) {
        (false, _) => (None, None),
        (true, None) => {
            remarks.push(format!(
                "{}: tls_server_config.client_ca_file: not set; certificates of every CA that this system trusts are accepted",
                path.display()
            ));
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                let message = "is missing, and this system trusts no CA: no client certificate can be verified";
                return Err(WebError::value(path, "tls_server_config.client_ca_file", message));
            }
            (Some(by_authority(roots, provider)), Some(Authorities::System))
        }
        (true, Some(authorities)) => {
            let roots = roots(path, authorities, remarks)?;
            let known = Authorities::own(&roots);
            (Some(by_authority(roots, provider)), Some(known))
        }
    };
    let chain = chain.transpose().map_err(|error| {
        let key = "tls_server_config.client_ca_file";
        authorities.map_or_else(|| WebError::value(path, key, &*error), |pem| pem.wrong(path, &error))
    })?;
    let hints = match known {
        // Hundreds of names that tell a client nothing.
        Some(Authorities::System) | None => Vec::new(),
        Some(Authorities::Own(_)) => {
            chain.as_ref().map(|chain| chain.root_hint_subjects().to_vec()).unwrap_or_default()
        }
    };
    let access = TlsAccess { mandatory, authorities: known, names: names.clone(), oldest_version: 0 };
    let algorithms = provider.signature_verification_algorithms;
    Ok(ClientCheck { verifier: Arc::new(ClientVerifier { mandatory, chain, hints, names, algorithms }), access })
}

fn none(path: &Path, tls: &Tls, authorities: Option<&Pem>) -> Result<ClientCheck, WebError> {
    if authorities.is_some() {
        let message = "is set, but client_auth_type requests no certificate";
        return Err(WebError::value(path, "tls_server_config.client_ca_file", message));
    }
    if tls.client_allowed_sans.as_ref().is_some_and(|names| !names.is_empty()) {
        let message = "is set, but client_auth_type requests no certificate";
        return Err(WebError::value(path, "tls_server_config.client_allowed_sans", message));
    }
    Ok(ClientCheck { verifier: WebPkiClientVerifier::no_client_auth(), access: TlsAccess::default() })
}

/// The authorities of a file. What is none is left out, as long as something remains.
fn roots(path: &Path, authorities: &Pem, remarks: &mut Vec<String>) -> Result<RootCertStore, WebError> {
    let mut roots = RootCertStore::empty();
    let (mut left_out, mut last) = (0_usize, String::new());
    for certificate in authorities.certificates(path)? {
        if let Err(error) = roots.add(certificate) {
            (left_out, last) = (left_out + 1, error.to_string());
        }
    }
    let complaint = |message: String| authorities.wrong(path, &message);
    if roots.is_empty() {
        return Err(complaint(format!("has a certificate that is not a CA: {last}")));
    }
    if left_out > 0 {
        remarks.push(complaint(format!("ignored {left_out} certificates that are not CAs: {last}")).to_string());
    }
    Ok(roots)
}

fn by_authority(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| error.to_string())
}

/// Verifies the certificates of clients.
#[derive(Debug)]
struct ClientVerifier {
    mandatory: bool,
    /// Verifies the chain up to an authority; `None` if any certificate is accepted.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    hints: Vec<DistinguishedName>,
    /// Names of which a certificate must have one; `None` if any name is accepted.
    names: Option<BTreeSet<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if let Some(chain) = &self.chain {
            chain.verify_client_cert(end_entity, intermediates, now)?;
        }
        if let Some(allowed) = &self.names
            && !names(end_entity)?.iter().any(|name| allowed.contains(name))
        {
            return Err(Error::InvalidCertificate(CertificateError::NotValidForName));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The DNS names, addresses, e-mail addresses and URIs of a certificate.
fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, Error> {
    let bad = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
    let certificate = x509_cert::Certificate::from_der(certificate).map_err(bad)?;
    let Some((_, SubjectAltName(names))) = certificate.tbs_certificate.get().map_err(bad)? else {
        return Ok(Vec::new());
    };
    let text = |name: &GeneralName| match name {
        GeneralName::DnsName(name) | GeneralName::Rfc822Name(name) | GeneralName::UniformResourceIdentifier(name) => {
            Some(name.to_string())
        }
        GeneralName::IpAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(bytes.as_bytes()).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes.as_bytes()).map(IpAddr::from)).ok().map(|ip| ip.to_string())
        }
        _ => None,
    };
    Ok(names.iter().filter_map(text).collect())
}

/// Why a client gets no encrypted connection: the `reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRejection {
    /// It sends no certificate.
    NoCertificate,
    /// Its certificate was issued by an unknown authority.
    UnknownAuthority,
    /// Its certificate has none of the allowed names.
    WrongName,
    /// Its certificate has expired, or is not valid yet.
    Expired,
    /// Its certificate is invalid for another reason.
    BadCertificate,
    /// It rejects this server's certificate, or aborts the handshake.
    ByClient,
    /// It does not speak TLS.
    NotTls,
    /// It is too slow, or asks for a version or cipher that is not offered.
    Other,
}

impl TlsRejection {
    /// All, in the order of the metrics.
    pub const ALL: [Self; 8] = [
        Self::NoCertificate,
        Self::UnknownAuthority,
        Self::WrongName,
        Self::Expired,
        Self::BadCertificate,
        Self::ByClient,
        Self::NotTls,
        Self::Other,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::UnknownAuthority => "unknown_authority",
            Self::WrongName => "wrong_name",
            Self::Expired => "expired",
            Self::BadCertificate => "bad_certificate",
            Self::ByClient => "by_client",
            Self::NotTls => "not_tls",
            Self::Other => "other",
        }
    }

    /// Why a handshake failed.
    pub fn from_error(error: &io::Error) -> Self {
        let cause = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        match cause {
            Some(Error::NoCertificatesPresented) => Self::NoCertificate,
            Some(Error::InvalidCertificate(error)) => match error {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::WrongName,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::Expired,
                _ => Self::BadCertificate,
            },
            Some(Error::AlertReceived(_)) => Self::ByClient,
            None if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ) =>
            {
                Self::ByClient
            }
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes() {
        let of = |error: Error| TlsRejection::from_error(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert_eq!(of(Error::NoCertificatesPresented), TlsRejection::NoCertificate);
        assert_eq!(of(Error::InvalidCertificate(CertificateError::UnknownIssuer)), TlsRejection::UnknownAuthority);
        assert_eq!(of(Error::InvalidCertificate(CertificateError::Revoked)), TlsRejection::BadCertificate);
        assert_eq!(of(Error::AlertReceived(rustls::AlertDescription::UnknownCA)), TlsRejection::ByClient);
        assert_eq!(of(Error::DecryptError), TlsRejection::Other);
        assert_eq!(TlsRejection::from_error(&io::ErrorKind::UnexpectedEof.into()), TlsRejection::ByClient);
        assert_eq!(TlsRejection::from_error(&io::ErrorKind::TimedOut.into()), TlsRejection::Other);
    }
}
