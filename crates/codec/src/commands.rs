//! Items into commands that build the same data: the base of an append-only file in command form.
//!
//! ```text
//! SELECT 3                     where the database is another one than that of the key before
//! SET key value                RPUSH, SADD, ZADD, HMSET with 64 elements each; HSETEX for a field with a TTL
//! XADD ... XSETID XGROUP XCLAIM
//! PEXPIREAT key ms             behind the value
//! ```
//! The commands are those that Valkey writes (`rewriteAppendOnlyFileRio`), so every Valkey reads them. They
//! keep what they can say: not when a consumer was last seen, nor a pending entry that was deleted from its
//! stream.
//!
//! The writer holds 64 elements of a collection, and of a stream the pending entries of one group.

use crate::parts;
use isotherm_keyspace::{
    Db, Element, Outline, Part, SnapshotItem, StreamEntry, StreamId, StreamPart, StreamState, TextRoom, Type,
    UnixMs, Value,
};
use isotherm_stdx::float::format_f64;
use isotherm_stdx::number::{push_i64, push_u64};
use std::collections::BTreeMap;

/// `AOF_REWRITE_ITEMS_PER_CMD` of Valkey.
const ELEMENTS_MAX: usize = 64;
/// A command of many long elements ends here.
const ARGUMENT_BYTES_MAX: usize = 256 << 10;

/// The nodes of a list do not show in commands.
const LIST_SIZE: i32 = -2;

#[derive(Default)]
pub struct CommandWriter {
    out: Vec<u8>,
    db: Option<Db>,
    key: Vec<u8>,
    expiry: Option<UnixMs>,
    /// Type of the current collection.
    kind: Option<Type>,
    /// The encoded elements that wait for their command, and how many arguments they are.
    elements: Vec<u8>,
    arguments: usize,
    stream: Stream,
}

/// The current group.
#[derive(Default)]
struct Stream {
    len: u64,
    group: Vec<u8>,
    consumer: Vec<u8>,
    pending: BTreeMap<StreamId, (i64, u64)>,
}

