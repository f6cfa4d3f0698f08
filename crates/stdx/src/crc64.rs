//! CRC64 "Jones", the checksum at the end of an RDB file and of a DUMP payload.
//!
//! Reflected, initial value 0, no final inversion. Slicing by eight as in `crc16`; 8 x 256 x 8 B = 16 KB of
//! tables, which only the threads that read or write files touch.

/// 0xad93d23594c935a9 with its bits reversed, because the register runs reflected.
const POLYNOMIAL_REFLECTED: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();

static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0u64; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ POLYNOMIAL_REFLECTED } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let previous = tables[k - 1][byte];
            tables[k][byte] = (previous >> 8) ^ tables[0][(previous & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// Continues from `crc` (0 at the start) over `bytes`; a file may be fed in pieces.
pub fn crc64(mut crc: u64, bytes: &[u8]) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<8>();
    for block in blocks {
        let word = (crc ^ u64::from_le_bytes(*block)).to_le_bytes();
        crc = 0;
        for (k, &byte) in word.iter().enumerate() {
            crc ^= TABLES[7 - k][byte as usize];
        }
    }
    for &byte in tail {
        crc = (crc >> 8) ^ TABLES[0][(crc as u8 ^ byte) as usize];
    }
    crc
}

/// The sum of two runs of bytes, one after the other: of their own sums (each from 0), and how many bytes the
/// second has.
///
/// The register is linear in its start, so the second sum is corrected by what the first becomes under as
/// many zero bytes. One zero bit is a 64 x 64 matrix over bits; squared again and again it is 2, 4, 8 ... of
/// them.
pub fn crc64_combine(first: u64, second: u64, second_bytes: u64) -> u64 {
    let mut register = first;
    let mut zeros: [u64; 64] = std::array::from_fn(|bit| match bit {
        0 => POLYNOMIAL_REFLECTED,
        _ => 1 << (bit - 1),
    });
    // A byte is the first power that is used: eight bits.
    (0..3).for_each(|_| zeros = squared(&zeros));
    let mut bytes = second_bytes;
    while bytes > 0 {
        if bytes & 1 != 0 {
            register = times(&zeros, register);
        }
        zeros = squared(&zeros);
        bytes >>= 1;
    }
    register ^ second
}

fn times(matrix: &[u64; 64], mut vector: u64) -> u64 {
    let mut product = 0;
    while vector != 0 {
        product ^= matrix[vector.trailing_zeros() as usize];
        vector &= vector - 1;
    }
    product
}

fn squared(matrix: &[u64; 64]) -> [u64; 64] {
    std::array::from_fn(|bit| times(matrix, matrix[bit]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn sums_of_pieces_give_the_sum_of_the_whole() {
        let mut prng = Prng::new(65);
        let bytes: Vec<u8> = (0..700).map(|_| prng.next_u64() as u8).collect();
        let whole = crc64(0, &bytes);
        for cut in 0..=bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let combined = crc64_combine(crc64(0, first), crc64(0, second), second.len() as u64);
            assert_eq!(combined, whole, "cut at {cut}");
        }
    }

    #[test]
    fn the_check_values_of_the_field() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let prose = b"Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed \
            do eiusmod tempor incididunt ut labore et dolore magna \
            aliqua. Ut enim ad minim veniam, quis nostrud exercitation \
            ullamco laboris nisi ut aliquip ex ea commodo consequat. Duis \
            aute irure dolor in reprehenderit in voluptate velit esse \
            cillum dolore eu fugiat nulla pariatur. Excepteur sint \
            occaecat cupidatat non proident, sunt in culpa qui officia \
            deserunt mollit anim id est laborum.\0";
        assert_eq!(crc64(0, prose), 14373597793578550195);
    }

    #[test]
    fn pieces_give_the_same_sum_as_the_whole() {
        let mut prng = Prng::new(64);
        let bytes: Vec<u8> = (0..1000).map(|_| prng.next_u64() as u8).collect();
        let whole = crc64(0, &bytes);
        for cut in 0..bytes.len() {
            assert_eq!(crc64(crc64(0, &bytes[..cut]), &bytes[cut..]), whole, "cut at {cut}");
        }
        let byte_by_byte = bytes.iter().fold(0, |crc, byte| crc64(crc, std::slice::from_ref(byte)));
        assert_eq!(byte_by_byte, whole);
    }
}
