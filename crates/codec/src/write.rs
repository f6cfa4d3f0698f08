//! Items into RDB bytes: the one writer of values, whether they come from a view or from the walk of a
//! snapshot.
//!
//! ```text
//! view      --parts-->  Outline, Part ...  --+
//! snapshot  --items-->  Entry                +--> ItemWriter --> rdb::Writer --> Sink
//!                       Begin, Part ..., End +
//!
//! a key     [SELECTDB db] if it is not that of the key before (the first time with its sizes), [EXPIRETIME_MS ms] if it has one, [IDLE seconds] or [FREQ count] under a policy that notes it, [type][key][value]
//! a value   [type][value]
//! ```
//!
//! The type byte follows from the outline. A value in one of Valkey's packed encodings is gathered, since its
//! bytes stand in one string: it is as large as the limits of the configuration let it be. Of any other one
//! node is held.

use crate::parts;
use crate::stream::{element_to_rdb, to_rdb};
use isotherm_keyspace::{
    AccessNote, AccessStamp, Db, Element, Encoding, Outline, Part, SnapshotBundle, SnapshotEntry,
    SnapshotItem, StreamPart, StreamState, TextRoom, Type, UnixMs, Value,
};
use isotherm_persist::rdb::{
    self, HashWriter, ListWriter, ListpackBuilder, RdbType, ScoreListpack, StreamCounters, StreamWriter,
    Writer, record,
};
use isotherm_persist::{Sink, Texts};
use isotherm_stdx::parse_i64;

/// Expiry that is written for a field without one.
const EXPIRY_NONE: i64 = -1;
/// Number that is written if it is not known how many entries a group has read.
const ENTRIES_READ_UNKNOWN: u64 = u64::MAX;

pub struct ItemWriter<S: Sink> {
    writer: Writer<S>,
    /// `list-max-listpack-size`: where lists that come as views are cut into nodes.
    list_size: i32,
    open: Open,
    /// Database of the previous key.
    db: Option<Db>,
    /// Keys of each database, and how many of them expire: written where it first appears. Empty if that is
    /// not known.
    sizes: Vec<Option<(u64, u64)>>,
    /// The first key whose value only `VERSION_FIELD_EXPIRY` knows. Its name is empty where values are
    /// written without keys.
    field_expiry: Option<(Db, Box<[u8]>)>,
    /// The time to which the time since a key's last use is counted; `None`: it is not written.
    used_until: Option<UnixMs>,
    /// The file refers to values that are not in memory.
    refers: bool,
}

/// The current value.
enum Open {
    None,
    HashListpack(ListpackBuilder),
    Hash(HashWriter),
    Intset(Vec<i64>),
    SetListpack(ListpackBuilder),
    Set,
    ZsetListpack(Scored),
    Zset,
    List(ListWriter),
    Stream(OpenStream),
}

struct OpenStream {
    writer: StreamWriter,
    len: u64,
    /// Pending entries of the current group that are still to come before its consumers, and number of these.
    pending_left: u64,
    consumers: u64,
}

/// Members of a small sorted set, in any order.
#[derive(Default)]
struct Scored {
    members: Texts,
    scores: Vec<f64>,
}

impl<S: Sink> ItemWriter<S> {
    pub fn new(writer: Writer<S>, list_size: i32) -> ItemWriter<S> {
        let (open, db, sizes) = (Open::None, None, Vec::new());
        ItemWriter { writer, list_size, open, db, sizes, field_expiry: None, used_until: None, refers: false }
    }

    pub fn into_writer(self) -> Writer<S> {
        assert!(matches!(self.open, Open::None), "the last value has ended");
        self.writer
    }

    /// Announces the databases that follow: the number of keys of each, and how many of them expire.
    pub fn announce(&mut self, sizes: impl IntoIterator<Item = (u64, u64)>) {
        self.sizes = sizes.into_iter().map(Some).collect();
    }

    /// Lets the use of keys be written too, as far as it is known, as of `now`.
    pub fn note_use(&mut self, now: UnixMs) {
        self.used_until = Some(now);
    }

    /// Keys whose values are not in memory are written as references; without this the caller fetches them
    /// before.
    pub fn refer(&mut self) {
        self.refers = true;
    }

    pub fn refers(&self) -> bool {
        self.refers
    }

    /// Returns the sink of the bytes. No value is open, or the bytes hold a part of one.
    pub fn sink_mut(&mut self) -> &mut S {
        self.writer.sink_mut()
    }

