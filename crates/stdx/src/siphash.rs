//! SipHash: a keyed hash of short byte strings. Without the key, equal hashes cannot be searched for.
//!
//! ```text
//!   state    4 words: the key twice, each half under a constant
//!   input    [8 B little endian] [8 B] ... [0 to 7 B, zeros, length]    each word: COMPRESS rounds
//!   at last  FINISH rounds; the hash is the four words, xored
//! ```
//! Published by Aumasson and Bernstein with two and four rounds; with one and three (SipHash-1-3) it is what
//! hash tables use. The whole of a 16 B input is six rounds of 14 operations in registers, so it is inlined
//! where it is used.

/// Both halves of a key.
#[derive(Clone, Copy, Debug)]
pub struct SipHash<const COMPRESS: usize, const FINISH: usize> {
    key: [u64; 2],
}

pub type SipHash13 = SipHash<1, 3>;

impl<const COMPRESS: usize, const FINISH: usize> SipHash<COMPRESS, FINISH> {
    pub fn new(key: [u8; 16]) -> Self {
        let (halves, _) = key.as_chunks::<8>();
        SipHash { key: [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])] }
    }

    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let mut state = [
            self.key[0] ^ 0x736f_6d65_7073_6575,
            self.key[1] ^ 0x646f_7261_6e64_6f6d,
            self.key[0] ^ 0x6c79_6765_6e65_7261,
            self.key[1] ^ 0x7465_6462_7974_6573,
        ];
        let (words, _) = bytes.as_chunks::<8>();
        for word in words {
            absorb::<COMPRESS>(&mut state, u64::from_le_bytes(*word));
        }
        absorb::<COMPRESS>(&mut state, last_word(bytes));
        state[2] ^= 0xff;
        rounds::<FINISH>(&mut state);
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

/// Returns the bytes that are left after the whole words, with the length in the top byte.
#[inline]
fn last_word(bytes: &[u8]) -> u64 {
    let left = bytes.len() % 8;
    let tail = match bytes.last_chunk::<8>() {
        // The last eight bytes without those that a whole word had: in two steps, since all 64 bits may go.
        Some(last) => u64::from_le_bytes(*last) >> 8 >> (56 - 8 * left),
        None => bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    tail | (bytes.len() as u64) << 56
}

#[inline]
fn absorb<const ROUNDS: usize>(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    rounds::<ROUNDS>(state);
    state[0] ^= word;
}

#[inline]
fn rounds<const ROUNDS: usize>(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    for _ in 0..ROUNDS {
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        d = d.rotate_left(21) ^ a;
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
    }
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;
    use std::hash::{DefaultHasher, Hasher};

    fn inputs() -> impl Iterator<Item = Vec<u8>> {
        let mut prng = Prng::new(13);
        (0..100).map(move |len| (0..len).map(|_| prng.next_u64() as u8).collect())
    }

    /// The standard library's default is SipHash-1-3 with a key of zeros.
    #[test]
    fn with_one_and_three_rounds_it_is_the_default_hasher() {
        for bytes in inputs() {
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            assert_eq!(SipHash13::new([0; 16]).hash(&bytes), hasher.finish(), "{} bytes", bytes.len());
        }
    }

    /// The older hasher of the standard library is SipHash-2-4 with any key.
    #[test]
    #[allow(deprecated)]
    fn with_two_and_four_rounds_and_a_key_it_is_the_older_hasher() {
        let mut prng = Prng::new(24);
        for bytes in inputs() {
            let key = [prng.next_u64(), prng.next_u64()];
            let mut hasher = std::hash::SipHasher::new_with_keys(key[0], key[1]);
            hasher.write(&bytes);
            let mut secret = [0; 16];
            secret[..8].copy_from_slice(&key[0].to_le_bytes());
            secret[8..].copy_from_slice(&key[1].to_le_bytes());
            assert_eq!(SipHash::<2, 4>::new(secret).hash(&bytes), hasher.finish(), "{} bytes", bytes.len());
        }
    }

    /// The first of the published test values, and that of 15 bytes: key and input count up from 0.
    #[test]
    fn published_values() {
        let key = std::array::from_fn(|at| at as u8);
        let input: [u8; 15] = std::array::from_fn(|at| at as u8);
        assert_eq!(SipHash::<2, 4>::new(key).hash(&input), 0xa129_ca61_49be_45e5);
        assert_eq!(SipHash13::new(key).hash(b""), 0xabac_0158_050f_c4dc);
    }
}
