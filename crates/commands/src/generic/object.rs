//! OBJECT: how a value is kept.

use crate::help::write_help;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Entry, Lookup};
use isotherm_resp::errors;

pub const OBJECT: Command<Handler> = Command::container(
    Spec {
        name: "object",
        summary: "Shows how a value is kept.",
        since: "2.2.3",
        complexity: "That of the subcommand",
        arity: -2,
        ..Spec::BASE
    },
    SUBCOMMANDS,
);

const SUBCOMMANDS: &[Command<Handler>] =
    &[OBJECT_ENCODING, OBJECT_FREQ, OBJECT_HELP, OBJECT_IDLETIME, OBJECT_REFCOUNT];

/// Returns a property of the entry whose key is argument 2. Replies null if there is no entry. The lookup
/// does not count as an access.
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
        summary: "Returns the name of a value's encoding; null for an absent key.",
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
        summary: "Returns the access counter of a key under an LFU policy; null for an absent key.",
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

pub const OBJECT_HELP: Command<Handler> =
    Command::new(Spec { since: "6.2.0", acl: AclCategories::KEYSPACE, ..Spec::HELP }, help);

fn help(call: &mut Call<'_, '_, '_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "ENCODING <key>",
            "    Return the name of the encoding of the value.",
            "FREQ <key>",
            "    Return the access counter of <key>, a logarithm that decays with time.",
            "    Needs an LFU policy.",
            "IDLETIME <key>",
            "    Return how many seconds ago <key> was last used.",
            "    Needs a policy other than LFU.",
            "REFCOUNT <key>",
            "    Return the number of references to the value.",
        ],
    )
}

pub const OBJECT_IDLETIME: Command<Handler> = Command::new(
    Spec {
        name: "idletime",
        summary: "Returns the seconds since a key was last used; null for an absent key.",
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
        summary: "Returns the number of references to a value; null for an absent key.",
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
        // COMPAT(keys): OBJECT REFCOUNT is always 1; in Valkey it may be 2 inside the transaction that wrote
        // the value. Why: a value belongs to its key alone.
        call.reply.integer(1);
    }
    Outcome::Done
}
