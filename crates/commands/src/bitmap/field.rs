//! Several integers in one string, one after the other: BITFIELD BITFIELD_RO.
//!
//! All parts of a request are read before the first is run, so a mistake in the last changes nothing.

use super::integer::{Overflow, Width};
use super::place::{OFFSET_ERROR, bit_offset};
use crate::call::is_word;
use crate::spec::*;
use crate::text;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Key, Lookup};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::{parse_i64, steps};

pub const BITFIELD: Command<Handler> = Command::new(
    Spec {
        name: "bitfield",
        summary: "Reads, writes and increments integers of any width up to 64 bits at bit offsets of a string.",
        since: "3.2.0",
        group: Group::Bitmap,
        complexity: "O(1) for each operation",
        arity: -2,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::BITMAP,
        key_specs: &[KeySpec::one(
            1,
            KeyFlags::RW.or(KeyFlags::UPDATE).or(KeyFlags::ACCESS).or(KeyFlags::VARIABLE_FLAGS),
        )
        .notes("Reads and writes, as the operations say")],
        variable_key_flags: Some(bitfield_key_flags),
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "operation",
                &[
                    Argument::block(
                        "get-block",
                        &[Argument::string("encoding"), Argument::integer("offset")],
                    )
                    .token("GET"),
                    Argument::block(
                        "write",
                        &[
                            Argument::one_of(
                                "overflow-block",
                                &[
                                    Argument::pure_token("wrap", "WRAP"),
                                    Argument::pure_token("sat", "SAT"),
                                    Argument::pure_token("fail", "FAIL"),
                                ],
                            )
                            .token("OVERFLOW")
                            .optional(),
                            Argument::one_of(
                                "write-operation",
                                &[
                                    Argument::block(
                                        "set-block",
                                        &[
                                            Argument::string("encoding"),
                                            Argument::integer("offset"),
                                            Argument::integer("value"),
                                        ],
                                    )
                                    .token("SET"),
                                    Argument::block(
                                        "incrby-block",
                                        &[
                                            Argument::string("encoding"),
                                            Argument::integer("offset"),
                                            Argument::integer("increment"),
                                        ],
                                    )
                                    .token("INCRBY"),
                                ],
                            ),
                        ],
                    ),
                ],
            )
            .optional()
            .multiple(),
        ],
        ..Spec::BASE
    },
    bitfield,
);

/// A request whose parts only read does not write.
fn bitfield_key_flags(args: Args<'_>) -> KeyFlags {
    let reads = actions(args).all(|action| matches!(action, Ok((_, Action::Get | Action::Overflow))));
    if reads {
        KeyFlags::RO.or(KeyFlags::ACCESS)
    } else {
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE)
    }
}

fn bitfield(call: &mut Call<'_, '_, '_>) -> Outcome {
    match read_parts(call) {
        Ok(parts) if only_reads(&parts) => read(call, &parts),
        Ok(parts) => write(call, &parts),
        Err(error) => call.fail(error),
    }
}

pub const BITFIELD_RO: Command<Handler> = Command::new(
    Spec {
        name: "bitfield_ro",
        summary: "Reads integers of any width up to 64 bits at bit offsets of a string.",
        since: "6.0.0",
        group: Group::Bitmap,
        complexity: "O(1) for each operation",
        arity: -2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::BITMAP,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[
            Argument::key("key", 0),
            Argument::block("get-block", &[Argument::string("encoding"), Argument::integer("offset")])
                .token("GET")
                .optional()
                .multiple_token(),
        ],
        ..Spec::BASE
    },
    bitfield_ro,
);

fn bitfield_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    match read_parts(call) {
        Ok(parts) if only_reads(&parts) => read(call, &parts),
        Ok(_) => call.fail("ERR BITFIELD_RO only supports the GET subcommand"),
        Err(error) => call.fail(error),
    }
}

// ---- reading the request ----

/// `GET width offset`, `SET width offset value`, `INCRBY width offset increment`, `OVERFLOW kind`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set,
    Increase,
    Overflow,
}

impl Action {
    const NAMES: [(&str, Action, usize); 4] = [
        ("GET", Action::Get, 2),
        ("SET", Action::Set, 3),
        ("INCRBY", Action::Increase, 3),
        ("OVERFLOW", Action::Overflow, 1),
    ];
}

