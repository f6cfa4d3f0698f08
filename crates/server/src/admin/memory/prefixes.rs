//! MEMORY PREFIXES: what the prefixes of keys take.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::{PREFIX_DEPTH_MAX, PrefixShare};
use isotherm_resp::errors;

use super::reply::{Row, write_rows};
use super::top::read_count;
use crate::admin::AdminCall;

const PREFIXES_DEFAULT: usize = 16;

struct Asked {
    depth: usize,
    count: usize,
}

pub const MEMORY_PREFIXES: Spec = Spec {
    name: "prefixes",
    summary: "Returns what the prefixes of keys take.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: -2,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[
        Argument::integer("depth").token("DEPTH").optional(),
        Argument::integer("count").token("TOP").optional(),
    ],
    ..Spec::BASE
};

pub fn prefixes(call: &mut AdminCall<'_>) -> Outcome {
    let asked = match read(call) {
        Ok(asked) => asked,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    let Some(mut report) = call.node.keyspace.prefixes(asked.depth) else {
        call.reply.error("ERR prefixes are not counted, as memory-prefix-separator is empty");
        return Outcome::Done;
    };
    call.sight().narrow(&mut report);
    let mut other = report.other;
    for share in report.prefixes.iter().skip(asked.count) {
        add(&mut other, share);
    }
    let shown = &report.prefixes[..report.prefixes.len().min(asked.count)];
    let rows = |shares: &[PrefixShare]| shares.iter().map(row).collect::<Vec<Row>>();
    call.reply.map(5);
    call.reply.bulk(b"depth");
    call.reply.integer(asked.depth as i64);
    for (name, shares) in [("prefixes", shown), ("pinned", &report.pinned)] {
        call.reply.bulk(name.as_bytes());
        write_rows(call.reply, &rows(shares));
    }
    for (name, share) in [("other", &other), ("without", &report.bare)] {
        call.reply.bulk(name.as_bytes());
        figures(Row::default(), share).write(call.reply);
    }
    Outcome::Done
}

/// Adds a prefix that is not shown to the sum of the others. The errors of independent samples add up by
/// their squares.
fn add(sum: &mut PrefixShare, share: &PrefixShare) {
    let both = |a: u64, b: u64| ((a as f64).powi(2) + (b as f64).powi(2)).sqrt().ceil() as u64;
    sum.keys += share.keys;
    sum.volatile += share.volatile;
    sum.bytes += share.bytes;
    sum.keys_error = both(sum.keys_error, share.keys_error);
    sum.bytes_error = both(sum.bytes_error, share.bytes_error);
}

fn row(share: &PrefixShare) -> Row {
    figures(Row::default().text("prefix", &share.name), share)
}

fn figures(row: Row, share: &PrefixShare) -> Row {
    row.number("keys", share.keys)
        .number("keys-error", share.keys_error)
        .number("bytes", share.bytes)
        .number("bytes-error", share.bytes_error)
        .percent("ttl-percent", share.volatile, share.keys)
}

/// `[DEPTH depth] [TOP count]`
fn read(call: &AdminCall<'_>) -> Result<Asked, &'static str> {
    let mut asked = Asked { depth: 1, count: PREFIXES_DEFAULT };
    let options = call.args.from(2);
    for at in (0..options.len()).step_by(2) {
        let (word, value) = (options.get(at), options.try_get(at + 1).ok_or(errors::SYNTAX)?);
        if word.eq_ignore_ascii_case(b"depth") {
            asked.depth = read_count(value)?;
        } else if word.eq_ignore_ascii_case(b"top") {
            asked.count = read_count(value)?;
        } else {
            return Err(errors::SYNTAX);
        }
    }
    const _: () = assert!(PREFIX_DEPTH_MAX == 3);
    if asked.depth > PREFIX_DEPTH_MAX {
        return Err("ERR DEPTH has to lie in between 1 and 3.");
    }
    Ok(asked)
}