    /// The first key, if any, that was written with a value that only `VERSION_FIELD_EXPIRY` knows.
    pub fn field_expiry(&self) -> Option<(Db, &[u8])> {
        self.field_expiry.as_ref().map(|(db, key)| (*db, &**key))
    }

    /// Returns the writer for data other than items.
    pub(crate) fn writer_mut(&mut self) -> &mut Writer<S> {
        &mut self.writer
    }

    // ---- keys ----

    pub fn item(&mut self, item: SnapshotItem<'_>) {
        match item {
            SnapshotItem::Entry(SnapshotEntry { db, key, value: Value::Cold(cold), expiry, access })
                if self.refers =>
            {
                self.key_head(db, expiry, access);
                self.writer.byte(if cold.due().is_some() { record::COLD_TIMED } else { record::COLD });
                self.writer.text(key);
                self.writer.byte(cold.form_number());
                self.writer.raw(&cold.reference.raw().to_le_bytes());
                if let Some(UnixMs(due)) = cold.due() {
                    self.writer.milliseconds(due);
                }
            }
            SnapshotItem::Entry(entry) => {
                self.key_head(entry.db, entry.expiry, entry.access);
                match parts::outline(&entry.value, self.list_size) {
                    None => self.string(Some(entry.key), &entry.value),
                    Some(outline) => self.collection(Some(entry.key), &outline, &entry.value),
                }
            }
            SnapshotItem::Begin { db, key, expiry, access, outline } => {
                self.key_head(db, expiry, access);
                self.begin(Some(key), &outline);
            }
            SnapshotItem::Bundle(bundle) => self.bundle(&bundle),
            SnapshotItem::Node(_) => unreachable!("its parts were read before"),
            SnapshotItem::Part(part) => self.part(part),
            SnapshotItem::End => self.end(),
        }
    }

    /// Keys that lie elsewhere with their values.
    fn bundle(&mut self, bundle: &SnapshotBundle<'_>) {
        assert!(self.refers, "otherwise its entries were read before");
        self.key_head(bundle.db, bundle.expiring.map(|expiring| expiring.bound), None);
        self.writer.byte(record::BUNDLE);
        self.writer.raw(bundle.name.as_bytes());
        self.writer.raw(&bundle.slot.get().to_le_bytes());
        self.writer.raw(&bundle.reference.raw().to_le_bytes());
        let keys = u16::try_from(bundle.prints().len()).expect("a bundle has few keys");
        self.writer.raw(&keys.to_le_bytes());
        let volatile = bundle.expiring.map_or(0, |expiring| expiring.keys);
        self.writer.raw(&volatile.to_le_bytes());
        bundle.prints().iter().for_each(|print| self.writer.raw(&print.to_le_bytes()));
    }

    /// Ends the file, after the last key.
    pub fn finish(mut self) -> S {
        self.writer.byte(record::EOF);
        self.into_writer().into_sink()
    }

    fn key_head(&mut self, db: Db, expiry: Option<UnixMs>, access: Option<AccessStamp>) {
        assert!(matches!(self.open, Open::None), "no key begins inside another one's value");
        if self.db.replace(db) != Some(db) {
            self.writer.byte(record::SELECT_DB);
            self.writer.length(u64::from(db.0));
            if let Some((keys, volatile)) = self.sizes.get_mut(usize::from(db.0)).and_then(Option::take) {
                self.writer.byte(record::RESIZE_DB);
                self.writer.length(keys);
                self.writer.length(volatile);
            }
        }
        if let Some(UnixMs(at)) = expiry {
            self.writer.byte(record::EXPIRE_MS);
            self.writer.milliseconds(at);
        }
        match self.used_until.zip(access).map(|(now, access)| access.note(now)) {
            None => {}
            Some(AccessNote::IdleSeconds(seconds)) => {
                self.writer.byte(record::IDLE);
                self.writer.length(seconds);
            }
            Some(AccessNote::Frequency(count)) => {
                self.writer.byte(record::FREQ);
                self.writer.byte(count);
            }
        }
    }

    // ---- values ----

    /// Type and value, without a key.
    pub fn value(&mut self, value: &Value<'_>) {
        match parts::outline(value, self.list_size) {
            None => self.string(None, value),
            Some(outline) => self.collection(None, &outline, value),
        }
    }

