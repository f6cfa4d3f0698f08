//! Memory of a process, as its allocator and as the kernel report it.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use isotherm_probe::Fallible;

use crate::figures::Figures;

#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Bytes that the allocator has given out, at the sizes that it takes for requests.
    pub allocated_bytes: u64,
    pub rss_bytes: u64,
}

pub fn held() -> Held {
    Held { allocated_bytes: isotherm_allocator::allocated_bytes(), rss_bytes: rss_bytes() }
}

impl Held {
    /// Adds the growth since `before` to the figures, for each of `count`.
    pub fn add_since(self, before: Held, count: u64, figures: &mut Figures) {
        let each = |now: u64, then: u64| (now as f64 - then as f64) / count as f64;
        figures.add("allocated", each(self.allocated_bytes, before.allocated_bytes));
        figures.add("rss", each(self.rss_bytes, before.rss_bytes));
    }
}

/// Resident memory, from `/proc/self/statm` in pages. (smaps would be exact to the page; this is, to some
/// dozen.)
fn rss_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default()
        * PAGE_BYTES
}

/// The processor time of all threads of this process, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    clock_ns(ClockId::ProcessCPUTime)
}

/// The processor time of this thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Refuses what this machine cannot hold, with the need and the have.
pub fn check_memory(need_bytes: u64) -> Fallible {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let have = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    // A machine that does not say is believed to have enough.
    let Some(have_bytes) = have.map(|kilobytes| kilobytes << 10) else { return Ok(()) };
    if need_bytes <= have_bytes {
        return Ok(());
    }
    let mb = |bytes: u64| bytes >> 20;
    Err(format!(
        "this needs some {} MB, and {} MB are free: take a smaller --scale",
        mb(need_bytes),
        mb(have_bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_seen() {
        // Other tests of the process may free as much meanwhile. No block is freed: its pages would be used
        // again.
        let mut blocks = Vec::new();
        let mut is_seen = || {
            let before = held();
            blocks.push(vec![1u8; 32 << 20]);
            let after = held();
            let grew = |before: u64, after: u64| after >= before + (31 << 20);
            grew(before.allocated_bytes, after.allocated_bytes) && grew(before.rss_bytes, after.rss_bytes)
        };
        assert!((0..5).any(|_| is_seen()));
    }

    #[test]
    fn more_than_there_is_is_refused() {
        check_memory(1 << 20).unwrap();
        let why = check_memory(1 << 50).unwrap_err();
        assert!(why.contains("needs some 1073741824 MB"), "{why}");
    }
}
