//! SHA-1 (FIPS 180-4), for names and digests that were fixed long ago: scripts, DEBUG DIGEST. It protects
//! nothing.

pub type Digest = [u8; 20];

const START: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
const BLOCK_BYTES: usize = 64;
/// The message's length in bits closes the last block.
const LENGTH_BYTES: usize = 8;

pub fn sha1(message: &[u8]) -> Digest {
    let mut state = START;
    let (blocks, rest) = message.as_chunks::<BLOCK_BYTES>();
    blocks.iter().for_each(|block| compress(&mut state, block));

    let mut tail = rest.to_vec();
    tail.push(0x80);
    let padded = (tail.len() + LENGTH_BYTES).next_multiple_of(BLOCK_BYTES);
    tail.resize(padded - LENGTH_BYTES, 0);
    tail.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    tail.as_chunks::<BLOCK_BYTES>().0.iter().for_each(|block| compress(&mut state, block));

    let mut digest = Digest::default();
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// Returns the digest in lower-case hexadecimal digits.
pub fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn compress(state: &mut [u32; 5], block: &[u8; BLOCK_BYTES]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, word) in words.into_iter().enumerate() {
        let (mixed, constant) = match at {
            0..20 => ((b & c) | (!b & d), 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let next =
            a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(word);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    for (word, change) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        let check = |message: &[u8], expected: &str| assert_eq!(hex(&sha1(message)), expected);
        check(b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        check(b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d");
        check(
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
        );
        check(&[b'a'; 1_000_000], "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }

    #[test]
    fn every_length_around_a_block_is_padded() {
        let mut seen = std::collections::HashSet::new();
        for len in 0..200 {
            assert!(seen.insert(sha1(&vec![7; len])), "{len}");
        }
    }
}
