//! Patterns that are a prefix and a star, which most patterns are: compared eight bytes at once, and of many
//! only those that begin as the key does.
//!
//! ```text
//! ~app:* ~apple:* ~b:*     in order; each with its first eight bytes as a word, and which of them it has
//! starts                   where those with this first byte begin; only if there are many
//! ```

use crate::key_patterns::Access;

/// Number of prefixes up to which all are compared.
const FEW: usize = 4;
const WORD_BYTES: usize = 8;

#[derive(Clone, Default, Debug)]
pub struct Prefixes {
    /// Without the star, never empty; in order if there are many.
    all: Vec<Prefix>,
    /// Index by first byte: the first of `all` that begins with that byte or a later one. The last entry is
    /// the length of `all`. Empty if there are few prefixes.
    starts: Box<[u32]>,
}

#[derive(Clone, Debug)]
struct Prefix {
    /// First eight bytes, and a mask with the bits of those that the prefix has.
    word: u64,
    mask: u64,
    bytes: Box<[u8]>,
    access: Access,
}

impl Prefix {
    fn new(bytes: &[u8], access: Access) -> Prefix {
        let len = bytes.len().min(WORD_BYTES);
        let (mut word, mut mask) = ([0; WORD_BYTES], [0; WORD_BYTES]);
        word[..len].copy_from_slice(&bytes[..len]);
        mask[..len].fill(u8::MAX);
        let [word, mask] = [word, mask].map(u64::from_ne_bytes);
        Prefix { word, mask, bytes: bytes.into(), access }
    }

    /// Returns whether the prefix permits the access to a key that begins with `word`.
    #[inline]
    fn permits(&self, word: u64, key: &[u8], asked: Access) -> bool {
        word & self.mask == self.word
            && self.access.covers(asked)
            && (self.bytes.len() <= WORD_BYTES || key.starts_with(&self.bytes))
    }
}

impl Prefixes {
    pub fn new<'a>(prefixes: impl Iterator<Item = (&'a [u8], Access)>) -> Prefixes {
        let mut all: Vec<Prefix> = prefixes.map(|(bytes, access)| Prefix::new(bytes, access)).collect();
        if all.len() <= FEW {
            return Prefixes { all, starts: Box::default() };
        }
        all.sort_by(|one, other| one.bytes.cmp(&other.bytes));
        let begins_below = |byte: u16| all.partition_point(|prefix| u16::from(prefix.bytes[0]) < byte) as u32;
        let starts = (0..=256).map(begins_below).collect();
        Prefixes { all, starts }
    }

    #[inline]
    pub fn permit(&self, key: &[u8], asked: Access) -> bool {
        let near = if self.starts.is_empty() { &self.all[..] } else { self.near(key) };
        match key.first_chunk::<WORD_BYTES>() {
            Some(front) => {
                let word = u64::from_ne_bytes(*front);
                near.iter().any(|prefix| prefix.permits(word, key, asked))
            }
            None => near.iter().any(|prefix| prefix.access.covers(asked) && key.starts_with(&prefix.bytes)),
        }
    }

    /// Returns the prefixes that begin with the first byte of the key.
    fn near(&self, key: &[u8]) -> &[Prefix] {
        let Some(&first) = key.first() else { return &[] };
        let [from, to] = [usize::from(first), usize::from(first) + 1].map(|byte| self.starts[byte] as usize);
        &self.all[from..to]
    }
}
