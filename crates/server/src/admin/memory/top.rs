//! MEMORY TOP: the keys that take the most memory.

use isotherm_commands::Outcome;
use isotherm_keyspace::{LargeKey, Lookup, Txn};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::reply::{Row, write_rows};
use crate::admin::AdminCall;

const KEYS_DEFAULT: usize = 16;

/// `MEMORY TOP [count]`
pub fn top(call: &mut AdminCall<'_>) -> Outcome {
    let count = match call.args.len() {
        2 => Ok(KEYS_DEFAULT),
        3 => read_count(call.args.get(2)),
        _ => Err(errors::SYNTAX),
    };
    let count = match count {
        Ok(count) => count,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    let mut txn = call.debug_txn();
    let largest = txn.largest_keys();
    let mut rows: Vec<(u64, Row)> = largest.keys.into_iter().map(|key| row(&mut txn, key)).collect();
    rows.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    rows.truncate(count);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    call.reply.map(2);
    call.reply.bulk(b"complete-from-bytes");
    call.reply.integer(largest.complete_from_bytes as i64);
    call.reply.bulk(b"keys");
    write_rows(call.reply, &rows);
    Outcome::Done
}

/// A positive number.
pub fn read_count(word: &[u8]) -> Result<usize, &'static str> {
    let count = parse_i64(word).ok_or(errors::NOT_AN_INTEGER)?;
    usize::try_from(count).ok().filter(|&count| count > 0).ok_or(errors::MUST_BE_POSITIVE)
}

/// What a key takes now. Of a name that was cut the list knows no more than the size.
fn row(txn: &mut Txn<'_, '_>, listed: LargeKey) -> (u64, Row) {
    let key = txn.key(&listed.name);
    let is_whole = listed.name.len() == listed.name_bytes;
    let found = txn.find(listed.db, &key, Lookup::Silent).filter(|_| is_whole);
    let (bytes, kind, encoding) = match found {
        Some(entry) => (entry.memory_bytes() as u64, entry.kind().name(), entry.encoding().name()),
        None => (listed.bytes, "unknown", "unknown"),
    };
    let row = Row::default()
        .text("key", &listed.name)
        .number("name-bytes", listed.name_bytes as u64)
        .number("db", listed.db.0.into())
        .text("type", kind.as_bytes())
        .text("encoding", encoding.as_bytes())
        .number("bytes", bytes);
    (bytes, row)
}
