//! MEMORY DOCTOR: what is wrong with this server's memory, in words.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;

use crate::admin::AdminCall;

/// Below this nothing can be said.
const DOCTOR_BYTES_MIN: u64 = 5 << 20;
/// A peak this much above what is used is worth a word; so is a resident size this much above it.
const PEAK_RATIO: f64 = 1.5;
const RSS_RATIO: f64 = 1.4;
const RSS_EXCESS_BYTES_MIN: u64 = 10 << 20;

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
    let peak = call.node.memory.peak_bytes().max(used);
    let report = diagnose(used, peak, call.snapshot().facts.rss_bytes());
    call.reply.verbatim("txt", report.as_bytes());
    Outcome::Done
}

fn diagnose(used: u64, peak: u64, rss: u64) -> String {
    if used < DOCTOR_BYTES_MIN {
        return "Too little memory is used for a diagnosis; 5 MB is the least.\n".into();
    }
    let mut issues = String::new();
    if peak as f64 > used as f64 * PEAK_RATIO {
        issues.push_str(
            " * Peak memory: more than 1.5 times as much was used at some time as is now. What the keyspace \
             needed is returned to the system bit by bit; MEMORY PURGE returns what is free now.\n\n",
        );
    }
    if rss as f64 > used as f64 * RSS_RATIO && rss - used > RSS_EXCESS_BYTES_MIN {
        issues.push_str(
            " * High total RSS: the resident memory of the process is more than 1.4 times the memory that is used. \
             MEMORY MAP and INFO memorymap say where every byte of it is.\n\n",
        );
    }
    if issues.is_empty() {
        return "No issue was found.\n".into();
    }
    format!("Issues:\n\n{issues}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnoses() {
        let check = |used: u64, peak: u64, rss: u64, part: &str| {
            let report = diagnose(used << 20, peak << 20, rss << 20);
            assert!(report.contains(part), "{report}");
        };
        check(1, 1, 9, "Too little memory");
        check(100, 120, 110, "No issue was found");
        check(100, 200, 110, "Peak memory");
        check(100, 100, 150, "High total RSS");
    }
}
