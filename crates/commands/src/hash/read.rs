//! Commands that read a hash: HGET HMGET HEXISTS HLEN HSTRLEN HGETALL HKEYS HVALS.

use super::{done, hash, or_fail};
use crate::element::reply_element;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::Lookup;

pub const HGET: Command<Handler> = Command::new(
    Spec {
        name: "hget",
        summary: "Returns the value of a field; null for an absent one.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("field")],
        ..Spec::BASE
    },
    hget,
);

fn hget(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    match or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read))) {
        Some(view) => match view.get(call.args.get(2)) {
            Some(value) => reply_element(call.reply, value),
            None => call.reply.null(),
        },
        None => {
            call.reply.null();
        }
    }
    done()
}

pub const HMGET: Command<Handler> = Command::new(
    Spec {
        name: "hmget",
        summary: "Returns the values of the given fields; null for absent ones.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N), N the given fields",
        arity: -3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("field").multiple()],
        ..Spec::BASE
    },
    hmget,
);

fn hmget(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    let found = or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read)));
    call.reply.array(args.len() - 2);
    for field in args.from(2).iter() {
        match found.and_then(|view| view.get(field)) {
            Some(value) => reply_element(call.reply, value),
            None => call.reply.null(),
        }
    }
    done()
}

/// An integer about the hash; 0 if there is none.
fn number(call: &mut Call<'_, '_, '_>, of: impl Fn(&isotherm_keyspace::HashView<'_>) -> usize) -> Outcome {
    let key = call.key(1);
    let found = or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read)));
    let number = found.map(|view| of(&view));
    call.reply.integer(number.unwrap_or(0) as i64);
    done()
}

pub const HEXISTS: Command<Handler> = Command::new(
    Spec {
        name: "hexists",
        summary: "Returns 1 for a field that the hash has, otherwise 0.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0), Argument::string("field")],
        ..Spec::BASE
    },
    hexists,
);

fn hexists(call: &mut Call<'_, '_, '_>) -> Outcome {
    let field = call.args.get(2);
    number(call, |view| usize::from(view.get(field).is_some()))
}

pub const HLEN: Command<Handler> = Command::new(
    Spec {
        name: "hlen",
        summary: "Returns how many fields a hash has; 0 for an absent key.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    hlen,
);

fn hlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    number(call, |view| view.len() as usize)
}

pub const HSTRLEN: Command<Handler> = Command::new(
    Spec {
        name: "hstrlen",
        summary: "Returns the length in bytes of a field's value; 0 for an absent one.",
        since: "3.2.0",
        group: Group::Hash,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0), Argument::string("field")],
        ..Spec::BASE
    },
    hstrlen,
);

fn hstrlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let field = call.args.get(2);
    number(call, |view| view.get(field).map_or(0, |value| value.text_len()))
}

pub const HGETALL: Command<Handler> = Command::new(
    Spec {
        name: "hgetall",
        summary: "Returns every field with its value; empty for an absent key.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N), N the fields of the hash",
        arity: 2,
        flags: Flags::READONLY,
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    hgetall,
);

fn hgetall(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let Some(view) = or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read))) else {
        call.reply.map(0);
        return done();
    };
    let (open, mut count) = (call.reply.defer(), 0);
    view.for_each(|field, value| {
        reply_element(call.reply, field);
        reply_element(call.reply, value);
        count += 1;
    });
    call.reply.close_map(open, count);
    done()
}

/// All fields, or all values.
fn list(call: &mut Call<'_, '_, '_>, fields: bool) -> Outcome {
    let key = call.key(1);
    let Some(view) = or_fail!(call, hash(call.txn.find(call.db, &key, Lookup::Read))) else {
        call.reply.array(0);
        return done();
    };
    let (open, mut count) = (call.reply.defer(), 0);
    view.for_each(|field, value| {
        reply_element(call.reply, if fields { field } else { value });
        count += 1;
    });
    call.reply.close_array(open, count);
    done()
}

pub const HKEYS: Command<Handler> = Command::new(
    Spec {
        name: "hkeys",
        summary: "Returns the names of all fields; empty for an absent key.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N), N the fields of the hash",
        arity: 2,
        flags: Flags::READONLY,
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    hkeys,
);

fn hkeys(call: &mut Call<'_, '_, '_>) -> Outcome {
    list(call, true)
}

pub const HVALS: Command<Handler> = Command::new(
    Spec {
        name: "hvals",
        summary: "Returns the values of all fields; empty for an absent key.",
        since: "2.0.0",
        group: Group::Hash,
        complexity: "O(N), N the fields of the hash",
        arity: 2,
        flags: Flags::READONLY,
        acl: AclCategories::HASH,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output_order"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    hvals,
);

fn hvals(call: &mut Call<'_, '_, '_>) -> Outcome {
    list(call, false)
}
