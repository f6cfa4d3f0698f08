//! A payload as DUMP makes it, written a portion at a time: the lock of a large value is released in between.
//!
//! ```text
//!   lock | portion | unlock,  lock | portion | unlock ...  --> pieces of some KB --> footer
//! ```
//! The caller sees to it that the value is the same in each portion, and the time too: a hash shows the
//! fields that are there at that time. A value in one of the packed encodings is one portion, and so are the
//! groups of a stream.

use crate::parts;
use crate::write::ItemWriter;
use isotherm_keyspace::{
    Element, Encoding, End, HashView, Limits, ListView, Outline, Part, StreamPart, StreamView, TextRoom,
    Type, Value,
};
use isotherm_persist::rdb::{ListShape, Place, RdbType, Writer};
use isotherm_persist::{Sink, dump};

/// Approximate maximum length of a piece of a payload.
const PIECE_BYTES: usize = 64 << 10;
/// Size of a portion: a number of items, each counted as this many bytes.
const PORTION_ITEMS: u64 = 2000;
const ITEM_BYTES: usize = 64;
/// Elements that are asked for at once.
const LOOKS: u64 = 16;

/// A whole payload, in pieces.
pub type Payload = Vec<Vec<u8>>;

#[derive(Default)]
struct Pieces {
    all: Payload,
    /// Bytes of the pieces before the last one.
    full_bytes: usize,
}

impl Pieces {
    fn memory_bytes(&self) -> usize {
        self.full_bytes
            + self.all.last().map_or(0, Vec::capacity)
            + self.all.capacity() * size_of::<Vec<u8>>()
    }
}

impl Sink for Pieces {
    fn put(&mut self, bytes: &[u8]) {
        match self.all.last_mut() {
            Some(last) if last.len() + bytes.len() <= PIECE_BYTES => last.extend_from_slice(bytes),
            // A payload that exceeds a full piece is long: room is not made for it a bit at a time.
            Some(last) => {
                self.full_bytes += last.capacity();
                let mut piece = Vec::with_capacity(PIECE_BYTES.max(bytes.len()));
                piece.extend_from_slice(bytes);
                self.all.push(piece);
            }
            None => self.all.push(bytes.to_vec()),
        }
    }
}

/// Position in the value that is written.
enum At {
    Begin,
    /// Part of a long string that was read.
    Text(Vec<u8>),
    /// Count of the fields of a hash whose fields have expiries.
    Count {
        cursor: u64,
        fields: u64,
    },
    Fields(u64),
    Members(u64),
    /// Members of a sorted set, from the greatest score down.
    Scored(u64),
    /// Count of the nodes of a list.
    Nodes {
        index: u64,
        shape: ListShape,
        nodes: u64,
    },
    Items {
        index: u64,
        shape: ListShape,
    },
    /// Number of blocks of a stream that are written.
    Blocks(usize),
    End,
    /// A hash whose last field has just expired.
    Nothing,
}

pub struct Portions {
    writer: ItemWriter<Pieces>,
    limits: Limits,
    compress: bool,
    at: At,
}

/// Work done in a portion.
struct Spent(u64);

impl Spent {
    fn add(&mut self, elements: &[Element<'_>]) {
        let bytes: usize = elements.iter().map(|element| element.text(&mut TextRoom::default()).len()).sum();
        self.0 += 1 + (bytes / ITEM_BYTES) as u64;
    }

    fn is_all(&self) -> bool {
        self.0 >= PORTION_ITEMS
    }
}

impl Portions {
    /// `limits`: where lists are cut into nodes. `compress`: whether strings are.
    pub fn new(limits: &Limits, compress: bool) -> Portions {
        let writer =
            ItemWriter::new(Writer::over(Pieces::default(), compress), limits.list_max_listpack_size);
        Portions { writer, limits: *limits, compress, at: At::Begin }
    }

