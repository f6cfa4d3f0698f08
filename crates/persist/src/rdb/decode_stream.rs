//! Streams: nodes of delta-coded entries, then counters, then consumer groups.
//!
//! ```text
//! [nodes]{[id of 16 bytes, as string][listpack]}[length][last id]
//!         [first id][largest deleted id][entries added]                    from type 2 on
//! [groups]{[name][last id][entries read, from type 2 on]
//!          [pending]{[id of 16 bytes][delivered i64][deliveries]}
//!          [consumers]{[name][seen i64][active i64, from type 3 on][pending]{[id of 16 bytes]}}}
//!
//! listpack  [live][deleted][fields][field] ... [0]  entry  entry ...
//! entry     [flags][ms - node's][seq - node's]                [value] ... [elements before]   with the fields above
//!           [flags][ms - node's][seq - node's][fields]{[field][value]} ... [elements before]
//! ```

use std::borrow::Cow;

use super::listpack::{self, Elements};
use super::read::{RdbError, Reader, Result, within};
use super::value::{Consumer, Group, Pending, RdbStream, RdbValue, StreamEntry, StreamId, StreamNode};

const FLAG_DELETED: i64 = 1;
const FLAG_SAME_FIELDS: i64 = 2;
/// Flags and the two deltas.
const ELEMENTS_FIXED: i64 = 3;
const ENTRIES_READ_UNKNOWN: i64 = -1;

const CORRUPT: RdbError = RdbError::Corrupt("Stream listpack integrity check failed.");

pub(super) fn stream(reader: &mut Reader<'_>, generation: u8) -> Result<RdbValue> {
    let mut stream = RdbStream::default();
    let nodes = reader.count(1 + size_of::<StreamId>())?;
    for _ in 0..nodes {
        keyed_node(reader, &mut stream)?;
    }
    tail(reader, generation, &mut stream)?;
    Ok(RdbValue::Stream(Box::new(stream)))
}

/// Reads the part after the nodes: counters and groups.
pub(super) fn tail(reader: &mut Reader<'_>, generation: u8, stream: &mut RdbStream) -> Result<()> {
    counters(reader, generation, stream)?;
    let groups = reader.count(1)?;
    stream.groups.clear();
    for _ in 0..groups {
        let group = group(reader, generation, stream)?;
        stream.groups.push(group);
    }
    stream.groups.sort_by(|a, b| a.name.cmp(&b.name));
    let unique = stream.groups.is_sorted_by(|a, b| a.name < b.name);
    unique.then_some(()).ok_or(RdbError::Corrupt("Duplicated consumer group name"))
}

/// The id in front of a node, and the node.
pub(super) fn keyed_node(reader: &mut Reader<'_>, stream: &mut RdbStream) -> Result<()> {
    let key: Cow<'_, [u8]> = reader.text()?;
    let id = StreamId::from_bytes((*key).try_into().map_err(|_| CORRUPT)?);
    node(id, &reader.text()?, stream).map_err(within(CORRUPT))
}

fn node(base: StreamId, bytes: &[u8], stream: &mut RdbStream) -> Result<()> {
    let mut elements = listpack::open(bytes)?;
    let mut counts = [0i64; 3];
    for count in &mut counts {
        *count = elements.expect_integer()?;
        if *count < 0 {
            return Err(CORRUPT);
        }
    }
    let [live, deleted, fields] = counts;
    let names_at = stream.names.len();
    for _ in 0..fields {
        elements.expect()?.push_to(&mut stream.names);
    }
    let master = Master { base, names_at, fields };
    if elements.expect_integer()? != 0 {
        return Err(CORRUPT);
    }
    let mut seen = [0i64; 2];
    for _ in 0..live.checked_add(deleted).ok_or(CORRUPT)? {
        let alive = entry(&master, &mut elements, stream)?;
        seen[usize::from(alive)] += 1;
    }
    if seen != [deleted, live] || elements.next()?.is_some() {
        return Err(CORRUPT);
    }
    if live == 0 {
        stream.names.truncate(names_at);
    } else {
        let entries_end = stream.entries.len();
        stream.nodes.push(StreamNode { names_at, fields: fields as usize, entries_end });
    }
    Ok(())
}

/// Data that the entries of a node share.
struct Master {
    base: StreamId,
    names_at: usize,
    fields: i64,
}

/// True if the entry lives.
fn entry(master: &Master, elements: &mut Elements<'_>, stream: &mut RdbStream) -> Result<bool> {
    let flags = elements.expect_integer()?;
    let ms = master.base.ms.wrapping_add_signed(elements.expect_integer()?);
    let seq = master.base.seq.wrapping_add_signed(elements.expect_integer()?);
    let before = (stream.names.len(), stream.values.len());
    let same = flags & FLAG_SAME_FIELDS != 0;
    let fields = if same { master.fields } else { elements.expect_integer()? };
    for _ in 0..fields {
        if !same {
            elements.expect()?.push_to(&mut stream.names);
        }
        elements.expect()?.push_to(&mut stream.values);
    }
    let more = if same { 0 } else { fields.checked_add(1).ok_or(CORRUPT)? };
    if fields < 0 || elements.expect_integer()? != fields + more + ELEMENTS_FIXED {
        return Err(CORRUPT);
    }
    if flags & FLAG_DELETED != 0 {
        stream.names.truncate(before.0);
        stream.values.truncate(before.1);
        return Ok(false);
    }
    let id = StreamId { ms, seq };
    // COMPAT(transfer): RESTORE refuses a stream whose ids do not increase or whose counters are wrong;
    // Valkey accepts it with another meaning. Why: a damaged value must not become data.
    let rises = stream.last_so_far().is_none_or(|last| last < id);
    if fields == 0 || id == StreamId::default() || !rises {
        return Err(RdbError::Corrupt("stream entries out of order"));
    }
    stream.entries.push(StreamEntry {
        id,
        names_at: if same { master.names_at } else { before.0 },
        values_at: before.1,
        pairs: fields as usize,
    });
    Ok(true)
}

