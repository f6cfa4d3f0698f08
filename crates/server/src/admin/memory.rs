//! MEMORY and its subcommands.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::{Command, Reach, Spec};
use isotherm_keyspace::{Db, Lookup};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::{AdminCall, AdminHandler, specs};
use crate::info::{Snapshot, memory_rss_bytes};
use isotherm_allocator::{self as allocator, Format};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    specs::MEMORY,
    &[
        Command::new(specs::MEMORY_DOCTOR, doctor),
        Command::new(specs::MEMORY_HELP, help),
        Command::new(specs::MEMORY_MALLOC_STATS, malloc_stats),
        Command::new(specs::MEMORY_PURGE, purge),
        Command::new(Spec { reach: Reach::All, ..specs::MEMORY_STATS }, stats),
        Command::new(specs::MEMORY_USAGE, usage),
    ],
)];

fn usage(call: &mut AdminCall<'_>) -> Outcome {
    if let Err(text) = check_samples(call) {
        call.reply.error(text);
        return Outcome::Done;
    }
    let (db, name) = (call.session.db, call.args.get(2));
    let mut txn = call.debug_txn();
    let key = txn.key(name);
    let found = txn.find(db, &key, Lookup::Silent).map(|entry| entry.memory_bytes());
    match found {
        Some(bytes) => call.reply.integer(bytes as i64),
        None => call.reply.null(),
    }
    Outcome::Done
}

