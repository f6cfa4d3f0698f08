//! Existence and type of keys: EXISTS TOUCH TYPE.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::Lookup;

pub const EXISTS: Command<Handler> = Command::new(
    Spec {
        name: "exists",
        summary: "Returns how many of the keys exist; a key that is named twice counts twice.",
        complexity: "O(N), N the given keys",
        arity: -2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RO)],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        history: &[("3.0.3", "Several keys in one call.")],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    exists,
);

fn exists(call: &mut Call<'_, '_, '_>) -> Outcome {
    count(call, Lookup::Peek)
}

pub const TOUCH: Command<Handler> = Command::new(
    Spec {
        name: "touch",
        summary: "Marks keys as used now. Returns how many exist.",
        since: "3.2.1",
        complexity: "O(N), N the given keys",
        arity: -2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RO)],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    touch,
);

/// Touching is what is asked for, also of a client that otherwise does not touch.
fn touch(call: &mut Call<'_, '_, '_>) -> Outcome {
    let no_touch = std::mem::replace(&mut call.txn.conditions.no_touch, false);
    let outcome = count(call, Lookup::Read);
    call.txn.conditions.no_touch = no_touch;
    outcome
}

/// A key that is named twice counts twice.
fn count(call: &mut Call<'_, '_, '_>, lookup: Lookup) -> Outcome {
    let mut found = 0;
    for at in 1..call.args.len() {
        let key = call.key(at);
        if call.txn.find(call.db, &key, lookup).is_some() {
            found += 1;
        }
    }
    call.reply.integer(found);
    Outcome::Done
}

pub const TYPE: Command<Handler> = Command::new(
    Spec {
        name: "type",
        summary: "Returns the name of a value's type; \"none\" for an absent key.",
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    kind,
);

fn kind(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    match call.txn.find(call.db, &key, Lookup::Peek).map(|entry| entry.kind()) {
        Some(kind) => call.reply.simple(kind.name()),
        None => call.reply.simple("none"),
    }
    Outcome::Done
}
