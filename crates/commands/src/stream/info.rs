//! XINFO: what is known of a stream, its groups and their consumers.

use super::progress::lag;
use super::{no_group, reply_entries, reply_entry, reply_id};
use crate::call::is_word;
use crate::help::write_help;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Consumer, ConsumerGroup, Lookup, Pending, StreamEntry, StreamId, StreamView, Value};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::parse_i64;

pub const XINFO: Command<Handler> = Command::container(
    Spec {
        name: "xinfo",
        summary: "Shows streams, their groups and consumers.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "That of the subcommand",
        arity: -2,
        ..Spec::BASE
    },
    SUBCOMMANDS,
);

const SUBCOMMANDS: &[Command<Handler>] = &[XINFO_CONSUMERS, XINFO_GROUPS, XINFO_HELP, XINFO_STREAM];

pub const XINFO_HELP: Command<Handler> = Command::new(
    Spec { since: "5.0.0", group: Group::Stream, acl: AclCategories::STREAM, ..Spec::HELP },
    help,
);

fn help(call: &mut Call<'_, '_, '_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "CONSUMERS <key> <groupname>",
            "    Return the consumers of this group with their pending entries and idle times.",
            "GROUPS <key>",
            "    Return the groups of the stream with their positions and lags.",
            "STREAM <key> [FULL [COUNT <count>]",
            "    Return facts about the stream; FULL adds <count> entries (default: 10; 0: all of them)",
            "    and the groups.",
        ],
    )
}

/// Describes the stream at argument 2, which has to be there.
fn about(
    call: &mut Call<'_, '_, '_>,
    write: impl FnOnce(&mut Reply, StreamView<'_>) -> Result<(), Vec<u8>>,
) -> Outcome {
    let key = call.key(2);
    let reply = &mut *call.reply;
    let written = match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Stream(stream)) => write(reply, stream),
        Some(_) => return call.fail(errors::WRONG_TYPE),
        None => {
            let outcome = call.fail(errors::NO_SUCH_KEY);
            return outcome;
        }
    };
    match written {
        Ok(()) => Outcome::Done,
        Err(error) => call.fail(error),
    }
}

fn number(reply: &mut Reply, name: &str, number: u64) {
    reply.bulk(name.as_bytes());
    reply.integer(number as i64);
}

fn id(reply: &mut Reply, name: &str, id: StreamId) {
    reply.bulk(name.as_bytes());
    reply_id(reply, id);
}

fn maybe(reply: &mut Reply, name: &str, number: Option<i64>) {
    reply.bulk(name.as_bytes());
    match number {
        Some(number) => reply.integer(number),
        None => reply.null(),
    }
}

pub const XINFO_CONSUMERS: Command<Handler> = Command::new(
    Spec {
        name: "consumers",
        summary: "Returns the consumers of a group with their pending entries and idle times.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::READONLY,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        history: &[("7.2.0", "New field `inactive`; `idle` is the time since the latest attempt.")],
        arguments: &[Argument::key("key", 0), Argument::string("group")],
        ..Spec::BASE
    },
    consumers,
);

fn consumers(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, name, now_ms) = (call.key(2), call.args.get(3), call.txn.now().get());
    about(call, |reply, stream| {
        let group = stream.group(name).ok_or_else(|| no_group(name, key.bytes))?;
        reply.array(group.consumers().len());
        for (name, consumer) in group.consumers() {
            reply.map(4);
            reply.bulk(b"name");
            reply.bulk(name);
            number(reply, "pending", consumer.pending_len());
            number(reply, "idle", (now_ms - consumer.seen_ms).max(0) as u64);
            let inactive = if consumer.active_ms == -1 { -1 } else { now_ms - consumer.active_ms };
            maybe(reply, "inactive", Some(inactive));
        }
        Ok(())
    })
}

