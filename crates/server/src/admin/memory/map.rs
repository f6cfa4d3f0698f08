//! MEMORY MAP: where every byte is (see `memory_map`), and what the keys of each type and encoding take.
//!
//! ```text
//!   used      name -> bytes ..., total           resident  name -> bytes ..., total           beside  name -> bytes
//!   keyspace  dbN -> type -> encoding -> keys, key-bytes, value-bytes, memory-bytes
//! ```

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::{ClassBreakdown, Db, Type};

use super::reply::Row;
use crate::admin::{self, AdminCall};
use crate::observe::memory_map::{Line, MemoryMap, Moment};

pub const MEMORY_MAP: Spec = Spec {
    name: "map",
    summary: "Shows where every byte of memory is.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of lock stripes and databases; asking the kernel takes some ten milliseconds a gigabyte",
    arity: 2,
    reach: Reach::Each,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    flags: Flags::ASKS_SYSTEM.or(Flags::ASKS_MEMORY_MAP),
    ..Spec::BASE
};

pub fn map(call: &mut AdminCall<'_>) -> Outcome {
    let node = call.node;
    let mut survey = call.survey();
    let (moment, classes) = (Moment::new(node, &mut survey), survey.classes());
    let sight = call.sight();
    let classes: Vec<_> = classes.into_iter().filter(|class| sight.sees_database(class.db)).collect();
    let map = MemoryMap::new(node, moment, &admin::snapshot(call).facts);
    call.reply.map(4);
    write_lines(call, "used", &map.used, Some(map.used_bytes));
    write_lines(call, "resident", &map.resident, Some(map.total_bytes));
    write_lines(call, "beside", &map.beside, None);
    call.reply.bulk(b"keyspace");
    write_classes(call, &classes);
    Outcome::Done
}

fn write_lines(call: &mut AdminCall<'_>, name: &str, lines: &[Line], total: Option<i64>) {
    call.reply.bulk(name.as_bytes());
    call.reply.map(lines.len() + usize::from(total.is_some()));
    let total = total.map(|bytes| ("total", bytes));
    for (name, bytes) in lines.iter().map(|line| (line.name, line.bytes)).chain(total) {
        call.reply.bulk(name.as_bytes());
        call.reply.integer(bytes);
    }
}

/// Databases, their types, and the encodings of these: sorted like that already.
fn write_classes(call: &mut AdminCall<'_>, classes: &[ClassBreakdown]) {
    let by_db: Vec<&[ClassBreakdown]> = classes.chunk_by(|a, b| a.db == b.db).collect();
    call.reply.map(by_db.len());
    for of_db in by_db {
        let Db(number) = of_db[0].db;
        call.reply.bulk(format!("db{number}").as_bytes());
        let by_type: Vec<&[ClassBreakdown]> = of_db.chunk_by(|a, b| a.kind == b.kind).collect();
        call.reply.map(by_type.len());
        for of_type in by_type {
            write_encodings(call, of_type[0].kind, of_type);
        }
    }
}

fn write_encodings(call: &mut AdminCall<'_>, kind: Type, classes: &[ClassBreakdown]) {
    call.reply.bulk(kind.name().as_bytes());
    call.reply.map(classes.len());
    for ClassBreakdown { encoding, sums, .. } in classes {
        call.reply.bulk(encoding.name().as_bytes());
        let row = Row::default()
            .number("keys", sums.keys)
            .number("key-bytes", sums.key_bytes)
            .number("value-bytes", sums.value_bytes)
            .number("memory-bytes", sums.memory_bytes);
        row.write(call.reply);
    }
}