/// `SAMPLES count` says how many elements of a collection are measured; here a collection knows its size.
fn check_samples(call: &AdminCall<'_>) -> Result<(), &'static str> {
    let options = call.args.from(3);
    for at in (0..options.len()).step_by(2) {
        let count = options.try_get(at + 1).filter(|_| options.get(at).eq_ignore_ascii_case(b"samples"));
        let count = parse_i64(count.ok_or(errors::SYNTAX)?).ok_or(errors::NOT_AN_INTEGER)?;
        if count < 0 {
            return Err(errors::SYNTAX);
        }
    }
    Ok(())
}

enum Figure {
    Integer(i64),
    Double(f64),
}

fn stats(call: &mut AdminCall<'_>) -> Outcome {
    let databases = call.node.config.databases();
    let mut txn = call.txn();
    let keys: u64 = (0..databases).map(|db| txn.len(Db(db))).sum();
    let snapshot = Snapshot::new(call.node, call.now);
    let used = call.node.used_memory_bytes();
    let arenas = snapshot.arenas();
    let peak = call.node.memory.peak_bytes().max(used);
    let rss = memory_rss_bytes();
    let figures = *snapshot.allocators();
    let ratio = |part: u64, whole: u64| Figure::Double(part as f64 / whole.max(1) as f64);
    let excess = |part: u64, whole: u64| Figure::Integer(part as i64 - whole as i64);
    let bytes = |bytes: u64| Figure::Integer(bytes as i64);
    let percent = |part: u64, whole: u64| Figure::Double(part as f64 * 100.0 / whole.max(1) as f64);
    let fields = [
        ("peak.allocated", bytes(peak)),
        ("total.allocated", bytes(used)),
        ("startup.allocated", bytes(call.node.memory.startup_bytes())),
        ("replication.backlog", bytes(0)),
        ("replicas.repl.buffer", bytes(0)),
        ("clients.slaves", bytes(0)),
        ("clients.normal", bytes(call.node.clients.bytes())),
        ("cluster.links", bytes(0)),
        ("cluster.slot_import", bytes(0)),
        ("cluster.slot_export", bytes(0)),
        ("aof.buffer", bytes(0)),
        ("lua.caches", bytes(0)),
        ("functions.caches", bytes(0)),
        // There are pages instead of tables.
        ("overhead.db.hashtable.lut", bytes(0)),
        ("overhead.db.hashtable.rehashing", bytes(0)),
        ("overhead.total", bytes(used.saturating_sub(arenas.live))),
        ("db.dict.rehashing.count", bytes(0)),
        ("keys.count", bytes(keys)),
        ("keys.bytes-per-key", bytes(arenas.live.checked_div(keys).unwrap_or_default())),
        ("dataset.bytes", bytes(arenas.live)),
        ("dataset.percentage", percent(arenas.live, used)),
        ("peak.percentage", percent(used, peak)),
        ("allocator.allocated", bytes(figures.allocated)),
        ("allocator.active", bytes(figures.active)),
        ("allocator.resident", bytes(figures.resident)),
        ("allocator.muzzy", bytes(0)),
        ("allocator-fragmentation.ratio", ratio(figures.active, figures.allocated)),
        ("allocator-fragmentation.bytes", excess(figures.active, figures.allocated)),
        ("allocator-rss.ratio", ratio(figures.resident, figures.active)),
        ("allocator-rss.bytes", excess(figures.resident, figures.active)),
        ("rss-overhead.ratio", ratio(rss, figures.resident)),
        ("rss-overhead.bytes", excess(rss, figures.resident)),
        ("fragmentation", ratio(rss, used)),
        ("fragmentation.bytes", excess(rss, used)),
    ];
    call.reply.map(fields.len());
    for (name, figure) in fields {
        call.reply.bulk(name.as_bytes());
        match figure {
            Figure::Integer(value) => call.reply.integer(value),
            Figure::Double(value) => call.reply.double(value),
        }
    }
    Outcome::Done
}

/// Gives back what is free already; the housekeeping does the same by and by.
fn purge(call: &mut AdminCall<'_>) -> Outcome {
    for arena in call.node.keyspace.arenas() {
        arena.trim(0);
    }
    allocator::purge();
    call.reply.ok();
    Outcome::Done
}

/// `MEMORY MALLOC-STATS [TEXT | JSON]`; the field has the first form only, without a word for it.
fn malloc_stats(call: &mut AdminCall<'_>) -> Outcome {
    let (word, more) = (call.args.try_get(2).unwrap_or(b"text"), call.args.try_get(3).is_some());
    let format = match word {
        word if word.eq_ignore_ascii_case(b"text") && !more => Format::Text,
        word if word.eq_ignore_ascii_case(b"json") && !more => Format::Json,
        _ => {
            call.reply.error(errors::SYNTAX);
            return Outcome::Done;
        }
    };
    call.reply.verbatim("txt", allocator::report(format).as_bytes());
    Outcome::Done
}

/// Below this nothing can be said.
const DOCTOR_BYTES_MIN: u64 = 5 << 20;
/// A peak this much above what is used is worth a word; so is a resident size this much above it.
const PEAK_RATIO: f64 = 1.5;
const RSS_RATIO: f64 = 1.4;
const RSS_EXCESS_BYTES_MIN: u64 = 10 << 20;

fn doctor(call: &mut AdminCall<'_>) -> Outcome {
    let used = call.node.used_memory_bytes();
    let peak = call.node.memory.peak_bytes().max(used);
    let report = diagnose(used, peak, memory_rss_bytes());
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
             INFO memory says where it lies: isotherm_arena_* for the keyspace, isotherm_malloc_bytes for the rest.\n\n",
        );
    }
    if issues.is_empty() {
        return "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this \
                base.\n"
            .into();
    }
    format!("Sam, I detected a few issues in this Isotherm instance memory implants:\n\n{issues}")
}

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        "MEMORY",
        &[
            "DOCTOR",
            "    Return memory problems reports.",
            "MALLOC-STATS",
            "    Return internal statistics report from the memory allocator.",
            "PURGE",
            "    Attempt to purge dirty pages for reclamation by the allocator.",
            "STATS",
            "    Return information about the memory usage of the server.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return memory in bytes used by <key> and its value. Nested values are",
            "    sampled up to <count> times (default: 5, 0 means sample all).",
        ],
    );
    Outcome::Done
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
