//! New entries of several streams: XREAD XREADGROUP, as far as they do not wait.

use super::id::parse_strict;
use super::log::{Log, claim, group_id};
use super::{progress, reply_entry, reply_gone, shown};
use crate::call::is_word;
use crate::spec::*;
use crate::wait::Wait;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{
    Consumer, EventClass, Key, Lookup, OnCold, Pending, StreamEdit, StreamId, Type, UnixMs, Value,
};
use isotherm_resp::limits::REQUEST_BYTES_MAX;
use isotherm_resp::reply::Protocol;
use isotherm_resp::{Args, ArgsBuf, Reply, errors};
use isotherm_stdx::parse_i64;
use std::sync::Arc;

pub const XREAD: Command<Handler> = Command::new(
    Spec {
        name: "xread",
        summary: "Returns entries after an ID from each stream. With BLOCK it waits for one; null when there is none.",
        since: "5.0.0",
        group: Group::Stream,
        arity: -4,
        flags: Flags::BLOCKING.or(Flags::READONLY),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec {
            notes: "",
            flags: KeyFlags::RO.or(KeyFlags::ACCESS),
            begin: Begin::Keyword { keyword: "STREAMS", start_from: 1 },
            find: Find::Range { last: -1, step: 1, limit: 2 },
        }],
        key_positions: Some(stream_keys),
        arguments: &[
            Argument::integer("count").token("COUNT").optional(),
            Argument::integer("milliseconds").token("BLOCK").optional(),
            Argument::block(
                "streams",
                &[Argument::key("key", 0).multiple(), Argument::string("id").multiple()],
            )
            .token("STREAMS"),
        ],
        ..Spec::BASE
    },
    xread,
);

fn xread(call: &mut Call<'_, '_, '_>) -> Outcome {
    read(call, false)
}

pub const XREADGROUP: Command<Handler> = Command::new(
    Spec {
        name: "xreadgroup",
        summary: "Returns new entries to a consumer of a group, or its pending ones. With BLOCK it waits for one.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(M) for each stream, M the entries returned; an XADD that wakes N waiting clients takes O(N)",
        arity: -7,
        flags: Flags::BLOCKING.or(Flags::WRITE),
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec {
            notes: "",
            flags: KeyFlags::RO.or(KeyFlags::ACCESS),
            begin: Begin::Keyword { keyword: "STREAMS", start_from: 4 },
            find: Find::Range { last: -1, step: 1, limit: 2 },
        }],
        key_positions: Some(stream_keys),
        arguments: &[
            Argument::block("group-block", &[Argument::string("group"), Argument::string("consumer")])
                .token("GROUP"),
            Argument::integer("count").token("COUNT").optional(),
            Argument::integer("milliseconds").token("BLOCK").optional(),
            Argument::pure_token("noack", "NOACK").optional(),
            Argument::block(
                "streams",
                &[Argument::key("key", 0).multiple(), Argument::string("id").multiple()],
            )
            .token("STREAMS"),
        ],
        ..Spec::BASE
    },
    xreadgroup,
);

fn xreadgroup(call: &mut Call<'_, '_, '_>) -> Outcome {
    read(call, true)
}

struct Request<'a> {
    /// Until when it waits if there is nothing: `Some(None)` for ever.
    waits: Option<Option<UnixMs>>,
    /// 0: no limit.
    count: usize,
    group: Option<(&'a [u8], &'a [u8])>,
    no_ack: bool,
    /// Place of the first key, and number of keys.
    keys_at: usize,
    keys: usize,
}

