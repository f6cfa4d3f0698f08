//! Several values at once: MGET MSET MSETNX MSETEX.

use super::options::{Condition, Family, Options, Unit};
use super::set::store;
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Expiry, Lookup, UnixMs};
use isotherm_resp::errors;
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::parse_i64;

pub const MGET: Command<Handler> = Command::new(
    Spec {
        name: "mget",
        summary: "Returns the strings at the given keys; null for absent keys and other types.",
        group: Group::String,
        complexity: "O(N), N the given keys",
        arity: -2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["request_policy:multi_shard"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    mget,
);

fn mget(call: &mut Call<'_, '_, '_>) -> Outcome {
    call.reply.array(call.args.len() - 1);
    for at in 1..call.args.len() {
        let key = call.key(at);
        // A value that is not a string counts as absent here.
        if super::get::reply_value(call, &key).is_err() {
            call.reply.null();
        }
    }
    Outcome::Done
}

pub const MSET: Command<Handler> = Command::new(
    Spec {
        name: "mset",
        summary: "Sets many strings at once and removes their expiries.",
        since: "1.0.1",
        group: Group::String,
        complexity: "O(N), N the given keys",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::range(1, -1, 2, KeyFlags::OW.or(KeyFlags::UPDATE))],
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        arguments: &[
            Argument::block("data", &[Argument::key("key", 0), Argument::string("value")]).multiple()
        ],
        ..Spec::BASE
    },
    mset,
);

fn mset(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return call.fail(errors::wrong_arity(MSET.spec.name));
    }
    if store_pairs(call, 1..call.args.len(), Expiry::Clear) {
        call.reply.ok();
    }
    Outcome::Done
}

pub const MSETNX: Command<Handler> = Command::new(
    Spec {
        name: "msetnx",
        summary: "Sets many strings at once, unless one of the keys exists. Returns 1 or 0.",
        since: "1.0.1",
        group: Group::String,
        complexity: "O(N), N the given keys",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::range(1, -1, 2, KeyFlags::OW.or(KeyFlags::INSERT))],
        arguments: &[
            Argument::block("data", &[Argument::key("key", 0), Argument::string("value")]).multiple()
        ],
        ..Spec::BASE
    },
    msetnx,
);

fn msetnx(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return call.fail(errors::wrong_arity(MSETNX.spec.name));
    }
    let pairs = 1..call.args.len();
    if !allows_all(call, pairs.clone(), Condition::Absent) {
        call.reply.integer(0);
    } else if store_pairs(call, pairs, Expiry::Clear) {
        call.reply.integer(1);
    }
    Outcome::Done
}

/// Returns whether all keys are absent, or all present, as the condition asks.
fn allows_all(call: &mut Call<'_, '_, '_>, pairs: std::ops::Range<usize>, condition: Condition<'_>) -> bool {
    let expected = match condition {
        Condition::Absent => false,
        Condition::Present => true,
        Condition::Always | Condition::Equals(_) | Condition::Differs(_) => return true,
    };
    pairs.step_by(2).all(|at| {
        let key = call.key(at);
        call.txn.find(call.db, &key, Lookup::Write).is_some() == expected
    })
}

/// Stores key, value, key, value, ... If memory ends on the way, the log holds what was stored until then,
/// the error is replied, and the result is false.
fn store_pairs(call: &mut Call<'_, '_, '_>, pairs: std::ops::Range<usize>, expiry: Expiry) -> bool {
    for at in pairs.clone().step_by(2) {
        let key = call.key(at);
        if store(call, &key, call.args.get(at + 1), expiry).is_err() {
            let stored = pairs.start..at;
            if !stored.is_empty() {
                record_stored(call, stored, expiry);
            }
            call.out_of_memory();
            return false;
        }
    }
    true
}

