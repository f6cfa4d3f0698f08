//! A block of a stream: the names of the fields once, then entry after entry, each stored as its difference
//! to the one before.
//!
//! ```text
//!   0            4       8           9    12        16           20            24        28
//!   [object u32][id u32][version u8][stamp u8][room u16][live u32][deleted u32][listpack u32][used u32][tags at u32]
//!   32            48           64
//!   [first id 16][last id 16] [count of fields][name][name] ... [entry][entry] ...
//!
//!   name    [tag][data]                     tags as in `packed`
//!   entry   [flags u8][id][tags][data ...]
//!   flags   bit 0  deleted: it stays where it is, because the next one builds on it
//!           bit 1  own fields: [count][tag][name][tag][value] ... instead of tags and data of the values
//!           bit 2  next: same millisecond, next number (of the first entry: the block's first id); no bytes
//!           bit 3  its number is 0
//!           bit 4  tags as the last ones that were written; no bytes
//!   id      [milliseconds since the one before][number, or how much more if the milliseconds are the same]
//!   counts and ids are 7 bits a byte, the low ones first
//! ```
//!
//! Two values of 16 B in the millisecond of the entry before: 1 + 32 = 33 B; some milliseconds later 34. The
//! head and the names are shared by some 92 entries: 64 + 15 B, 0.86 each.
//!
//! The end of a block follows Valkey's own rule (`stream-node-max-bytes` of a listpack,
//! `stream-node-max-entries`), because XTRIM ~ and XINFO show it. `listpack` is what Valkey's block would
//! take.

use super::id::StreamId;
use crate::layout::last_used;
use crate::layout::listpack::{LISTPACK_EMPTY_BYTES, entry_bytes};
use crate::layout::packed::{Coded, Element, LONG_TAG, fixed_bytes};
use isotherm_stdx::{UnixMs, steps};

pub(super) const HEAD_BYTES: usize = 64;
/// Bytes at the start of each node, which end with its stamp and its room: not part of what a block says.
pub(super) const SHARED_HEAD_BYTES: usize = 12;
/// Offset of the stamp: the time at which the node was changed or came, in seven bits. The eighth bit says
/// that it is a stub (see `values::nodes`).
const STAMP: usize = 9;
const STAMP_SHIFT: u32 = 9;
const STAMP_MASK: u8 = 0x7f;
const _: () = assert!(u16::MAX >> STAMP_SHIFT == STAMP_MASK as u16);

const DELETED: u8 = 1;
const OWN_FIELDS: u8 = 2;
const NEXT: u8 = 4;
const NUMBER_ZERO: u8 = 8;
const SAME_TAGS: u8 = 16;

/// A block to read.
#[derive(Clone, Copy)]
pub(super) struct Block<'a>(pub &'a [u8]);

impl<'a> Block<'a> {
    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }
    fn id(self, at: usize) -> StreamId {
        let word = |at: usize| u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"));
        StreamId { ms: word(at), seq: word(at + 8) }
    }
    /// Bytes of its node.
    pub fn room(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[10], self.0[11]]))
    }
    pub fn live(self) -> u32 {
        self.u32(12)
    }
    pub fn deleted(self) -> u32 {
        self.u32(16)
    }
    /// Bytes of Valkey's own block.
    pub fn listpack(self) -> u32 {
        self.u32(20)
    }
    pub fn used(self) -> usize {
        self.u32(24) as usize
    }
    fn stamp(self) -> u8 {
        self.0[STAMP] & STAMP_MASK
    }
    fn tags_at(self) -> usize {
        self.u32(28) as usize
    }
    pub fn first(self) -> StreamId {
        self.id(32)
    }
    pub fn last(self) -> StreamId {
        self.id(48)
    }

    /// Returns the number of fields that the first entry had when it was added, and the offset at which their
    /// names begin.
    fn names(self) -> (usize, usize) {
        let mut at = HEAD_BYTES;
        let count = read_number(self.0, &mut at) as usize;
        (count, at)
    }

    /// The names that entries share.
    pub fn field_names(self) -> impl ExactSizeIterator<Item = Element<'a>> + use<'a> {
        let (count, mut at) = self.names();
        (0..count).map(move |_| read_element(self.0, &mut at))
    }

    /// All entries, deleted ones too.
    pub fn entries(self) -> Entries<'a> {
        let (count, names_at) = self.names();
        steps::note(count as u64);
        let mut at = names_at;
        (0..count).for_each(|_| _ = read_element(self.0, &mut at));
        Entries { block: self, fields: count, names_at, at, before: None, tags_at: 0 }
    }

    /// Returns whether these fields have the names of the first entry's.
    fn has_names(self, fields: &[&[u8]]) -> bool {
        let (count, mut at) = self.names();
        count * 2 == fields.len()
            && fields.iter().step_by(2).all(|name| read_element(self.0, &mut at).is_text(name))
    }

    pub fn check_invariants(self) {
        let (mut live, mut deleted, mut at, mut before) = (0, 0, 0, None);
        for entry in self.entries() {
            assert!(before < Some(entry.id), "ids rise");
            (before, at) = (Some(entry.id), entry.end);
            *(if entry.is_deleted() { &mut deleted } else { &mut live }) += 1;
        }
        assert_eq!((live, deleted, at), (self.live(), self.deleted(), self.used()));
        assert_eq!(before, Some(self.last()));
        assert_eq!(self.entries().next().map(|entry| entry.id), Some(self.first()));
    }
}

