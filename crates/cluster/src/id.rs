//! The name of a node, or of a shard: 40 characters of `a-z0-9`.

use isotherm_stdx::prng::Prng;
use std::fmt;

/// Names a node for as long as it lives. The order is that of the bytes, by which a collision of epochs is
/// decided.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; NodeId::LEN]);

impl NodeId {
    pub const LEN: usize = 40;

    /// A name from random bytes, with two digits for each.
    pub fn new(random: [u8; NodeId::LEN / 2]) -> NodeId {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
        NodeId(std::array::from_fn(|at| digit(random[at / 2] >> (4 * (1 - at % 2)) & 15)))
    }

    /// Draws a name that no other node has, if the generator's seed is random.
    pub fn random(random: &mut Prng) -> NodeId {
        let words: [u64; 3] = std::array::from_fn(|_| random.next_u64());
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        NodeId::new(bytes[..NodeId::LEN / 2].try_into().expect("24 bytes are enough"))
    }

    /// Parses an id from a message, a file or a request. An id has exactly 40 characters of `a-z0-9`.
    pub fn parse(text: &[u8]) -> Option<NodeId> {
        let is_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        text.try_into().ok().filter(|id: &[u8; NodeId::LEN]| id.iter().all(is_name)).map(NodeId)
    }

    pub fn as_bytes(&self) -> &[u8; NodeId::LEN] {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("of ASCII only")
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_characters() {
        let id = NodeId::new(std::array::from_fn(|at| (at * 13) as u8));
        assert_eq!(id.to_string(), "000d1a2734414e5b6875828f9ca9b6c3d0ddeaf7");
        assert_eq!(NodeId::parse(id.as_bytes()), Some(id));
        assert_eq!(NodeId::parse(&id.as_bytes()[1..]), None);
        assert_eq!(NodeId::parse(b"000D1a2734414e5b6875828f9ca9b6c3d0ddeaf7"), None);
    }
}
