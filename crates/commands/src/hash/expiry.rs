//! Fields have times of their own: HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST HTTL HPTTL HEXPIRETIME
//! HPEXPIRETIME.

use super::{NUM_FIELDS, done, fields_at, finished, hash, or_fail};
use crate::arguments::{CONDITION, FIELDS};
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Lookup, UnixMs};
use isotherm_resp::{Args, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::parse_i64;

/// Notation of the expiry in a command.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub command: &'static str,
    pub seconds: bool,
    pub relative: bool,
}

impl Form {
    pub(super) fn moment(self, text: &[u8], now: UnixMs) -> Result<UnixMs, Vec<u8>> {
        let number = parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
        let ms = if self.seconds { number.checked_mul(1000) } else { Some(number) };
        let base = if self.relative { now } else { UnixMs(0) };
        let moment = ms.filter(|ms| *ms >= 0).and_then(|ms| base.checked_add_ms(ms));
        moment.ok_or_else(|| errors::invalid_expire(self.command).into())
    }
}

/// NX XX GT LT: how the old time must stand to the new one.
#[derive(Clone, Copy, Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(words: Args<'_>, count: usize) -> Result<Conditions, Vec<u8>> {
        let mut conditions = Conditions::default();
        for word in words.iter().take(count) {
            if is_word(word, "NX") {
                conditions.nx = true;
            } else if is_word(word, "XX") {
                conditions.xx = true;
            } else if is_word(word, "GT") {
                conditions.gt = true;
            } else if is_word(word, "LT") {
                conditions.lt = true;
            } else {
                let shown = word.split(|byte| *byte == 0).next().unwrap_or_default();
                return Err(errors::with_bytes("ERR Unsupported option ", shown, ""));
            }
        }
        match conditions {
            Conditions { nx: true, xx, gt, lt } if xx || gt || lt => Err(errors::NX_WITH_XX_GT_LT.into()),
            Conditions { gt: true, lt: true, .. } => Err(errors::GT_WITH_LT.into()),
            _ => Ok(conditions),
        }
    }

    /// A field without a time counts as one that lives for ever.
    fn allow(self, old: Option<UnixMs>, new: UnixMs) -> bool {
        !(self.nx && old.is_some()
            || self.xx && old.is_none()
            || self.gt && old.is_none_or(|old| new <= old)
            || self.lt && old.is_some_and(|old| new >= old))
    }
}

const NOT_THERE: i64 = -2;
const NO_TIME: i64 = -1;
const NOT_ALLOWED: i64 = 0;
const SET: i64 = 1;
const OVER: i64 = 2;

fn set_times(call: &mut Call<'_, '_, '_>, form: Form) -> Outcome {
    let args = call.args;
    // The word FIELDS is looked for from the fourth argument on; without it there are no fields.
    let fields = (3..args.len() - 1).find(|&at| is_word(args.get(at), "FIELDS"));
    let Some(fields) = fields else { return call.fail(NUM_FIELDS) };
    let conditions = or_fail!(call, Conditions::parse(args.from(3), fields - 3));
    let first = or_fail!(call, fields_at(args, fields + 1, 1, NUM_FIELDS));
    let moment = or_fail!(call, form.moment(args.get(2), call.txn.now()));
    let (key, over) = (call.key(1), call.is_over(moment));
    let edited = call.txn.edit_hash(call.db, &key, &call.settings.limits, |edit| {
        let (mut results, mut meets_hidden) = (Vec::with_capacity(args.len() - first), false);
        for field in args.from(first).iter() {
            let Some((_, old)) = edit.get(field) else {
                meets_hidden |= edit.is_hidden(field);
                results.push(NOT_THERE);
                continue;
            };
            results.push(if !conditions.allow(old, moment) {
                NOT_ALLOWED
            } else if over {
                edit.remove(field, false);
                OVER
            } else if edit.set_expiry(field, Some(moment)).is_ok() {
                SET
            } else {
                break;
            });
        }
        Ok((results, meets_hidden))
    });
    let (results, meets_hidden) = or_fail!(call, finished(edited));
    if results.len() < args.len() - first {
        _ = call.out_of_memory();
    } else {
        call.reply.array(results.len());
        results.iter().for_each(|result| call.reply.integer(*result));
    }
    let count = |wanted| results.iter().filter(|result| **result == wanted).count() as u64;
    let (set, expired) = (count(SET), count(OVER));
    if expired > 0 {
        call.txn.expired_fields += expired;
        let gone = args.from(first).iter().zip(&results).filter(|(_, result)| **result == OVER);
        call.record_words(|words| {
            words.extend([b"HDEL", args.get(1)]);
            words.extend(gone.map(|(field, _)| field));
        });
        call.wrote(EventClass::Hash, "hexpired", &key, set + expired);
    } else if set > 0 {
        let (mut room, mut count) = ([0; I64_BYTES_MAX], [0; I64_BYTES_MAX]);
        let number = write_i64(moment.get(), &mut room);
        let named = if meets_hidden { set as usize } else { results.len() };
        let count = write_i64(named as i64, &mut count);
        call.record_words(|words| {
            words.extend([b"HPEXPIREAT", args.get(1), number]);
            words.extend(args.from(3).iter().take(first - 4));
            words.push(count);
            match meets_hidden {
                true => words.extend(fields_set(args.from(first), &results)),
                false => words.extend(args.from(first).iter().take(named)),
            }
        });
        call.wrote(EventClass::Hash, "hexpire", &key, set);
    }
    done()
}

