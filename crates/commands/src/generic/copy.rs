//! Keys in other databases: COPY MOVE.

use crate::call::is_word;
use crate::database::database;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Db, EventClass, Lookup};
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;

pub const COPY: Command<Handler> = Command::new(
    Spec {
        name: "copy",
        summary: "Copies a key with its expiry to a new key. Returns 0 when the source is absent or the target exists.",
        since: "6.2.0",
        complexity: "O(N), N the elements of a collection; O(1) for a string",
        arity: -3,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::KEYSPACE,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
            KeySpec::one(2, KeyFlags::OW.or(KeyFlags::UPDATE)),
        ],
        databases: Some(databases_of_copy),
        database_arguments: Some(arguments_of_copy),
        arguments: &[
            Argument::key("source", 0),
            Argument::key("destination", 1),
            Argument::integer("destination-db").token("DB").optional(),
            Argument::pure_token("replace", "REPLACE").optional(),
        ],
        ..Spec::BASE
    },
    copy,
);

fn copy(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (target, replace) = match parse_copy(call) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let (from, to) = (call.key(1), call.key(2));
    if target == call.db && from.bytes == to.bytes {
        return call.fail(errors::SAME_OBJECT);
    }
    if call.txn.find(call.db, &from, Lookup::Read).is_none() {
        call.reply.integer(0);
        return Outcome::Done;
    }
    if call.txn.has(target, &to, Lookup::Write) && !replace {
        call.reply.integer(0);
        return Outcome::Done;
    }
    if call.txn.copy((call.db, &from), (target, &to)).is_err() {
        return call.out_of_memory();
    }
    call.wrote_in(target, EventClass::Generic, "copy_to", &to, 1);
    call.reply.integer(1);
    Outcome::Done
}

/// The target's database, and REPLACE.
fn parse_copy(call: &Call<'_, '_, '_>) -> Result<(Db, bool), String> {
    let (mut target, mut replace) = (call.db, false);
    let mut at = 3;
    while at < call.args.len() {
        if is_word(call.args.get(at), "REPLACE") {
            replace = true;
            at += 1;
        } else if is_word(call.args.get(at), "DB") && at + 1 < call.args.len() {
            target = database(call, at + 1)?;
            at += 2;
        } else {
            return Err(errors::SYNTAX.to_string());
        }
    }
    Ok((target, replace))
}

/// Valkey looks at each word DB that an argument follows, whatever stands in between.
fn databases_of_copy(args: Args<'_>, current: u16) -> Databases {
    let mut at = 3;
    while at + 1 < args.len() {
        if is_word(args.get(at), "DB") {
            if parse_i64(args.get(at + 1)) != Some(i64::from(current)) {
                return Databases::Two;
            }
            at += 1;
        }
        at += 1;
    }
    Databases::One
}

/// Each DB counts: the last is where the key goes, but all are named.
fn arguments_of_copy(args: Args<'_>, databases: u16, out: &mut Vec<(usize, u32)>) {
    let mut at = 3;
    while at < args.len() {
        if is_word(args.get(at), "DB") && at + 1 < args.len() {
            let Some(named) = number_at(args, at + 1, databases) else { return out.clear() };
            out.push(named);
            at += 1;
        } else if !is_word(args.get(at), "REPLACE") {
            return out.clear();
        }
        at += 1;
    }
}

pub const MOVE: Command<Handler> = Command::new(
    Spec {
        name: "move",
        summary: "Moves a key to another database. Returns 0 when it is absent here or exists there.",
        complexity: "O(1)",
        arity: -3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        need: NeedFrom::Stated(Need::All),
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        databases: Some(|_, _| Databases::Two),
        database_arguments: Some(|args, databases, out| out.extend(number_at(args, 2, databases))),
        history: &[("9.2.0", "Added the `REPLACE` option.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("db"),
            Argument::pure_token("replace", "REPLACE").since("9.2.0").optional(),
        ],
        ..Spec::BASE
    },
    move_to,
);

// COMPAT(keys): MOVE has the option REPLACE of Valkey 9.2, built from its sources and not compared with a
// running server. The log has it as it came, which a replica of 9.1 does not understand. Why: programs for
// 9.2 run here.
fn move_to(call: &mut Call<'_, '_, '_>) -> Outcome {
    let replace = call.args.len() > 3;
    if replace && !(call.args.len() == 4 && is_word(call.args.get(3), "REPLACE")) {
        return call.fail(errors::SYNTAX);
    }
    let target = match database(call, 2) {
        Ok(target) => target,
        Err(error) => return call.fail(error),
    };
    if target == call.db {
        return call.fail(errors::SAME_OBJECT);
    }
    let key = call.key(1);
    let there = call.txn.find(call.db, &key, Lookup::Write).is_some();
    // A value that cannot be read is there all the same.
    let free = !call.txn.has(target, &key, Lookup::Write);
    if !there || !(free || replace) {
        call.reply.integer(0);
        return Outcome::Done;
    }
    if call.txn.rename((call.db, &key), (target, &key)).is_err() {
        return call.out_of_memory();
    }
    call.wrote(EventClass::Generic, "move_from", &key, 1);
    call.event_in(target, EventClass::Generic, "move_to", &key);
    call.reply.integer(1);
    Outcome::Done
}
