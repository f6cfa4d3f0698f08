//! CRC16-XMODEM, the checksum that maps a key to one of the 16384 slots of a cluster.
//!
//! Slicing by eight: table `k` holds what one byte contributes when `k` more bytes follow it, so eight bytes
//! cost eight independent loads instead of a chain of eight dependent ones.
//!
//! ```text
//! crc' = T7[b0 ^ hi(crc)] ^ T6[b1 ^ lo(crc)] ^ T5[b2] ^ T4[b3] ^ T3[b4] ^ T2[b5] ^ T1[b6] ^ T0[b7]
//! ```
//! Eight tables x 256 x 2 B = 4 KB: an eighth of the first-level cache.

const POLYNOMIAL: u16 = 0x1021;

static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ POLYNOMIAL } else { crc << 1 };
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
            tables[k][byte] = (previous << 8) ^ tables[0][(previous >> 8) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// The checksum of `bytes` with the initial value 0.
#[inline]
pub fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    let (blocks, tail) = bytes.as_chunks::<8>();
    for block in blocks {
        let [high, low] = crc.to_be_bytes();
        crc = TABLES[7][(block[0] ^ high) as usize]
            ^ TABLES[6][(block[1] ^ low) as usize]
            ^ TABLES[5][block[2] as usize]
            ^ TABLES[4][block[3] as usize]
            ^ TABLES[3][block[4] as usize]
            ^ TABLES[2][block[5] as usize]
            ^ TABLES[1][block[6] as usize]
            ^ TABLES[0][block[7] as usize];
    }
    for &byte in tail {
        crc = (crc << 8) ^ TABLES[0][((crc >> 8) as u8 ^ byte) as usize];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    fn crc16_bit_by_bit(bytes: &[u8]) -> u16 {
        let mut crc = 0u16;
        for &byte in bytes {
            crc ^= u16::from(byte) << 8;
            for _ in 0..8 {
                crc = if crc & 0x8000 != 0 { (crc << 1) ^ POLYNOMIAL } else { crc << 1 };
            }
        }
        crc
    }

    #[test]
    fn the_published_check_value() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn slicing_agrees_with_the_definition_at_every_length() {
        let mut prng = Prng::new(16);
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|_| prng.next_u64() as u8).collect();
            assert_eq!(crc16(&bytes), crc16_bit_by_bit(&bytes), "length {length}");
        }
    }
}
