//! Columns of bytes looked at eight at a time, in plain 64-bit arithmetic.
//!
//! A page has some 17 entries, so a column is two to four words; SSE2 needs a load, a compare and a move-mask
//! for 16 of them, this some five operations for 8. Columns are multiples of 8 bytes long, so no word crosses
//! an end.

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const EVEN_BYTES: u64 = 0x00ff_00ff_00ff_00ff;
const EVEN_ONES: u64 = 0x0001_0001_0001_0001;

#[inline]
pub(crate) fn word(column: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(column[at * 8..at * 8 + 8].try_into().expect("eight bytes are eight bytes"))
}

/// The high bit of every byte that equals `byte`, exactly: no carry leaves a byte.
#[inline]
pub(crate) fn equal_bytes(word: u64, byte: u8) -> u64 {
    let difference = word ^ (LOW_BITS * u64::from(byte));
    !(((difference & !HIGH_BITS) + !HIGH_BITS) | difference) & HIGH_BITS
}

/// Sums of two bytes each, in lanes of 16 bits. Those of several words may be added: a column of 248 bytes
/// comes to at most 31 x 510 a lane and to 248 x 255 = 63,240 in all.
#[inline]
pub(crate) fn pair_sums(word: u64) -> u64 {
    (word & EVEN_BYTES) + ((word >> 8) & EVEN_BYTES)
}

/// The sum of the lanes.
#[inline]
pub(crate) fn sum_lanes(pairs: u64) -> usize {
    (pairs.wrapping_mul(EVEN_ONES) >> 48) as usize
}

/// The sum of the eight bytes.
#[inline]
pub(crate) fn sum_bytes(word: u64) -> usize {
    sum_lanes(pair_sums(word))
}

/// The first `count` (< 8) bytes of a word.
#[inline]
pub(crate) fn first_bytes(word: u64, count: usize) -> u64 {
    debug_assert!(count < 8);
    word & ((1 << (count * 8)) - 1)
}

/// The sum of the first `count` bytes of a column.
#[inline]
pub(crate) fn prefix_sum(column: &[u8], count: usize) -> usize {
    let whole = count / 8;
    let mut sum = 0;
    for at in 0..whole {
        sum += sum_bytes(word(column, at));
    }
    if !count.is_multiple_of(8) {
        sum += sum_bytes(first_bytes(word(column, whole), count % 8));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn words_agree_with_single_bytes() {
        let mut prng = Prng::new(7);
        for _ in 0..if cfg!(miri) { 50 } else { 20_000 } {
            // Few different bytes, so that neighbours are equal often: where a carry would show.
            let column: Vec<u8> =
                (0..32).map(|_| [0, 1, 2, 127, 128, 129, 254, 255][prng.below(8) as usize]).collect();
            let byte = column[prng.below(32) as usize];
            for at in 0..4 {
                let plain =
                    (0..8).filter(|i| column[at * 8 + i] == byte).fold(0, |mask, i| mask | 0x80 << (8 * i));
                assert_eq!(equal_bytes(word(&column, at), byte), plain);
            }
            let count = prng.below(32) as usize;
            assert_eq!(
                prefix_sum(&column, count),
                column[..count].iter().map(|&b| usize::from(b)).sum::<usize>()
            );
        }
    }
}