fn parse<'a>(call: &Call<'a, '_, '_>, grouped: bool) -> Result<Request<'a>, String> {
    let args = call.args;
    let mut request = Request { waits: None, count: 0, group: None, no_ack: false, keys_at: 0, keys: 0 };
    let mut at = 1;
    while at < args.len() {
        let (word, more) = (args.get(at), args.len() - 1 - at);
        if is_word(word, "BLOCK") && more > 0 {
            request.waits = Some(call.deadline_of_milliseconds(at + 1)?);
            at += 1;
        } else if is_word(word, "COUNT") && more > 0 {
            request.count = parse_i64(args.get(at + 1)).ok_or(errors::NOT_AN_INTEGER)?.max(0) as usize;
            at += 1;
        } else if is_word(word, "STREAMS") && more > 0 {
            request.keys_at = at + 1;
            if more % 2 != 0 {
                let (name, sign) = if grouped { ("xreadgroup", '>') } else { ("xread", '$') };
                return Err(format!(
                    "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{sign}' must be specified."
                ));
            }
            request.keys = more / 2;
            break;
        } else if is_word(word, "GROUP") && more >= 2 {
            if !grouped {
                return Err(only_grouped("GROUP"));
            }
            request.group = Some((args.get(at + 1), args.get(at + 2)));
            at += 2;
        } else if is_word(word, "NOACK") {
            if !grouped {
                return Err(only_grouped("NOACK"));
            }
            request.no_ack = true;
        } else {
            return Err(errors::SYNTAX.into());
        }
        at += 1;
    }
    if request.keys_at == 0 {
        return Err(errors::SYNTAX.into());
    }
    if grouped && request.group.is_none() {
        return Err("ERR Missing GROUP option for XREADGROUP".into());
    }
    Ok(request)
}

// COMPAT(keys): The keys of XREADGROUP stand behind the STREAMS that is an option, for rights and slots
// too. Valkey takes the first such word from the fourth argument on: of `XREADGROUP COUNT 1 GROUP STREAMS c
// STREAMS k >` it finds `c` and `STREAMS`, and the command reads `k`. Why: rights and slots are those of
// the keys that are read.
/// Appends the positions of the keys: after STREAMS, the first half. Options are read as `parse` does.
fn stream_keys(args: Args<'_>, out: &mut Vec<(usize, KeyFlags)>) {
    let mut at = 1;
    while at < args.len() {
        let word = args.get(at);
        at += match () {
            _ if is_word(word, "STREAMS") => break,
            _ if is_word(word, "BLOCK") || is_word(word, "COUNT") => 2,
            _ if is_word(word, "GROUP") => 3,
            _ => 1,
        };
    }
    let keys = args.len().saturating_sub(at + 1) / 2;
    out.extend((at + 1..).take(keys).map(|at| (at, KeyFlags::RO.or(KeyFlags::ACCESS))));
}

fn only_grouped(option: &str) -> String {
    format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.")
}

fn meaningless(sign: char) -> Vec<u8> {
    format!(
        "ERR The {sign} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer \
         by specifying a proper ID, or use the > ID to get new messages. The {sign} ID would just return an empty \
         result set."
    )
    .into_bytes()
}

/// Parses the id after which a stream is to be read; `None`: the entries that the group has not been given
/// yet.
fn parse_behind(
    call: &mut Call<'_, '_, '_>,
    request: &Request<'_>,
    number: usize,
) -> Result<Option<StreamId>, Vec<u8>> {
    let key = call.key(request.keys_at + number);
    let text = call.args.get(request.keys_at + request.keys + number);
    if !call.reaches(&key) {
        // Nothing has come to it since the request began to wait.
        return Ok(None);
    }
    let stream = match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        None => None,
        Some(Value::Stream(stream)) => Some(stream),
        Some(_) => return Err(errors::WRONG_TYPE.into()),
    };
    if let Some((group, _)) = request.group
        && stream.is_none_or(|stream| stream.group(group).is_none())
    {
        let mut error = b"NOGROUP No such key '".to_vec();
        error.extend_from_slice(shown(key.bytes));
        error.extend_from_slice(b"' or consumer group '");
        error.extend_from_slice(shown(group));
        error.extend_from_slice(b"' in XREADGROUP with GROUP option");
        return Err(error);
    }
    match shown(text) {
        b"$" if request.group.is_some() => Err(meaningless('$')),
        b"+" if request.group.is_some() => Err(meaningless('+')),
        b"$" => Ok(Some(stream.map_or(StreamId::MIN, |stream| stream.state().last_id))),
        b"+" => match stream.filter(|stream| !stream.is_empty()) {
            None => Ok(Some(StreamId::MIN)),
            Some(stream) => Ok(Some(stream.state().last_id.previous().unwrap_or(StreamId::MIN))),
        },
        b">" if request.group.is_some() => Ok(None),
        b">" => Err(
            b"ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> \
                      option."
                .to_vec(),
        ),
        // The highest possible id means the same as ">".
        _ => Ok(Some(parse_strict(text, 0)?).filter(|id| request.group.is_none() || *id != StreamId::MAX)),
    }
}