    /// Writes the next portion of a value. Whether it was the last.
    pub fn write(&mut self, value: &Value<'_>) -> bool {
        let mut spent = Spent(0);
        if let At::Begin = self.at {
            self.at = self.begin(value);
        }
        loop {
            let at = std::mem::replace(&mut self.at, At::End);
            self.at = self.go_on(at, value, &mut spent);
            if matches!(self.at, At::Nothing | At::End) {
                return true;
            }
            if spent.is_all() {
                return false;
            }
        }
    }

    /// The payload of the value that is written to its end; none if there is nothing of it. The next value
    /// may begin.
    pub fn take(&mut self) -> Option<Payload> {
        match std::mem::replace(&mut self.at, At::Begin) {
            At::End => {}
            At::Text(_) => unreachable!("a string is written with its last portion"),
            _ => return None,
        }
        let mut pieces = std::mem::take(self.writer.sink_mut()).all;
        let footer = dump::footer(pieces.iter().map(|piece| &**piece));
        match pieces.last_mut() {
            Some(last) => last.extend_from_slice(&footer),
            None => unreachable!("a value has a type"),
        }
        Some(pieces)
    }

    /// Returns the bytes of memory of everything written so far.
    pub fn memory_bytes(&mut self) -> usize {
        let text = if let At::Text(read) = &self.at { read.capacity() } else { 0 };
        text + self.writer.sink_mut().memory_bytes()
    }

    /// Abandons the current value: it is not to be written any more.
    pub fn abandon(&mut self) {
        *self = Portions::new(&self.limits, self.compress);
    }

    fn begin(&mut self, value: &Value<'_>) -> At {
        match value {
            Value::Bytes(text) if text.len() > PIECE_BYTES => At::Text(Vec::with_capacity(text.len())),
            Value::Hash(view) if view.has_volatile() => At::Count { cursor: 0, fields: 0 },
            Value::Hash(view) if view.encoding() == Encoding::Hashtable => {
                self.begin_hash(view.len(), false);
                At::Fields(0)
            }
            Value::Set(view) if view.encoding() == Encoding::Hashtable => {
                self.open(Type::Set, view.encoding(), view.len(), 0);
                At::Members(0)
            }
            Value::Zset(view) if view.encoding() != Encoding::Listpack => {
                self.open(Type::Zset, view.encoding(), view.len(), 0);
                At::Scored(0)
            }
            Value::List(view) if view.encoding() != Encoding::Listpack => {
                At::Nodes { index: 0, shape: self.shape_of(view), nodes: 0 }
            }
            Value::Stream(view) => {
                self.open(Type::Stream, Encoding::Stream, view.len(), view.whole_blocks().count() as u64);
                At::Blocks(0)
            }
            Value::Cold(cold) => cold.not_fetched(),
            Value::Int(_)
            | Value::Bytes(_)
            | Value::Hash(_)
            | Value::Set(_)
            | Value::Zset(_)
            | Value::List(_) => {
                self.writer.value(value);
                At::End
            }
        }
    }

    fn shape_of(&self, list: &ListView<'_>) -> ListShape {
        parts::shape_of(list, self.limits.list_max_listpack_size)
    }

    fn open(&mut self, kind: Type, encoding: Encoding, len: u64, nodes: u64) {
        self.writer.begin(None, &Outline { kind, encoding, len, nodes, is_volatile: false });
    }

    fn begin_hash(&mut self, len: u64, is_volatile: bool) {
        let (kind, encoding) = (Type::Hash, Encoding::Hashtable);
        self.writer.begin(None, &Outline { kind, encoding, len, nodes: 0, is_volatile });
    }

    fn end(&mut self) -> At {
        self.writer.end();
        At::End
    }