/// Notes when a node was changed or came, to 512 seconds.
#[inline]
pub(super) fn set_stamp(node: &mut [u8], now: UnixMs) {
    node[STAMP] = (last_used::stamp(now) >> STAMP_SHIFT) as u8;
}

/// Returns the most seconds that may have passed since the stamp, apart from 18 hours and their multiples.
pub(super) fn idle_seconds_max(node: &[u8], now: UnixMs) -> u32 {
    let now = (last_used::stamp(now) >> STAMP_SHIFT) as u8;
    let steps = now.wrapping_sub(Block(node).stamp()) & STAMP_MASK;
    ((u32::from(steps) + 1) << STAMP_SHIFT) - 1
}

/// A block of a stream, to be written as it is.
#[derive(Clone, Copy)]
pub struct StreamBlock<'a>(pub(super) Block<'a>);

impl<'a> StreamBlock<'a> {
    /// Returns the bytes of the block, entries and all.
    pub(crate) fn byte_count(&self) -> usize {
        self.0.0.len()
    }

    /// The names that its entries may share.
    pub fn names(&self) -> impl ExactSizeIterator<Item = Element<'a>> + use<'a> {
        self.0.field_names()
    }

    /// Returns the number of entries: at least one.
    #[allow(clippy::len_without_is_empty, reason = "a block without entries is freed")]
    pub fn len(&self) -> u64 {
        u64::from(self.0.live())
    }

    pub fn entries(&self) -> impl Iterator<Item = StreamEntry<'a>> + use<'a> {
        self.0.entries().filter(|entry| !entry.is_deleted())
    }
}

impl std::fmt::Debug for StreamBlock<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamBlock").field("first", &self.0.first()).field("len", &self.len()).finish()
    }
}

/// Entry of a block.
#[derive(Clone, Copy, Debug)]
pub struct StreamEntry<'a> {
    pub id: StreamId,
    bytes: &'a [u8],
    flags: u8,
    /// Offset at which the entry begins; `end` is the offset at which it ends.
    pub(super) start: usize,
    end: usize,
    count: usize,
    names_at: usize,
    tags_at: usize,
    values_at: usize,
}

impl<'a> StreamEntry<'a> {
    pub(super) fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    /// Returns whether its fields have the names that the block gives.
    pub fn shares_names(&self) -> bool {
        self.flags & OWN_FIELDS == 0
    }

    /// Returns the number of its fields.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The values alone.
    pub fn values(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let entry = *self;
        let mut values_at = entry.values_at;
        (0..entry.count).map(move |index| {
            if entry.flags & OWN_FIELDS != 0 {
                read_element(entry.bytes, &mut values_at);
                return read_element(entry.bytes, &mut values_at);
            }
            read_data(entry.bytes, entry.bytes[entry.tags_at + index], &mut values_at)
        })
    }

    /// Fields and their values, in the order in which they were given.
    pub fn fields(&self) -> impl Iterator<Item = (Element<'a>, Element<'a>)> + use<'a> {
        let entry = *self;
        let (mut names_at, mut values_at) = (entry.names_at, entry.values_at);
        (0..entry.count).map(move |index| {
            if entry.flags & OWN_FIELDS != 0 {
                let name = read_element(entry.bytes, &mut values_at);
                return (name, read_element(entry.bytes, &mut values_at));
            }
            let name = read_element(entry.bytes, &mut names_at);
            (name, read_data(entry.bytes, entry.bytes[entry.tags_at + index], &mut values_at))
        })
    }
}

