//! Parts of strings: STRLEN GETRANGE SUBSTR SETRANGE APPEND.

use super::value;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Expiry, Key, Lookup, NewValue};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

pub const STRLEN: Command<Handler> = Command::new(
    Spec {
        name: "strlen",
        summary: "Returns the length of a string in bytes; 0 for an absent key.",
        since: "2.2.0",
        group: Group::String,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    strlen,
);

fn strlen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let found = match value::string(call.txn.find(call.db, &key, Lookup::Read)) {
        Ok(found) => found.map(value::len),
        Err(error) => return call.fail(error),
    };
    call.reply.integer(found.unwrap_or(0) as i64);
    Outcome::Done
}

pub const GETRANGE: Command<Handler> = Command::new(
    Spec {
        name: "getrange",
        summary: "Returns the bytes of a string from one offset to another, both included; empty for an absent key.",
        since: "2.4.0",
        group: Group::String,
        complexity: "O(N), N the bytes returned",
        arity: 4,
        flags: Flags::READONLY,
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::integer("start"), Argument::integer("end")],
        ..Spec::BASE
    },
    getrange,
);

pub const SUBSTR: Command<Handler> = Command::new(
    Spec {
        name: "substr",
        summary: "Returns the bytes of a string from one offset to another. Old name of GETRANGE.",
        group: Group::String,
        complexity: "O(N), N the bytes returned",
        arity: 4,
        flags: Flags::READONLY,
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::integer("start"), Argument::integer("end")],
        ..Spec::BASE
    },
    getrange,
);

fn getrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (Some(start), Some(end)) = (parse_i64(call.args.get(2)), parse_i64(call.args.get(3))) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    let key = call.key(1);
    let found = call.txn.find(call.db, &key, Lookup::Read);
    match (value::string(found), found) {
        (Err(error), _) => return call.fail(error),
        (Ok(Some(value)), Some(entry)) => {
            let mut room = value::NO_TEXT;
            let bytes = value::text(value, &mut room);
            value::write_part(call.reply, &entry, bytes, range(start, end, bytes.len()));
        }
        _ => call.reply.bulk(b""),
    }
    Outcome::Done
}

/// Returns the range from `start` to `end` inclusive, cut to the length; negative numbers count from the end.
fn range(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let len = len as i64;
    let absolute = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let (start, end) = (absolute(start), absolute(end).min(len - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

pub const SETRANGE: Command<Handler> = Command::new(
    Spec {
        name: "setrange",
        summary: "Overwrites bytes of a string from an offset, padded by zeros. Returns the new length.",
        since: "2.2.0",
        group: Group::String,
        complexity: "O(1) for short values, O(N) to copy N bytes",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("offset"), Argument::string("value")],
        ..Spec::BASE
    },
    setrange,
);

fn setrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(offset) = parse_i64(call.args.get(2)) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    let Ok(offset) = usize::try_from(offset) else {
        return call.fail(errors::OFFSET_OUT_OF_RANGE);
    };
    let (key, part) = (call.key(1), call.args.get(3));
    let old_len = match value::string(call.txn.find(call.db, &key, Lookup::Write)) {
        Ok(found) => found.map(value::len),
        Err(error) => return call.fail(error),
    };
    if part.is_empty() {
        call.reply.integer(old_len.unwrap_or(0) as i64);
        return Outcome::Done;
    }
    let Some(end) = end_of(call, offset, part.len()) else {
        return call.fail(errors::STRING_TOO_LONG);
    };
    let len = end.max(old_len.unwrap_or(0));
    write_at(call, &key, offset, part, len, "setrange")
}

pub const APPEND: Command<Handler> = Command::new(
    Spec {
        name: "append",
        summary: "Adds bytes to the end of a string and returns its new length. An absent key counts as an empty string.",
        since: "2.0.0",
        group: Group::String,
        complexity: "O(1) amortized for short additions, whatever the length of the string",
        arity: 3,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BASE
    },
    append,
);

fn append(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, part) = (call.key(1), call.args.get(2));
    let old_len = match value::string(call.txn.find(call.db, &key, Lookup::Write)) {
        Ok(found) => found.map(value::len),
        Err(error) => return call.fail(error),
    };
    let Some(old_len) = old_len else {
        return append_to_nothing(call, &key, part);
    };
    let Some(len) = end_of(call, old_len, part.len()) else {
        return call.fail(errors::STRING_TOO_LONG);
    };
    write_at(call, &key, old_len, part, len, "append")
}

/// The first part may well be a number.
fn append_to_nothing(call: &mut Call<'_, '_, '_>, key: &Key<'_>, part: &[u8]) -> Outcome {
    if call.txn.set(call.db, key, NewValue::encode(part), Expiry::Clear).is_err() {
        return call.out_of_memory();
    }
    call.wrote(EventClass::String, "append", key, 1);
    call.reply.integer(part.len() as i64);
    Outcome::Done
}

/// Returns the end of `len` bytes that begin at `offset`, if a string may be that long.
fn end_of(call: &Call<'_, '_, '_>, offset: usize, len: usize) -> Option<usize> {
    offset.checked_add(len).filter(|end| *end <= call.string_bytes_max())
}

fn write_at(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    offset: usize,
    part: &[u8],
    len: usize,
    event: &'static str,
) -> Outcome {
    match call.txn.edit(call.db, key, len) {
        Ok(bytes) => bytes[offset..offset + part.len()].copy_from_slice(part),
        Err(_) => return call.out_of_memory(),
    }
    call.wrote(EventClass::String, event, key, 1);
    call.reply.integer(len as i64);
    Outcome::Done
}