    fn go_on(&mut self, at: At, value: &Value<'_>, spent: &mut Spent) -> At {
        match (at, value) {
            (At::End, _) => At::End,
            (At::Text(read), Value::Bytes(text)) => self.text(read, text, spent),
            (At::Count { cursor, fields }, Value::Hash(view)) => self.count(cursor, fields, view, spent),
            (At::Fields(cursor), Value::Hash(view)) => {
                let writer = &mut self.writer;
                let next = view.scan_with_expiry(cursor, LOOKS, |field, value, expiry| {
                    spent.add(&[field, value]);
                    writer.part(Part::Field(field, value, expiry));
                });
                if next == 0 { self.end() } else { At::Fields(next) }
            }
            (At::Members(cursor), Value::Set(view)) => {
                let writer = &mut self.writer;
                let next = view.scan(cursor, LOOKS, |member| {
                    spent.add(&[member]);
                    writer.part(Part::Member(member));
                });
                if next == 0 { self.end() } else { At::Members(next) }
            }
            (At::Scored(rank), Value::Zset(view)) => {
                let writer = &mut self.writer;
                let count = (view.len() - rank).min(LOOKS);
                view.for_each(rank, count, false, |member, score| {
                    spent.add(&[member]);
                    writer.part(Part::Scored(member, score));
                });
                if rank + count == view.len() { self.end() } else { At::Scored(rank + count) }
            }
            (At::Nodes { index, shape, nodes }, Value::List(view)) => {
                self.nodes(index, shape, nodes, view, spent)
            }
            (At::Items { index, shape }, Value::List(view)) => self.items(index, shape, view, spent),
            (At::Blocks(written), Value::Stream(view)) => self.blocks(written, view, spent),
            _ => unreachable!("the value is the same in each portion"),
        }
    }

    fn text(&mut self, mut read: Vec<u8>, text: &[u8], spent: &mut Spent) -> At {
        let next = &text[read.len()..text.len().min(read.len() + PIECE_BYTES)];
        read.extend_from_slice(next);
        spent.0 += (next.len() / ITEM_BYTES) as u64;
        if read.len() < text.len() {
            return At::Text(read);
        }
        self.writer.head(RdbType::String, None);
        self.writer.writer_mut().text(&read);
        At::End
    }

    fn count(&mut self, cursor: u64, mut fields: u64, view: &HashView<'_>, spent: &mut Spent) -> At {
        let cursor = view.scan_with_expiry(cursor, LOOKS, |_, _, _| fields += 1);
        spent.0 += LOOKS / 4;
        match (cursor, fields) {
            (0, 0) => At::Nothing,
            (0, _) => {
                self.begin_hash(fields, true);
                At::Fields(0)
            }
            _ => At::Count { cursor, fields },
        }
    }

    fn nodes(
        &mut self,
        mut index: u64,
        mut shape: ListShape,
        mut nodes: u64,
        view: &ListView<'_>,
        spent: &mut Spent,
    ) -> At {
        let mut room = TextRoom::default();
        for element in view.iter(index, End::Front).take(LOOKS as usize) {
            spent.add(&[element]);
            nodes += u64::from(shape.place(element.text(&mut room)) != Place::Joins);
            index += 1;
        }
        if index < view.len() {
            return At::Nodes { index, shape, nodes };
        }
        self.open(Type::List, view.encoding(), view.len(), nodes);
        At::Items { index: 0, shape: self.shape_of(view) }
    }

    fn items(&mut self, mut index: u64, mut shape: ListShape, view: &ListView<'_>, spent: &mut Spent) -> At {
        let mut room = TextRoom::default();
        for element in view.iter(index, End::Front).take(LOOKS as usize) {
            spent.add(&[element]);
            match shape.place(element.text(&mut room)) {
                Place::Joins => {}
                place => self.writer.part(Part::Node { alone: place == Place::Alone }),
            }
            self.writer.part(Part::Item(element));
            index += 1;
        }
        if index < view.len() { At::Items { index, shape } } else { self.end() }
    }

    fn blocks(&mut self, mut written: usize, view: &StreamView<'_>, spent: &mut Spent) -> At {
        let writer = &mut self.writer;
        let mut visit = |part: StreamPart<'_>| writer.part(Part::Stream(part));
        for block in view.whole_blocks().skip(written) {
            if spent.is_all() {
                return At::Blocks(written);
            }
            parts::block_parts(block, &mut visit);
            spent.0 += 2 * block.len();
            written += 1;
        }
        parts::rest_parts(*view, &mut visit);
        self.end()
    }
}