/// The actions of a request, each with the place of its word; enough arguments follow it. An error is the
/// last.
fn actions(args: Args<'_>) -> impl Iterator<Item = Result<(usize, Action), &'static str>> {
    let mut at = 2;
    std::iter::from_fn(move || {
        let word = args.try_get(at)?;
        let behind = args.len() - at - 1;
        let named = Action::NAMES.iter().find(|(name, _, used)| is_word(word, name) && *used <= behind);
        let Some((_, action, used)) = named else {
            at = args.len();
            return Some(Err(errors::SYNTAX));
        };
        let here = at;
        at += 1 + used;
        Some(Ok((here, *action)))
    })
}

/// Operation of a request on one integer.
#[derive(Clone, Copy)]
struct Part {
    action: Action,
    width: Width,
    offset: u64,
    /// Value that SET stores, or increment of INCRBY.
    number: i64,
    overflow: Overflow,
}

impl Part {
    fn end(&self) -> u64 {
        self.offset + u64::from(self.width.bits)
    }
}

fn only_reads(parts: &[Part]) -> bool {
    parts.iter().all(|part| part.action == Action::Get)
}

fn read_parts(call: &Call<'_, '_, '_>) -> Result<Vec<Part>, &'static str> {
    let mut overflow = Overflow::Wrap;
    let mut parts = Vec::new();
    for action in actions(call.args) {
        steps::note(1);
        match action? {
            (at, Action::Overflow) => overflow = read_overflow(call.args.get(at + 1))?,
            (at, action) => parts.push(read_part(call, at, action, overflow)?),
        }
    }
    Ok(parts)
}

fn read_overflow(word: &[u8]) -> Result<Overflow, &'static str> {
    const NAMES: [(&str, Overflow); 3] =
        [("WRAP", Overflow::Wrap), ("SAT", Overflow::Saturate), ("FAIL", Overflow::Fail)];
    let named = NAMES.iter().find(|(name, _)| is_word(word, name));
    named.map(|(_, overflow)| *overflow).ok_or("ERR Invalid OVERFLOW type specified")
}

fn read_part(
    call: &Call<'_, '_, '_>,
    at: usize,
    action: Action,
    overflow: Overflow,
) -> Result<Part, &'static str> {
    const WIDTH_ERROR: &str = "ERR Invalid bitfield type. Use something like i16 u8. \
        Note that u64 is not supported but i64 is.";
    let width = Width::read(call.args.get(at + 1)).ok_or(WIDTH_ERROR)?;
    let offset = bit_offset(call, at + 2, Some(width.bits)).ok_or(OFFSET_ERROR)?;
    if action == Action::Get {
        return Ok(Part { action, width, offset, number: 0, overflow });
    }
    let number = parse_i64(call.args.get(at + 3)).ok_or(errors::NOT_AN_INTEGER)?;
    // One that begins in the last byte that there can be ends beyond it.
    Ok(Part { action, width, offset, number, overflow })
}

// ---- running it ----

fn read(call: &mut Call<'_, '_, '_>, parts: &[Part]) -> Outcome {
    let key = call.key(1);
    let mut room = text::NO_TEXT;
    let found = call.txn.find(call.db, &key, Lookup::Read);
    let bytes = match found.map(|entry| entry.value) {
        None => &[][..],
        Some(found) => match text::text(found, &mut room) {
            Some(bytes) => bytes,
            None => return call.fail(errors::WRONG_TYPE),
        },
    };
    call.reply.array(parts.len());
    for part in parts {
        call.reply.integer(part.width.get(bytes, part.offset));
    }
    Outcome::Done
}

fn write(call: &mut Call<'_, '_, '_>, parts: &[Part]) -> Outcome {
    let key = call.key(1);
    let old_len = match call.txn.find(call.db, &key, Lookup::Write) {
        None => None,
        Some(entry) => match text::len(entry.value) {
            Some(len) => Some(len),
            None => return call.fail(errors::WRONG_TYPE),
        },
    };
    // Room for all of it, whatever OVERFLOW FAIL then leaves out.
    let written = parts.iter().filter(|part| part.action != Action::Get).map(Part::end);
    let len_min = written.max().unwrap_or(0).div_ceil(8) as usize;
    let len = len_min.max(old_len.unwrap_or(0));
    let Ok(bytes) = call.txn.room(call.db, &key, len) else {
        return call.out_of_memory();
    };
    let is_longer = old_len != Some(len);
    call.reply.array(parts.len());
    let mut changes = 0;
    for part in parts {
        let wrote = run(part, bytes, call.reply);
        changes += u64::from(wrote.is_some_and(|changed| changed || is_longer));
    }
    if changes > 0 {
        changed(call, &key, changes);
    } else if is_longer {
        // COMPAT(strings): BITFIELD whose writes all fail (OVERFLOW FAIL) lengthens the string and goes to
        // the log and to replicas; Valkey lengthens its own string only. Why: a replica holds what its
        // primary holds.
        call.record_request();
    }
    Outcome::Done
}

fn changed(call: &mut Call<'_, '_, '_>, key: &Key<'_>, changes: u64) {
    call.txn.touch(call.db, key);
    call.wrote(EventClass::String, "setbit", key, changes);
}

/// Runs one part. If it has written, says whether the integer is another one now.
fn run(part: &Part, bytes: &mut [u8], reply: &mut Reply) -> Option<bool> {
    let Part { width, offset, overflow, number, .. } = *part;
    let old = width.get(bytes, offset);
    let new = match part.action {
        Action::Set => width.fit(number, overflow),
        Action::Increase => width.add(old, number, overflow),
        Action::Get | Action::Overflow => {
            reply.integer(old);
            return None;
        }
    };
    let Some(new) = new else {
        reply.null();
        return None;
    };
    reply.integer(if part.action == Action::Set { old } else { new });
    width.set(bytes, offset, new);
    Some(new != old)
}
