//! Why a client gets no encrypted connection.

use std::io;

use rustls::{CertificateError, Error};

/// Why: the `reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It shows no certificate.
    NoCertificate,
    /// Its certificate is of an authority that is not known here.
    UnknownAuthority,
    /// Its certificate has none of the names that are allowed.
    WrongName,
    /// Its certificate has ended, or has not begun.
    Expired,
    /// Its certificate is no good for another cause.
    BadCertificate,
    /// It does not want this server's certificate, or ends what it began.
    ByClient,
    /// It does not speak TLS.
    NotTls,
    /// It takes too long, or speaks TLS in a way that is not offered.
    Other,
}

impl Refused {
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

    /// The cause of a handshake that failed.
    pub fn of(error: &io::Error) -> Self {
        let said = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        match said {
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
        let of = |error: Error| Refused::of(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert_eq!(of(Error::NoCertificatesPresented), Refused::NoCertificate);
        assert_eq!(of(Error::InvalidCertificate(CertificateError::UnknownIssuer)), Refused::UnknownAuthority);
        assert_eq!(of(Error::InvalidCertificate(CertificateError::Revoked)), Refused::BadCertificate);
        assert_eq!(of(Error::AlertReceived(rustls::AlertDescription::UnknownCA)), Refused::ByClient);
        assert_eq!(of(Error::DecryptError), Refused::Other);
        assert_eq!(Refused::of(&io::ErrorKind::UnexpectedEof.into()), Refused::ByClient);
        assert_eq!(Refused::of(&io::ErrorKind::TimedOut.into()), Refused::Other);
    }
}
