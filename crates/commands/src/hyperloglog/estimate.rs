//! Estimate of a cardinality from registers: the estimator of Otmar Ertl, "New cardinality estimation
//! algorithms for HyperLogLog sketches" (arXiv:1702.01284). The operations and their order are Valkey's,
//! since the number is stored and compared.

use super::{Histogram, REGISTERS, Registers, VALUE_BITS};

/// 0.5 / ln 2
const ALPHA: f64 = 0.721_347_520_444_481_7;

pub(super) fn estimate(histogram: &Histogram) -> u64 {
    let m = REGISTERS as f64;
    let of = |value: usize| f64::from(histogram[value]);
    let largest = VALUE_BITS as usize + 1;
    let mut z = m * tau((m - of(largest)) / m);
    for value in (1..largest).rev() {
        z = (z + of(value)) * 0.5;
    }
    z += m * sigma(of(0) / m);
    let number = (ALPHA * m * m / z).round();
    // Registers that no hash has made may give no number at all; then Valkey stores this one.
    if number < i64::MAX as f64 { number as u64 } else { 1 << 63 }
}

pub(super) fn histogram(registers: &Registers) -> Histogram {
    let mut histogram = [0; 64];
    registers.iter().for_each(|value| histogram[usize::from(*value)] += 1);
    histogram
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}
