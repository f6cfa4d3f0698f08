//! HOTKEYS: the keys that are used most, as far as sampled commands show.
//!
//! The words are those of Redis 8.6 where they mean the same. It has to be started there, measures for a
//! while and adds up time and bytes of a key; here it runs all the time and counts uses, so there is nothing
//! to start or to stop.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_keyspace::SteadyMs;
use isotherm_resp::{Reply, errors};
use isotherm_stdx::parse_i64;
use std::sync::atomic::Ordering;

use super::{AdminCall, AdminHandler};
use isotherm_config::id;
use isotherm_node::observe::hot_keys::{HotKey, HotKeys, merge};

const HOTKEYS: Spec = Spec {
    name: "hotkeys",
    summary: "Shows the most used keys.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    HOTKEYS,
    &[Command::new(HOTKEYS_GET, get), Command::new(HOTKEYS_HELP, help), Command::new(HOTKEYS_RESET, reset)],
)];

// COMPAT(observability): HOTKEYS has the name of a command of Redis 8.6, but it always runs: HOTKEYS GET
// [COUNT n] reports the most frequently used keys since the start or HOTKEYS RESET, with counts estimated
// from one of `hotkeys-sample-ratio` commands. Why: sampling is cheap enough to need no start and no end.
const KEYS_DEFAULT: usize = 16;

const HOTKEYS_GET: Spec = Spec {
    name: "get",
    summary: "Returns the most used keys, estimated from a sample of the commands.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(W) where W is the number of workers",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::integer("count").token("COUNT").optional()],
    ..Spec::BASE
};

fn get(call: &mut AdminCall<'_>) -> Outcome {
    let count = match read_count(call) {
        Ok(count) => count,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    let node = call.node;
    let ratio = node.config.number(const { id("hotkeys-sample-ratio") });
    let (mut keys, met) = merge(tables(call), ratio as u32);
    let sight = call.sight();
    keys.retain(|key| sight.sees_key(key.db, &key.name, key.name_bytes as usize));
    let duration_ms = match node.stats.hot_keys_reset_ms.load(Ordering::Relaxed) {
        0 => node.process.age_ms(call.now),
        reset_ms => SteadyMs::of(call.now).ms_since(SteadyMs(reset_ms)).max(0),
    };
    let numbers = [
        ("tracking-active", i64::from(ratio > 0)),
        ("sample-ratio", ratio),
        ("collection-start-time-unix-ms", call.now.0 - duration_ms),
        ("collection-duration-ms", duration_ms),
        ("sampled-uses", met as i64),
    ];
    call.reply.map(numbers.len() + 1);
    for (name, number) in numbers {
        call.reply.bulk(name.as_bytes());
        call.reply.integer(number);
    }
    call.reply.bulk(b"by-uses");
    call.reply.array(keys.len().min(count));
    for key in keys.iter().take(count) {
        let usec = node.stats.micros(key.ticks);
        write_key(call.reply, key, usec, ratio as u64);
    }
    Outcome::Done
}

fn write_key(reply: &mut Reply, key: &HotKey, usec: u64, ratio: u64) {
    let numbers = [
        ("db", i64::from(key.db.0)),
        ("name-bytes", i64::from(key.name_bytes)),
        ("uses", (key.uses * ratio) as i64),
        ("uses-error", uses_error(key, ratio) as i64),
        ("cpu-usec", (usec * ratio) as i64),
    ];
    reply.map(numbers.len() + 1);
    reply.bulk(b"key");
    reply.bulk(&key.name);
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
}

/// Returns the error of a key's uses: the uses that may belong to another key, plus twice the standard
/// deviation of a count of samples (19 of 20 counts are within).
fn uses_error(key: &HotKey, ratio: u64) -> u64 {
    let of_samples = (key.uses as f64 * (1.0 - 1.0 / ratio.max(1) as f64)).sqrt();
    ratio * (key.error + (2.0 * of_samples).ceil() as u64)
}

/// `[COUNT count]`
fn read_count(call: &AdminCall<'_>) -> Result<usize, &'static str> {
    let Some(word) = call.args.try_get(2) else { return Ok(KEYS_DEFAULT) };
    let count = call.args.try_get(3).filter(|_| word.eq_ignore_ascii_case(b"count") && call.args.len() == 4);
    let count = parse_i64(count.ok_or(errors::SYNTAX)?).ok_or(errors::NOT_AN_INTEGER)?;
    usize::try_from(count).ok().filter(|&count| count > 0).ok_or("ERR COUNT must be > 0")
}

const HOTKEYS_RESET: Spec = Spec {
    name: "reset",
    summary: "Forgets which keys were used most.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(W) where W is the number of workers",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

fn reset(call: &mut AdminCall<'_>) -> Outcome {
    tables(call).for_each(HotKeys::reset);
    call.node.stats.hot_keys_reset_ms.store(SteadyMs::of(call.now).0, Ordering::Relaxed);
    call.reply.ok();
    Outcome::Done
}

fn tables(call: &AdminCall<'_>) -> impl Iterator<Item = &'static HotKeys> + use<> {
    let node = call.node;
    node.stats.threads().iter().map(|thread| &thread.hot_keys)
}

const HOTKEYS_HELP: Spec = Spec { since: "9.1.0", group: Group::Server, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "GET [COUNT <count>]",
            "    Return the most frequently used keys since the start or the last reset, and how",
            "    often they were used, estimated from sampled commands (default: 16 keys).",
            "RESET",
            "    Discard the statistics.",
        ],
    )
}