    fn string(&mut self, key: Option<&[u8]>, value: &Value<'_>) {
        self.head(RdbType::String, key);
        match *value {
            Value::Int(int) => self.writer.text(Element::Int(int).text(&mut TextRoom::default())),
            Value::Bytes(bytes) => self.writer.text(bytes),
            _ => unreachable!("a collection has an outline"),
        }
    }

    fn collection(&mut self, key: Option<&[u8]>, outline: &Outline, value: &Value<'_>) {
        self.begin(key, outline);
        parts::for_each_part(value, self.list_size, |part| self.part(part));
        self.end();
    }

    pub(crate) fn head(&mut self, kind: RdbType, key: Option<&[u8]>) {
        self.writer.byte(kind as u8);
        if let Some(key) = key {
            self.writer.text(key);
        }
    }

    pub(crate) fn begin(&mut self, key: Option<&[u8]>, outline: &Outline) {
        assert!(matches!(self.open, Open::None), "one value at a time");
        let Outline { kind, encoding, len, nodes, is_volatile } = *outline;
        self.open = match (kind, encoding) {
            (Type::Hash, Encoding::Listpack) if !is_volatile => {
                self.head(RdbType::HashListpack, key);
                Open::HashListpack(ListpackBuilder::new())
            }
            (Type::Hash, _) => {
                if is_volatile && self.field_expiry.is_none() {
                    self.field_expiry = Some((self.db.unwrap_or(Db(0)), key.unwrap_or_default().into()));
                }
                self.head(if is_volatile { RdbType::Hash2 } else { RdbType::Hash }, key);
                Open::Hash(HashWriter::begin(&mut self.writer, len, is_volatile))
            }
            (Type::Set, Encoding::Intset) => {
                self.head(RdbType::SetIntset, key);
                Open::Intset(Vec::new())
            }
            (Type::Set, Encoding::Listpack) => {
                self.head(RdbType::SetListpack, key);
                Open::SetListpack(ListpackBuilder::new())
            }
            (Type::Set, _) => {
                self.head(RdbType::Set, key);
                self.writer.length(len);
                Open::Set
            }
            (Type::Zset, Encoding::Listpack) => {
                self.head(RdbType::ZsetListpack, key);
                Open::ZsetListpack(Scored::default())
            }
            (Type::Zset, _) => {
                self.head(RdbType::Zset2, key);
                self.writer.length(len);
                Open::Zset
            }
            (Type::List, _) => {
                self.head(RdbType::ListQuicklist2, key);
                Open::List(ListWriter::begin(&mut self.writer, nodes))
            }
            (Type::Stream, _) => {
                self.head(RdbType::StreamListpacks3, key);
                let writer = StreamWriter::begin(&mut self.writer, nodes);
                Open::Stream(OpenStream { writer, len, pending_left: 0, consumers: 0 })
            }
            (Type::String, _) => unreachable!("a string has no parts"),
        };
    }

    pub(crate) fn part(&mut self, part: Part<'_>) {
        let writer = &mut self.writer;
        match (&mut self.open, part) {
            (Open::HashListpack(listpack), Part::Field(field, value, _)) => {
                listpack.add(element_to_rdb(field));
                listpack.add(element_to_rdb(value));
            }
            (Open::Hash(hash), Part::Field(field, value, expiry)) => {
                let (mut name, mut text) = (TextRoom::default(), TextRoom::default());
                let expiry_ms = expiry.map_or(EXPIRY_NONE, |at| at.0);
                hash.push(writer, field.text(&mut name), value.text(&mut text), expiry_ms);
            }
            (Open::Intset(members), Part::Member(member)) => members.push(match member {
                Element::Int(int) => int,
                Element::Bytes(text) => parse_i64(text).expect("an intset holds integers"),
            }),
            (Open::SetListpack(listpack), Part::Member(member)) => listpack.add(element_to_rdb(member)),
            (Open::Set, Part::Member(member)) => writer.text(member.text(&mut TextRoom::default())),
            (Open::ZsetListpack(scored), Part::Scored(member, score)) => {
                scored.members.push(member.text(&mut TextRoom::default()));
                scored.scores.push(score);
            }
            (Open::Zset, Part::Scored(member, score)) => {
                writer.text(member.text(&mut TextRoom::default()));
                writer.double(score);
            }
            (Open::List(list), Part::Node { alone }) => list.node(writer, alone),
            (Open::List(list), Part::Item(Element::Int(int))) => {
                list.push(writer, rdb::Element::Integer(int))
            }
            (Open::List(list), Part::Item(Element::Bytes(text))) => {
                list.push(writer, rdb::Element::Text(text))
            }
            (Open::Stream(stream), Part::Stream(part)) => stream.part(writer, part),
            (_, part) => unreachable!("a part of another type: {part:?}"),
        }
    }

