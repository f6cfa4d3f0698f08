//! Execution times of commands: a histogram of every command that was called, and the events that took too
//! long.
//!
//! The histogram has Valkey's grid (HdrHistogram with two digits, 1 ns to 1 s), so that percentiles and the
//! steps of LATENCY HISTOGRAM are comparable with it: up to 255 ns each nanosecond is a cell, and every
//! doubling above has 128.
//!
//! ```text
//! cell      0 ... 127 | 128 ... 255 | 256 ... 383 | 384 ... 511 | ...   3071
//! from ns   0 ... 127 | 128 ... 255 | 256 258 510 | 512 516 1020| ...   2^30 less one cell
//! octave        0            1             2             3       ...     23
//! ```
//! A worker records into its own histograms, without locks, and a report adds them up. It records ticks of
//! its clock, on the same grid. A report converts them to nanoseconds (the middle of a cell, which is off by
//! 1/256 at most). An octave of 128 cells (1 KB) is allocated with its first sample, and a recorder (27 x 16
//! B) with its command's: commands that take between 0.5 and 30 us cost 6 KB per worker, those that are never
//! called 16 B. While a batch runs, its times are only noted (`Noted`). A cell is four dependent loads away;
//! recording a whole batch at once waits for them once, and not once for each command.

pub mod monitor;

use std::sync::OnceLock;

use crate::observe::counter::Counter;

// COMPAT(observability): Execution times of commands are recorded in nanoseconds; Valkey records whole
// microseconds. INFO latencystats shows them on the same grid. Why: many commands take less than a
// microsecond.
const NS_MAX: u64 = 1_000_000_000;
const CELLS_PER_OCTAVE: usize = 128;
/// Octaves of nanoseconds.
const OCTAVES: usize = 24;
const CELLS: usize = OCTAVES * CELLS_PER_OCTAVE;
/// Octaves of ticks, enough for a second of a clock of 8 GHz.
const TICK_OCTAVES: usize = 27;
const TICKS_MAX: u64 = (1 << 33) - 1;
/// The first step of LATENCY HISTOGRAM; each is twice the one before.
const FIRST_STEP_NS: u64 = 1024;

const _: () = assert!(cell_of(NS_MAX) < CELLS, "the longest time has a cell");
const _: () = assert!(cell_of(TICKS_MAX) == TICK_OCTAVES * CELLS_PER_OCTAVE - 1, "so have the most ticks");

/// The cell of a time: what is above its eight highest bits' resolution is dropped.
const fn cell_of(ns: u64) -> usize {
    let shift = (u64::BITS - (ns | 255).leading_zeros() - 8) as usize;
    (shift + 1) * CELLS_PER_OCTAVE + (ns >> shift) as usize - CELLS_PER_OCTAVE
}

/// The shortest and the longest time of a cell.
const fn bounds(cell: usize) -> (u64, u64) {
    let shift = (cell / CELLS_PER_OCTAVE).saturating_sub(1);
    let low = ((cell - shift * CELLS_PER_OCTAVE) as u64) << shift;
    (low, low + (1 << shift) - 1)
}

/// Times of one command, as one worker has measured them.
#[derive(Default)]
pub struct Recorder(OnceLock<Box<Octaves>>);

type Cells = [Counter; CELLS_PER_OCTAVE];

#[derive(Default)]
struct Octaves([OnceLock<Box<Cells>>; TICK_OCTAVES]);

impl Recorder {
    #[inline]
    pub fn record(&self, ticks: u64) {
        let cell = cell_of(ticks.min(TICKS_MAX));
        self.octave(cell / CELLS_PER_OCTAVE)[cell % CELLS_PER_OCTAVE].add(1);
    }

    #[inline]
    fn octave(&self, at: usize) -> &Cells {
        let octaves = self.0.get_or_init(Box::default);
        octaves.0[at].get_or_init(empty_octave)
    }

    pub fn memory_bytes(&self) -> usize {
        let Some(octaves) = self.0.get() else { return 0 };
        let filled = octaves.0.iter().filter(|cells| cells.get().is_some()).count();
        size_of::<Octaves>() + filled * size_of::<Cells>()
    }

