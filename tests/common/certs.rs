//! Certificates: an authority, and what it signs.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate in PEM.
    pub pem: String,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A server's certificate for loopback; the number tells one from another.
    pub fn server(&self, number: u64) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.serial_number = Some(number.into());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// A client's certificate with these names; one that has expired if it should have.
    pub fn client(&self, names: Vec<SanType>, expired: bool) -> (String, String) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.distinguished_name.push(DnType::CommonName, "a scraper");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if expired {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        }
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Writes certificate and key as `NAME.crt` and `NAME.key`, the key for its owner alone.
pub fn write(directory: &Path, name: &str, (certificate, key): &(String, String)) -> Pair {
    use std::os::unix::fs::PermissionsExt as _;
    let pair = Pair { certificate: directory.join(format!("{name}.crt")), key: directory.join(format!("{name}.key")) };
    fs::write(&pair.certificate, certificate).unwrap();
    fs::write(&pair.key, key).unwrap();
    fs::set_permissions(&pair.key, fs::Permissions::from_mode(0o600)).unwrap();
    pair
}

/// A name of a host.
pub fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}
