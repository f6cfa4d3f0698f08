//! Commands that write a string: SET SETNX SETEX PSETEX GETSET.

use super::get::reply_value;
use super::options::{Condition, Family, Options, Unit, moment};
use super::value;
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Expiry, Full, Key, Lookup, NewValue, UnixMs};
use isotherm_resp::Args;

pub const SET: Command<Handler> = Command::new(
    Spec {
        name: "set",
        summary: "Sets a key to a string, whatever it held before. Null when the condition fails.",
        group: Group::String,
        complexity: "O(1)",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(
            1,
            KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE).or(KeyFlags::VARIABLE_FLAGS),
        )
        .notes("RW and ACCESS: GET reads the old value")],
        need: NeedFrom::Arguments(set_need),
        variable_key_flags: Some(set_key_flags),
        history: &[
            ("2.6.12", "New options `EX`, `PX`, `NX` and `XX`."),
            ("6.0.0", "New option `KEEPTTL`."),
            ("6.2.0", "New options `GET`, `EXAT` and `PXAT`."),
            ("7.0.0", "`NX` and `GET` may be combined."),
            ("8.1.0", "New option `IFEQ`."),
            ("9.2.0", "New option `IFNE`."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("value"),
            Argument::one_of(
                "condition",
                &[
                    Argument::pure_token("nx", "NX").since("2.6.12"),
                    Argument::pure_token("xx", "XX").since("2.6.12"),
                    Argument::string("comparison-value").token("IFEQ").summary(IFEQ_SUMMARY).since("8.1.0"),
                    Argument::string("comparison-value").token("IFNE").summary(IFNE_SUMMARY).since("9.2.0"),
                ],
            )
            .optional(),
            Argument::pure_token("get", "GET").since("6.2.0").optional(),
            Argument::one_of(
                "expiration",
                &[
                    Argument::integer("seconds").token("EX").since("2.6.12"),
                    Argument::integer("milliseconds").token("PX").since("2.6.12"),
                    Argument::unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
                    Argument::unix_time("unix-time-milliseconds").token("PXAT").since("6.2.0"),
                    Argument::pure_token("keepttl", "KEEPTTL").since("6.0.0"),
                ],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    set,
);

const IFEQ_SUMMARY: &str = "Sets the string only when it is this one now.";

const IFNE_SUMMARY: &str = "Sets the string unless it is this one now.";

/// SET reads the old value only if it is asked to.
fn set_key_flags(args: Args<'_>) -> KeyFlags {
    let gets = args.from(3).iter().any(|word| is_word(word, "GET"));
    if gets {
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE)
    } else {
        KeyFlags::OW.or(KeyFlags::UPDATE)
    }
}

/// Without GET, IFEQ and IFNE the value is only written over.
fn set_need(args: Args<'_>) -> Need {
    let reads_by = |word| ["GET", "IFEQ", "IFNE"].iter().any(|name| is_word(word, name));
    let reads = args.from(3).iter().any(reads_by);
    if reads { Need::All } else { Need::Nothing }
}

fn set(call: &mut Call<'_, '_, '_>) -> Outcome {
    if call.args.len() > 3 {
        return set_with_options(call);
    }
    let key = call.key(1);
    if store(call, &key, call.args.get(2), Expiry::Clear).is_err() {
        return call.out_of_memory();
    }
    call.reply.ok();
    Outcome::Done
}

fn set_with_options(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = match Options::parse(call.args, 3, Family::Set) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let moment = match call.moment_of(options.time, SET.spec.name) {
        Ok(moment) => moment,
        Err(error) => return call.fail(error),
    };
    let (key, new) = (call.key(1), call.args.get(2));
    let mark = call.reply.len();
    if options.get
        && let Err(error) = reply_value(call, &key)
    {
        return call.fail(error);
    }
    // With GET the reply stands already, whatever comes.
    let replies = !options.get;
    let over = moment.is_some_and(|moment| call.is_over(moment));
    let (allowed, exists) = match options.condition {
        Condition::Always if !over => (true, false),
        condition => match allows(call, &key, condition) {
            Ok(verdict) => verdict,
            Err(error) => return call.fail(error),
        },
    };
    if !allowed {
        if replies {
            call.reply.null();
        }
        return Outcome::Done;
    }
    if over {
        // A key that would be gone at once is not even stored.
        if exists {
            call.expire_now(&key);
        }
        if replies {
            call.reply.ok();
        }
        return Outcome::Done;
    }
    let expiry = match moment {
        Some(moment) => Expiry::At(moment),
        None if options.keep_ttl => Expiry::Keep,
        None => Expiry::Clear,
    };
    if store(call, &key, new, expiry).is_err() {
        call.reply.truncate(mark);
        return call.out_of_memory();
    }
    if replies {
        call.reply.ok();
    }
    record_set(call, &key, &options, moment);
    Outcome::Done
}

/// Returns whether the condition holds, and whether the key exists.
fn allows(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    condition: Condition<'_>,
) -> Result<(bool, bool), &'static str> {
    let (db, txn) = (call.db, &mut call.txn);
    // A value that does not matter may stay on disk.
    let mut exists = |allows: fn(bool) -> bool| {
        let exists = txn.has(db, key, Lookup::Write);
        Ok((allows(exists), exists))
    };
    let (is_like, other) = match condition {
        Condition::Always => return exists(|_| true),
        Condition::Absent => return exists(|exists| !exists),
        Condition::Present => return exists(|exists| exists),
        Condition::Equals(expected) => (true, expected),
        // COMPAT(strings): `SET k v IFNE other` and DELEX are those of Valkey 9.2, built from its sources and
        // not compared with a running server. The log has SET without IFNE. Why: programs for 9.2 run here,
        // and replicas of 9.1 do not know the word.
        Condition::Differs(other) => (false, other),
    };
    let found = txn.find(db, key, Lookup::Write);
    let exists = found.is_some();
    let is_equal = value::string(found)?.is_some_and(|found| value::equals(found, other));
    Ok((is_equal == is_like, exists))
}

