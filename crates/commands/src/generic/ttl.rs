//! Remaining life of a key: TTL PTTL EXPIRETIME PEXPIRETIME, and PERSIST, which removes the expiry.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Lookup, UnixMs};

const NO_SUCH_KEY: i64 = -2;
const LIVES_FOR_EVER: i64 = -1;

pub const TTL: Command<Handler> = Command::new(
    Spec {
        name: "ttl",
        summary: "Returns the seconds until a key expires; -1 without expiry, -2 for an absent key.",
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        history: &[("2.8.0", "An absent key answers -2.")],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    ttl,
);

fn ttl(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_moment(call, |moment, now| rounded_seconds(moment.ms_since(now).max(0)))
}

pub const PTTL: Command<Handler> = Command::new(
    Spec {
        name: "pttl",
        summary: "Returns the milliseconds until a key expires; -1 without expiry, -2 for an absent key.",
        since: "2.6.0",
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        history: &[("2.8.0", "An absent key answers -2.")],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    pttl,
);

fn pttl(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_moment(call, |moment, now| moment.ms_since(now).max(0))
}

pub const EXPIRETIME: Command<Handler> = Command::new(
    Spec {
        name: "expiretime",
        summary: "Returns the Unix time in seconds when a key expires; -1 without expiry, -2 for an absent key.",
        since: "7.0.0",
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    expiretime,
);

fn expiretime(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_moment(call, |moment, _| rounded_seconds(moment.get()))
}

pub const PEXPIRETIME: Command<Handler> = Command::new(
    Spec {
        name: "pexpiretime",
        summary: "Returns the Unix time in milliseconds when a key expires; -1 without expiry, -2 for an absent key.",
        since: "7.0.0",
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    pexpiretime,
);

fn pexpiretime(call: &mut Call<'_, '_, '_>) -> Outcome {
    reply_moment(call, |moment, _| moment.get())
}

fn rounded_seconds(ms: i64) -> i64 {
    ms / 1000 + (ms % 1000 + 500) / 1000
}

fn reply_moment(call: &mut Call<'_, '_, '_>, number: impl Fn(UnixMs, UnixMs) -> i64) -> Outcome {
    let key = call.key(1);
    let now = call.txn.now();
    let number = match call.txn.find(call.db, &key, Lookup::Peek).map(|entry| entry.expiry) {
        Some(Some(moment)) => number(moment, now),
        Some(None) => LIVES_FOR_EVER,
        None => NO_SUCH_KEY,
    };
    call.reply.integer(number);
    Outcome::Done
}

pub const PERSIST: Command<Handler> = Command::new(
    Spec {
        name: "persist",
        summary: "Removes the expiry of a key. Returns 1, or 0 when there was none or the key is absent.",
        since: "2.2.0",
        complexity: "O(1)",
        arity: 2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::Nothing),
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    persist,
);

fn persist(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let Ok(had_expiry) = call.persist(&key) else {
        return call.out_of_memory();
    };
    if had_expiry {
        call.wrote(EventClass::Generic, "persist", &key, 1);
    }
    call.reply.integer(i64::from(had_expiry));
    Outcome::Done
}
