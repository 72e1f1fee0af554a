//! Netlink attributes (`struct nlattr`): length and type of 16 bits each, the value, padding to four bytes.

/// What a type means besides its flags (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;

/// Iterates over attributes; ends at the first that is not whole. Padding (type 0) is skipped, but where a nest has
/// a type 0 of its own.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    rest: &'a [u8],
    from_zero: bool,
}

impl<'a> Attributes<'a> {
    /// The attributes in a message's payload or in a nest.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, from_zero: false }
    }

    /// The attributes in a nest whose types count from 0 (`IFLA_VF_STATS`).
    pub fn from_zero(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, from_zero: true }
    }

    /// What follows the attributes taken so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let [l0, l1, t0, t1] = *self.rest.first_chunk()?;
            let length = usize::from(u16::from_ne_bytes([l0, l1]));
            let Some(value) = self.rest.get(4..length) else {
                self.rest = &[];
                return None;
            };
            self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            let kind = u16::from_ne_bytes([t0, t1]) & TYPE_MASK;
            if kind != 0 || self.from_zero {
                return Some((kind, value));
            }
        }
    }
}

/// Says of a type that its value is made of attributes (`NLA_F_NESTED`).
pub const NESTED: u16 = 0x8000;

/// Appends an attribute to a request.
pub fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Appends a text with the NUL that the kernel asks for.
pub fn put_text(out: &mut Vec<u8>, kind: u16, text: &str) {
    put(out, kind, &[text.as_bytes(), &[0]].concat());
}

/// An 8-bit number.
pub fn number8(value: &[u8]) -> Option<u8> {
    value.first().copied()
}

/// A 16-bit number in host order.
pub fn number16(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// A 32-bit number in host order.
pub fn number32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A 64-bit number in host order.
pub fn number64(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// A text up to its first NUL, which the kernel always writes and a reader need not rely on.
pub fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.split(|byte| *byte == 0).next()?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An attribute as the kernel lays it out.
    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        let mut out = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    #[test]
    fn flags_and_padding_are_no_types() {
        let bytes = [attribute(0x8050, b"abc"), attribute(0, &[]), attribute(3, &7u32.to_ne_bytes())].concat();
        let seen: Vec<_> = Attributes::new(&bytes).collect();
        assert_eq!(seen, [(0x50, &b"abc"[..]), (3, &7u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn values_shorter_than_their_type_are_none() {
        assert_eq!((number8(&[]), number32(&[1, 2, 3]), number64(&[0; 7])), (None, None, None));
        assert_eq!(text(b"mlx5_0\0junk"), Some("mlx5_0"));
        assert_eq!(text(b"mlx5_0"), Some("mlx5_0"));
        assert_eq!(text(b"\xff\0"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let total: usize = Attributes::new(&bytes).map(|(_, value)| value.len() + 4).sum();
            prop_assert!(total <= bytes.len());
        }

        #[test]
        fn attributes_survive_their_layout(
            list in proptest::collection::vec((1u16..0x3fff, proptest::collection::vec(any::<u8>(), 0..20)), 0..8),
        ) {
            let bytes: Vec<u8> = list.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
            let mut written = Vec::new();
            for (kind, value) in &list {
                put(&mut written, *kind, value);
            }
            prop_assert_eq!(&written, &bytes);
            let seen: Vec<_> = Attributes::new(&bytes).map(|(kind, value)| (kind, value.to_vec())).collect();
            prop_assert_eq!(seen, list);
        }
    }
}