/// Returns the fields that were changed. The log names only them if the request also names fields that are
/// past their time: such a field must not live again.
fn fields_set<'a>(fields: Args<'a>, results: &[i64]) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().zip(results).filter(|(_, result)| **result == SET).map(|(field, _)| field)
}

pub const HEXPIRE: Command<Handler> = Command::new(
    Spec {
        name: "hexpire",
        summary: "Lets fields expire after some seconds. Returns the outcome of each; -2 for an absent one.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -6,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("seconds"),
            CONDITION.optional(),
            // Here alone Valkey names no key spec for the number.
            Argument::block(
                "fields",
                &[Argument::integer("numfields"), Argument::string("field").multiple()],
            )
            .token("FIELDS"),
        ],
        ..Spec::BASE
    },
    hexpire,
);

fn hexpire(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_times(call, Form { command: HEXPIRE.spec.name, seconds: true, relative: true })
}

pub const HPEXPIRE: Command<Handler> = Command::new(
    Spec {
        name: "hpexpire",
        summary: "Lets fields expire after some milliseconds. Returns the outcome of each; -2 for an absent one.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -6,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("milliseconds"),
            CONDITION.since("9.0.0").optional(),
            FIELDS,
        ],
        ..Spec::BASE
    },
    hpexpire,
);

fn hpexpire(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_times(call, Form { command: HPEXPIRE.spec.name, seconds: false, relative: true })
}

pub const HEXPIREAT: Command<Handler> = Command::new(
    Spec {
        name: "hexpireat",
        summary: "Lets fields expire at a Unix time in seconds. Returns the outcome of each; -2 for an absent one.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -6,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("unix-time-seconds"),
            CONDITION.since("9.0.0").optional(),
            FIELDS,
        ],
        ..Spec::BASE
    },
    hexpireat,
);

fn hexpireat(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_times(call, Form { command: HEXPIREAT.spec.name, seconds: true, relative: false })
}

pub const HPEXPIREAT: Command<Handler> = Command::new(
    Spec {
        name: "hpexpireat",
        summary: "Lets fields expire at a Unix time in milliseconds. Returns the outcome of each; -2 for an absent one.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -6,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("unix-time-milliseconds"),
            CONDITION.since("9.0.0").optional(),
            FIELDS,
        ],
        ..Spec::BASE
    },
    hpexpireat,
);

fn hpexpireat(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_times(call, Form { command: HPEXPIREAT.spec.name, seconds: false, relative: false })
}

pub const HPERSIST: Command<Handler> = Command::new(
    Spec {
        name: "hpersist",
        summary: "Removes the expiry of fields. Returns 1 for each that had one, -1 without, -2 for an absent one.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -5,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), FIELDS],
        ..Spec::BASE
    },
    hpersist,
);

