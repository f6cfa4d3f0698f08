//! A key gets a moment at which it leaves: EXPIRE PEXPIRE EXPIREAT PEXPIREAT.

use crate::arguments::CONDITION;
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Key, Lookup, UnixMs};
use isotherm_resp::{Args, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::parse_i64;

/// Notation of the expiry in a command.
#[derive(Clone, Copy)]
struct Form {
    command: &'static str,
    seconds: bool,
    /// The time counts from now, not from 1970.
    relative: bool,
}

pub const EXPIRE: Command<Handler> = Command::new(
    Spec {
        name: "expire",
        summary: "Lets a key expire after some seconds. Returns 0 for an absent key or when the condition fails.",
        complexity: "O(1)",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[("7.0.0", "New options `NX`, `XX`, `GT` and `LT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("seconds"),
            CONDITION.since("7.0.0").optional(),
        ],
        ..Spec::BASE
    },
    expire,
);

fn expire(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_moment(call, Form { command: EXPIRE.spec.name, seconds: true, relative: true })
}

pub const PEXPIRE: Command<Handler> = Command::new(
    Spec {
        name: "pexpire",
        summary: "Lets a key expire after some milliseconds. Returns 0 for an absent key or when the condition fails.",
        since: "2.6.0",
        complexity: "O(1)",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[("7.0.0", "New options `NX`, `XX`, `GT` and `LT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("milliseconds"),
            CONDITION.since("7.0.0").optional(),
        ],
        ..Spec::BASE
    },
    pexpire,
);

fn pexpire(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_moment(call, Form { command: PEXPIRE.spec.name, seconds: false, relative: true })
}

pub const EXPIREAT: Command<Handler> = Command::new(
    Spec {
        name: "expireat",
        summary: "Lets a key expire at a Unix time in seconds. Returns 0 for an absent key or when the condition fails.",
        since: "1.2.0",
        complexity: "O(1)",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[("7.0.0", "New options `NX`, `XX`, `GT` and `LT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::unix_time("unix-time-seconds"),
            CONDITION.since("7.0.0").optional(),
        ],
        ..Spec::BASE
    },
    expireat,
);

fn expireat(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_moment(call, Form { command: EXPIREAT.spec.name, seconds: true, relative: false })
}

pub const PEXPIREAT: Command<Handler> = Command::new(
    Spec {
        name: "pexpireat",
        summary: "Lets a key expire at a Unix time in milliseconds. Returns 0 for an absent key or when the condition fails.",
        since: "2.6.0",
        complexity: "O(1)",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[("7.0.0", "New options `NX`, `XX`, `GT` and `LT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::unix_time("unix-time-milliseconds"),
            CONDITION.since("7.0.0").optional(),
        ],
        ..Spec::BASE
    },
    pexpireat,
);

fn pexpireat(call: &mut Call<'_, '_, '_>) -> Outcome {
    set_moment(call, Form { command: PEXPIREAT.spec.name, seconds: false, relative: false })
}

/// NX XX GT LT: how the old expiry must stand to the new one.
#[derive(Clone, Copy, Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Conditions, Vec<u8>> {
        let mut conditions = Conditions::default();
        for word in args.from(3).iter() {
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

    /// A key without expiry counts as one that lives for ever.
    fn allow(self, old: Option<UnixMs>, new: UnixMs) -> bool {
        !(self.nx && old.is_some()
            || self.xx && old.is_none()
            || self.gt && old.is_none_or(|old| new <= old)
            || self.lt && old.is_some_and(|old| new >= old))
    }
}

impl Form {
    fn moment(self, text: &[u8], now: UnixMs) -> Result<UnixMs, Vec<u8>> {
        let number = parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
        let ms = if self.seconds { number.checked_mul(1000) } else { Some(number) };
        let base = if self.relative { now } else { UnixMs(0) };
        let moment = ms.and_then(|ms| base.checked_add_ms(ms));
        // For a moment in the past it does not matter how long ago it was.
        moment.map(|moment| moment.max(UnixMs(0))).ok_or_else(|| errors::invalid_expire(self.command).into())
    }
}

fn set_moment(call: &mut Call<'_, '_, '_>, form: Form) -> Outcome {
    let conditions = match Conditions::parse(call.args) {
        Ok(conditions) => conditions,
        Err(error) => return call.fail(error),
    };
    let moment = match form.moment(call.args.get(2), call.txn.now()) {
        Ok(moment) => moment,
        Err(error) => return call.fail(error),
    };
    let key = call.key(1);
    let found = call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.expiry);
    if !found.is_some_and(|old| conditions.allow(old, moment)) {
        call.reply.integer(0);
        return Outcome::Done;
    }
    if call.is_over(moment) {
        call.expire_now(&key);
    } else {
        if call.txn.set_expiry(call.db, &key, Some(moment)).is_err() {
            return call.out_of_memory();
        }
        call.wrote(EventClass::Generic, "expire", &key, 1);
        record_moment(call, &key, moment, form);
    }
    call.reply.integer(1);
    Outcome::Done
}

/// PEXPIREAT with the moment; the conditions stay.
fn record_moment(call: &mut Call<'_, '_, '_>, key: &Key<'_>, moment: UnixMs, form: Form) {
    let args = call.args;
    if !form.seconds && !form.relative {
        // As it came.
    } else if args.len() == 3 {
        call.record_with_number([b"PEXPIREAT", key.bytes], moment.get());
    } else {
        let mut room = [0; I64_BYTES_MAX];
        let number = write_i64(moment.get(), &mut room);
        call.record_words(|words| {
            words.extend([b"PEXPIREAT", key.bytes, number]);
            words.extend(args.from(3).iter());
        });
    }
}
