//! Facts that only the system knows of this process: resident memory, processor time. Each is read from /proc
//! once, when a report asks for it for the first time. For a transaction that will report them while it holds
//! its locks, all are read before (`ask`).

use std::cell::OnceCell;

use isotherm_keyspace::Keyspace;

use crate::observe::resident::{self, Kernel, Resident};

#[derive(Clone, Default, Debug)]
pub struct Facts {
    rss: OnceCell<Rss>,
    cpu: OnceCell<Cpu>,
    control_cpu: OnceCell<Cpu>,
    control_cpu_seconds: OnceCell<f64>,
    /// Owners of the resident pages; `None` inside where the kernel does not report them.
    resident: OnceCell<Option<Resident>>,
    kernel: OnceCell<Kernel>,
}

/// Memory that is really there, and the part of it that is pages of files: the program and its libraries.
#[derive(Clone, Copy, Default, Debug)]
struct Rss {
    all_bytes: u64,
    file_bytes: u64,
}

/// The processor time of the process in seconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cpu {
    pub user: f64,
    pub system: f64,
}

impl Facts {
    /// Everything now; whose the resident pages are only with `map`.
    pub fn ask(keyspace: &Keyspace, map: bool) -> Facts {
        let facts = Facts::default();
        facts.rss_bytes();
        facts.cpu();
        facts.control_cpu();
        facts.control_cpu_seconds();
        if map {
            facts.resident(keyspace);
            facts.kernel();
        }
        facts
    }

    /// Memory that is really there. 0 where the system does not say.
    pub fn rss_bytes(&self) -> u64 {
        self.rss.get_or_init(rss).all_bytes
    }

    /// Memory that is really there and no file's: the keyspace's, the allocator's, stacks.
    pub fn anonymous_bytes(&self) -> u64 {
        let Rss { all_bytes, file_bytes } = self.rss.get_or_init(rss);
        all_bytes.saturating_sub(*file_bytes)
    }

    pub fn cpu(&self) -> Cpu {
        *self.cpu.get_or_init(cpu_seconds)
    }

    /// The processor time of the control thread, whose number is that of the process.
    pub fn control_cpu(&self) -> Cpu {
        let ask = || cpu_ticks(&format!("/proc/self/task/{}/stat", std::process::id()));
        *self.control_cpu.get_or_init(ask)
    }

    /// Returns the exact processor time of the control thread, in seconds.
    pub fn control_cpu_seconds(&self) -> f64 {
        let ask = || run_time_ns(format!("/proc/self/task/{}/schedstat", std::process::id()));
        *self.control_cpu_seconds.get_or_init(|| ask().unwrap_or_default() as f64 / 1e9)
    }

    /// Returns the resident pages by owner, which takes some ten milliseconds for each gigabyte.
    pub fn resident(&self, keyspace: &Keyspace) -> Option<Resident> {
        *self.resident.get_or_init(|| {
            let mappings: Vec<_> = keyspace.arenas().iter().flat_map(|arena| arena.mappings()).collect();
            resident::resident(&mappings)
        })
    }

    pub fn kernel(&self) -> Kernel {
        *self.kernel.get_or_init(resident::kernel)
    }
}

/// 0 where the system does not say.
fn rss() -> Rss {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut bytes = text
        .split(' ')
        .skip(1)
        .map(|pages| pages.parse::<u64>().unwrap_or_default() * rustix::param::page_size() as u64);
    let mut next = || bytes.next().unwrap_or_default();
    Rss { all_bytes: next(), file_bytes: next() }
}

/// User and system time as the kernel samples them, drawn to the sum that it measures exactly.
fn cpu_seconds() -> Cpu {
    let sampled_parts = cpu_ticks("/proc/self/stat");
    let sampled = sampled_parts.user + sampled_parts.system;
    let exact = exact_cpu_seconds().unwrap_or(sampled);
    let share = if sampled > 0.0 { sampled_parts.user / sampled } else { 0.5 };
    Cpu { user: exact * share, system: exact * (1.0 - share) }
}

/// Returns the processor time as the kernel samples it.
fn cpu_ticks(path: &str) -> Cpu {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The process's name may hold anything; what follows its closing parenthesis is the state, field 3.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let ticks = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    let seconds = |number| ticks(number).unwrap_or_default() / per_second;
    Cpu { user: seconds(14), system: seconds(15) }
}

/// The run time of all threads, in nanoseconds by the scheduler. Threads of this server do not end before it
/// does.
fn exact_cpu_seconds() -> Option<f64> {
    let mut sum_ns = 0u64;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        sum_ns += run_time_ns(task.ok()?.path().join("schedstat"))?;
    }
    Some(sum_ns as f64 / 1e9)
}

/// Returns the run time of a thread, in nanoseconds.
fn run_time_ns(schedstat: impl AsRef<std::path::Path>) -> Option<u64> {
    std::fs::read_to_string(schedstat).ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_memory_and_time() {
        let Rss { all_bytes, file_bytes } = rss();
        assert!(file_bytes > 1 << 20 && all_bytes > file_bytes, "{:?}", rss());
        // Threads of other tests end meanwhile, and take their time with them.
        assert!((0..20).any(|_| is_work_seen()), "50 ms of work are not seen");
    }

    fn is_work_seen() -> bool {
        let before = cpu_seconds();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed().as_millis() < 50 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let after = cpu_seconds();
        after.user + after.system > before.user + before.system + 0.005
    }
}