fn record_stored(call: &mut Call<'_, '_, '_>, stored: std::ops::Range<usize>, expiry: Expiry) {
    let (args, count) = (call.args, stored.len() / 2);
    let (mut number, mut moment) = ([0; I64_BYTES_MAX], [0; I64_BYTES_MAX]);
    let number = write_i64(count as i64, &mut number);
    let pairs = stored.map(|at| args.get(at));
    match expiry {
        Expiry::Clear => call.record_words(|words| {
            words.push(b"MSET");
            words.extend(pairs);
        }),
        Expiry::Keep => call.record_words(|words| {
            words.extend([&b"MSETEX"[..], number]);
            words.extend(pairs);
            words.push(b"KEEPTTL");
        }),
        Expiry::At(at) => call.record_words(|words| {
            words.extend([&b"MSETEX"[..], number]);
            words.extend(pairs);
            words.extend([&b"PXAT"[..], write_i64(at.get(), &mut moment)]);
        }),
    }
}

pub const MSETEX: Command<Handler> = Command::new(
    Spec {
        name: "msetex",
        summary: "Sets many strings at once with an expiry, all of them or none. Returns 1, or 0 when the condition fails.",
        since: "9.1.0",
        group: Group::String,
        complexity: "O(N), N the given keys",
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec {
            notes: "",
            flags: KeyFlags::OW.or(KeyFlags::UPDATE),
            begin: Begin::Index(1),
            find: Find::KeyNum { at: 0, first: 1, step: 2 },
        }],
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        arguments: &[
            Argument::integer("numkeys"),
            Argument::block("data", &[Argument::key("key", 0), Argument::string("value")]).multiple(),
            Argument::one_of(
                "condition",
                &[Argument::pure_token("nx", "NX"), Argument::pure_token("xx", "XX")],
            )
            .optional(),
            Argument::one_of(
                "expiration",
                &[
                    Argument::integer("seconds").token("EX"),
                    Argument::integer("milliseconds").token("PX"),
                    Argument::unix_time("unix-time-seconds").token("EXAT"),
                    Argument::unix_time("unix-time-milliseconds").token("PXAT"),
                    Argument::pure_token("keepttl", "KEEPTTL"),
                ],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    msetex,
);

/// `MSETEX numkeys key value [key value ...] [NX | XX] [EX .. | PX .. | EXAT .. | PXAT .. | KEEPTTL]`
fn msetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let count = parse_i64(call.args.get(1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let Some(count) = count else {
        return call.fail("ERR invalid numkeys value or out of range");
    };
    let pairs = 2..2 + count as usize * 2;
    if pairs.end > call.args.len() {
        return call.fail(errors::SYNTAX);
    }
    let options = match Options::parse(call.args, pairs.end, Family::MSetEx) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let moment = match call.moment_of(options.time, MSETEX.spec.name) {
        Ok(moment) => moment,
        Err(error) => return call.fail(error),
    };
    if !allows_all(call, pairs.clone(), options.condition) {
        call.reply.integer(0);
        return Outcome::Done;
    }
    // A moment that is over is stored like any other: the keys leave when they are met.
    let expiry = match moment {
        Some(moment) => Expiry::At(moment),
        None if options.keep_ttl => Expiry::Keep,
        None => Expiry::Clear,
    };
    if store_pairs(call, pairs.clone(), expiry) {
        record_msetex(call, pairs.end, &options, moment);
        call.reply.integer(1);
    }
    Outcome::Done
}

/// Records the request with the moment instead of a duration.
fn record_msetex(
    call: &mut Call<'_, '_, '_>,
    options_at: usize,
    options: &Options<'_>,
    moment: Option<UnixMs>,
) {
    let args = call.args;
    let (Some(moment), Some(time)) =
        (moment, options.time.filter(|time| time.unit != Unit::UnixMilliseconds))
    else {
        return;
    };
    let mut number = [0; I64_BYTES_MAX];
    let number = write_i64(moment.get(), &mut number);
    call.record_words(|words| {
        words.extend(args.iter().take(options_at));
        let mut at = options_at;
        while at < args.len() {
            if is_word(args.get(at), "NX") || is_word(args.get(at), "XX") {
                words.push(args.get(at));
                at += 1;
                continue;
            }
            // Of several durations the last one counts.
            if at == time.at {
                words.extend([&b"PXAT"[..], number]);
            }
            at += 2;
        }
    });
}