/// The log gets SET without GET (a replica answers no client) and with the moment instead of a duration.
fn record_set(call: &mut Call<'_, '_, '_>, key: &Key<'_>, options: &Options<'_>, moment: Option<UnixMs>) {
    let args = call.args;
    let is_unlike = matches!(options.condition, Condition::Differs(_));
    match (moment, options.time) {
        (Some(_), Some(time)) if time.unit == Unit::UnixMilliseconds && !is_unlike => {}
        (Some(moment), _) => {
            // Valkey rewrites `SET k v EX 10` in place, so the name stays as it was written.
            let name = if args.len() == 5 { args.get(0) } else { b"SET" };
            call.record_with_number([name, key.bytes, args.get(2), b"PXAT"], moment.get());
        }
        (None, _) if is_unlike || options.get => call.record_words(|words| {
            let mut at = 0;
            while let Some(word) = args.try_get(at) {
                let is_option = at >= 3;
                at += 1;
                match word {
                    _ if is_option && is_word(word, "GET") => {}
                    // The condition held.
                    _ if is_option && is_word(word, "IFNE") => at += 1,
                    // COMPAT(strings): The form of `SET k v IFEQ get GET` that is meant for the log and for
                    // replicas keeps the comparison value; Valkey 9.1 takes the value `get` for the option
                    // GET and drops both. Why: a replica would have nothing to compare with.
                    _ if is_option && is_word(word, "IFEQ") => {
                        words.extend([word, args.get(at)]);
                        at += 1;
                    }
                    _ => words.push(word),
                }
            }
        }),
        (None, _) => {}
    }
}

/// Stores a value and emits the events.
#[inline]
pub(super) fn store(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    new: &[u8],
    expiry: Expiry,
) -> Result<(), Full> {
    call.txn.set(call.db, key, NewValue::encode(new), expiry)?;
    call.wrote(EventClass::String, "set", key, 1);
    if let Expiry::At(_) = expiry {
        call.event(EventClass::Generic, "expire", key);
    }
    Ok(())
}

pub const SETNX: Command<Handler> = Command::new(
    Spec {
        name: "setnx",
        summary: "Sets a string when the key is absent. Returns 1, or 0 for an existing key.",
        group: Group::String,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BASE
    },
    setnx,
);

fn setnx(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let absent = call.txn.find(call.db, &key, Lookup::Write).is_none();
    if absent && store(call, &key, call.args.get(2), Expiry::Clear).is_err() {
        return call.out_of_memory();
    }
    call.reply.integer(i64::from(absent));
    Outcome::Done
}

pub const SETEX: Command<Handler> = Command::new(
    Spec {
        name: "setex",
        summary: "Sets a string that expires after some seconds.",
        since: "2.0.0",
        group: Group::String,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("seconds"), Argument::string("value")],
        ..Spec::BASE
    },
    setex,
);

fn setex(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_for(call, Unit::Seconds, SETEX.spec.name)
}

pub const PSETEX: Command<Handler> = Command::new(
    Spec {
        name: "psetex",
        summary: "Sets a string that expires after some milliseconds.",
        since: "2.6.0",
        group: Group::String,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("milliseconds"), Argument::string("value")],
        ..Spec::BASE
    },
    psetex,
);

fn psetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_for(call, Unit::Milliseconds, PSETEX.spec.name)
}

/// key, duration, value
fn set_for(call: &mut Call<'_, '_, '_>, unit: Unit, command: &'static str) -> Outcome {
    let moment = match moment(unit, call.args.get(2), call.txn.now(), command) {
        Ok(moment) => moment,
        Err(error) => return call.fail(error),
    };
    let (key, new) = (call.key(1), call.args.get(3));
    if store(call, &key, new, Expiry::At(moment)).is_err() {
        return call.out_of_memory();
    }
    call.reply.ok();
    call.record_with_number([b"SET", key.bytes, new, b"PXAT"], moment.get());
    Outcome::Done
}

pub const GETSET: Command<Handler> = Command::new(
    Spec {
        name: "getset",
        summary: "Sets a string and returns the previous one; null for an absent key.",
        group: Group::String,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BASE
    },
    getset,
);

fn getset(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, new) = (call.key(1), call.args.get(2));
    let mark = call.reply.len();
    if let Err(error) = reply_value(call, &key) {
        return call.fail(error);
    }
    if store(call, &key, new, Expiry::Clear).is_err() {
        call.reply.truncate(mark);
        return call.out_of_memory();
    }
    call.record(&[b"SET", key.bytes, new]);
    Outcome::Done
}
