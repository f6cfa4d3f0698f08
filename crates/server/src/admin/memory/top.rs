//! MEMORY TOP: the keys that take the most memory.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::{Entry, LargeKey, Survey, UnixMs};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::reply::{Row, write_rows};
use crate::admin::AdminCall;

const KEYS_DEFAULT: usize = 16;

pub const MEMORY_TOP: Spec = Spec {
    name: "top",
    summary: "Returns the keys that take the most memory.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of partitions",
    arity: -2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[Argument::integer("count").optional()],
    reach: Reach::Each,
    ..Spec::BASE
};

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
    let now = call.now;
    let mut largest = call.survey().largest_keys();
    let sight = call.sight();
    largest.keys.retain(|key| sight.sees_key(key.db, &key.name, key.name_bytes));
    let mut survey = call.survey();
    let mut rows: Vec<(u64, Row)> = largest.keys.into_iter().map(|key| row(&mut survey, now, key)).collect();
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

/// Returns the bytes that a key takes now, and its row. If the list holds only the beginning of the name, the
/// listed size is shown and type and encoding are unknown.
fn row(survey: &mut Survey<'_, '_>, now: UnixMs, listed: LargeKey) -> (u64, Row) {
    let is_whole = listed.name.len() == listed.name_bytes;
    let look = |entry: Entry<'_>| (entry.memory_bytes() as u64, entry.kind().name(), entry.encoding().name());
    let found = is_whole.then(|| survey.find(listed.db, &listed.name, now, look)).flatten();
    let (bytes, kind, encoding) = found.unwrap_or((listed.bytes, "unknown", "unknown"));
    let row = Row::default()
        .text("key", &listed.name)
        .number("name-bytes", listed.name_bytes as u64)
        .number("db", listed.db.0.into())
        .text("type", kind.as_bytes())
        .text("encoding", encoding.as_bytes())
        .number("bytes", bytes);
    (bytes, row)
}
