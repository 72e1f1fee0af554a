//! What a client's certificate must be.

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

use super::file::{Tls, WebError};
use super::tls::Pem;

const MODES: [&str; 5] = [
    "NoClientCert",
    "RequestClientCert",
    "RequireAnyClientCert",
    "VerifyClientCertIfGiven",
    "RequireAndVerifyClientCert",
];

/// Whether a certificate that a client showed was verified.
pub(super) fn are_verified(tls: &Tls) -> bool {
    matches!(tls.client_auth_type.as_deref(), Some("VerifyClientCertIfGiven" | "RequireAndVerifyClientCert"))
}

/// The verifier that `client_auth_type` names.
pub(super) fn verifier(
    path: &Path,
    tls: &Tls,
    authorities: Option<&Pem>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, WebError> {
    let (mandatory, verified) = match tls.client_auth_type.as_deref().unwrap_or_default() {
        "" | "NoClientCert" => return none(path, tls, authorities),
        "RequestClientCert" => (false, false),
        "RequireAnyClientCert" | "RequireClientCert" => (true, false),
        "VerifyClientCertIfGiven" => (false, true),
        "RequireAndVerifyClientCert" => (true, true),
        other => {
            let message = format!("{other:?} is none of {}", MODES.join(", "));
            return Err(WebError::value(path, "tls_server_config.client_auth_type", message));
        }
    };
    let names = tls.client_allowed_sans.clone().unwrap_or_default();
    if !names.is_empty() && !mandatory {
        let message = "needs client_auth_type RequireAnyClientCert or RequireAndVerifyClientCert: a client without a \
                       certificate has no names";
        return Err(WebError::value(path, "tls_server_config.client_allowed_sans", message));
    }
    let chain = match (verified, authorities) {
        (false, _) => None,
        (true, None) => {
            let message = "is missing; there is nothing to verify clients' certificates with";
            return Err(WebError::value(path, "tls_server_config.client_ca_file", message));
        }
        (true, Some(authorities)) => Some(by_authority(path, authorities, provider)?),
    };
    let hints = chain.as_ref().map(|chain| chain.root_hint_subjects().to_vec()).unwrap_or_default();
    let algorithms = provider.signature_verification_algorithms;
    Ok(Arc::new(Clients { mandatory, chain, hints, names, algorithms }))
}

fn none(path: &Path, tls: &Tls, authorities: Option<&Pem>) -> Result<Arc<dyn ClientCertVerifier>, WebError> {
    if authorities.is_some() {
        let message = "is given, but client_auth_type asks for no certificate";
        return Err(WebError::value(path, "tls_server_config.client_ca_file", message));
    }
    if tls.client_allowed_sans.as_ref().is_some_and(|names| !names.is_empty()) {
        let message = "is given, but client_auth_type asks for no certificate";
        return Err(WebError::value(path, "tls_server_config.client_allowed_sans", message));
    }
    Ok(WebPkiClientVerifier::no_client_auth())
}

fn by_authority(
    path: &Path,
    authorities: &Pem,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, WebError> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities.certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| authorities.wrong(path, &format!("has a certificate that is no authority: {error}")))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| authorities.wrong(path, &error.to_string()))
}

/// Verifies what clients show.
#[derive(Debug)]
struct Clients {
    mandatory: bool,
    /// Verifies the chain up to an authority; none: any certificate will do.
    chain: Option<Arc<dyn ClientCertVerifier>>,
    hints: Vec<DistinguishedName>,
    /// Names of which a certificate must have one; empty: it need not.
    names: Vec<String>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Clients {
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
        if !self.names.is_empty() && !names(end_entity)?.iter().any(|name| self.names.contains(name)) {
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
