//! Times in buckets: 32 for each doubling, so a figure read from it is at most 3.1 % off.
//!
//! 64 doublings x 32 buckets x 8 B = 16 KB.

use std::time::Duration;

const PER_DOUBLING_LOG2: u32 = 5;
const BUCKETS: usize = 64 << PER_DOUBLING_LOG2;

pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], total: 0, longest_ns: 0 }
    }
}

impl Histogram {
    pub fn add(&mut self, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.total += other.total;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    pub fn count(&self) -> u64 {
        self.total
    }

    pub fn longest_us(&self) -> f64 {
        self.longest_ns as f64 / 1e3
    }

    /// Returns how many values were longer than `time`, to the accuracy of a bucket.
    pub fn above(&self, time: Duration) -> u64 {
        self.counts[bucket(time.as_nanos() as u64) + 1..].iter().sum()
    }

    /// The time that `part` (0.99) of all do not exceed.
    pub fn quantile_us(&self, part: f64) -> f64 {
        let wanted = (self.total as f64 * part).ceil() as u64;
        let mut sum = 0;
        for (index, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= wanted {
                return (lower_bound(index + 1) as f64 / 1e3).min(self.longest_us());
            }
        }
        self.longest_us()
    }
}

fn bucket(ns: u64) -> usize {
    let log = 63 - (ns | 1).leading_zeros();
    if log < PER_DOUBLING_LOG2 {
        return ns as usize;
    }
    let within = (ns >> (log - PER_DOUBLING_LOG2)) as usize & ((1 << PER_DOUBLING_LOG2) - 1);
    (((log - PER_DOUBLING_LOG2 + 1) as usize) << PER_DOUBLING_LOG2) + within
}

fn lower_bound(bucket: usize) -> u64 {
    let per_doubling = 1usize << PER_DOUBLING_LOG2;
    if bucket < per_doubling {
        return bucket as u64;
    }
    let log = (bucket >> PER_DOUBLING_LOG2) - 1;
    ((per_doubling + bucket % per_doubling) as u64) << log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_bounds_agree() {
        for ns in (0..5000).chain([1 << 20, (1 << 40) + 12345]) {
            let at = bucket(ns);
            assert!(lower_bound(at) <= ns && ns < lower_bound(at + 1), "{ns} in {at}");
        }
    }

    #[test]
    fn quantiles_of_a_hundred() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        assert!((histogram.quantile_us(0.5) - 50_000.0).abs() < 2_000.0);
        assert!((histogram.quantile_us(0.99) - 99_000.0).abs() < 3_500.0);
        assert_eq!(histogram.longest_us(), 100_000.0);
        assert_eq!(histogram.above(Duration::from_millis(200)), 0);
        assert!((8..=10).contains(&histogram.above(Duration::from_millis(90))));
    }
}