    /// Adds what was recorded to `sum`.
    pub fn add_to(&self, sum: &mut Histogram, nanos: impl Fn(u64) -> u64) {
        let Some(octaves) = self.0.get() else { return };
        let filled = octaves.0.iter().enumerate().filter_map(|(at, cells)| Some((at, cells.get()?)));
        for (at, cells) in filled {
            for (cell, counter) in cells.iter().enumerate().filter(|(_, counter)| counter.get() > 0) {
                let (low, high) = bounds(at * CELLS_PER_OCTAVE + cell);
                let ns = nanos(low.midpoint(high)).clamp(1, NS_MAX);
                sum.add(cell_of(ns), counter.get());
            }
        }
    }
}

#[cold]
fn empty_octave() -> Box<Cells> {
    Box::new(std::array::from_fn(|_| Counter::default()))
}

/// Times of one batch that are not recorded yet.
#[derive(Default)]
pub struct Noted {
    /// Ticks above 16 bits of command.
    times: [u64; NOTED_MAX],
    count: usize,
}

/// A batch, usually.
const NOTED_MAX: usize = 32;

impl Noted {
    /// Notes a time. Returns whether there is no room for another.
    #[inline]
    #[must_use]
    pub fn add(&mut self, command: u16, ticks: u64) -> bool {
        self.times[self.count % NOTED_MAX] = ticks.min(TICKS_MAX) << 16 | u64::from(command);
        self.count += 1;
        self.count == NOTED_MAX
    }

    pub fn take(&mut self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let count = std::mem::take(&mut self.count);
        self.times[..count].iter().map(|noted| (*noted as u16, noted >> 16))
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Times of one command, of all workers together.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Histogram {
    /// Counts by cell, up to the last cell that is not zero.
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

    /// The time that `percent` of the calls did not exceed, as the end of its cell; for 0 the beginning of
    /// the first.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let wanted = ((percent / 100.0 * self.calls() as f64 + 0.5) as u64).max(1);
        let mut seen = 0;
        let cell = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let (low, high) = cell.map_or((0, 0), bounds);
        if percent == 0.0 { low } else { high }
    }

    /// Returns, for every doubling from a microsecond on, the time in microseconds and the number of calls
    /// that took no longer. Steps that add no call are left out.
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
                steps.push((bounds(cell).1 / 1000, seen));
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
        sum_of(&recorder)
    }

    /// Returns the histogram of a clock that ticks nanoseconds.
    fn sum_of(recorder: &Recorder) -> Histogram {
        let mut sum = Histogram::default();
        recorder.add_to(&mut sum, |ticks| ticks);
        sum
    }

    #[test]
    fn cells_follow_each_other() {
        let mut next = 0;
        for cell in 0..CELLS {
            let (low, high) = bounds(cell);
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
        let before = sum_of(&recorder);
        recorder.record(1 << 20);
        let mut after = sum_of(&recorder);
        after.subtract(&before);
        assert_eq!((after.calls(), after.percentile_ns(0.0)), (1, 1 << 20));
    }

    #[test]
    fn what_is_noted_is_taken_once() {
        let mut noted = Noted::default();
        let times: Vec<(u16, u64)> = (0..NOTED_MAX as u16).map(|n| (n * 2000, 1 << n)).collect();
        for _ in 0..2 {
            let full: Vec<bool> = times.iter().map(|&(command, ticks)| noted.add(command, ticks)).collect();
            assert!(full[NOTED_MAX - 1] && !full[..NOTED_MAX - 1].contains(&true));
            assert_eq!(noted.take().collect::<Vec<_>>(), times);
            assert!(noted.is_empty() && noted.take().next().is_none());
        }
        let _ = noted.add(9, u64::MAX);
        assert_eq!(noted.take().collect::<Vec<_>>(), [(9, TICKS_MAX)]);
    }

    #[test]
    fn ticks_become_nanoseconds_to_two_digits() {
        let recorder = Recorder::default();
        // 2.6 ticks a nanosecond; a time of 100 s counts as the longest.
        for ns in [1u64, 130, 5_000, 77_777, 999_999_999, 100_000_000_000] {
            recorder.record(ns * 26 / 10);
        }
        let mut sum = Histogram::default();
        recorder.add_to(&mut sum, |ticks| ticks * 10 / 26);
        assert_eq!(sum.calls(), 6);
        for (percent, ns) in [(34.0, 130.0), (50.0, 5_000.0), (67.0, 77_777.0), (84.0, 1e9), (100.0, 1e9)] {
            let reported = sum.percentile_ns(percent) as f64;
            assert!((reported / ns - 1.0).abs() < 0.02, "{reported} for {ns}");
        }
    }
}
