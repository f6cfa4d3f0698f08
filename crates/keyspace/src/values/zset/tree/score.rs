//! Scores as unsigned integers that compare as the doubles do.
//!
//! ```text
//!   positive   sign bit set, the rest as it is          1.0 -> bff0_0000_0000_0000
//!   negative   every bit flipped                       -1.0 -> 400f_ffff_ffff_ffff
//!   -0.0       7fff_ffff_ffff_ffff, just below +0.0     distinguished, but `order_of` makes the two equal
//! ```
//!
//! Scores of neighbours share their first bytes, and whole numbers end in bytes of 00 (negative ones of ff):
//! a leaf leaves both out.

const SIGN: u64 = 1 << 63;
const NEGATIVE_ZERO: u64 = SIGN - 1;

#[inline]
pub(super) fn bits_of(score: f64) -> u64 {
    let bits = score.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

#[inline]
pub(super) fn score_of(bits: u64) -> f64 {
    f64::from_bits(if bits & SIGN == 0 { !bits } else { bits & !SIGN })
}

/// Returns the bits that decide the order: the two zeros are one score.
#[inline]
pub(super) fn order_of(bits: u64) -> u64 {
    bits + u64::from(bits == NEGATIVE_ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_come_back_and_keep_their_order() {
        let scores =
            [f64::NEG_INFINITY, -1e300, -2.0, -1.5, -1e-320, 0.0, 1e-320, 0.5, 1.0, 1e18, f64::INFINITY];
        for pair in scores.windows(2) {
            assert!(order_of(bits_of(pair[0])) < order_of(bits_of(pair[1])));
        }
        for score in scores.into_iter().chain([-0.0]) {
            assert_eq!(score_of(bits_of(score)).to_bits(), score.to_bits());
        }
        assert_ne!(bits_of(-0.0), bits_of(0.0));
        assert_eq!(order_of(bits_of(-0.0)), order_of(bits_of(0.0)));
    }
}
