//! New keys with short values, gathered by slot while they come in any order, so that each slot is built at
//! once.
//!
//! ```text
//!   keys of a file, in the order of their hashes elsewhere
//!        |  add: as entries, into the group of 16 slots that they belong to                        one line written each
//!        v
//!   group   [chunk 288 B][chunk 288 B][576 B] ... [64 KB]            1024 groups; none lies in two partitions
//!        |  build: sorted by slot and page, copied into pages of their final size                  all of it in the cache
//!        v
//!   slots
//!
//!   record  [place in the group, bit 7: a stamp follows][stamp u16][bytes u8][entry]
//! ```
//! A key that is inserted by itself touches four lines of memory that nothing near it in time touches; here
//! it is written to one of 1024 places. The gathered keys take as much memory as they will in pages, and go
//! as the pages come.
//!
//! A key comes once, as in an RDB file, or again and again, as in a log: then its last value counts
//! (`repeats`).
//!
//! **Invariants.** A record is an entry with its value in it. Of a group's chunks all but the last have no
//! room for the record that came next.

mod repeats;

use crate::access::keyspace::Keyspace;
use crate::access::partition::Partition;
use crate::access::prefetch::{Intent, PREFETCH_KEYS_MAX};
use crate::layout::entry::{Draft, EntryBytes, Place, Plan, read_int};
use crate::layout::key::{Key, KeyHasher};
use crate::layout::kind::{Db, Expiry, Form, Full, NewValue};
use crate::layout::last_used::{AccessMode, AccessNote};
use crate::layout::page;
use crate::tables::geometry::Geometry;
use crate::tables::table::build::{BuildRoom, NewEntry, NotBuilt};
use isotherm_stdx::{Slot, UnixMs};

/// Neighbours in the order of SCAN.
const SLOTS_PER_GROUP: usize = 16;
/// Number of groups.
pub const STAGED_GROUPS: usize = Slot::COUNT / SLOTS_PER_GROUP;
/// The most partitions that there can be: a group lies in one.
const _: () = assert!(STAGED_GROUPS >= 1024);

/// The longest record fits.
const CHUNK_BYTES_MIN: usize = 288;
const CHUNK_BYTES_MAX: usize = 64 << 10;
/// A group with more than this, and with more than `SKEW` times its share, is built before others: keys of
/// one hash tag.
const GROUP_BYTES_MAX: u64 = 1 << 20;
const SKEW: u64 = 8;

const HAS_STAMP: u8 = 0x80;
const RECORD_BYTES_MAX: usize = 1 + 2 + 1 + page::ENTRY_BYTES_MAX;
const _: () = assert!(RECORD_BYTES_MAX <= CHUNK_BYTES_MIN);

/// Keys that are inserted one by one under one lock.
const INSERTS_PER_HOLD: usize = 8 * PREFETCH_KEYS_MAX;

/// Meaning of a key that comes a second time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeats {
    /// Damage: a file has each key once.
    Refused,
    /// A change: the last value counts.
    LastCounts,
}

/// The keys of one database that were gathered.
pub struct Staging {
    db: Db,
    access: AccessMode,
    now: UnixMs,
    repeats: Repeats,
    hasher: KeyHasher,
    groups: Box<[Group]>,
    bytes: u64,
    sorted: Sorted,
    skewed: Vec<usize>,
}

/// A line of memory.
#[derive(Default)]
#[repr(align(64))]
struct Group {
    /// The chunk that is filled.
    open: Vec<u8>,
    full: Vec<Vec<u8>>,
    bytes: u64,
    /// Bytes above which the group is looked through for repeats. 0 stands for the fewest bytes for which
    /// that is worth it.
    bytes_max: u64,
}

const _: () = assert!(size_of::<Group>() == 64);

/// Records gathered for 16 slots.
pub struct StagedGroup {
    db: Db,
    number: usize,
    repeats: Repeats,
    chunks: Vec<Vec<u8>>,
}

/// Why keys could not be built; some of them may be there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildError {
    Full,
    /// Two keys of this name, or it was there already.
    Repeated(Vec<u8>),
}

