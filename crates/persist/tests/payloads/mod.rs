//! Values as they lie in payloads: DUMPs of a real Valkey 9.1.2 (`goldens/regenerate` makes them), and types
//! that it reads but no longer writes.
#![allow(dead_code, reason = "each test uses its part")]

use isotherm_stdx::Prng;

const GOLDENS: &str = include_str!("../goldens/valkey-9.1.2.txt");
/// Version and checksum.
pub const FOOTER_BYTES: usize = 10;
/// Long values are slow to read, and have nothing to break that short ones do not.
pub const SHORT_BYTES_MAX: usize = 600;

/// Types that the goldens do not have, under the bytes that their value may begin with: lists, sorted sets
/// and hashes of old, zipmap, ziplists and the first quicklist.
pub const OLD: &[&[u8]] = &[
    b"\x01\x02\x01a\xc0\x05",
    b"\x03\x02\x01a\x031.5\x01b\xfe",
    b"\x09\x18\x02\x04keel\x03\x00elm\x04mast\x03\x02oak--\xff",
    b"\x0a\x0f\x0f\0\0\0\x0c\0\0\0\x02\0\0\xf8\x02\xfc\xff",
    b"\x0c\x0f\x0f\0\0\0\x0c\0\0\0\x02\0\0\xf8\x02\xfc\xff",
    b"\x0d\x0f\x0f\0\0\0\x0c\0\0\0\x02\0\0\xf8\x02\xfc\xff",
    b"\x0e\x01\x0f\x0f\0\0\0\x0c\0\0\0\x02\0\0\xf8\x02\xfc\xff",
];

pub struct Golden {
    pub name: &'static str,
    pub payload: Vec<u8>,
}

impl Golden {
    /// Type and value.
    pub fn body(&self) -> &[u8] {
        &self.payload[..self.payload.len() - FOOTER_BYTES]
    }
}

pub fn goldens() -> Vec<Golden> {
    let mut name = "";
    let mut goldens = Vec::new();
    for line in GOLDENS.lines() {
        if let Some(next) = line.strip_prefix("# ") {
            name = next;
        } else if let Some(hex) = line.strip_prefix("= ") {
            goldens.push(Golden { name, payload: bytes(hex) });
        }
    }
    assert!(goldens.len() > 30);
    goldens
}

/// Type and value of each golden, and of those of old.
pub fn bodies() -> Vec<Vec<u8>> {
    let old = OLD.iter().map(|bytes| bytes.to_vec());
    goldens().iter().map(|golden| golden.body().to_vec()).chain(old).collect()
}

pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).expect("hexadecimal") as u8).collect();
    digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect()
}

/// Returns one of the payloads, changed in up to three places.
pub fn damaged(prng: &mut Prng, payloads: &[Vec<u8>]) -> Vec<u8> {
    const TELLING: [u8; 12] = [0, 1, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xf0, 0xfe, 0xff];
    let mut bytes = prng.pick(payloads).clone();
    for _ in 0..1 + prng.below(3) {
        let at = prng.below(bytes.len() as u64) as usize;
        match prng.below(8) {
            0 => bytes[at] = *prng.pick(&TELLING),
            1 => bytes[at] = prng.next_u64() as u8,
            2 => bytes[at] ^= 1 << prng.below(8),
            3 => bytes[at] = bytes[at].wrapping_add(if prng.one_in(2) { 1 } else { 255 }),
            4 => bytes.insert(at, *prng.pick(&TELLING)),
            5 if bytes.len() > 1 => drop(bytes.remove(at)),
            6 => bytes.truncate(at.max(1)),
            _ => bytes[0] = prng.below(27) as u8,
        }
    }
    bytes
}