fn read(call: &mut Call<'_, '_, '_>, grouped: bool) -> Outcome {
    let request = match parse(call, grouped) {
        Ok(request) => request,
        Err(error) => return call.fail(error),
    };
    let mut behind = Vec::with_capacity(request.keys);
    for number in 0..request.keys {
        match parse_behind(call, &request, number) {
            Ok(id) => behind.push(id),
            Err(error) => return call.fail(error),
        }
    }
    if !wants_groups(call, &request, &behind) {
        return call.out_of_memory();
    }
    let Ok(wait_instead) = behind_now(call, &request, &behind) else {
        return call.fail("ERR too many streams to wait for");
    };
    let (mark, open) = (call.reply.len(), call.reply.defer());
    let mut served = 0;
    for (number, behind) in behind.into_iter().enumerate() {
        let key = call.key(request.keys_at + number);
        if !call.reaches(&key) {
            continue;
        }
        served += usize::from(match request.group {
            None => read_one(call, &request, &key, behind.unwrap_or(StreamId::MAX)),
            Some(names) => read_grouped(call, &request, &key, names, behind),
        });
    }
    if served > 0 {
        if call.reply.proto == Protocol::Resp2 {
            call.reply.close_array(open, served);
        } else {
            call.reply.close_map(open, served);
        }
        return Outcome::Done;
    }
    call.reply.close_array(open, 0);
    call.reply.truncate(mark);
    match request.waits.filter(|_| call.may_wait) {
        Some(deadline) => {
            let keys = request.keys_at..request.keys_at + request.keys;
            call.wait_for(Wait {
                kind: Type::Stream,
                keys,
                deadline,
                on_removal: grouped,
                instead: wait_instead,
            })
        }
        None => {
            call.reply.null_array();
            Outcome::Done
        }
    }
}

/// Returns the request with each `$` replaced by the id that it means now.
fn behind_now(
    call: &Call<'_, '_, '_>,
    request: &Request<'_>,
    behind: &[Option<StreamId>],
) -> Result<Option<ArgsBuf>, TooLong> {
    let ids_at = request.keys_at + request.keys;
    let asks = |at: usize| shown(call.args.get(at)) == b"$";
    if !(request.waits.is_some() && call.may_wait && (ids_at..call.args.len()).any(asks)) {
        return Ok(None);
    }
    let texts: Vec<Vec<u8>> = behind.iter().map(|id| id.unwrap_or(StreamId::MIN).to_text()).collect();
    // An id is longer than the `$` in whose place it stands.
    if call.args.bytes_total() + texts.iter().map(Vec::len).sum::<usize>() > REQUEST_BYTES_MAX {
        return Err(TooLong);
    }
    let word = |(at, word): (usize, _)| if at >= ids_at && asks(at) { &texts[at - ids_at][..] } else { word };
    Ok(Some(call.args.iter().enumerate().map(word).collect()))
}

/// The request would be longer than one may be.
struct TooLong;

/// Replies the name of a stream, which comes before its entries.
fn reply_name(reply: &mut Reply, key: &Key<'_>) {
    if reply.proto == Protocol::Resp2 {
        reply.array(2);
    }
    reply.bulk(key.bytes);
}

