//! Latencies counted in buckets whose width grows with the value, so that each is exact to some digits.
//!
//! ```text
//! precision 3: 2 x 10^3 rounds up to 2048 buckets of 1 us; then 1024 of 2 us, 1024 of 4 us, ... to 3 s
//!              2048 + 11 x 1024 = 13,312 counts x 8 B = 104 KB a worker
//! ```

// COMPAT(tools): isotherm-benchmark measures latencies to 1 us up to 2 ms (valkey-benchmark: 8 us); at a
// terminal its progress line has a bar. Why: most commands take less than 8 us of server time.
/// Longer ones count as this.
const LATENCY_US_MAX: u64 = 3_000_000;

#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    /// The buckets of a doubling, as a power of two.
    half_bits: u32,
    total: u64,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
}

impl Histogram {
    /// Creates a histogram whose values are exact to `digits` decimal digits, 1 to 4.
    pub fn new(digits: u32) -> Histogram {
        let fine = (2 * 10u64.pow(digits.clamp(1, 4))).next_power_of_two();
        let mut histogram = Histogram {
            counts: Vec::new(),
            half_bits: fine.ilog2() - 1,
            total: 0,
            sum_us: 0,
            min_us: u64::MAX,
            max_us: 0,
        };
        histogram.counts = vec![0; histogram.bucket(LATENCY_US_MAX) + 1];
        histogram
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.sum_us, self.min_us, self.max_us) = (0, 0, u64::MAX, 0);
    }

    pub fn record(&mut self, latency_us: u64, times: u64) {
        let latency_us = latency_us.min(LATENCY_US_MAX);
        let bucket = self.bucket(latency_us);
        self.counts[bucket] += times;
        self.total += times;
        self.sum_us += latency_us * times;
        self.min_us = self.min_us.min(latency_us);
        self.max_us = self.max_us.max(latency_us);
    }

    pub fn merge(&mut self, other: &Histogram) {
        assert_eq!(self.half_bits, other.half_bits, "of the same precision");
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.sum_us += other.sum_us;
        self.min_us = self.min_us.min(other.min_us);
        self.max_us = self.max_us.max(other.max_us);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn mean_us(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum_us as f64 / self.total as f64 }
    }

    pub fn min_us(&self) -> u64 {
        if self.total == 0 { 0 } else { self.min_us }
    }

    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// The latency that `percent` percent of the values do not exceed, and the number of those values.
    pub fn at_percentile(&self, percent: f64) -> (u64, u64) {
        let wanted = ((percent / 100.0 * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut sum = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= wanted {
                return (self.bucket_end(bucket).min(self.max_us), sum);
            }
        }
        (self.max_us, self.total)
    }

    /// Returns how many requests took no longer than `latency_us`.
    pub fn count_to(&self, latency_us: u64) -> u64 {
        self.counts[..=self.bucket(latency_us.min(LATENCY_US_MAX))].iter().sum()
    }

    fn bucket(&self, value: u64) -> usize {
        let half = 1u64 << self.half_bits;
        let doublings = (value | (2 * half - 1)).ilog2() - self.half_bits;
        let fine = value >> doublings;
        (u64::from(doublings) * half + fine) as usize
    }

    /// The highest value that falls into a bucket.
    fn bucket_end(&self, bucket: usize) -> u64 {
        let half = 1u64 << self.half_bits;
        let bucket = bucket as u64;
        let doublings = (bucket / half).saturating_sub(1);
        ((bucket - doublings * half + 1) << doublings) - 1
    }

    pub fn check_invariants(&self) {
        assert_eq!(self.counts.iter().sum::<u64>(), self.total, "every latency is in a bucket");
        assert!(self.total == 0 || self.min_us <= self.max_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for digits in 1..=4 {
            let histogram = Histogram::new(digits);
            let mut last = None;
            for value in (0..5000).chain((5000..=LATENCY_US_MAX).step_by(997)) {
                let bucket = histogram.bucket(value);
                let end = histogram.bucket_end(bucket);
                assert!(end >= value && (bucket == 0 || histogram.bucket_end(bucket - 1) < value), "{value}");
                let error = (end - value) as f64 / value.max(1) as f64;
                assert!(error <= 0.1f64.powi(digits as i32), "{value} is {end} with {digits} digits");
                assert!(last <= Some(bucket));
                last = Some(bucket);
            }
        }
    }

    #[test]
    fn percentiles_are_those_of_a_sorted_list() {
        let mut prng = Prng::new(3);
        let mut histogram = Histogram::new(3);
        let mut other = histogram.clone();
        let mut values: Vec<u64> = (0..10_000).map(|_| prng.below(2000)).collect();
        for (i, &value) in values.iter().enumerate() {
            if i % 2 == 0 { &mut histogram } else { &mut other }.record(value, 1);
        }
        histogram.merge(&other);
        histogram.check_invariants();
        values.sort_unstable();
        for percent in [50.0, 75.0, 99.0, 100.0] {
            let at = (percent / 100.0 * values.len() as f64) as usize - 1;
            assert_eq!(histogram.at_percentile(percent).0, values[at], "{percent}");
        }
        assert_eq!(histogram.count_to(999), values.iter().filter(|&&value| value <= 999).count() as u64);
        assert_eq!((histogram.min_us(), histogram.max_us()), (values[0], values[9_999]));
        assert_eq!(histogram.mean_us(), values.iter().sum::<u64>() as f64 / 10_000.0);
    }

    #[test]
    fn none_and_too_long() {
        let mut histogram = Histogram::new(3);
        assert_eq!(
            (histogram.min_us(), histogram.mean_us(), histogram.at_percentile(50.0)),
            (0, 0.0, (0, 0))
        );
        histogram.record(u64::MAX, 2);
        assert_eq!(histogram.max_us(), LATENCY_US_MAX);
        histogram.clear();
        histogram.check_invariants();
        assert_eq!(histogram.total(), 0);
    }
}
