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
        return "Hi Sam, this instance is empty or is using very little memory, my issues detector can't be used in \
                these conditions. Please, leave for your mission on Earth and fill it with some data. The new Sam and \
                I will be back to our programming as soon as I finished rebooting.\n"
            .into();
    }
    let mut issues = String::new();
    if peak as f64 > used as f64 * PEAK_RATIO {
        issues.push_str(
            " * Peak memory: In the past this instance used more than 150% the memory that is currently using. What \
             the keyspace needed is returned to the system bit by bit; MEMORY PURGE returns what is free now.\n\n",
        );
    }
    if rss as f64 > used as f64 * RSS_RATIO && rss - used > RSS_EXCESS_BYTES_MIN {
        issues.push_str(
            " * High total RSS: The Resident Set Size of the process is more than 1.4 times the memory that is used. \
             MEMORY MAP and INFO memorymap say where every byte of it is.\n\n",
        );
    }
    if issues.is_empty() {
        return "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this \
                base.\n"
            .into();
    }
    format!("Sam, I detected a few issues in this Isotherm instance memory implants:\n\n{issues}")
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
        check(1, 1, 9, "using very little memory");
        check(100, 120, 110, "can't find any memory issue");
        check(100, 200, 110, "Peak memory");
        check(100, 100, 150, "High total RSS");
    }
}
