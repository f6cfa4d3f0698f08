//! Tools that the tests of this crate share: random numbers from a seed, and contents that can be recognised.
#![allow(dead_code)]

use isotherm_arena::{BLOB_BYTES_MAX, Kind, OBJECT_BYTES_MAX};

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

pub fn bytes_max(kind: Kind) -> usize {
    match kind {
        Kind::Page | Kind::Index | Kind::Node => OBJECT_BYTES_MAX,
        Kind::Blob => BLOB_BYTES_MAX,
    }
}

/// Fills an object with a sequence that only this pattern has.
pub fn fill(bytes: &mut [u8], pattern: u64) {
    for i in looked_at(bytes.len()) {
        bytes[i] = expected(pattern, i);
    }
}

pub fn holds(bytes: &[u8], pattern: u64) -> bool {
    looked_at(bytes.len()).all(|i| bytes[i] == expected(pattern, i))
}

/// Every byte; under Miri, which takes a microsecond for each, the first ones and some of the others.
fn looked_at(len: usize) -> impl Iterator<Item = usize> {
    let dense = if cfg!(miri) { len.min(32) } else { len };
    (0..dense).chain((dense..len).step_by(97))
}

fn expected(pattern: u64, i: usize) -> u8 {
    let word = (pattern ^ (i as u64 >> 3)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word.to_le_bytes()[i & 7]
}
