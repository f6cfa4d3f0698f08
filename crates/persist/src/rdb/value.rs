//! A value between the formats: owned, checked, and laid out for being walked once.
//!
//! ```text
//! Texts     bytes  [apple][pear][plum] ...          all texts of a value in one buffer
//!           ends   [5][9][13] ...                   8 B each
//!
//! stream    names  [f1][f2] ...                     of each node once, and of each entry that has others
//!           values [v][v][v] ...
//!           nodes  [where its names begin, how many, where its entries end]
//!           entries[id, where its names begin, where its values begin, how many pairs]
//! ```
//!
//! Nodes of a stream stay as they came, because their entries share names: a megabyte of a name under a
//! hundred thousand tiny entries stays a megabyte here, where it is loaded, and when it is written again.

use std::collections::HashSet;

use isotherm_stdx::number;

/// Byte strings, one after the other.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn push(&mut self, text: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(text));
    }

    pub fn push_integer(&mut self, value: i64) {
        self.push_with(|bytes| number::push_i64(bytes, value));
    }

    /// Adds what `write` appends as one text.
    pub(crate) fn push_with<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let written = write(&mut self.bytes);
        self.ends.push(self.bytes.len());
        written
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator + Clone {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Texts two by two: fields and values.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        (0..self.len() / 2).map(|index| (self.get(2 * index), self.get(2 * index + 1)))
    }

    /// Together, without the ends.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// True if two of the texts 0, `stride`, 2 `stride` ... are equal.
    pub(crate) fn repeats(&self, stride: usize) -> bool {
        let mut seen = HashSet::with_capacity(self.len() / stride);
        (0..self.len()).step_by(stride).any(|index| !seen.insert(self.get(index)))
    }

    fn check_invariants(&self) {
        assert!(self.ends.is_sorted());
        assert_eq!(self.ends.last().copied().unwrap_or(0), self.bytes.len());
    }
}

impl<'a> FromIterator<&'a [u8]> for Texts {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(texts: I) -> Texts {
        let mut all = Texts::default();
        texts.into_iter().for_each(|text| all.push(text));
        all
    }
}

impl std::fmt::Debug for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|text| text.escape_ascii().to_string())).finish()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum RdbValue {
    String(Vec<u8>),
    List(Texts),
    /// Members, none twice.
    Set(Texts),
    Zset(ZsetMembers),
    Hash {
        /// Field, value, field, value; no field twice.
        pairs: Texts,
        /// Per field in Unix milliseconds, -1 for never; empty if no field expires.
        expiries_ms: Vec<i64>,
    },
    Stream(Box<RdbStream>),
}

/// Members, none twice, in whatever order they came. No score is NaN.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZsetMembers {
    pub members: Texts,
    pub scores: Vec<f64>,
}

impl ZsetMembers {
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], f64)> + ExactSizeIterator {
        self.members.iter().zip(self.scores.iter().copied())
    }
}

/// Encoding of a collection in a Valkey server. DUMP writes the collection in this encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Element by element: hashtable, skiplist, quicklist.
    Plain,
    Listpack,
    Intset,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> StreamId {
        let both = u128::from_be_bytes(bytes);
        StreamId { ms: (both >> 64) as u64, seq: both as u64 }
    }
}

#[derive(Clone, Debug, Default)]
pub struct RdbStream {
    pub(crate) names: Texts,
    pub(crate) values: Texts,
    pub(crate) nodes: Vec<StreamNode>,
    pub(crate) entries: Vec<StreamEntry>,
    /// Summary of the entries before these, in a stream that is read in pieces.
    pub(crate) before: StreamBefore,
    pub last_id: StreamId,
    /// The largest id that was ever deleted; 0-0 if none was.
    pub max_deleted_id: StreamId,
    pub entries_added: u64,
    pub groups: Vec<Group>,
}

/// Entries of one stream that an earlier piece had.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamBefore {
    pub entries: u64,
    pub first: StreamId,
    pub last: StreamId,
}

/// State of a stream in addition to its entries and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamCounters {
    pub length: u64,
    pub last_id: StreamId,
    pub first_id: StreamId,
    pub max_deleted_id: StreamId,
    pub entries_added: u64,
}

