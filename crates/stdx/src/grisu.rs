//! Grisu2: the digits of a double, fast and nearly always the fewest (Florian Loitsch, "Printing
//! floating-point numbers quickly and accurately with integers", 2010).
//!
//! Why not the shortest digits, which the standard library knows? Because for about one double in a thousand
//! Grisu2 gives one digit more, and Valkey prints with Grisu2: ZSCORE must say the same here.
//!
//! ```text
//! lower ----------- v ----------- upper      every number between the two reads back as v
//! x 10^k                                     brings `upper` to 2^-60 .. 2^-32, so that its whole part fits 32 bits
//! digits of upper, until the rest is less than upper - lower; then the last digit goes down towards v
//! ```
//! All in 64 bits: each product is off by up to half a unit, so the interval is made one unit narrower on
//! both sides.

/// 10^k for k = -348, -340 .. 340, as the nearest number of 64 bits with the first bit set; the power of two
/// that goes with it is `binary_exponent(k)`.
const POWERS: [u64; 87] = [
    0xfa8f_d5a0_081c_0288,
    0xbaae_e17f_a23e_bf76,
    0x8b16_fb20_3055_ac76,
    0xcf42_894a_5dce_35ea,
    0x9a6b_b0aa_5565_3b2d,
    0xe61a_cf03_3d1a_45df,
    0xab70_fe17_c79a_c6ca,
    0xff77_b1fc_bebc_dc4f,
    0xbe56_91ef_416b_d60c,
    0x8dd0_1fad_907f_fc3c,
    0xd351_5c28_3155_9a83,
    0x9d71_ac8f_ada6_c9b5,
    0xea9c_2277_23ee_8bcb,
    0xaecc_4991_4078_536d,
    0x823c_1279_5db6_ce57,
    0xc210_9436_4dfb_5637,
    0x9096_ea6f_3848_984f,
    0xd774_85cb_2582_3ac7,
    0xa086_cfcd_97bf_97f4,
    0xef34_0a98_172a_ace5,
    0xb238_67fb_2a35_b28e,
    0x84c8_d4df_d2c6_3f3b,
    0xc5dd_4427_1ad3_cdba,
    0x936b_9fce_bb25_c996,
    0xdbac_6c24_7d62_a584,
    0xa3ab_6658_0d5f_daf6,
    0xf3e2_f893_dec3_f126,
    0xb5b5_ada8_aaff_80b8,
    0x8762_5f05_6c7c_4a8b,
    0xc9bc_ff60_34c1_3053,
    0x964e_858c_91ba_2655,
    0xdff9_7724_7029_7ebd,
    0xa6df_bd9f_b8e5_b88f,
    0xf8a9_5fcf_8874_7d94,
    0xb944_7093_8fa8_9bcf,
    0x8a08_f0f8_bf0f_156b,
    0xcdb0_2555_6531_31b6,
    0x993f_e2c6_d07b_7fac,
    0xe45c_10c4_2a2b_3b06,
    0xaa24_2499_6973_92d3,
    0xfd87_b5f2_8300_ca0e,
    0xbce5_0864_9211_1aeb,
    0x8cbc_cc09_6f50_88cc,
    0xd1b7_1758_e219_652c,
    0x9c40_0000_0000_0000,
    0xe8d4_a510_0000_0000,
    0xad78_ebc5_ac62_0000,
    0x813f_3978_f894_0984,
    0xc097_ce7b_c907_15b3,
    0x8f7e_32ce_7bea_5c70,
    0xd5d2_38a4_abe9_8068,
    0x9f4f_2726_179a_2245,
    0xed63_a231_d4c4_fb27,
    0xb0de_6538_8cc8_ada8,
    0x83c7_088e_1aab_65db,
    0xc45d_1df9_4271_1d9a,
    0x924d_692c_a61b_e758,
    0xda01_ee64_1a70_8dea,
    0xa26d_a399_9aef_774a,
    0xf209_787b_b47d_6b85,
    0xb454_e4a1_79dd_1877,
    0x865b_8692_5b9b_c5c2,
    0xc835_53c5_c896_5d3d,
    0x952a_b45c_fa97_a0b3,
    0xde46_9fbd_99a0_5fe3,
    0xa59b_c234_db39_8c25,
    0xf6c6_9a72_a398_9f5c,
    0xb7dc_bf53_54e9_bece,
    0x88fc_f317_f222_41e2,
    0xcc20_ce9b_d35c_78a5,
    0x9816_5af3_7b21_53df,
    0xe2a0_b5dc_971f_303a,
    0xa8d9_d153_5ce3_b396,
    0xfb9b_7cd9_a4a7_443c,
    0xbb76_4c4c_a7a4_4410,
    0x8bab_8eef_b640_9c1a,
    0xd01f_ef10_a657_842c,
    0x9b10_a4e5_e991_3129,
    0xe710_9bfb_a19c_0c9d,
    0xac28_20d9_623b_f429,
    0x8044_4b5e_7aa7_cf85,
    0xbf21_e440_03ac_dd2d,
    0x8e67_9c2f_5e44_ff8f,
    0xd433_179d_9c8c_b841,
    0x9e19_db92_b4e3_1ba9,
    0xeb96_bf6e_badf_77d9,
    0xaf87_023b_9bf0_ee6b,
];
const POWER_FIRST: i32 = -348;
const POWER_STEP: i32 = 8;
const _: () = assert!(POWER_FIRST + POWER_STEP * (POWERS.len() as i32 - 1) == 340);