/// Replies the entries after an id. Returns whether there were any.
fn read_one(call: &mut Call<'_, '_, '_>, request: &Request<'_>, key: &Key<'_>, behind: StreamId) -> bool {
    let reply = &mut *call.reply;
    let found = call.txn.find(call.db, key, Lookup::Read).map(|entry| entry.value);
    let Some(Value::Stream(stream)) = found else {
        return false;
    };
    let Some(from) = behind.next() else { return false };
    let most = if request.count == 0 { usize::MAX } else { request.count };
    let mut entries = stream.range(from, StreamId::MAX).at_most(most).peekable();
    if entries.peek().is_none() {
        return false;
    }
    reply_name(reply, key);
    super::reply_entries(reply, entries);
    true
}

/// Replies new entries to a consumer of a group, or, after an id, those that it has not acknowledged. Returns
/// whether anything was replied.
fn read_grouped(
    call: &mut Call<'_, '_, '_>,
    request: &Request<'_>,
    key: &Key<'_>,
    (group, consumer): (&[u8], &[u8]),
    behind: Option<StreamId>,
) -> bool {
    let now_ms = call.txn.now().get();
    let reply = &mut *call.reply;
    let mut log = Log::default();
    let edited = call.txn.edit_stream(call.db, key, &call.settings.limits, |stream| {
        let last_id = stream.groups().and_then(|groups| groups.get(group)).map(|group| group.last_id)?;
        let created = super::consumer(stream, group, consumer, now_ms);
        if created && request.no_ack {
            log.push([&b"XGROUP"[..], b"CREATECONSUMER", key.bytes, group, consumer]);
        }
        let most = if request.count == 0 { usize::MAX } else { request.count };
        let served = match behind {
            Some(behind) => {
                reply_name(reply, key);
                history(stream, reply, (group, consumer), behind, most, now_ms);
                true
            }
            None => {
                let from = last_id.next()?;
                let ids: Vec<StreamId> =
                    stream.range(from, StreamId::MAX).at_most(most).map(|entry| entry.id).collect();
                if !ids.is_empty() {
                    reply_name(reply, key);
                    super::reply_entries(reply, stream.range(from, StreamId::MAX).take(ids.len()));
                    deliver(stream, &ids, request.no_ack, key, (group, consumer), now_ms, &mut log);
                }
                !ids.is_empty()
            }
        };
        Some((created, served))
    });
    let Ok(Some((created, served))) = edited.map(|edited| edited.result) else { return false };
    if created {
        call.event(EventClass::Stream, "xgroup-createconsumer", key);
    }
    call.count(u64::from(created) + u64::from(served));
    log.record(call);
    served
}

/// Returns whether all entries that a consumer is about to get are in memory. The entries of one stream are
/// not delivered before those of all streams can be.
fn wants_groups(call: &mut Call<'_, '_, '_>, request: &Request<'_>, behind: &[Option<StreamId>]) -> bool {
    let Some((group, consumer)) = request.group.filter(|_| call.txn.on_cold == OnCold::Read) else {
        return true;
    };
    let mut has_all = true;
    for (number, behind) in behind.iter().enumerate() {
        let key = call.key(request.keys_at + number);
        // Of a stream that is named again what comes next.
        let keys = call.args.iter().skip(request.keys_at).take(number + 1);
        let times = keys.filter(|name| *name == key.bytes).count();
        let most = if request.count == 0 { usize::MAX } else { request.count.saturating_mul(times) };
        if !call.reaches(&key) {
            continue;
        }
        let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
            let Some(group) = stream.groups().and_then(|groups| groups.get(group)) else { return true };
            match (behind, group.consumers().get(consumer)) {
                _ if !stream.has_away() => true,
                (None, _) => {
                    let from = group.last_id.next().unwrap_or(StreamId::MAX);
                    stream.range(from, StreamId::MAX).at_most(most).for_each(|_| {});
                    stream.was_shown()
                }
                (Some(behind), Some(consumer)) => {
                    let from = behind.next().unwrap_or(StreamId::MIN);
                    stream.wants(consumer.pending_from(from).take(most))
                }
                (Some(_), None) => true,
            }
        });
        // Where the stream before lacks something this one is not looked at.
        has_all &= edited.is_ok_and(|edited| edited.result);
    }
    has_all
}