    pub(crate) fn end(&mut self) {
        let writer = &mut self.writer;
        match std::mem::replace(&mut self.open, Open::None) {
            Open::None => unreachable!("what ends has begun"),
            Open::HashListpack(mut listpack) | Open::SetListpack(mut listpack) => {
                writer.text(listpack.finish())
            }
            Open::Intset(mut members) => {
                members.sort_unstable();
                rdb::intset(writer, &members);
            }
            Open::ZsetListpack(scored) => scored.finish(writer),
            Open::List(list) => list.end(writer),
            Open::Hash(_) | Open::Set | Open::Zset | Open::Stream(_) => {}
        }
    }
}

impl Scored {
    /// A listpack is in the order of the set: rising by score, then by member. A snapshot's walk is not.
    fn finish<S: Sink>(self, writer: &mut Writer<S>) {
        let mut order: Vec<usize> = (0..self.scores.len()).collect();
        let (members, scores) = (&self.members, &self.scores);
        order.sort_by(|&a, &b| {
            scores[a]
                .partial_cmp(&scores[b])
                .expect("no score is NaN")
                .then_with(|| members.get(a).cmp(members.get(b)))
        });
        let mut listpack = ScoreListpack::default();
        order.into_iter().for_each(|at| listpack.push(rdb::Element::Text(members.get(at)), scores[at]));
        listpack.finish(writer);
    }
}

impl OpenStream {
    fn part<S: Sink>(&mut self, writer: &mut Writer<S>, part: StreamPart<'_>) {
        match part {
            StreamPart::Block(block) => {
                let first = block.entries().next().expect("a block has an entry").id;
                let names = block.names().map(element_to_rdb);
                self.writer.begin_node(writer, to_rdb(first), block.len(), names);
            }
            StreamPart::Entry(entry) => {
                let id = to_rdb(entry.id);
                if entry.shares_names() {
                    self.writer.begin_entry(id, None);
                    entry.values().for_each(|value| self.writer.push(element_to_rdb(value)));
                } else {
                    self.writer.begin_entry(id, Some(entry.len()));
                    for (name, value) in entry.fields() {
                        self.writer.push(element_to_rdb(name));
                        self.writer.push(element_to_rdb(value));
                    }
                }
                self.writer.end_entry();
            }
            StreamPart::State { state, groups } => self.state(writer, &state, groups),
            StreamPart::Group { name, last_id, entries_read, pending, consumers } => {
                let read = entries_read.unwrap_or(ENTRIES_READ_UNKNOWN) as i64;
                rdb::stream_group(writer, name, to_rdb(last_id), read, pending);
                (self.pending_left, self.consumers) = (pending, consumers as u64);
                self.begin_consumers(writer);
            }
            StreamPart::Pending(pending) => {
                rdb::stream_pending(writer, to_rdb(pending.id), pending.delivered_ms, pending.deliveries);
                self.pending_left -= 1;
                self.begin_consumers(writer);
            }
            StreamPart::Consumer { name, seen_ms, active_ms, pending } => {
                rdb::stream_consumer(writer, name, seen_ms, active_ms, pending);
            }
            StreamPart::Owned(id) => rdb::stream_owned(writer, to_rdb(id)),
        }
    }

    fn state<S: Sink>(&mut self, writer: &mut Writer<S>, state: &StreamState, groups: usize) {
        let StreamState { first_id, last_id, max_deleted_id, entries_added } = *state;
        let counters = StreamCounters {
            length: self.len,
            last_id: to_rdb(last_id),
            first_id: to_rdb(first_id),
            max_deleted_id: to_rdb(max_deleted_id),
            entries_added,
        };
        self.writer.counters(writer, &counters, groups as u64);
    }

    /// Writes the number of consumers, after the pending entries.
    fn begin_consumers<S: Sink>(&self, writer: &mut Writer<S>) {
        if self.pending_left == 0 {
            writer.length(self.consumers);
        }
    }
}