pub const XINFO_GROUPS: Command<Handler> = Command::new(
    Spec {
        name: "groups",
        summary: "Returns the groups of a stream with their positions and lags.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("7.0.0", "New fields `entries-read` and `lag`.")],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    groups,
);

fn groups(call: &mut Call<'_, '_, '_>) -> Outcome {
    about(call, |reply, stream| {
        reply.array(stream.groups().len());
        for (name, group) in stream.groups().iter() {
            reply.map(6);
            reply.bulk(b"name");
            reply.bulk(name);
            number(reply, "consumers", group.consumers().len() as u64);
            number(reply, "pending", group.pending_len());
            id(reply, "last-delivered-id", group.last_id);
            progress(reply, stream, group);
        }
        Ok(())
    })
}

fn progress(reply: &mut Reply, stream: StreamView<'_>, group: &ConsumerGroup) {
    maybe(reply, "entries-read", group.entries_read.map(|read| read as i64));
    maybe(reply, "lag", lag(&stream.state(), stream.len(), group).map(|lag| lag as i64));
}

pub const XINFO_STREAM: Command<Handler> = Command::new(
    Spec {
        name: "stream",
        summary: "Returns facts about a stream; with FULL also its entries and groups.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1)",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[
            ("6.0.0", "New option `FULL`."),
            (
                "7.0.0",
                "New fields `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag`.",
            ),
            ("7.2.0", "New field `active-time`; `seen-time` is that of the latest attempt."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::block(
                "full-block",
                &[Argument::pure_token("full", "FULL"), Argument::integer("count").token("COUNT").optional()],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    stream,
);

/// Entries of FULL without a count.
const COUNT_DEFAULT: usize = 10;

/// `[FULL [COUNT count]]`; the count, 0 for all.
fn parse_full(args: Args<'_>) -> Result<Option<usize>, Vec<u8>> {
    match args.len() {
        3 => return Ok(None),
        4 | 6 if is_word(args.get(3), "FULL") => {}
        _ => return Err(errors::subcommand_syntax(args)),
    }
    if args.len() == 4 {
        return Ok(Some(COUNT_DEFAULT));
    }
    if !is_word(args.get(4), "COUNT") {
        return Err(errors::subcommand_syntax(args));
    }
    let count = parse_i64(args.get(5)).ok_or(errors::NOT_AN_INTEGER)?;
    Ok(Some(usize::try_from(count).unwrap_or(COUNT_DEFAULT)))
}

fn stream(call: &mut Call<'_, '_, '_>) -> Outcome {
    let full = parse_full(call.args);
    about(call, |reply, stream| {
        let full = full?;
        let state = stream.state();
        reply.map(if full.is_some() { 9 } else { 10 });
        number(reply, "length", stream.len());
        number(reply, "radix-tree-keys", stream.blocks().count() as u64);
        number(reply, "radix-tree-nodes", radix_tree_nodes(stream.blocks()));
        id(reply, "last-generated-id", state.last_id);
        id(reply, "max-deleted-entry-id", state.max_deleted_id);
        number(reply, "entries-added", state.entries_added);
        id(reply, "recorded-first-entry-id", state.first_id);
        match full {
            None => {
                number(reply, "groups", stream.groups().len() as u64);
                edge(reply, "first-entry", stream.range(StreamId::MIN, StreamId::MAX).at_most(1).next());
                edge(reply, "last-entry", stream.range_back(StreamId::MIN, StreamId::MAX).at_most(1).next());
            }
            Some(count) => reply_all(reply, stream, if count == 0 { usize::MAX } else { count }),
        }
        Ok(())
    })
}

fn edge(reply: &mut Reply, name: &str, entry: Option<StreamEntry<'_>>) {
    reply.bulk(name.as_bytes());
    match entry {
        Some(entry) => reply_entry(reply, &entry),
        None => reply.null(),
    }
}

fn reply_all(reply: &mut Reply, stream: StreamView<'_>, count: usize) {
    reply.bulk(b"entries");
    reply_entries(reply, stream.range(StreamId::MIN, StreamId::MAX).at_most(count));
    reply.bulk(b"groups");
    reply.array(stream.groups().len());
    for (name, group) in stream.groups().iter() {
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        id(reply, "last-delivered-id", group.last_id);
        progress(reply, stream, group);
        number(reply, "pel-count", group.pending_len());
        reply.bulk(b"pending");
        let pending: Vec<&Pending> = group.pending_from(StreamId::MIN).take(count).collect();
        reply.array(pending.len());
        for pending in pending {
            reply.array(4);
            reply_id(reply, pending.id);
            reply.bulk(&pending.consumer);
            reply.integer(pending.delivered_ms);
            reply.integer(pending.deliveries as i64);
        }
        reply.bulk(b"consumers");
        reply.array(group.consumers().len());
        for (name, consumer) in group.consumers() {
            reply_consumer(reply, group, name, consumer, count);
        }
    }
}

fn reply_consumer(reply: &mut Reply, group: &ConsumerGroup, name: &[u8], consumer: &Consumer, count: usize) {
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(name);
    maybe(reply, "seen-time", Some(consumer.seen_ms));
    maybe(reply, "active-time", Some(consumer.active_ms));
    number(reply, "pel-count", consumer.pending_len());
    reply.bulk(b"pending");
    let ids = consumer.pending_from(StreamId::MIN).take(count);
    let pending: Vec<&Pending> = ids.filter_map(|id| group.pending(id)).collect();
    reply.array(pending.len());
    for pending in pending {
        reply.array(3);
        reply_id(reply, pending.id);
        reply.integer(pending.delivered_ms);
        reply.integer(pending.deliveries as i64);
    }
}

/// Returns the number of nodes of Valkey's radix tree that holds these ids, ascending, as 16 big-endian
/// bytes. There is a leaf for each id, a node at each place where two ids part, and one for every stretch of
/// bytes between such places.
fn radix_tree_nodes(ids: impl Iterator<Item = StreamId>) -> u64 {
    const KEY_BYTES: usize = 16;
    let key = |id: StreamId| (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes();
    // Depths of the branches on the way to the last key, each with one less byte to go below it.
    let (mut branches, mut last): (Vec<usize>, Option<[u8; KEY_BYTES]>) = (Vec::new(), None);
    let mut nodes = 0;
    let stretch = |from: usize, to: usize| u64::from(to > from);
    // Closes what lies below `depth` of the last key's path.
    let close = |branches: &mut Vec<usize>, nodes: &mut u64, depth: Option<usize>| {
        let mut below = KEY_BYTES;
        *nodes += 1;
        loop {
            let branch = branches.last().copied();
            let parent = match (branch, depth) {
                (Some(branch), Some(depth)) => branch.max(depth),
                (Some(branch), None) => branch,
                (None, Some(depth)) => depth,
                (None, None) => {
                    *nodes += stretch(0, below);
                    return;
                }
            };
            *nodes += stretch(parent + 1, below);
            if depth == Some(parent) {
                if branch != Some(parent) {
                    branches.push(parent);
                }
                return;
            }
            branches.pop();
            *nodes += 1;
            below = parent;
        }
    };
    for id in ids {
        let key = key(id);
        if let Some(last) = last {
            let common = key.iter().zip(&last).take_while(|(a, b)| a == b).count();
            close(&mut branches, &mut nodes, Some(common));
        }
        last = Some(key);
    }
    match last {
        Some(_) => close(&mut branches, &mut nodes, None),
        // An empty tree has its root.
        None => nodes = 1,
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_leaves_branches_and_stretches() {
        let count = |ids: &[(u64, u64)]| radix_tree_nodes(ids.iter().map(|&(ms, seq)| StreamId { ms, seq }));
        assert_eq!(count(&[]), 1);
        assert_eq!(count(&[(1, 1)]), 2);
        // 15 bytes in common, a branch, two leaves.
        assert_eq!(count(&[(1, 1), (1, 2)]), 4);
        // 7 bytes in common, a branch, two stretches of 8 bytes, two leaves.
        assert_eq!(count(&[(1, 1), (2, 1)]), 6);
        assert_eq!(count(&[(1, 1), (1, 2), (1, 3)]), 5);
        // 7 bytes, branch; 7 bytes, branch, two leaves; 8 bytes, a leaf.
        assert_eq!(count(&[(1, 1), (1, 2), (2, 1)]), 8);
    }
}