pub(super) struct Entries<'a> {
    block: Block<'a>,
    fields: usize,
    names_at: usize,
    at: usize,
    before: Option<StreamId>,
    tags_at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        let bytes = self.block.0;
        let start = self.at;
        if start == self.block.used() {
            return None;
        }
        steps::note(1);
        let flags = bytes[start];
        let mut at = start + 1;
        let id = match self.before {
            None => self.block.first(),
            Some(before) => read_id(bytes, flags, before, &mut at),
        };
        let mut count = self.fields;
        let values_at;
        if flags & OWN_FIELDS != 0 {
            count = read_number(bytes, &mut at) as usize;
            values_at = at;
            (0..2 * count).for_each(|_| _ = read_element(bytes, &mut at));
        } else {
            if flags & SAME_TAGS == 0 {
                self.tags_at = at;
                at += count;
            }
            values_at = at;
            for index in 0..count {
                read_data(bytes, bytes[self.tags_at + index], &mut at);
            }
        }
        (self.at, self.before) = (at, Some(id));
        let (names_at, tags_at) = (self.names_at, self.tags_at);
        Some(StreamEntry { id, bytes, flags, start, end: at, count, names_at, tags_at, values_at })
    }
}

fn read_id(bytes: &[u8], flags: u8, before: StreamId, at: &mut usize) -> StreamId {
    if flags & NEXT != 0 {
        return StreamId { ms: before.ms, seq: before.seq + 1 };
    }
    let later_ms = read_number(bytes, at);
    if later_ms == 0 {
        return StreamId { ms: before.ms, seq: before.seq + read_number(bytes, at) };
    }
    let seq = if flags & NUMBER_ZERO != 0 { 0 } else { read_number(bytes, at) };
    StreamId { ms: before.ms + later_ms, seq }
}

pub(super) fn read_number(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        number |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return number;
        }
        shift += 7;
    }
}

fn read_element<'a>(bytes: &'a [u8], at: &mut usize) -> Element<'a> {
    let tag = bytes[*at];
    *at += 1;
    read_data(bytes, tag, at)
}

#[inline]
fn read_data<'a>(bytes: &'a [u8], tag: u8, at: &mut usize) -> Element<'a> {
    if tag == LONG_TAG {
        let len = u32::from_le_bytes(bytes[*at..*at + 4].try_into().expect("four bytes")) as usize;
        let from = *at + 4;
        *at = from + len;
        return Element::Bytes(&bytes[from..from + len]);
    }
    let from = *at;
    *at += fixed_bytes(tag);
    Element::decode(tag, &bytes[from..*at])
}

// ---- writing ----

pub(super) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 127 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn push_data(out: &mut Vec<u8>, coded: &Coded<'_>) {
    if coded.tag() == LONG_TAG {
        out.extend_from_slice(&(coded.body().len() as u32).to_le_bytes());
    }
    out.extend_from_slice(coded.body());
}

fn push_element(out: &mut Vec<u8>, text: &[u8]) {
    let coded = Coded::element(Element::of(text));
    out.push(coded.tag());
    push_data(out, &coded);
}

/// Bytes that come after those of a block, and their changes of its head.
pub(super) struct Addition {
    pub bytes: Vec<u8>,
    id: StreamId,
    listpack: u64,
    /// Offset of this entry's tags within `bytes`, if it has new ones for the fields of the block.
    tags_at: Option<usize>,
}

/// Returns the bytes that an entry of `texts` names and values usually adds to a block, at most: flags and
/// id, and a tag for each text.
pub(super) fn addition_bytes(texts: usize, text_bytes: usize) -> usize {
    16 + texts + text_bytes
}

/// The beginning of a block whose first entry has these fields (names and values in turns), that entry
/// included. All after the head.
pub(super) fn begin(id: StreamId, fields: &[&[u8]], out: &mut Vec<u8>) -> Addition {
    let mut bytes = std::mem::take(out);
    bytes.clear();
    push_number(&mut bytes, (fields.len() / 2) as u64);
    fields.iter().step_by(2).for_each(|name| push_element(&mut bytes, name));
    let names: u64 = fields.iter().step_by(2).map(|name| entry_bytes(Element::of(name))).sum();
    // [live][deleted][count of fields][names][0]
    let head =
        entry_bytes(Element::Int((fields.len() / 2) as i64)) + 3 * entry_bytes(Element::Int(0)) + names;
    let mut addition = Addition { bytes, id, listpack: LISTPACK_EMPTY_BYTES + head, tags_at: None };
    addition.bytes.push(NEXT);
    push_values(&mut addition, fields, None);
    count_in_listpack(&mut addition, StreamId::MIN, fields, true);
    addition
}

