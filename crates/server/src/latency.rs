//! How long commands take: a histogram of every command that was called, and the events that took too long.
//!
//! The histogram has the field's grid (HdrHistogram with two digits, 1 ns to 1 s), so that percentiles and the steps of
//! LATENCY HISTOGRAM are comparable with it: up to 255 ns each nanosecond is a cell, and every doubling above has 128.
//!
//! ```text
//! cell      0 ... 127 | 128 ... 255 | 256 ... 383 | 384 ... 511 | ...   3071
//! from ns   0 ... 127 | 128 ... 255 | 256 258 510 | 512 516 1020| ...   2^30 less one cell
//! octave        0            1             2             3       ...     23
//! ```
//! A worker records into its own, without locks, and whoever asks adds them up. An octave of 128 cells (1 KB) comes with
//! its first sample, a histogram (24 x 16 B) with its command's: commands that take between 0.5 and 30 us cost 6 KB a
//! worker, those that are never called 16 B.

pub mod monitor;

use std::sync::OnceLock;

use crate::stats::Counter;

const NS_MAX: u64 = 1_000_000_000;
const CELLS_PER_OCTAVE: usize = 128;
const OCTAVES: usize = 24;
const CELLS: usize = OCTAVES * CELLS_PER_OCTAVE;
/// The first step of LATENCY HISTOGRAM; each is twice the one before.
const FIRST_STEP_NS: u64 = 1024;

const _: () = assert!(cell_of(NS_MAX) < CELLS, "the longest time has a cell");

/// The cell of a time: what is above its eight highest bits' resolution is dropped.
const fn cell_of(ns: u64) -> usize {
    let shift = (u64::BITS - (ns | 255).leading_zeros() - 8) as usize;
    (shift + 1) * CELLS_PER_OCTAVE + (ns >> shift) as usize - CELLS_PER_OCTAVE
}

/// The shortest and the longest time of a cell.
const fn bounds_ns(cell: usize) -> (u64, u64) {
    let shift = (cell / CELLS_PER_OCTAVE).saturating_sub(1);
    let low = ((cell - shift * CELLS_PER_OCTAVE) as u64) << shift;
    (low, low + (1 << shift) - 1)
}

/// What one worker has measured of one command.
#[derive(Default)]
pub struct Recorder(OnceLock<Box<Octaves>>);

#[derive(Default)]
struct Octaves([OnceLock<Box<[Counter; CELLS_PER_OCTAVE]>>; OCTAVES]);

impl Recorder {
    #[inline]
    pub fn record(&self, ns: u64) {
        let cell = cell_of(ns.clamp(1, NS_MAX));
        let octaves = self.0.get_or_init(Box::default);
        let cells = octaves.0[cell / CELLS_PER_OCTAVE].get_or_init(empty_octave);
        cells[cell % CELLS_PER_OCTAVE].add(1);
    }

    /// Adds what was recorded to `sum`.
    pub fn add_to(&self, sum: &mut Histogram) {
        let Some(octaves) = self.0.get() else { return };
        let filled = octaves.0.iter().enumerate().filter_map(|(at, cells)| Some((at, cells.get()?)));
        for (at, cells) in filled {
            for (cell, counter) in cells.iter().enumerate().filter(|(_, counter)| counter.get() > 0) {
                sum.add(at * CELLS_PER_OCTAVE + cell, counter.get());
            }
        }
    }
}

#[cold]
fn empty_octave() -> Box<[Counter; CELLS_PER_OCTAVE]> {
    Box::new(std::array::from_fn(|_| Counter::default()))
}

/// Times of one command, of all workers together.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Histogram {
    /// By cell; as long as there are cells with something in them.
    counts: Vec<u64>,
}

impl Histogram {
    fn add(&mut self, cell: usize, count: u64) {
        if self.counts.len() <= cell {
            self.counts.resize(cell + 1, 0);
        }
        self.counts[cell] += count;
    }

    /// Takes away what was there before.
    pub fn subtract(&mut self, before: &Histogram) {
        for (count, before) in self.counts.iter_mut().zip(&before.counts) {
            *count -= before;
        }
    }

    pub fn calls(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time that `percent` of the calls did not exceed, as the end of its cell; for 0 the beginning of the first.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let wanted = ((percent / 100.0 * self.calls() as f64 + 0.5) as u64).max(1);
        let mut seen = 0;
        let cell = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let (low, high) = cell.map_or((0, 0), bounds_ns);
        if percent == 0.0 { low } else { high }
    }

    /// For every doubling from a microsecond on: the time in microseconds, and how many calls took no longer. Steps that
    /// add nothing are left out.
    pub fn steps_us(&self) -> Vec<(u64, u64)> {
        let (total, mut seen, mut next_cell) = (self.calls(), 0, 0);
        let mut steps = Vec::new();
        let mut step_ns = FIRST_STEP_NS;
        while seen < total {
            let cell = cell_of(step_ns).min(CELLS - 1);
            let before = seen;
            let end = (cell + 1).min(self.counts.len()).max(next_cell);
            seen += self.counts[next_cell..end].iter().sum::<u64>();
            next_cell = end;
            if seen > before {
                steps.push((bounds_ns(cell).1 / 1000, seen));
            }
            step_ns *= 2;
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(times_ns: &[u64]) -> Histogram {
        let recorder = Recorder::default();
        times_ns.iter().for_each(|ns| recorder.record(*ns));
        let mut sum = Histogram::default();
        recorder.add_to(&mut sum);
        sum
    }

    #[test]
    fn cells_follow_each_other() {
        let mut next = 0;
        for cell in 0..CELLS {
            let (low, high) = bounds_ns(cell);
            assert_eq!(low, next, "cell {cell}");
            assert!(cell_of(low) == cell && cell_of(high) == cell, "cell {cell}");
            // Two digits.
            assert!((high - low) * 100 <= high, "cell {cell}");
            next = high + 1;
        }
        assert!(next > NS_MAX);
    }

    #[test]
    fn percentiles_are_ends_of_cells() {
        let check = |times_us: &[u64], percent, expected_ns| {
            let times_ns: Vec<u64> = times_us.iter().map(|us| us * 1000).collect();
            assert_eq!(histogram(&times_ns).percentile_ns(percent), expected_ns, "{times_us:?} {percent}");
        };
        // What INFO latencystats of Valkey shows after such times: p50=1.003, 8.031, ...
        check(&[1], 50.0, 1003);
        check(&[1, 8], 50.0, 1003);
        check(&[1, 8], 99.0, 8031);
        check(&[1, 8], 0.0, 1000);
        check(&[50_000], 50.0, 50_069_503);
        check(&[2_000_000], 100.0, 1_002_438_655);
        check(&[], 50.0, 0);
    }

    #[test]
    fn steps_are_those_of_the_field() {
        let check = |times_ns: &[u64], expected: &[(u64, u64)]| {
            assert_eq!(histogram(times_ns).steps_us(), expected, "{times_ns:?}");
        };
        check(&[], &[]);
        check(&[500, 900, 1024, 1500, 40_000], &[(1, 3), (2, 4), (66, 5)]);
        check(&[9_000_000_000], &[(1_073_741, 1)]);
    }

    #[test]
    fn what_was_before_a_reset_is_taken_away() {
        let recorder = Recorder::default();
        recorder.record(10);
        let mut before = Histogram::default();
        recorder.add_to(&mut before);
        recorder.record(1 << 20);
        let mut after = Histogram::default();
        recorder.add_to(&mut after);
        after.subtract(&before);
        assert_eq!((after.calls(), after.percentile_ns(0.0)), (1, 1 << 20));
    }
}
