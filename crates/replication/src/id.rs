//! The name of a history: 40 hexadecimal digits, as PSYNC, INFO and RDB files have it.

use std::fmt;

/// Names the sequence of changes that an offset counts the bytes of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplId([u8; ReplId::LEN]);

impl ReplId {
    pub const LEN: usize = 40;
    /// Id that INFO shows where there is none.
    pub const NONE: ReplId = ReplId([b'0'; ReplId::LEN]);

    /// A name from random bytes, with two digits for each.
    pub fn new(random: [u8; ReplId::LEN / 2]) -> ReplId {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
        ReplId(std::array::from_fn(|at| digit(random[at / 2] >> (4 * (1 - at % 2)) & 15)))
    }

    /// Parses the id that another server uses. Its digits are not checked: they are only compared, and shown
    /// escaped.
    pub fn parse(text: &[u8]) -> Option<ReplId> {
        let is_shown = |byte: &u8| byte.is_ascii_graphic();
        text.try_into().ok().filter(|id: &[u8; ReplId::LEN]| id.iter().all(is_shown)).map(ReplId)
    }

    pub fn as_bytes(&self) -> &[u8; ReplId::LEN] {
        &self.0
    }
}

impl fmt::Display for ReplId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for ReplId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_digits() {
        let id = ReplId::new(std::array::from_fn(|at| (at * 13) as u8));
        assert_eq!(id.to_string(), "000d1a2734414e5b6875828f9ca9b6c3d0ddeaf7");
        assert_eq!(ReplId::parse(id.as_bytes()), Some(id));
        assert_eq!(ReplId::parse(&id.as_bytes()[1..]), None);
        assert_eq!(ReplId::parse(b"0123456789012345678901234567890123456 \r\n"), None);
    }
}