/// A block that comes as a whole, with the entries that share it already: written entry by entry, then stored
/// at once. Names are repeated for no entry, which `Stream::add` could not promise: it ends blocks by the
/// limits in force here.
pub struct NewBlock {
    bytes: Vec<u8>,
}

impl NewBlock {
    /// Makes a block of entries from `first` on; `names` are those that they may share.
    pub fn new<'t>(first: StreamId, names: impl ExactSizeIterator<Item = &'t [u8]>) -> NewBlock {
        let mut bytes = vec![0; HEAD_BYTES];
        init(&mut bytes, first);
        let count = names.len() as u64;
        push_number(&mut bytes, count);
        let mut listpack = LISTPACK_EMPTY_BYTES + number_bytes(count) + 3 * number_bytes(0);
        for name in names {
            push_element(&mut bytes, name);
            listpack += entry_bytes(Element::of(name));
        }
        set_u32(&mut bytes, 20, saturated(listpack));
        let used = bytes.len() as u32;
        set_u32(&mut bytes, 24, used);
        NewBlock { bytes }
    }

    /// An entry with the names of the block.
    pub fn push_shared(&mut self, id: StreamId, values: &[&[u8]]) {
        let block = Block(&self.bytes);
        let last_tags = (block.tags_at() > 0).then(|| self.bytes[block.tags_at()..][..values.len()].to_vec());
        let mut addition = self.begin_entry(id);
        push_texts(&mut addition, values.iter().copied(), last_tags.as_deref());
        let count = values.len() as u64;
        let texts: u64 = values.iter().map(|text| entry_bytes(Element::of(text))).sum();
        self.append(addition, texts + number_bytes(count + 3));
    }

    /// An entry with names of its own: names and values in turns.
    pub fn push_own(&mut self, id: StreamId, fields: &[&[u8]]) {
        let mut addition = self.begin_entry(id);
        push_own_fields(&mut addition.bytes, fields);
        let count = (fields.len() / 2) as u64;
        let texts: u64 = fields.iter().map(|text| entry_bytes(Element::of(text))).sum();
        self.append(addition, number_bytes(count) + texts + number_bytes(2 * count + 4));
    }

    fn begin_entry(&self, id: StreamId) -> Addition {
        let block = Block(&self.bytes);
        let apart = id.apart(block.first());
        let listpack = number_bytes(0) + number_bytes(apart.ms) + number_bytes(apart.seq);
        let mut bytes = vec![0];
        if block.live() == 0 {
            bytes[0] |= NEXT;
        } else {
            push_id(&mut bytes, block.last(), id);
        }
        Addition { bytes, id, listpack, tags_at: None }
    }

    fn append(&mut self, mut addition: Addition, listpack: u64) {
        addition.listpack += listpack;
        self.bytes.resize(self.bytes.len() + addition.bytes.len(), 0);
        append(&mut self.bytes, &addition);
    }

    pub(super) fn block(&self) -> Block<'_> {
        Block(&self.bytes)
    }
}

/// Encodes one more entry of a block.
pub(super) fn addition(block: Block<'_>, id: StreamId, fields: &[&[u8]], out: &mut Vec<u8>) -> Addition {
    let mut bytes = std::mem::take(out);
    bytes.clear();
    let mut addition = Addition { bytes, id, listpack: 0, tags_at: None };
    addition.bytes.push(0);
    push_id(&mut addition.bytes, block.last(), id);
    let same = block.has_names(fields);
    if same {
        let tags =
            (block.tags_at() > 0).then(|| &block.0[block.tags_at()..block.tags_at() + fields.len() / 2]);
        push_values(&mut addition, fields, tags);
    } else {
        push_own_fields(&mut addition.bytes, fields);
    }
    count_in_listpack(&mut addition, id.apart(block.first()), fields, same);
    addition
}