fn hpersist(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    if !is_word(args.get(2), "FIELDS") {
        return call.fail(errors::SYNTAX);
    }
    let first = or_fail!(call, fields_at(args, 3, 1, NUM_FIELDS));
    let edited = call.txn.edit_hash(call.db, &key, &call.settings.limits, |edit| {
        let (mut results, mut meets_hidden) = (Vec::with_capacity(args.len() - first), false);
        for field in args.from(first).iter() {
            results.push(match edit.get(field).map(|(_, expiry)| expiry) {
                None => {
                    meets_hidden |= edit.is_hidden(field);
                    NOT_THERE
                }
                Some(None) => NO_TIME,
                Some(Some(_)) if edit.set_expiry(field, None).is_ok() => SET,
                Some(Some(_)) => break,
            });
        }
        Ok((results, meets_hidden))
    });
    let (results, meets_hidden) = or_fail!(call, finished(edited));
    let is_cut_short = results.len() < args.len() - first;
    if is_cut_short {
        _ = call.out_of_memory();
    } else {
        call.reply.array(results.len());
        results.iter().for_each(|result| call.reply.integer(*result));
    }
    let changes = results.iter().filter(|result| **result == SET).count();
    if changes > 0 {
        call.wrote(EventClass::Hash, "hpersist", &key, changes as u64);
        if meets_hidden || is_cut_short {
            let mut count = [0; I64_BYTES_MAX];
            let count = write_i64(changes as i64, &mut count);
            call.record_words(|words| {
                words.extend([b"HPERSIST", args.get(1), b"FIELDS", count]);
                words.extend(fields_set(args.from(first), &results));
            });
        }
    }
    done()
}

/// Replies the times of fields, counted from `base`.
fn reply_times(call: &mut Call<'_, '_, '_>, base: UnixMs, seconds: bool) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    if !is_word(args.get(2), "FIELDS") {
        return call.fail(errors::SYNTAX);
    }
    let first = or_fail!(call, fields_at(args, 3, 1, errors::SYNTAX));
    let found = or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read)));
    call.reply.array(args.len() - first);
    for field in args.from(first).iter() {
        let number = match found.and_then(|view| view.get_with_expiry(field)) {
            None => NOT_THERE,
            Some((_, None)) => NO_TIME,
            Some((_, Some(at))) => {
                let ms = at.get().saturating_sub(base.get()).max(0);
                if seconds { ms / 1000 + i64::from(ms % 1000 >= 500) } else { ms }
            }
        };
        call.reply.integer(number);
    }
    done()
}

pub const HTTL: Command<Handler> = Command::new(
    Spec {
        name: "httl",
        summary: "Returns the seconds until each field expires; -1 without expiry, -2 for an absent field.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -5,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), FIELDS],
        ..Spec::BASE
    },
    httl,
);

fn httl(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_times(call, call.txn.now(), true)
}

pub const HPTTL: Command<Handler> = Command::new(
    Spec {
        name: "hpttl",
        summary: "Returns the milliseconds until each field expires; -1 without expiry, -2 for an absent field.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -5,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), FIELDS],
        ..Spec::BASE
    },
    hpttl,
);

fn hpttl(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_times(call, call.txn.now(), false)
}

pub const HEXPIRETIME: Command<Handler> = Command::new(
    Spec {
        name: "hexpiretime",
        summary: "Returns the Unix time in seconds when each field expires; -1 without expiry, -2 for an absent field.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -5,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), FIELDS],
        ..Spec::BASE
    },
    hexpiretime,
);

fn hexpiretime(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_times(call, UnixMs(0), true)
}

pub const HPEXPIRETIME: Command<Handler> = Command::new(
    Spec {
        name: "hpexpiretime",
        summary: "Returns the Unix time in milliseconds when each field expires; -1 without expiry, -2 for an absent field.",
        since: "9.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -5,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), FIELDS],
        ..Spec::BASE
    },
    hpexpiretime,
);

fn hpexpiretime(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_times(call, UnixMs(0), false)
}