/// Entries that share the names of their fields, or have some of their own. There is at least one.
#[derive(Clone, Copy, Debug)]
pub struct StreamNode {
    pub(crate) names_at: usize,
    pub(crate) fields: usize,
    pub(crate) entries_end: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct StreamEntry {
    pub id: StreamId,
    pub(crate) names_at: usize,
    pub(crate) values_at: usize,
    pub(crate) pairs: usize,
}

impl StreamEntry {
    /// Returns whether the entry's names are those of its node.
    pub fn shares_names(&self, node: &StreamNode) -> bool {
        self.names_at == node.names_at && self.pairs == node.fields
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    pub name: Vec<u8>,
    pub last_id: StreamId,
    /// -1 if it is not known.
    pub entries_read: i64,
    /// Rising by id.
    pub pending: Vec<Pending>,
    /// Consumers, ordered by name.
    pub consumers: Vec<Consumer>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pending {
    pub id: StreamId,
    /// Index of the group's consumer that has the entry.
    pub consumer: usize,
    pub delivered_ms: i64,
    pub deliveries: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consumer {
    pub name: Vec<u8>,
    pub seen_ms: i64,
    /// -1 if it never read anything.
    pub active_ms: i64,
}

/// Compares the content: which entries share their names makes no difference.
impl PartialEq for RdbStream {
    fn eq(&self, other: &RdbStream) -> bool {
        let entries = |a: &StreamEntry, b: &StreamEntry| a.id == b.id && self.pairs(a).eq(other.pairs(b));
        self.counters() == other.counters()
            && self.groups == other.groups
            && self.entries.iter().zip(&other.entries).all(|(a, b)| entries(a, b))
    }
}

impl RdbStream {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of entries, those of earlier pieces included.
    pub(crate) fn entries_so_far(&self) -> u64 {
        self.before.entries + self.entries.len() as u64
    }

    /// The entry that the next one has to follow.
    pub(crate) fn last_so_far(&self) -> Option<StreamId> {
        let before = (self.before.entries > 0).then_some(self.before.last);
        self.entries.last().map(|entry| entry.id).or(before)
    }

    /// Forgets the entries, which were handed out: the next piece begins.
    pub(crate) fn begin_piece(&mut self) {
        let last = self.last_so_far().unwrap_or_default();
        self.before = StreamBefore { entries: self.entries_so_far(), first: self.first_id(), last };
        self.names.truncate(0);
        self.values.truncate(0);
        self.nodes.clear();
        self.entries.clear();
    }

    /// Rising by id.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &StreamEntry> + ExactSizeIterator {
        self.entries.iter()
    }

    pub fn pairs(&self, entry: &StreamEntry) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        let StreamEntry { names_at, values_at, pairs, .. } = *entry;
        (0..pairs).map(move |index| (self.names.get(names_at + index), self.values.get(values_at + index)))
    }

    pub fn first_id(&self) -> StreamId {
        if self.before.entries > 0 {
            return self.before.first;
        }
        self.entries.first().map_or(StreamId::default(), |entry| entry.id)
    }

    pub fn counters(&self) -> StreamCounters {
        StreamCounters {
            length: self.entries_so_far(),
            last_id: self.last_id,
            first_id: self.first_id(),
            max_deleted_id: self.max_deleted_id,
            entries_added: self.entries_added,
        }
    }

    /// Nodes and their entries.
    pub fn nodes(&self) -> impl Iterator<Item = (&StreamNode, &[StreamEntry])> {
        let mut start = 0;
        self.nodes.iter().map(move |node| {
            let entries = &self.entries[start..node.entries_end];
            start = node.entries_end;
            (node, entries)
        })
    }

    /// The names that entries of a node share.
    pub fn names(&self, node: &StreamNode) -> impl ExactSizeIterator<Item = &[u8]> {
        (node.names_at..node.names_at + node.fields).map(|index| self.names.get(index))
    }

    /// The values of an entry, in the order of its names.
    pub fn values(&self, entry: &StreamEntry) -> impl ExactSizeIterator<Item = &[u8]> {
        (entry.values_at..entry.values_at + entry.pairs).map(|index| self.values.get(index))
    }

    fn check_invariants(&self) {
        self.names.check_invariants();
        self.values.check_invariants();
        assert!(self.entries.is_sorted_by(|a, b| a.id < b.id));
        assert!(self.entries.last().is_none_or(|last| last.id <= self.last_id));
        assert!(self.entries_added >= self.entries.len() as u64);
        assert_eq!(self.nodes.last().map_or(0, |node| node.entries_end), self.entries.len());
        assert!(self.nodes.is_sorted_by(|a, b| a.entries_end < b.entries_end));
        assert!(self.nodes.iter().all(|node| node.names_at + node.fields <= self.names.len()));
        for entry in &self.entries {
            assert!(entry.pairs > 0);
            assert!(entry.names_at + entry.pairs <= self.names.len());
            assert!(entry.values_at + entry.pairs <= self.values.len());
        }
        assert!(self.groups.is_sorted_by(|a, b| a.name < b.name));
        for group in &self.groups {
            assert!(group.consumers.is_sorted_by(|a, b| a.name < b.name));
            assert!(group.pending.is_sorted_by(|a, b| a.id < b.id));
            assert!(group.pending.iter().all(|pending| pending.consumer < group.consumers.len()));
        }
    }
}

impl RdbValue {
    /// Asserts what holds for every decoded value.
    pub fn check_invariants(&self) {
        match self {
            RdbValue::String(_) => {}
            RdbValue::List(texts) => {
                texts.check_invariants();
                assert!(!texts.is_empty());
            }
            RdbValue::Set(members) => {
                members.check_invariants();
                assert!(!members.is_empty() && !members.repeats(1));
            }
            RdbValue::Zset(zset) => {
                zset.members.check_invariants();
                assert!(!zset.members.is_empty() && !zset.members.repeats(1));
                assert_eq!(zset.members.len(), zset.scores.len());
                assert!(zset.scores.iter().all(|score| !score.is_nan()));
            }
            RdbValue::Hash { pairs, expiries_ms } => {
                pairs.check_invariants();
                assert!(!pairs.is_empty() && pairs.len().is_multiple_of(2) && !pairs.repeats(2));
                assert!(expiries_ms.is_empty() || expiries_ms.len() == pairs.len() / 2);
                assert!(expiries_ms.iter().all(|&expiry_ms| expiry_ms >= -1));
                assert!(expiries_ms.is_empty() || expiries_ms.iter().any(|&expiry_ms| expiry_ms != -1));
            }
            RdbValue::Stream(stream) => stream.check_invariants(),
        }
    }
}