impl From<Full> for BuildError {
    fn from(_: Full) -> BuildError {
        BuildError::Full
    }
}

/// A string that is to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewString<'a> {
    pub key: &'a [u8],
    pub text: &'a [u8],
    pub expiry: Option<UnixMs>,
    pub note: Option<AccessNote>,
}

/// Numbers of keys in the order of their groups.
#[derive(Default)]
struct Sorted {
    spreads: Vec<u16>,
    begins: Vec<u32>,
    /// The slot's place in the order of SCAN, and the key's number.
    order: Vec<(u16, u32)>,
}

impl Sorted {
    fn sort(&mut self, count: usize, spread: impl Fn(usize) -> usize) {
        let Sorted { spreads, begins, order } = self;
        begins.clear();
        begins.resize(STAGED_GROUPS, 0);
        spreads.clear();
        spreads.extend((0..count).map(|number| spread(number) as u16));
        spreads.iter().for_each(|&spread| begins[usize::from(spread) / SLOTS_PER_GROUP] += 1);
        let mut begin = 0;
        begins.iter_mut().for_each(|count| begin += std::mem::replace(count, begin));
        order.clear();
        order.resize(count, (0, 0));
        for (number, &spread) in spreads.iter().enumerate() {
            let next = &mut begins[usize::from(spread) / SLOTS_PER_GROUP];
            order[*next as usize] = (spread, number as u32);
            *next += 1;
        }
    }
}

impl Staging {
    /// Makes an empty staging for keys that count as used at `now`.
    pub fn new(keyspace: &Keyspace, db: Db, now: UnixMs, repeats: Repeats) -> Staging {
        let groups = (0..STAGED_GROUPS).map(|_| Group::default()).collect();
        Staging {
            db,
            access: keyspace.access(),
            now,
            repeats,
            hasher: keyspace.hasher(),
            groups,
            bytes: 0,
            sorted: Sorted::default(),
            skewed: Vec::new(),
        }
    }

    pub fn db(&self) -> Db {
        self.db
    }

    /// Returns the bytes of the records.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether a string of `text_bytes` can be gathered: it will lie in a page next to its key.
    #[inline]
    pub fn takes(key_bytes: usize, text_bytes: usize) -> bool {
        Plan::new(key_bytes, text_bytes, false).place == Place::Inline
    }

    /// Gathers `count` strings, each of which it `takes`, group by group: the memory of a group is fetched
    /// once for all of its keys. Returns the groups that are to be built now (`take`), because they have far
    /// more than their share.
    pub fn add<'a>(&mut self, count: usize, string: impl Fn(usize) -> NewString<'a>) -> &[usize] {
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.sort(count, |number| Geometry::spread(Slot::of_key(string(number).key)));
        self.skewed.clear();
        for &(spread, number) in &sorted.order {
            self.add_one(usize::from(spread), &string(number as usize));
        }
        self.sorted = sorted;
        &self.skewed
    }

    #[inline]
    fn add_one(&mut self, spread: usize, string: &NewString<'_>) {
        let NewString { key, text, expiry, note } = *string;
        assert!(Staging::takes(key.len(), text.len()), "Gathering::takes and staged::string ask it before");
        let draft = Draft::inline(key, NewValue::encode(text), expiry);
        let (number, place) = (spread / SLOTS_PER_GROUP, (spread % SLOTS_PER_GROUP) as u8);
        let stamp = note.and_then(|note| note.stamp(self.access, self.now));
        let group = &mut self.groups[number];
        self.bytes += group.push(place, stamp, draft.as_bytes());
        if self.repeats == Repeats::LastCounts && group.bytes > group.bytes_max {
            self.thin(number);
        }
        let group = &self.groups[number];
        let share = self.bytes / STAGED_GROUPS as u64;
        if group.bytes > GROUP_BYTES_MAX.max(SKEW * share) && self.skewed.last() != Some(&number) {
            self.skewed.push(number);
        }
    }

    /// Takes out what was gathered for a group.
    pub fn take(&mut self, number: usize) -> StagedGroup {
        let group = std::mem::take(&mut self.groups[number]);
        self.bytes -= group.bytes;
        let mut chunks = group.full;
        chunks.extend((!group.open.is_empty()).then_some(group.open));
        StagedGroup { db: self.db, number, repeats: self.repeats, chunks }
    }

    /// The group that a key is gathered in.
    pub fn group_of(slot: Slot) -> usize {
        Geometry::spread(slot) / SLOTS_PER_GROUP
    }
}