/// The entries that a consumer has not acknowledged, after an id.
fn history(
    stream: &mut StreamEdit<'_, '_>,
    reply: &mut Reply,
    (group, consumer): (&[u8], &[u8]),
    behind: StreamId,
    most: usize,
    now_ms: i64,
) {
    let found = stream.groups().and_then(|groups| groups.get(group)?.consumers().get(consumer));
    let from = behind.next().unwrap_or(StreamId::MIN);
    let ids: Vec<StreamId> =
        found.map(|consumer| consumer.pending_from(from).take(most).collect()).unwrap_or_default();
    reply.array(ids.len());
    for id in ids {
        let Some(entry) = stream.range(id, id).next() else {
            reply_gone(reply, id);
            continue;
        };
        reply_entry(reply, &entry);
        let mut group = stream.group_mut(group).expect("it was found");
        let mut pending = group.pending(id).expect("what a consumer has is pending").clone();
        (pending.delivered_ms, pending.deliveries) = (now_ms, pending.deliveries + 1);
        group.deliver(pending);
    }
}

/// Notes that new entries were given to a consumer.
fn deliver(
    stream: &mut StreamEdit<'_, '_>,
    ids: &[StreamId],
    no_ack: bool,
    key: &Key<'_>,
    (group_name, consumer): (&[u8], &[u8]),
    now_ms: i64,
    log: &mut Log,
) {
    let (state, len) = (stream.state(), stream.len());
    let mut group = stream.group_mut(group_name).expect("it was found");
    let name = group.consumers().get_key_value(consumer).map(|(name, _)| Arc::clone(name));
    let name = name.expect("it was made if it was not there");
    for &id in ids {
        progress::advance(&mut group, &state, len, id);
        if no_ack {
            continue;
        }
        let pending = Pending { id, delivered_ms: now_ms, deliveries: 1, consumer: Arc::clone(&name) };
        log.push_all(claim(key.bytes, group_name, group.last_id, &pending));
        group.deliver(pending);
        let consumer: &mut Consumer = group.consumer_mut(&name).expect("it is there");
        consumer.active_ms = now_ms;
    }
    log.push_all(group_id(key.bytes, group_name, &group));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_are_read_are_those_that_are_asked_about() {
        let check = |line: &str, expected: &[&str]| {
            let words: ArgsBuf = line.split(' ').map(str::as_bytes).collect();
            let mut found = Vec::new();
            stream_keys(words.args(), &mut found);
            let found: Vec<&[u8]> = found.iter().map(|(at, _)| words.args().get(*at)).collect();
            assert_eq!(found, expected.iter().map(|key| key.as_bytes()).collect::<Vec<_>>(), "{line}");
        };
        check("XREAD STREAMS a b 0 0", &["a", "b"]);
        check("XREAD COUNT 1 BLOCK 0 streams a 0", &["a"]);
        // An option may have the name of one.
        check("XREADGROUP COUNT 1 GROUP STREAMS c STREAMS k >", &["k"]);
        check("XREADGROUP GROUP g STREAMS STREAMS k >", &["k"]);
        check("XREADGROUP GROUP a b GROUP STREAMS STREAMS STREAMS STREAMS >", &["STREAMS"]);
        // Words are compared up to a NUL.
        check("XREAD STREAMS\0 k 0", &["k"]);
        check("XREAD STREAMS a b c", &["a"]);
        check("XREAD COUNT 1 STREAMS", &[]);
        check("XREAD a b c", &[]);
    }
}
