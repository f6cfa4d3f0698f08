//! A slot: one of the 16384 drawers that every key belongs to, here and in every other member of the cluster.
//!
//! `slot = crc16(tag) mod 16384`, where the tag is what stands between the first `{` and the first `}` after
//! it, if that is not empty, and otherwise the whole key.

use crate::crc16::crc16;

/// A slot number. Invariant: below `Slot::COUNT`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u16);

const _: () = assert!(Slot::COUNT.is_power_of_two(), "of_key masks instead of dividing");

impl Slot {
    pub const COUNT: usize = 16384;

    /// Panics if `number` is not a slot: a number from outside is to be compared with `COUNT` first.
    #[inline]
    pub const fn new(number: u16) -> Slot {
        assert!((number as usize) < Slot::COUNT);
        Slot(number)
    }

    #[inline]
    pub fn of_key(key: &[u8]) -> Slot {
        Slot(crc16(hash_tag(key)) & (Slot::COUNT as u16 - 1))
    }

    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Every slot in ascending order.
    pub fn all() -> impl DoubleEndedIterator<Item = Slot> + ExactSizeIterator {
        (0..Slot::COUNT as u16).map(Slot)
    }
}

/// The part of a key that decides on its slot.
#[inline]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    if has_brace(key) { tag_of(key) } else { key }
}

/// Returns whether there is a `{`. Compares eight bytes at a time, and the last eight even if a word had some
/// of them before.
#[inline]
fn has_brace(key: &[u8]) -> bool {
    let Some(last) = key.last_chunk::<8>() else { return key.contains(&b'{') };
    let (words, _) = key.as_chunks::<8>();
    words.iter().fold(braces(last), |found, word| found | braces(word)) != 0
}

/// Not 0 if one of the bytes is `{`: a byte that is 0 borrows from its high bit.
#[inline]
fn braces(word: &[u8; 8]) -> u64 {
    const LOW_BITS: u64 = 0x0101_0101_0101_0101;
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    let difference = u64::from_le_bytes(*word) ^ (LOW_BITS * b'{' as u64);
    difference.wrapping_sub(LOW_BITS) & !difference & HIGH_BITS
}

#[inline(never)]
fn tag_of(key: &[u8]) -> &[u8] {
    match key.iter().position(|&byte| byte == b'{') {
        None => key,
        Some(open) => tag_after(key, open),
    }
}

fn tag_after(key: &[u8], open: usize) -> &[u8] {
    let inner = &key[open + 1..];
    match inner.iter().position(|&byte| byte == b'}') {
        Some(length) if length > 0 => &inner[..length],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        let check = |key: &str, tag: &str| assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        check("plain", "plain");
        check("", "");
        check("{user1000}.following", "user1000");
        check("foo{}{bar}", "foo{}{bar}");
        check("foo{{bar}}zap", "{bar");
        check("foo{bar}{zap}", "bar");
        check("foo{bar", "foo{bar");
        check("foo}bar{", "foo}bar{");
        check("}{a}", "a");
    }

    /// Around every length at which words end, the brace at every place.
    #[test]
    fn a_brace_is_seen_wherever_it_stands() {
        for len in 0..40 {
            assert_eq!(hash_tag(&vec![b'z'; len]), vec![b'z'; len]);
            for open in 0..len {
                let mut key = vec![0xfb; len];
                (key[open], key[len - 1]) = (b'{', b'}');
                let tag = if len - open > 2 { &key[open + 1..len - 1] } else { &key[..] };
                assert_eq!(hash_tag(&key), tag, "{open} of {len}");
            }
        }
    }

    /// Asked of a real server by CLUSTER KEYSLOT.
    #[test]
    fn slots_of_keys() {
        let check = |key: &str, slot: u16| assert_eq!(Slot::of_key(key.as_bytes()).get(), slot, "{key}");
        check("foo", 12182);
        check("bar", 5061);
        check("123456789", 0x31c3);
        check("", 0);
        check("{foo}x", 12182);
        check("key:000000000042", 7803);
    }
}
