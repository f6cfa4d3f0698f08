//! Commands that read a string, and may delete it or change its expiry: GET GETEX GETDEL DELIFEQ DELEX.

use super::options::{Family, Options};
use super::value;
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Full, Key, Lookup, Type, UnixMs};
use isotherm_resp::errors;

pub const GET: Command<Handler> = Command::new(
    Spec {
        name: "get",
        summary: "Returns the string at a key; null for an absent one.",
        group: Group::String,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    get,
);

fn get(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    match reply_value(call, &key) {
        Ok(_) => Outcome::Done,
        Err(error) => call.fail(error),
    }
}

/// Replies the value of `key`, or null; returns whether it is there. A value that is not a string is not
/// replied.
#[inline]
pub(super) fn reply_value(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Result<bool, &'static str> {
    match call.txn.find(call.db, key, Lookup::Read) {
        Some(entry) if entry.kind() != Type::String => Err(errors::WRONG_TYPE),
        Some(entry) => {
            value::write(call.reply, &entry);
            Ok(true)
        }
        None => {
            call.reply.null();
            Ok(false)
        }
    }
}

pub const GETEX: Command<Handler> = Command::new(
    Spec {
        name: "getex",
        summary: "Returns the string at a key and changes its expiry; null for an absent one.",
        since: "6.2.0",
        group: Group::String,
        complexity: "O(1)",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))
            .notes("RW and UPDATE: the expiry changes")],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "expiration",
                &[
                    Argument::integer("seconds").token("EX"),
                    Argument::integer("milliseconds").token("PX"),
                    Argument::unix_time("unix-time-seconds").token("EXAT"),
                    Argument::unix_time("unix-time-milliseconds").token("PXAT"),
                    Argument::pure_token("persist", "PERSIST"),
                ],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    getex,
);

fn getex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = match Options::parse(call.args, 2, Family::GetEx) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let moment = match call.moment_of(options.time, GETEX.spec.name) {
        Ok(moment) => moment,
        Err(error) => return call.fail(error),
    };
    let key = call.key(1);
    let mark = call.reply.len();
    match reply_value(call, &key) {
        Ok(true) => {}
        Ok(false) => return Outcome::Done,
        Err(error) => return call.fail(error),
    }
    let changed = match moment {
        // A duration is never over: it is at least one millisecond.
        Some(moment) if call.is_over(moment) => {
            call.expire_now(&key);
            Ok(())
        }
        Some(moment) => set_moment(call, &key, moment),
        None if options.persist => persist(call, &key),
        None => Ok(()),
    };
    if changed.is_err() {
        call.reply.truncate(mark);
        return call.out_of_memory();
    }
    Outcome::Done
}

fn set_moment(call: &mut Call<'_, '_, '_>, key: &Key<'_>, moment: UnixMs) -> Result<(), Full> {
    call.txn.set_expiry(call.db, key, Some(moment))?;
    call.wrote(EventClass::Generic, "expire", key, 1);
    call.record_with_number([b"PEXPIREAT", key.bytes], moment.get());
    Ok(())
}

fn persist(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Result<(), Full> {
    if call.persist(key)? {
        call.wrote(EventClass::Generic, "persist", key, 1);
        call.record(&[b"PERSIST", key.bytes]);
    }
    Ok(())
}

pub const GETDEL: Command<Handler> = Command::new(
    Spec {
        name: "getdel",
        summary: "Returns the string at a key and deletes the key; null for an absent one.",
        since: "6.2.0",
        group: Group::String,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    getdel,
);

fn getdel(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    match reply_value(call, &key) {
        Ok(true) => delete(call, &key),
        Ok(false) => {}
        Err(error) => return call.fail(error),
    }
    Outcome::Done
}

/// Removes a key that is there. The log says DEL, whatever the request was.
fn delete(call: &mut Call<'_, '_, '_>, key: &Key<'_>) {
    let removed = call.txn.remove(call.db, key);
    assert!(removed, "the key was found under the same lock");
    call.wrote(EventClass::Generic, "del", key, 1);
    call.record(&[b"DEL", key.bytes]);
}

pub const DELIFEQ: Command<Handler> = Command::new(
    Spec {
        name: "delifeq",
        summary: "Removes a key that holds the given string. Returns 1, or 0 when it differs or is absent.",
        since: "9.0.0",
        group: Group::String,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::FAST.or(Flags::WRITE),
        acl: AclCategories::STRING,
        need: NeedFrom::Stated(Need::All),
        key_specs: &[KeySpec::one(1, KeyFlags::RM.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BASE
    },
    delifeq,
);

fn delifeq(call: &mut Call<'_, '_, '_>) -> Outcome {
    delete_if(call, 2, true)
}

pub const DELEX: Command<Handler> = Command::new(
    Spec {
        name: "delex",
        summary: "Delete a key conditionally based on its value.",
        since: "9.2.0",
        group: Group::String,
        complexity: "O(N), where N is the length of the value.",
        arity: 4,
        flags: Flags::FAST.or(Flags::WRITE),
        acl: AclCategories::STRING,
        need: NeedFrom::Stated(Need::All),
        key_specs: &[KeySpec::one(1, KeyFlags::RM.or(KeyFlags::DELETE))],
        arguments: &[
            Argument::key("key", 0),
            Argument::block(
                "condition",
                &[
                    Argument::one_of(
                        "predicate",
                        &[Argument::pure_token("IFEQ", "IFEQ"), Argument::pure_token("IFNE", "IFNE")],
                    ),
                    Argument::string("value"),
                ],
            ),
        ],
        ..Spec::BASE
    },
    delex,
);

fn delex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let wants_equal = match call.args.get(2) {
        word if is_word(word, "IFEQ") => true,
        word if is_word(word, "IFNE") => false,
        _ => return call.fail(errors::SYNTAX),
    };
    delete_if(call, 3, wants_equal)
}

/// Removes a string that is there and equals the argument at `at`, or does not.
fn delete_if(call: &mut Call<'_, '_, '_>, at: usize, wants_equal: bool) -> Outcome {
    let (key, other) = (call.key(1), call.args.get(at));
    let goes = match value::string(call.txn.find(call.db, &key, Lookup::Write)) {
        Ok(found) => found.is_some_and(|value| value::equals(value, other) == wants_equal),
        Err(error) => return call.fail(error),
    };
    if goes {
        delete(call, &key);
    }
    call.reply.integer(i64::from(goes));
    Outcome::Done
}
