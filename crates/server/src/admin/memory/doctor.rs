//! MEMORY DOCTOR: what is wrong with this server's memory, in words.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;

use crate::admin::{self, AdminCall};

/// Below this nothing can be said.
const DOCTOR_BYTES_MIN: u64 = 5 << 20;
/// Resident memory this much above what is used is worth a word: in proportion, and beyond what every process
/// has, with stacks, caches of threads and tables of the allocator. With two workers and jemalloc that is
/// 2 MB without keys, and 5 MB after a peak of 66 MB.
const RSS_RATIO: f64 = 1.4;
const RSS_EXCESS_BYTES_MIN: u64 = 20 << 20;
const RSS_EXCESS_BYTES_PER_WORKER: u64 = 512 << 10;
/// A peak this much above what is used explains such an excess.
const PEAK_RATIO: f64 = 1.5;

pub const MEMORY_DOCTOR: Spec = Spec {
    name: "doctor",
    summary: "Explains problems with memory in words and gives advice.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    flags: Flags::ASKS_SYSTEM,
    ..Spec::BASE
};

pub fn doctor(call: &mut AdminCall<'_>) -> Outcome {
    let used = call.node.used_memory_bytes();
    let figures = Figures {
        used,
        peak: call.node.memory.peak_bytes().max(used),
        resident: admin::snapshot(call).facts.anonymous_bytes(),
        workers: call.node.worker_count() as u64,
    };
    call.reply.verbatim("txt", figures.diagnosis().as_bytes());
    Outcome::Done
}

/// Bytes, and the number of workers.
struct Figures {
    used: u64,
    peak: u64,
    /// Resident bytes but for the program itself, whose pages are files'.
    resident: u64,
    workers: u64,
}

impl Figures {
    /// Resident memory is far above what is used.
    fn is_excessive(&self) -> bool {
        let excess_max = RSS_EXCESS_BYTES_MIN + self.workers * RSS_EXCESS_BYTES_PER_WORKER;
        self.resident as f64 > self.used as f64 * RSS_RATIO && self.resident - self.used > excess_max
    }

    /// A peak is no issue by itself: once its memory is returned, nothing is left of it.
    fn diagnosis(&self) -> String {
        if self.used < DOCTOR_BYTES_MIN {
            return "Too little memory is used for a diagnosis; 5 MB is the least.\n".into();
        }
        if !self.is_excessive() {
            return "No issue was found.\n".into();
        }
        let mut issues = String::new();
        if self.peak as f64 > self.used as f64 * PEAK_RATIO {
            issues.push_str(
                " * Peak memory: more than 1.5 times as much was used at some time as is now, and not all of it is \
                 returned to the system yet. That is done bit by bit; MEMORY PURGE returns what is free now.\n\n",
            );
        }
        issues.push_str(
            " * High total RSS: the resident memory of the process is more than 1.4 times the memory that is used. \
             MEMORY MAP and INFO memorymap say where every byte of it is.\n\n",
        );
        format!("Issues:\n\n{issues}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnoses() {
        let check = |[used, peak, resident]: [u64; 3], workers: u64, part: &str| {
            let figures = Figures { used: used << 20, peak: peak << 20, resident: resident << 20, workers };
            let report = figures.diagnosis();
            assert!(report.contains(part), "{report}");
        };
        check([1, 1, 9], 1, "Too little memory");
        check([100, 120, 110], 1, "No issue was found");
        check([6, 6, 26], 1, "No issue was found");
        check([6, 6, 40], 1, "High total RSS");
        check([6, 6, 40], 64, "No issue was found");
        check([100, 500, 130], 1, "No issue was found");
        check([100, 200, 150], 1, "Peak memory");
        check([100, 100, 150], 1, "Issues:\n\n * High total RSS");
        check([10_000, 10_000, 13_000], 64, "No issue was found");
    }
}