fn stream_id(reader: &mut Reader<'_>) -> Result<StreamId> {
    Ok(StreamId { ms: reader.number()?, seq: reader.number()? })
}

fn counters(reader: &mut Reader<'_>, generation: u8, stream: &mut RdbStream) -> Result<()> {
    let length = reader.number()?;
    stream.last_id = stream_id(reader)?;
    stream.entries_added = length;
    if generation >= 2 {
        // The first id follows from the entries.
        stream_id(reader)?;
        stream.max_deleted_id = stream_id(reader)?;
        stream.entries_added = reader.number()?;
    }
    let sound = length == stream.entries_so_far()
        && stream.last_so_far().is_none_or(|last| last <= stream.last_id)
        && stream.entries_added >= length;
    sound.then_some(()).ok_or(RdbError::Corrupt("a stream's counters"))
}

fn group(reader: &mut Reader<'_>, generation: u8, stream: &RdbStream) -> Result<Group> {
    let name = reader.text()?.into_owned();
    let last_id = stream_id(reader)?;
    let entries_read =
        if generation >= 2 { reader.number()? as i64 } else { entries_before(stream, last_id) };
    let mut pending = pending(reader)?;
    let mut consumers = Vec::new();
    let count = reader.count(1 + 8 + 1)?;
    for _ in 0..count {
        let consumer = consumer(reader, generation, consumers.len(), &mut pending)?;
        consumers.push(consumer);
    }
    if pending.iter().any(|pending| pending.consumer == NO_CONSUMER) {
        return Err(RdbError::Corrupt("a pending entry of no consumer"));
    }
    sort_consumers(&mut consumers, &mut pending)?;
    Ok(Group { name, last_id, entries_read, pending, consumers })
}

/// Before the consumers are read.
const NO_CONSUMER: usize = usize::MAX;

fn pending(reader: &mut Reader<'_>) -> Result<Vec<Pending>> {
    let count = reader.count(size_of::<StreamId>() + 8 + 1)?;
    let mut pending = Vec::with_capacity(count);
    for _ in 0..count {
        pending.push(Pending {
            id: StreamId::from_bytes(reader.array()?),
            consumer: NO_CONSUMER,
            delivered_ms: reader.milliseconds()?,
            deliveries: reader.number()?,
        });
    }
    pending.sort_by_key(|pending| pending.id);
    let unique = pending.is_sorted_by(|a, b| a.id < b.id);
    unique
        .then_some(pending)
        .ok_or(RdbError::Corrupt("Duplicated global PEL entry loading stream consumer group"))
}

/// Reads a consumer and signs the entries that it has.
fn consumer(
    reader: &mut Reader<'_>,
    generation: u8,
    number: usize,
    pending: &mut [Pending],
) -> Result<Consumer> {
    let name = reader.text()?.into_owned();
    let seen_ms = reader.milliseconds()?;
    let active_ms = if generation >= 3 { reader.milliseconds()? } else { seen_ms };
    let count = reader.count(size_of::<StreamId>())?;
    for _ in 0..count {
        let id = StreamId::from_bytes(reader.array()?);
        let at = pending.binary_search_by_key(&id, |pending| pending.id);
        let entry = at.ok().map(|at| &mut pending[at]).filter(|entry| entry.consumer == NO_CONSUMER);
        entry
            .ok_or(RdbError::Corrupt("Duplicated consumer PEL entry loading a stream consumer group"))?
            .consumer = number;
    }
    Ok(Consumer { name, seen_ms, active_ms })
}

fn sort_consumers(consumers: &mut Vec<Consumer>, pending: &mut [Pending]) -> Result<()> {
    let mut order: Vec<usize> = (0..consumers.len()).collect();
    order.sort_by(|&a, &b| consumers[a].name.cmp(&consumers[b].name));
    if !order.is_sorted_by(|&a, &b| consumers[a].name < consumers[b].name) {
        return Err(RdbError::Corrupt("Duplicate stream consumer detected"));
    }
    let mut places = vec![0; order.len()];
    for (place, &number) in order.iter().enumerate() {
        places[number] = place;
    }
    pending.iter_mut().for_each(|pending| pending.consumer = places[pending.consumer]);
    *consumers = order.iter().map(|&number| std::mem::take(&mut consumers[number])).collect();
    Ok(())
}

/// Returns how many entries had been added up to `id`, as far as the stream still knows. A group from a
/// server that did not count has read this many.
fn entries_before(stream: &RdbStream, id: StreamId) -> i64 {
    let added = stream.entries_added as i64;
    let length = stream.entries_so_far() as i64;
    if added == 0 || (length == 0 && id <= stream.last_id) {
        return added;
    }
    let deleted = stream.max_deleted_id;
    if id != StreamId::default() && id < deleted {
        return ENTRIES_READ_UNKNOWN;
    }
    let first = stream.first_id();
    let whole = deleted == StreamId::default() || deleted < first;
    match (id.cmp(&stream.last_id), id.cmp(&first)) {
        (std::cmp::Ordering::Equal, _) => added,
        (std::cmp::Ordering::Greater, _) => ENTRIES_READ_UNKNOWN,
        (_, std::cmp::Ordering::Less) if whole => added - length,
        (_, std::cmp::Ordering::Equal) if whole => added - length + 1,
        _ => ENTRIES_READ_UNKNOWN,
    }
}
