//! OBJECT: how a value is kept.

use crate::help::write_help;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Entry, Lookup};
use isotherm_resp::errors;

pub const OBJECT: Command<Handler> = Command::container(
    Spec {
        name: "object",
        summary: "A container for object introspection commands.",
        since: "2.2.3",
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BASE
    },
    SUBCOMMANDS,
);

const SUBCOMMANDS: &[Command<Handler>] =
    &[OBJECT_ENCODING, OBJECT_FREQ, OBJECT_HELP, OBJECT_IDLETIME, OBJECT_REFCOUNT];

/// What is asked of the entry at argument 2; null if there is none. Looking is no access.
fn ask<T>(call: &mut Call<'_, '_, '_>, of: impl Fn(&Entry<'_>) -> T) -> Option<T> {
    let key = call.key(2);
    let answer = call.txn.find(call.db, &key, Lookup::Quiet).map(|entry| of(&entry));
    if answer.is_none() {
        call.reply.null();
    }
    answer
}

pub const OBJECT_ENCODING: Command<Handler> = Command::new(
    Spec {
        name: "encoding",
        summary: "Returns the internal encoding of an object.",
        since: "2.2.3",
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY,
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::one(2, KeyFlags::RO)],
        tips: &["nondeterministic_output"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    encoding,
);

fn encoding(call: &mut Call<'_, '_, '_>) -> Outcome {
    if let Some(encoding) = ask(call, |entry| entry.encoding()) {
        call.reply.bulk(encoding.name().as_bytes());
    }
    Outcome::Done
}

pub const OBJECT_FREQ: Command<Handler> = Command::new(
    Spec {
        name: "freq",
        summary: "Returns the logarithmic access frequency counter of an object.",
        since: "4.0.0",
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY,
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::one(2, KeyFlags::RO)],
        tips: &["nondeterministic_output"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    freq,
);

fn freq(call: &mut Call<'_, '_, '_>) -> Outcome {
    match ask(call, |entry| entry.frequency()) {
        Some(_) if !call.settings.lfu => call.fail(errors::LFU_NOT_SELECTED),
        Some(frequency) => {
            call.reply.integer(i64::from(frequency));
            Outcome::Done
        }
        None => Outcome::Done,
    }
}

pub const OBJECT_HELP: Command<Handler> = Command::new(
    Spec {
        name: "help",
        summary: "Returns helpful text about the different subcommands.",
        since: "6.2.0",
        complexity: "O(1)",
        arity: 2,
        flags: Flags::LOADING.or(Flags::STALE),
        acl: AclCategories::KEYSPACE,
        ..Spec::BASE
    },
    help,
);

fn help(call: &mut Call<'_, '_, '_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "ENCODING <key>",
            "    Return the kind of internal representation used in order to store the value",
            "    associated with a <key>.",
            "FREQ <key>",
            "    Return the access frequency index of the <key>. The returned integer is",
            "    proportional to the logarithm of the recent access frequency of the key.",
            "IDLETIME <key>",
            "    Return the idle time of the <key>, that is the approximated number of",
            "    seconds elapsed since the last access to the key.",
            "REFCOUNT <key>",
            "    Return the number of references of the value associated with the specified",
            "    <key>.",
        ],
    );
    Outcome::Done
}

pub const OBJECT_IDLETIME: Command<Handler> = Command::new(
    Spec {
        name: "idletime",
        summary: "Returns the time since the last access to an object.",
        since: "2.2.3",
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY,
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::one(2, KeyFlags::RO)],
        tips: &["nondeterministic_output"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    idletime,
);

fn idletime(call: &mut Call<'_, '_, '_>) -> Outcome {
    match ask(call, |entry| entry.idle_seconds()) {
        Some(_) if call.settings.lfu => call.fail(errors::LFU_SELECTED),
        Some(seconds) => {
            call.reply.integer(seconds as i64);
            Outcome::Done
        }
        None => Outcome::Done,
    }
}

pub const OBJECT_REFCOUNT: Command<Handler> = Command::new(
    Spec {
        name: "refcount",
        summary: "Returns the reference count of a value of a key.",
        since: "2.2.3",
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY,
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::one(2, KeyFlags::RO)],
        tips: &["nondeterministic_output"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    refcount,
);

/// A value belongs to its key alone.
fn refcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    if ask(call, |_| ()).is_some() {
        // COMPAT(keys): OBJECT REFCOUNT is always 1; in Valkey it may be 2 inside the transaction that wrote the
        // value. Why: a value belongs to its key alone.
        call.reply.integer(1);
    }
    Outcome::Done
}
