//! Times that reads took: counts by time, of many threads.
//!
//! ```text
//! cell    0     1  2  3     4  5  6  7     8  9 10 11      ...
//! us      0     1  2  3     4  5  6  7     8  10 12 14     16 20 24 28   ... each doubling has four
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const CELLS: usize = 4 * 32;

pub struct Times([AtomicU64; CELLS]);

impl Default for Times {
    fn default() -> Times {
        Times([const { AtomicU64::new(0) }; CELLS])
    }
}

const fn cell_of(us: u64) -> usize {
    let shift = (u64::BITS - (us | 7).leading_zeros() - 3) as usize;
    let cell = shift * 4 + (us >> shift) as usize;
    if cell < CELLS { cell } else { CELLS - 1 }
}

/// The longest time of a cell.
const fn end_of(cell: usize) -> u64 {
    let shift = (cell / 4).saturating_sub(1);
    (((cell - shift * 4) as u64 + 1) << shift) - 1
}

impl Times {
    pub fn add(&self, us: u64) {
        self.0[cell_of(us)].fetch_add(1, Relaxed);
    }

    /// Returns the time that `percent` of them did not exceed, to a quarter; 0 if there was none.
    pub fn percentile_us(&self, percent: u64) -> u64 {
        let counts: Vec<u64> = self.0.iter().map(|cell| cell.load(Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            wanted > 0 && seen >= wanted
        });
        found.map_or(0, end_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_follow_each_other() {
        let mut last = 0;
        for us in 1..100_000 {
            let cell = cell_of(us);
            assert!(cell == last || cell == last + 1, "{us}");
            assert!(us <= end_of(cell) && (cell == last || end_of(last) == us - 1), "{us}");
            last = cell;
        }
        assert_eq!(cell_of(u64::MAX), CELLS - 1);
    }

    #[test]
    fn percentiles_are_ends_of_cells() {
        let times = Times::default();
        assert_eq!(times.percentile_us(50), 0);
        (0..99).for_each(|_| times.add(100));
        times.add(50_000);
        assert_eq!((times.percentile_us(50), times.percentile_us(99)), (111, 111));
        times.add(50_000);
        assert!((50_000..60_000).contains(&times.percentile_us(99)));
    }
}