impl Group {
    /// Appends a record. Returns its length.
    #[inline]
    fn push(&mut self, place: u8, stamp: Option<u16>, entry: &[u8]) -> u64 {
        let bytes = 2 + entry.len() + stamp.map_or(0, |_| 2);
        let chunk = self.chunk(bytes);
        match stamp {
            None => chunk.push(place),
            Some(stamp) => {
                chunk.push(place | HAS_STAMP);
                chunk.extend_from_slice(&stamp.to_le_bytes());
            }
        }
        chunk.push(entry.len() as u8);
        chunk.extend_from_slice(entry);
        self.bytes += bytes as u64;
        bytes as u64
    }

    /// Returns a chunk with room for a record of `bytes` bytes.
    #[inline]
    fn chunk(&mut self, bytes: usize) -> &mut Vec<u8> {
        if self.open.capacity() - self.open.len() < bytes {
            self.add_chunk();
        }
        &mut self.open
    }

    /// Opens a chunk as large as all chunks before it together, within limits: small files take little
    /// memory.
    #[cold]
    fn add_chunk(&mut self) {
        let bytes = (self.bytes as usize).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let full = std::mem::replace(&mut self.open, Vec::with_capacity(bytes));
        self.full.extend((!full.is_empty()).then_some(full));
    }
}

impl StagedGroup {
    /// Adds the records that another thread has gathered for the same slots.
    pub fn append(&mut self, other: StagedGroup) {
        assert_eq!((self.db, self.number), (other.db, other.number), "they are of the same slots");
        self.chunks.extend(other.chunks);
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the bytes of its memory, roughly.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.capacity() as u64).sum()
    }

    /// The entries of each of its slots.
    fn by_slot(&self, hasher: KeyHasher) -> [Vec<NewEntry<'_>>; SLOTS_PER_GROUP] {
        let mut slots: [Vec<NewEntry<'_>>; SLOTS_PER_GROUP] = Default::default();
        for Record { place, access, bytes } in self.chunks.iter().flat_map(|chunk| Records(chunk)) {
            let key = bytes.inline_key().expect("the key of an entry with its value lies in it");
            slots[usize::from(place)].push(NewEntry { hash: hasher.hash(key), bytes, access });
        }
        slots
    }
}

struct Record<'c> {
    /// The slot's place in its group.
    place: u8,
    access: Option<u16>,
    bytes: EntryBytes<'c>,
}

/// The records of a chunk.
struct Records<'c>(&'c [u8]);

impl<'c> Iterator for Records<'c> {
    type Item = Record<'c>;

    #[inline]
    fn next(&mut self) -> Option<Record<'c>> {
        let (&place, behind) = self.0.split_first()?;
        let (access, behind) = match (place & HAS_STAMP != 0, behind) {
            (true, [low, high, behind @ ..]) => (Some(u16::from_le_bytes([*low, *high])), behind),
            _ => (None, behind),
        };
        let (&len, behind) = behind.split_first().expect("a record is whole");
        let (entry, behind) = behind.split_at(usize::from(len));
        self.0 = behind;
        Some(Record { place: place & !HAS_STAMP, access, bytes: EntryBytes(entry) })
    }
}

/// Room that building takes, kept from group to group.
#[derive(Default)]
pub struct Builder {
    room: BuildRoom,
}