impl CommandWriter {
    /// Returns the commands written so far; the caller may take them.
    pub fn sink_mut(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// A library of functions, as its text.
    pub fn function(&mut self, code: &[u8]) {
        command(&mut self.out, &[b"FUNCTION", b"LOAD", code]);
    }

    pub fn item(&mut self, item: SnapshotItem<'_>) {
        match item {
            SnapshotItem::Entry(entry) => {
                self.begin_key(entry.db, entry.key, entry.expiry);
                match parts::outline(&entry.value, LIST_SIZE) {
                    None => self.string(&entry.value),
                    Some(outline) => {
                        self.begin(&outline);
                        parts::for_each_part(&entry.value, LIST_SIZE, |part| self.part(part));
                    }
                }
                self.end_key();
            }
            SnapshotItem::Begin { db, key, expiry, outline, .. } => {
                self.begin_key(db, key, expiry);
                self.begin(&outline);
            }
            SnapshotItem::Bundle(_) | SnapshotItem::Node(_) => unreachable!("what they hold was read before"),
            SnapshotItem::Part(part) => self.part(part),
            SnapshotItem::End => self.end_key(),
        }
    }

    fn begin_key(&mut self, db: Db, key: &[u8], expiry: Option<UnixMs>) {
        if self.db.replace(db) != Some(db) {
            command(&mut self.out, &[b"SELECT", db.0.to_string().as_bytes()]);
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.expiry = expiry;
        self.kind = None;
    }

    fn begin(&mut self, outline: &Outline) {
        self.kind = Some(outline.kind);
        self.stream.len = outline.len;
    }

    fn end_key(&mut self) {
        self.flush();
        if let Some(UnixMs(at)) = self.expiry {
            command(&mut self.out, &[b"PEXPIREAT", &self.key, at.to_string().as_bytes()]);
        }
    }

    fn string(&mut self, value: &Value<'_>) {
        let mut room = TextRoom::default();
        let text = match *value {
            Value::Int(int) => Element::Int(int).text(&mut room),
            Value::Bytes(bytes) => bytes,
            _ => unreachable!("a collection has an outline"),
        };
        command(&mut self.out, &[b"SET", &self.key, text]);
    }

    // ---- collections ----

    fn part(&mut self, part: Part<'_>) {
        let (mut room, mut other) = (TextRoom::default(), TextRoom::default());
        match part {
            Part::Node { .. } => return,
            Part::Item(element) | Part::Member(element) => self.element(&[element.text(&mut room)]),
            Part::Scored(member, score) => {
                self.element(&[format_f64(score).as_bytes(), member.text(&mut room)]);
            }
            Part::Field(field, value, None) => self.element(&[field.text(&mut room), value.text(&mut other)]),
            Part::Field(field, value, Some(UnixMs(at))) => {
                let (field, value) = (field.text(&mut room), value.text(&mut other));
                let at = at.to_string();
                command(
                    &mut self.out,
                    &[b"HSETEX", &self.key, b"PXAT", at.as_bytes(), b"FIELDS", b"1", field, value],
                );
            }
            Part::Stream(part) => self.stream_part(part),
        }
        if self.arguments >= ELEMENTS_MAX * self.arguments_each() || self.elements.len() > ARGUMENT_BYTES_MAX
        {
            self.flush();
        }
    }

    fn arguments_each(&self) -> usize {
        match self.kind {
            Some(Type::Hash | Type::Zset) => 2,
            _ => 1,
        }
    }

    fn element(&mut self, arguments: &[&[u8]]) {
        arguments.iter().for_each(|argument| bulk(&mut self.elements, argument));
        self.arguments += arguments.len();
    }

    /// Writes the command of the elements that wait.
    fn flush(&mut self) {
        if self.arguments == 0 {
            return;
        }
        let name: &[u8] = match self.kind {
            Some(Type::Hash) => b"HMSET",
            Some(Type::List) => b"RPUSH",
            Some(Type::Set) => b"SADD",
            Some(Type::Zset) => b"ZADD",
            Some(Type::String | Type::Stream) | None => unreachable!("what has elements is a collection"),
        };
        count(&mut self.out, 2 + self.arguments);
        bulk(&mut self.out, name);
        bulk(&mut self.out, &self.key);
        self.out.append(&mut self.elements);
        self.arguments = 0;
    }

    // ---- streams ----

    fn stream_part(&mut self, part: StreamPart<'_>) {
        let out = &mut self.out;
        match part {
            StreamPart::Block(_) => {}
            StreamPart::Entry(entry) => entry_command(out, &self.key, &entry),
            StreamPart::State { state, .. } => self.state(&state),
            StreamPart::Group { name, last_id, entries_read, .. } => {
                self.stream.group = name.to_vec();
                self.stream.pending.clear();
                let mut read = Vec::new();
                match entries_read {
                    Some(read_count) => push_u64(&mut read, read_count),
                    None => push_i64(&mut read, -1),
                }
                let id = id_text(last_id);
                command(out, &[b"XGROUP", b"CREATE", &self.key, name, id.as_bytes(), b"ENTRIESREAD", &read]);
            }
            StreamPart::Pending(pending) => {
                let delivered = (pending.delivered_ms, pending.deliveries);
                self.stream.pending.insert(pending.id, delivered);
            }
            StreamPart::Consumer { name, .. } => {
                self.stream.consumer = name.to_vec();
                command(out, &[b"XGROUP", b"CREATECONSUMER", &self.key, &self.stream.group, name]);
            }
            StreamPart::Owned(id) => self.owned(id),
        }
    }

    fn state(&mut self, state: &StreamState) {
        let out = &mut self.out;
        let (last, deleted) = (id_text(state.last_id), id_text(state.max_deleted_id));
        if self.stream.len == 0 {
            // An empty stream is made by an entry that is trimmed at once.
            command(out, &[b"XADD", &self.key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
        }
        let added = state.entries_added.to_string();
        let words: [&[u8]; 7] = [
            b"XSETID",
            &self.key,
            last.as_bytes(),
            b"ENTRIESADDED",
            added.as_bytes(),
            b"MAXDELETEDID",
            deleted.as_bytes(),
        ];
        command(out, &words);
    }

    fn owned(&mut self, id: StreamId) {
        let Some((delivered_ms, deliveries)) = self.stream.pending.remove(&id) else { return };
        let (id, time, count) = (id_text(id), delivered_ms.to_string(), deliveries.to_string());
        let words: [&[u8]; 12] = [
            b"XCLAIM",
            &self.key,
            &self.stream.group,
            &self.stream.consumer,
            b"0",
            id.as_bytes(),
            b"TIME",
            time.as_bytes(),
            b"RETRYCOUNT",
            count.as_bytes(),
            b"JUSTID",
            b"FORCE",
        ];
        command(&mut self.out, &words);
    }
}

fn entry_command(out: &mut Vec<u8>, key: &[u8], entry: &StreamEntry<'_>) {
    let fields = entry.fields();
    let mut arguments = Vec::new();
    let mut pairs = 0;
    let mut room = TextRoom::default();
    for (name, value) in fields {
        bulk(&mut arguments, name.text(&mut room));
        bulk(&mut arguments, value.text(&mut room));
        pairs += 1;
    }
    count(out, 3 + 2 * pairs);
    bulk(out, b"XADD");
    bulk(out, key);
    bulk(out, id_text(entry.id).as_bytes());
    out.append(&mut arguments);
}

fn id_text(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.seq)
}

fn count(out: &mut Vec<u8>, arguments: usize) {
    out.push(b'*');
    push_u64(out, arguments as u64);
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, argument: &[u8]) {
    out.push(b'$');
    push_u64(out, argument.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(argument);
    out.extend_from_slice(b"\r\n");
}

fn command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    count(out, arguments.len());
    arguments.iter().for_each(|argument| bulk(out, argument));
}
