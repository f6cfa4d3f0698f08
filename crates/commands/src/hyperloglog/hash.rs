//! The hash of an element: MurmurHash64A, which is part of the format, for sketches of different servers are
//! merged.

use super::{INDEX_BITS, REGISTERS, VALUE_BITS};

/// The register that `element` belongs to, and the number it offers: 1 and the zeros before the first one
/// among the other bits of its hash.
pub(super) fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let rest = hash >> INDEX_BITS | 1 << VALUE_BITS;
    (hash as usize & (REGISTERS - 1), rest.trailing_zeros() as u8 + 1)
}

fn murmur(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let words = bytes.chunks_exact(8);
    let tail = words.remainder();
    for word in words {
        let mut word = u64::from_le_bytes(word.try_into().expect("eight bytes")).wrapping_mul(M);
        word = (word ^ word >> R).wrapping_mul(M);
        hash = (hash ^ word).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> R).wrapping_mul(M);
    hash ^ hash >> R
}
