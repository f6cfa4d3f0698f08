//! MEMORY DIFF: what has changed since MEMORY DIFF MARK: by purpose, by type and by prefix.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::{ClassBreakdown, PrefixShare};
use isotherm_resp::{Reply, errors};

use super::reply::{Row, write_rows};
use crate::admin::{self, AdminCall};
use crate::observe::memory_map::{MemoryMap, Moment};
use isotherm_node::observe::memory_map::mark::Mark;

/// Everything at this moment.
fn mark(call: &mut AdminCall<'_>) -> Mark {
    let node = call.node;
    let mut survey = call.survey();
    let (moment, classes) = (Moment::new(node, &mut survey), survey.classes());
    let map = MemoryMap::new(node, moment, &admin::snapshot(call).facts);
    let lines = map.used.iter().chain(&map.resident);
    let report = node.keyspace.prefixes(1);
    Mark {
        unix_ms: call.now.0,
        used_bytes: map.used_bytes,
        purposes: lines.map(|line| (line.name, line.bytes)).collect(),
        classes,
        separator: report.as_ref().map_or(0, |report| report.separator),
        prefixes: report.map(|report| report.prefixes).unwrap_or_default(),
    }
}

/// Returns of a mark what its reader may see.
fn seen(call: &AdminCall<'_>, mark: &Mark) -> Mark {
    let sight = call.sight();
    let classes = mark.classes.iter().filter(|class| sight.sees_database(class.db));
    let prefixes = mark.prefixes.iter().filter(|share| sight.sees_prefix(share, mark.separator));
    Mark {
        purposes: mark.purposes.clone(),
        classes: classes.copied().collect(),
        prefixes: prefixes.cloned().collect(),
        ..*mark
    }
}

pub const MEMORY_DIFF: Spec = Spec {
    name: "diff",
    summary: "Returns what has changed in memory since a mark, or sets the mark.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of partitions",
    arity: -2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[Argument::pure_token("mark", "MARK").optional()],
    flags: Flags::ASKS_SYSTEM.or(Flags::ASKS_MEMORY_MAP),
    reach: Reach::Each,
    ..Spec::BASE
};

/// `MEMORY DIFF [MARK]`
pub fn diff(call: &mut AdminCall<'_>) -> Outcome {
    let sets = match (call.args.try_get(2), call.args.len()) {
        (None, _) => false,
        (Some(word), 3) if word.eq_ignore_ascii_case(b"mark") => true,
        _ => {
            call.reply.error(errors::SYNTAX);
            return Outcome::Done;
        }
    };
    let now = mark(call);
    let mut kept = call.node.memory.mark();
    if sets {
        *kept = Some(Box::new(now));
        call.reply.ok();
        return Outcome::Done;
    }
    match &*kept {
        Some(mark) => {
            let (then, now) = (seen(call, mark), seen(call, &now));
            write(call.reply, &then, &now);
        }
        None => call.reply.error("ERR there is no mark to compare with: use MEMORY DIFF MARK first"),
    }
    Outcome::Done
}

fn write(reply: &mut Reply, then: &Mark, now: &Mark) {
    let numbers = [
        ("since-unix-ms", then.unix_ms),
        ("elapsed-ms", (now.unix_ms - then.unix_ms).max(0)),
        ("used-memory", now.used_bytes),
        ("used-memory-change", now.used_bytes - then.used_bytes),
    ];
    reply.map(numbers.len() + 3);
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
    let purposes = then.purposes.iter().zip(&now.purposes);
    let purposes = purposes.map(|((name, then), (_, now))| (name, now - then));
    let purposes: Vec<_> = purposes.filter(|(_, change)| *change != 0).collect();
    reply.bulk(b"by-purpose");
    reply.map(purposes.len());
    for (name, change) in purposes {
        reply.bulk(name.as_bytes());
        reply.integer(change);
    }
    reply.bulk(b"by-type");
    write_rows(reply, &classes(&then.classes, &now.classes));
    reply.bulk(b"by-prefix");
    write_rows(reply, &prefixes(&then.prefixes, &now.prefixes));
}

/// Joins two lists by name: each entry of either list as it was then and as it is now.
fn pair<'a, T, K: Ord>(
    then: &'a [T],
    now: &'a [T],
    name: impl Fn(&T) -> K,
) -> Vec<(Option<&'a T>, Option<&'a T>)> {
    let find = |list: &'a [T], key: &K| list.iter().find(|one| name(one) == *key);
    let mut names: Vec<K> = then.iter().chain(now).map(&name).collect();
    names.sort();
    names.dedup();
    names.iter().map(|key| (find(then, key), find(now, key))).collect()
}

fn classes(then: &[ClassBreakdown], now: &[ClassBreakdown]) -> Vec<Row> {
    let pairs = pair(then, now, |class| (class.db.0, class.kind.name(), class.encoding.name()));
    let row = |(then, now): (Option<&ClassBreakdown>, Option<&ClassBreakdown>)| {
        let class = now.or(then).expect("it is in one of them");
        let sums = [then, now].map(|class| class.map(|class| class.sums).unwrap_or_default());
        let keys = sums[1].keys as i64 - sums[0].keys as i64;
        let bytes = sums[1].memory_bytes as i64 - sums[0].memory_bytes as i64;
        let row = Row::default()
            .number("db", class.db.0.into())
            .text("type", class.kind.name().as_bytes())
            .text("encoding", class.encoding.name().as_bytes())
            .signed("keys", keys)
            .signed("bytes", bytes);
        (keys != 0 || bytes != 0).then_some(row)
    };
    pairs.into_iter().filter_map(row).collect()
}

/// Returns the rows of the prefixes that have changed, largest change in bytes first.
fn prefixes(then: &[PrefixShare], now: &[PrefixShare]) -> Vec<Row> {
    let pairs = pair(then, now, |share| (share.name.clone(), share.name_bytes));
    let row = |(then, now): (Option<&PrefixShare>, Option<&PrefixShare>)| {
        let share = now.or(then).expect("it is in one of them");
        let figures = |share: Option<&PrefixShare>| {
            share.map_or([0; 4], |share| [share.keys, share.bytes, share.keys_error, share.bytes_error])
        };
        let (then, now) = (figures(then), figures(now));
        let [keys, bytes] = [0, 1].map(|at| now[at] as i64 - then[at] as i64);
        let row = Row::default()
            .text("prefix", &share.name)
            .signed("keys", keys)
            .number("keys-error", then[2].max(now[2]))
            .signed("bytes", bytes)
            .number("bytes-error", then[3].max(now[3]));
        (keys != 0 || bytes != 0).then_some((bytes.unsigned_abs(), row))
    };
    let mut rows: Vec<(u64, Row)> = pairs.into_iter().filter_map(row).collect();
    rows.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    rows.into_iter().map(|(_, row)| row).collect()
}