/// Range in which the exponent of the scaled upper bound must lie.
const EXPONENT_MIN: i32 = -60;
const EXPONENT_MAX: i32 = -32;

/// At most 17 digits distinguish any double from its neighbours; the algorithm may give one more.
pub(crate) const DIGITS_MAX: usize = 18;

/// `fraction x 2^exponent`.
#[derive(Clone, Copy)]
struct Fp {
    fraction: u64,
    exponent: i32,
}

/// Digits (as text) and the power of ten of the last one.
pub(crate) struct Digits {
    text: [u8; DIGITS_MAX],
    len: usize,
    pub(crate) power: i32,
}

impl Digits {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }

    fn push(&mut self, digit: u64) {
        // Leading zeros are no digits.
        if digit > 0 || self.len > 0 {
            self.text[self.len] = b'0' + digit as u8;
            self.len += 1;
        }
    }
}

/// The digits of a finite number above zero.
pub(crate) fn digits_of(value: f64) -> Digits {
    debug_assert!(value > 0.0 && value.is_finite());
    let v = decompose(value);
    let (lower, upper) = boundaries(v);
    let (power, k) = power_for(upper.exponent);
    let scaled = multiply(normalize(v), power);
    let upper = multiply(upper, power);
    let lower = multiply(lower, power);
    let lower = Fp { fraction: lower.fraction + 1, ..lower };
    let upper = Fp { fraction: upper.fraction - 1, ..upper };
    generate(scaled, lower, upper, -k)
}

fn decompose(value: f64) -> Fp {
    const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const BIAS: i32 = 1023 + FRACTION_BITS as i32;
    let bits = value.to_bits();
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    match (bits >> FRACTION_BITS) as i32 {
        0 => Fp { fraction, exponent: 1 - BIAS },
        exponent => Fp { fraction: fraction | 1 << FRACTION_BITS, exponent: exponent - BIAS },
    }
}

fn normalize(fp: Fp) -> Fp {
    let shift = fp.fraction.leading_zeros();
    Fp { fraction: fp.fraction << shift, exponent: fp.exponent - shift as i32 }
}

/// Half way to both neighbours. Below a power of two the neighbour is twice as near.
fn boundaries(v: Fp) -> (Fp, Fp) {
    const HIDDEN_BIT: u64 = 1 << (f64::MANTISSA_DIGITS - 1);
    let upper = normalize(Fp { fraction: (v.fraction << 1) + 1, exponent: v.exponent - 1 });
    let shift = if v.fraction == HIDDEN_BIT { 2 } else { 1 };
    let lower = Fp { fraction: (v.fraction << shift) - 1, exponent: v.exponent - shift };
    let lower = lower.fraction << (lower.exponent - upper.exponent);
    (Fp { fraction: lower, exponent: upper.exponent }, upper)
}

