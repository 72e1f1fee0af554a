//! What a configuration asks of clients, to compare it with another one.

use std::collections::BTreeSet;

use rustls::RootCertStore;

/// What clients must show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// `None` without TLS.
    pub(super) tls: Option<TlsAccess>,
    /// Whether users and passwords are asked for.
    pub(super) passwords: bool,
}

/// What TLS asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TlsAccess {
    /// Whether a client without a certificate gets no connection.
    pub(super) mandatory: bool,
    /// Who may have issued a certificate; `None` if it is not verified.
    pub(super) authorities: Option<Authorities>,
    /// Names of which a certificate must have one; `None` if any is accepted.
    pub(super) names: Option<BTreeSet<String>>,
    /// The oldest version, as TLS numbers them.
    pub(super) oldest_version: u16,
}

/// Authorities of clients' certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Authorities {
    /// Those of the system: as good as everyone.
    System,
    /// Those of the configuration, by name, key and constraints. A renewed certificate of the same key is the same one.
    Own(BTreeSet<Authority>),
}

/// Subject, public key, and name constraints of an authority.
type Authority = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

impl Authorities {
    pub(super) fn own(roots: &RootCertStore) -> Self {
        let authority = |root: &rustls::pki_types::TrustAnchor<'_>| {
            let constraints = root.name_constraints.as_ref().map(|constraints| constraints.to_vec());
            (root.subject.to_vec(), root.subject_public_key_info.to_vec(), constraints)
        };
        Self::Own(roots.roots.iter().map(authority).collect())
    }

    fn accepts_others_than(&self, before: &Self) -> bool {
        match (self, before) {
            (_, Self::System) => false,
            (Self::System, Self::Own(_)) => true,
            (Self::Own(after), Self::Own(before)) => !after.is_subset(before),
        }
    }
}

impl Access {
    /// The first key by which this asks for less than `before`, if there is one: someone would get in who did not.
    pub(super) fn weaker_than(&self, before: &Self) -> Option<&'static str> {
        let passwords = (before.passwords && !self.passwords).then_some("basic_auth_users");
        let Some(before) = &before.tls else { return passwords };
        let Some(after) = &self.tls else { return Some("tls_server_config") };
        let others = match (&after.authorities, &before.authorities) {
            (Some(after), Some(before)) => after.accepts_others_than(before),
            _ => false,
        };
        let no_name = match (&after.names, &before.names) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(after), Some(before)) => !after.is_subset(before),
        };
        let table = [
            (before.mandatory && !after.mandatory, "tls_server_config.client_auth_type"),
            (before.authorities.is_some() && after.authorities.is_none(), "tls_server_config.client_auth_type"),
            (others, "tls_server_config.client_ca_file"),
            (no_name, "tls_server_config.client_allowed_sans"),
            (after.oldest_version < before.oldest_version, "tls_server_config.min_version"),
        ];
        table.into_iter().find_map(|(weaker, key)| weaker.then_some(key)).or(passwords)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(names: &[&str]) -> Authorities {
        let authority = |name: &&str| (name.as_bytes().to_vec(), b"key".to_vec(), None);
        Authorities::Own(names.iter().map(authority).collect())
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn every_way_to_let_someone_else_in_is_weaker_and_its_reverse_is_not() {
        let strict = TlsAccess {
            mandatory: true,
            authorities: Some(own(&["a"])),
            names: Some(names(&["p"])),
            oldest_version: 0x304,
        };
        let base = Access { tls: Some(strict.clone()), passwords: true };
        let with = |tls: TlsAccess| Access { tls: Some(tls), passwords: true };
        let table = [
            (Access { passwords: false, ..base.clone() }, "basic_auth_users"),
            (Access { tls: None, ..base.clone() }, "tls_server_config"),
            (with(TlsAccess { mandatory: false, ..strict.clone() }), "tls_server_config.client_auth_type"),
            (with(TlsAccess { authorities: None, ..strict.clone() }), "tls_server_config.client_auth_type"),
            (
                with(TlsAccess { authorities: Some(Authorities::System), ..strict.clone() }),
                "tls_server_config.client_ca_file",
            ),
            (
                with(TlsAccess { authorities: Some(own(&["a", "b"])), ..strict.clone() }),
                "tls_server_config.client_ca_file",
            ),
            (with(TlsAccess { names: None, ..strict.clone() }), "tls_server_config.client_allowed_sans"),
            (
                with(TlsAccess { names: Some(names(&["p", "q"])), ..strict.clone() }),
                "tls_server_config.client_allowed_sans",
            ),
            (with(TlsAccess { oldest_version: 0x303, ..strict }), "tls_server_config.min_version"),
        ];
        assert_eq!(base.weaker_than(&base), None);
        for (weaker, key) in table {
            assert_eq!(weaker.weaker_than(&base), Some(key));
            assert_eq!(base.weaker_than(&weaker), None, "{key}");
        }
    }

    #[test]
    fn another_authority_is_weaker_both_ways() {
        let of = |name| Access {
            tls: Some(TlsAccess { mandatory: true, authorities: Some(own(&[name])), ..TlsAccess::default() }),
            passwords: false,
        };
        assert!(of("a").weaker_than(&of("b")).is_some() && of("b").weaker_than(&of("a")).is_some());
    }
}