impl Keyspace {
    /// Stores keys that were gathered, one slot a hold. None of them may be there: clients see nothing of the
    /// database.
    pub fn build(&self, group: &StagedGroup, builder: &mut Builder, now: UnixMs) -> Result<(), BuildError> {
        for (place, entries) in group.by_slot(self.hasher()).iter_mut().enumerate() {
            if !entries.is_empty() {
                let spread = group.number * SLOTS_PER_GROUP + place;
                self.build_slot(group.db, spread, entries, group.repeats, builder, now)?;
            }
        }
        Ok(())
    }

    fn build_slot(
        &self,
        db: Db,
        spread: usize,
        entries: &mut Vec<NewEntry<'_>>,
        repeats: Repeats,
        builder: &mut Builder,
        now: UnixMs,
    ) -> Result<(), BuildError> {
        let mut built = self.try_build_slot(db, spread, entries, builder, now);
        if repeats == Repeats::LastCounts && matches!(built, Err(NotBuilt::Repeated(_) | NotBuilt::Unsuited))
        {
            repeats::keep_last(entries);
            built = self.try_build_slot(db, spread, entries, builder, now);
        }
        match built {
            Ok(()) => Ok(()),
            Err(NotBuilt::Full) => Err(BuildError::Full),
            Err(NotBuilt::Repeated(at)) => Err(BuildError::Repeated(entries[at].key().to_vec())),
            Err(NotBuilt::Unsuited) => {
                // Page by page.
                entries.sort_unstable_by_key(|entry| (entry.hash as u32).reverse_bits());
                let (slot, number) = (Geometry::slot_at(spread), self.geometry.partition_of_spread(spread));
                entries
                    .chunks(INSERTS_PER_HOLD)
                    .try_for_each(|some| self.insert_each(db, slot, number, some, now))
            }
        }
    }

    fn try_build_slot(
        &self,
        db: Db,
        spread: usize,
        entries: &[NewEntry<'_>],
        builder: &mut Builder,
        now: UnixMs,
    ) -> Result<(), NotBuilt> {
        let (number, place) =
            (self.geometry.partition_of_spread(spread), self.geometry.place_of_spread(spread));
        let mut partition = self.lock(number);
        partition.make_table(db)?;
        let (table, store) = partition.table_and_store(db).expect("the table is there");
        let built = table.build_slot(store, place, entries, &mut builder.room, now);
        partition.drop_table_if_empty(db);
        built
    }

    fn insert_each(
        &self,
        db: Db,
        slot: Slot,
        number: u16,
        entries: &[NewEntry<'_>],
        now: UnixMs,
    ) -> Result<(), BuildError> {
        for some in entries.chunks(PREFETCH_KEYS_MAX) {
            let keys: Vec<_> =
                some.iter().map(|entry| Key { bytes: entry.key(), slot, hash: entry.hash }).collect();
            let intents: Vec<_> = keys.iter().map(|key| (key, Intent { adds: true, moves: false })).collect();
            self.prefetch(db, &intents);
            let mut partition = self.lock(number);
            for (key, entry) in keys.iter().zip(some) {
                insert_entry(&mut partition, db, key, entry, now)?;
            }
        }
        Ok(())
    }
}

/// Stores an entry whose key is absent.
fn insert_entry(
    partition: &mut Partition,
    db: Db,
    key: &Key<'_>,
    entry: &NewEntry<'_>,
    now: UnixMs,
) -> Result<(), BuildError> {
    let location = partition.locate(db, key);
    if location.as_ref().is_some_and(|location| location.spot.is_some()) {
        return Err(BuildError::Repeated(key.bytes.to_vec()));
    }
    let tail = entry.bytes.tail();
    let value = match entry.bytes.form() {
        Form::Int => NewValue::Int(read_int(tail)),
        Form::Bytes => NewValue::Bytes(tail),
        form => unreachable!("a {form:?} is not gathered"),
    };
    let expiry = entry.bytes.expiry().map_or(Expiry::Clear, Expiry::At);
    partition.set_at(db, location, key, value, expiry, now)?;
    if let Some(stamp) = entry.access
        && let Some((page, spot)) = partition.find(db, key)
    {
        page::set_access(partition.store.heap.page_mut(page), spot.index, stamp);
    }
    Ok(())
}
