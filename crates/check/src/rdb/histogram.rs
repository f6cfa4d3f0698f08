//! Counts of values in buckets whose width grows with the value, exact to three decimal digits: what
//! percentiles are read from.
//!
//! ```text
//! 0 1 2 ... 2047 | 2048-2049 2050-2051 ... 4094-4095 | 4096-4099 ...       1024 buckets a doubling
//! ```
//! The buckets are those of HdrHistogram with three digits, so the percentiles are those that Valkey shows.

use std::collections::BTreeMap;

/// Below this each value has a bucket of its own.
const FINE: u64 = 2048;

pub struct Histogram {
    /// Longer ones are not counted.
    limit: u64,
    /// Counts of the buckets, by the largest value of each.
    counts: BTreeMap<u64, u64>,
    total: u64,
}

impl Histogram {
    /// Builds a histogram for values up to `max`, and up to the end of the doubling in which `max` lies.
    pub fn new(max: u64) -> Histogram {
        let mut limit = FINE;
        while limit <= max {
            limit *= 2;
        }
        Histogram { limit, counts: BTreeMap::new(), total: 0 }
    }

    pub fn record(&mut self, value: u64) {
        if value >= self.limit {
            return;
        }
        let width = 1 << (value | (FINE - 1)).ilog2().saturating_sub(FINE.ilog2() - 1);
        let largest = value / width * width + width - 1;
        *self.counts.entry(largest).or_default() += 1;
        self.total += 1;
    }

    /// The largest value of the bucket up to which `percent` percent of the values lie; 0 without values.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((percent / 100.0 * self.total as f64 + 0.5) as u64).max(1);
        let mut seen = 0;
        let reached = |(_, count): &(&u64, &u64)| {
            seen += **count;
            seen >= wanted
        };
        self.counts.iter().find(reached).map_or(0, |(largest, _)| *largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_ends_of_buckets() {
        let mut histogram = Histogram::new(204_800);
        assert_eq!(histogram.percentile(99.0), 0);
        (1..=100).for_each(|value| histogram.record(value));
        assert_eq!([50.0, 90.0, 99.0].map(|percent| histogram.percentile(percent)), [50, 90, 99]);
        let of = |value| {
            let mut histogram = Histogram::new(204_800);
            histogram.record(value);
            histogram.percentile(50.0)
        };
        assert_eq!([0, 2047, 2048, 2049, 4096].map(of), [0, 2047, 2049, 2049, 4099]);
        assert_eq!([262_143, 262_144].map(of), [262_143, 0]);
    }
}
