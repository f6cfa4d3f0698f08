//! Strings that are numbers: INCR DECR INCRBY DECRBY INCRBYFLOAT.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Expiry, Lookup, NewValue, Value};
use isotherm_resp::errors;
use isotherm_stdx::{LongDouble, parse_i64};

pub const INCR: Command<Handler> = Command::new(
    Spec {
        name: "incr",
        summary: "Adds one to an integer and returns it. An absent key counts as 0.",
        group: Group::String,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    incr,
);

fn incr(call: &mut Call<'_, '_, '_>) -> Outcome {
    add(call, 1)
}

pub const DECR: Command<Handler> = Command::new(
    Spec {
        name: "decr",
        summary: "Subtracts one from an integer and returns it. An absent key counts as 0.",
        group: Group::String,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    decr,
);

fn decr(call: &mut Call<'_, '_, '_>) -> Outcome {
    add(call, -1)
}

pub const INCRBY: Command<Handler> = Command::new(
    Spec {
        name: "incrby",
        summary: "Adds a number to an integer and returns it. An absent key counts as 0.",
        group: Group::String,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("increment")],
        ..Spec::BASE
    },
    incrby,
);

fn incrby(call: &mut Call<'_, '_, '_>) -> Outcome {
    match parse_i64(call.args.get(2)) {
        Some(increment) => add(call, increment),
        None => call.fail(errors::NOT_AN_INTEGER),
    }
}

pub const DECRBY: Command<Handler> = Command::new(
    Spec {
        name: "decrby",
        summary: "Subtracts a number from an integer and returns it. An absent key counts as 0.",
        group: Group::String,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("decrement")],
        ..Spec::BASE
    },
    decrby,
);

fn decrby(call: &mut Call<'_, '_, '_>) -> Outcome {
    match parse_i64(call.args.get(2)).map(i64::checked_neg) {
        Some(Some(increment)) => add(call, increment),
        Some(None) => call.fail(errors::DECREMENT_OVERFLOW),
        None => call.fail(errors::NOT_AN_INTEGER),
    }
}

fn add(call: &mut Call<'_, '_, '_>, increment: i64) -> Outcome {
    let key = call.key(1);
    let old = match call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.value) {
        None => Some(0),
        Some(Value::Int(int)) => Some(int),
        Some(Value::Bytes(bytes)) => parse_i64(bytes),
        Some(_) => return call.fail(errors::WRONG_TYPE),
    };
    let Some(old) = old else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    let Some(sum) = old.checked_add(increment) else {
        return call.fail(errors::INCREMENT_OVERFLOW);
    };
    if call.txn.set(call.db, &key, NewValue::Int(sum), Expiry::Keep).is_err() {
        return call.out_of_memory();
    }
    call.wrote(EventClass::String, "incrby", &key, 1);
    call.reply.integer(sum);
    Outcome::Done
}

pub const INCRBYFLOAT: Command<Handler> = Command::new(
    Spec {
        name: "incrbyfloat",
        summary: "Adds a fraction to a number and returns it. An absent key counts as 0.",
        since: "2.6.0",
        group: Group::String,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::double("increment")],
        ..Spec::BASE
    },
    incrbyfloat,
);

fn incrbyfloat(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let old = match call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.value) {
        None => Some(LongDouble::from_i64(0)),
        Some(Value::Int(int)) => Some(LongDouble::from_i64(int)),
        Some(Value::Bytes(bytes)) => LongDouble::parse(bytes),
        Some(_) => return call.fail(errors::WRONG_TYPE),
    };
    let (Some(old), Some(increment)) = (old, LongDouble::parse(call.args.get(2))) else {
        return call.fail(errors::NOT_A_FLOAT);
    };
    let sum = old + increment;
    if !sum.is_finite() {
        return call.fail(errors::INCREMENT_NOT_FINITE);
    }
    // The sum stays text, even when it is a whole number.
    let text = sum.to_human();
    if call.txn.set(call.db, &key, NewValue::Bytes(&text), Expiry::Keep).is_err() {
        return call.out_of_memory();
    }
    call.wrote(EventClass::String, "incrbyfloat", &key, 1);
    call.reply.bulk(&text);
    // The result, so that another machine need not round as this one did.
    call.record(&[b"SET", key.bytes, &text, b"KEEPTTL"]);
    Outcome::Done
}