/// Sets a flag too, in the first byte.
fn push_own_fields(bytes: &mut Vec<u8>, fields: &[&[u8]]) {
    bytes[0] |= OWN_FIELDS;
    push_number(bytes, (fields.len() / 2) as u64);
    fields.iter().for_each(|text| push_element(bytes, text));
}

/// Sets flags too, in the first byte.
fn push_id(bytes: &mut Vec<u8>, before: StreamId, id: StreamId) {
    let later_ms = id.ms - before.ms;
    if later_ms == 0 && id.seq == before.seq.wrapping_add(1) {
        bytes[0] |= NEXT;
    } else if later_ms == 0 {
        push_number(bytes, 0);
        push_number(bytes, id.seq - before.seq);
    } else {
        push_number(bytes, later_ms);
        if id.seq == 0 {
            bytes[0] |= NUMBER_ZERO;
        } else {
            push_number(bytes, id.seq);
        }
    }
}

fn push_values(addition: &mut Addition, fields: &[&[u8]], last_tags: Option<&[u8]>) {
    push_texts(addition, fields.iter().skip(1).step_by(2).copied(), last_tags);
}

fn push_texts<'t>(
    addition: &mut Addition,
    texts: impl Iterator<Item = &'t [u8]> + Clone,
    last_tags: Option<&[u8]>,
) {
    let tags_at = addition.bytes.len();
    let values = || texts.clone().map(|value| Coded::element(Element::of(value)));
    addition.bytes.extend(values().map(|coded| coded.tag()));
    if last_tags == Some(&addition.bytes[tags_at..]) {
        addition.bytes.truncate(tags_at);
        addition.bytes[0] |= SAME_TAGS;
    } else {
        addition.tags_at = Some(tags_at);
    }
    values().for_each(|coded| push_data(&mut addition.bytes, &coded));
}

/// `apart`: the difference to the block's first id.
fn count_in_listpack(addition: &mut Addition, apart: StreamId, fields: &[&[u8]], same: bool) {
    let number = number_bytes;
    let count = (fields.len() / 2) as u64;
    let texts = |from: usize, step: usize| -> u64 {
        fields.iter().skip(from).step_by(step).map(|text| entry_bytes(Element::of(text))).sum()
    };
    let common = number(0) + number(apart.ms) + number(apart.seq);
    addition.listpack += common
        + if same {
            texts(1, 2) + number(count + 3)
        } else {
            number(count) + texts(0, 1) + number(2 * count + 4)
        };
}

/// Returns the bytes of a number in Valkey's block.
fn number_bytes(number: u64) -> u64 {
    entry_bytes(Element::Int(number as i64))
}

fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn set_u32(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn set_id(block: &mut [u8], at: usize, id: StreamId) {
    block[at..at + 8].copy_from_slice(&id.ms.to_le_bytes());
    block[at + 8..at + 16].copy_from_slice(&id.seq.to_le_bytes());
}

/// Notes the bytes of its node.
pub(super) fn set_room(block: &mut [u8]) {
    let room = (block.len() as u16).to_le_bytes();
    block[10..12].copy_from_slice(&room);
}

/// Makes an empty block of the bytes after the common head.
pub(super) fn init(block: &mut [u8], first: StreamId) {
    block[SHARED_HEAD_BYTES..HEAD_BYTES].fill(0);
    set_u32(block, 24, HEAD_BYTES as u32);
    set_id(block, 32, first);
    set_id(block, 48, first);
}

/// Writes an addition after the bytes in use; there is room for it.
pub(super) fn append(block: &mut [u8], addition: &Addition) {
    let view = Block(block);
    let (used, live, listpack) = (view.used(), view.live(), view.listpack());
    block[used..used + addition.bytes.len()].copy_from_slice(&addition.bytes);
    if let Some(at) = addition.tags_at {
        set_u32(block, 28, (used + at) as u32);
    }
    set_u32(block, 12, live + 1);
    set_u32(block, 20, listpack.saturating_add(saturated(addition.listpack)));
    set_u32(block, 24, (used + addition.bytes.len()) as u32);
    set_id(block, 48, addition.id);
}

/// Marks the entry that begins at `start` as deleted.
pub(super) fn delete(block: &mut [u8], start: usize) {
    let view = Block(block);
    let (live, deleted) = (view.live(), view.deleted());
    debug_assert_eq!(block[start] & DELETED, 0);
    block[start] |= DELETED;
    set_u32(block, 12, live - 1);
    set_u32(block, 16, deleted + 1);
}