/// A power of ten, and its number, that brings `exponent` into the range where digits are generated.
fn power_for(exponent: i32) -> (Fp, i32) {
    const LOG10_OF_2: f64 = 0.301_029_995_663_981_14;
    // The estimate decides which power is taken where two would do, so it is Valkey's.
    let estimate = (f64::from(-(exponent + POWERS.len() as i32)) * LOG10_OF_2) as i32;
    let mut index = (estimate - POWER_FIRST) / POWER_STEP;
    loop {
        let k = POWER_FIRST + index * POWER_STEP;
        let power = Fp { fraction: POWERS[index as usize], exponent: binary_exponent(k) };
        match exponent + power.exponent + 64 {
            ..EXPONENT_MIN => index += 1,
            EXPONENT_MIN..=EXPONENT_MAX => return (power, k),
            _ => index -= 1,
        }
    }
}

/// floor(k x log2(10)) - 63; 217706 / 2^16 is near enough for every k of the table.
const fn binary_exponent(k: i32) -> i32 {
    ((k * 217_706) >> 16) - 63
}

/// The upper half of the product, rounded.
fn multiply(a: Fp, b: Fp) -> Fp {
    let product = u128::from(a.fraction) * u128::from(b.fraction) + (1 << 63);
    Fp { fraction: (product >> 64) as u64, exponent: a.exponent + b.exponent + 64 }
}

fn generate(v: Fp, lower: Fp, upper: Fp, power: i32) -> Digits {
    let mut digits = Digits { text: [0; DIGITS_MAX], len: 0, power };
    let point = (-upper.exponent) as u32;
    let one = 1u64 << point;
    let distance = upper.fraction - v.fraction;
    let mut delta = upper.fraction - lower.fraction;
    let mut whole = upper.fraction >> point;
    let mut fraction = upper.fraction & (one - 1);

    for kappa in (0..10).rev() {
        let unit = 10u64.pow(kappa);
        digits.push(whole / unit);
        whole %= unit;
        let rest = (whole << point) + fraction;
        if rest <= delta {
            digits.power += kappa as i32;
            lower_last_digit(&mut digits, delta, rest, unit << point, distance);
            return digits;
        }
    }
    let mut unit = 1u64;
    loop {
        fraction *= 10;
        delta *= 10;
        unit = unit.wrapping_mul(10);
        digits.power -= 1;
        digits.push(fraction >> point);
        fraction &= one - 1;
        if fraction < delta {
            lower_last_digit(&mut digits, delta, fraction, one, distance.wrapping_mul(unit));
            return digits;
        }
    }
}

/// The digits stand for a number between v and upper; the last one goes down as long as that comes nearer to
/// v.
fn lower_last_digit(digits: &mut Digits, delta: u64, mut rest: u64, unit: u64, distance: u64) {
    while rest < distance
        && delta - rest >= unit
        && (rest + unit < distance || distance - rest > rest + unit - distance)
    {
        digits.text[digits.len - 1] -= 1;
        rest += unit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    fn text(value: f64) -> String {
        let digits = digits_of(value);
        format!("{}e{}", String::from_utf8_lossy(digits.as_bytes()), digits.power)
    }

    #[test]
    fn digits_of_well_known_numbers() {
        assert_eq!(text(0.1), "1e-1");
        assert_eq!(text(1.5), "15e-1");
        assert_eq!(text(5e-324), "5e-324");
        assert_eq!(text(f64::MAX), "17976931348623157e292");
        assert_eq!(text(f64::MIN_POSITIVE), "22250738585072014e-324");
    }

    #[test]
    fn they_read_back_and_are_seldom_longer_than_needed() {
        let mut prng = Prng::new(2010);
        let (mut numbers, mut longer) = (0, 0);
        while numbers < 200_000 {
            let value = f64::from_bits(prng.next_u64() >> 1);
            if !value.is_finite() || value == 0.0 {
                continue;
            }
            numbers += 1;
            let ours = text(value);
            assert_eq!(ours.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{ours}");
            let shortest = format!("{value:e}").split_once('e').unwrap().0.replace('.', "").len();
            let length = ours.split_once('e').unwrap().0.len();
            assert!(length >= shortest);
            longer += u32::from(length > shortest);
        }
        assert!((1..numbers / 200).contains(&longer), "{longer} of {numbers}");
    }
}
