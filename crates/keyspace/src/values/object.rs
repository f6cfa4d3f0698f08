//! Large collections, known by number.
//!
//! ```text
//!   entry [.. ref = number ..] -> objects[number] -> Root { home, key, .., body } -> nodes in the arena
//!   node  [number u32][id u32] ...                   so compaction finds the one reference to it: in its object
//! ```
//!
//! A root lies in the global allocator and never moves; entries name it by number, so an entry may move as it
//! likes. The pages of hashes and sets are the exception to the node's head: they keep the number after their
//! columns.
//!
//! A removed object is **pending free**: it cannot be found any more, and cron frees it, some nodes at a
//! time. One that a snapshot has yet to emit waits until it has been emitted.

use crate::accounting::tally::{Class, Tallied};
use crate::layout::kind::{Encoding, Form, Full};
use crate::layout::pile::Pile;
use crate::layout::record::{Units, bound_of, is_due};
use crate::values::fields::Fields;
use crate::values::kept::KeptAccount;
use crate::values::list::List;
use crate::values::nodewise::Nodewise;
use crate::values::parts::Outline;
use crate::values::receiver::Receiver;
use crate::values::store::Store;
use crate::values::stream::Stream;
use crate::values::zset::ZsetTree;
use isotherm_arena::{Handle, prefetch_value};
use isotherm_stdx::UnixMs;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A removed object of no more elements is freed at once: some 60 pages, 5 us. Eviction counts on that for
/// most.
pub(crate) const FREED_AT_ONCE_MAX: u64 = 1000;
/// Elements up to which a removed object is freed at once where a whole page of keys leaves in one hold: one
/// page of elements each.
pub(crate) const FREED_AT_ONCE_MAX_BY_EXPIRY: u64 = 16;

const CHUNK: usize = 1024;
/// Bytes of a root and its place in the table.
pub(crate) const ROOT_BYTES: u64 = size_of::<Root>() as u64 + 8;

/// Operations of every large collection, whatever it is made of. No method but `away_nodes` has a default: a
/// type that lacks one does not compile, instead of missing from snapshots, copies or what is freed.
pub(crate) trait Structure {
    /// Elements: fields, members, entries.
    fn len(&self) -> u64;
    /// Bytes of its nodes, rounded up to their classes, and of what it has of the global allocator.
    fn memory_bytes(&self) -> u64;
    /// Returns the memory in parts, for memory accounting.
    fn footprint(&self) -> Footprint;
    fn encoding(&self) -> Encoding;
    /// Nodes of a list, blocks of a stream; 0 of others.
    fn nodes(&self) -> u64;
    /// Moves its node `id`, which lies at `handle`, to another place (`heap.reallocate` with its own size),
    /// and notes the new one. Returns false if it stays.
    fn relocate(&mut self, store: &mut Store, id: u32, handle: Handle) -> bool;
    /// Frees about `nodes_max` nodes. Returns true when nothing is left.
    fn free_step(&mut self, store: &mut Store, nodes_max: usize) -> bool;
    /// Makes a copy under another number. On an error nothing is left of it.
    fn duplicate(&self, store: &mut Store, number: u32) -> Result<Object, Full>;
    /// Makes a copy in another store than its own, which is `from`.
    fn duplicate_from(&self, from: &Store, store: &mut Store, number: u32) -> Result<Object, Full>;
    /// Sets whether every node is saved before its first change from now on.
    fn set_saving(&mut self, saving: bool);
    /// Emits a node at most as it was at the cut, saved or not changed since, and stamps it with
    /// `store.snapshot.version()`. `cursor` is 0 at first and then what the last call left. Returns true when
    /// all is emitted.
    fn emit_step(&mut self, store: &mut Store, cursor: &mut u64, receiver: &mut dyn Receiver) -> bool;
    /// Drops about `nodes_max` nodes of what it keeps for a snapshot that ended before it had emitted them.
    /// Returns true when nothing is left of that.
    fn forget_step(&mut self, store: &mut Store, nodes_max: usize) -> bool;
    /// Bytes that it keeps for a snapshot besides those that it counts as its own.
    fn kept_bytes(&self) -> u64;
    /// Returns the number of parts that have to be freed one by one: its elements, and whatever else it has
    /// in such numbers.
    fn parts(&self) -> u64;
    /// Returns whether something was cut off it that is still to be freed.
    fn has_garbage(&self) -> bool;
    /// Frees about `nodes_max` nodes of what was cut off it. Returns true when nothing is left of that.
    fn sweep_step(&mut self, store: &mut Store, nodes_max: usize) -> bool;
    /// Returns the number of its nodes that are not in memory.
    fn away_nodes(&self) -> u64 {
        0
    }
    /// Asserts its invariants; how many objects of the arena it has.
    fn check_invariants(&self, store: &Store, number: u32) -> u64;
    /// Returns the number of large bodies of the store that are its own.
    fn large_bodies(&self, store: &Store) -> u64;
}

/// Bytes of objects by their place, without their nodes and large elements: the arena knows nodes by their
/// kind, and large elements have accounts of their own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Footprint {
    /// Bytes in use in pages of the arena (hashes and sets).
    pub page_bytes: u64,
    /// Bytes of the global allocator: roots and tables.
    pub malloc_bytes: u64,
    /// Kept for a snapshot.
    pub kept_bytes: u64,
}

impl Footprint {
    fn exchange(&mut self, old: Footprint, new: Footprint) {
        self.page_bytes = self.page_bytes + new.page_bytes - old.page_bytes;
        self.malloc_bytes = self.malloc_bytes + new.malloc_bytes - old.malloc_bytes;
        self.kept_bytes = self.kept_bytes + new.kept_bytes - old.kept_bytes;
    }
}

pub(crate) enum Object {
    Hash(Fields),
    Set(Fields),
    Zset(ZsetTree),
    List(List),
    Stream(Stream),
}

impl Object {
    pub fn structure(&self) -> &dyn Structure {
        match self {
            Object::Hash(fields) | Object::Set(fields) => fields,
            Object::Zset(zset) => zset,
            Object::List(list) => list,
            Object::Stream(stream) => stream,
        }
    }

    pub fn structure_mut(&mut self) -> &mut dyn Structure {
        match self {
            Object::Hash(fields) | Object::Set(fields) => fields,
            Object::Zset(zset) => zset,
            Object::List(list) => list,
            Object::Stream(stream) => stream,
        }
    }

    /// Returns the collection as nodes that leave memory one by one.
    pub fn nodewise(&self) -> &dyn Nodewise {
        match self {
            Object::Hash(fields) | Object::Set(fields) => fields,
            Object::Zset(zset) => zset,
            Object::List(list) => list,
            Object::Stream(stream) => stream,
        }
    }

    pub fn nodewise_mut(&mut self) -> &mut dyn Nodewise {
        match self {
            Object::Hash(fields) | Object::Set(fields) => fields,
            Object::Zset(zset) => zset,
            Object::List(list) => list,
            Object::Stream(stream) => stream,
        }
    }

    pub fn form(&self) -> Form {
        match self {
            Object::Hash(_) => Form::Hash,
            Object::Set(_) => Form::Set,
            Object::Zset(_) => Form::Zset,
            Object::List(_) => Form::List,
            Object::Stream(_) => Form::Stream,
        }
    }
}

pub(crate) struct Root {
    /// The hash and slot of its key, as in front of a blob: where to look for the entry.
    pub home: u64,
    /// The key, if it does not lie in the page.
    pub key: Option<Box<[u8]>>,
    /// Entries that name it: two for a moment while it is renamed.
    pub references: u8,
    /// The last snapshot that emitted it, or saw its birth.
    pub seen: u8,
    /// Outline at the cut of the snapshot under way, once the object has changed since.
    pub cut: Option<Outline>,
    /// Account that the object's slot and table count for it.
    pub tallied: Tallied,
    /// Footprint that `Objects` counts for the object.
    footprint: Footprint,
    /// True if the table counts the object among the hashes that have fields with a time.
    pub timed: bool,
    /// Removed, and counted in `LazyFrees`.
    pub is_lazy: bool,
    pub body: Object,
}

impl Root {
    /// Makes the root of an object that no entry names yet: it is counted nowhere.
    pub fn new(body: Object, seen: u8) -> Box<Root> {
        let tallied = Tallied {
            class: Class::new(body.form().kind(), body.structure().encoding()),
            units: Units::default(),
            items: 0,
        };
        Box::new(Root {
            home: 0,
            key: None,
            references: 0,
            seen,
            cut: None,
            tallied,
            footprint: Footprint::default(),
            timed: false,
            is_lazy: false,
            body,
        })
    }

    /// Returns the account that is to be counted for the object.
    pub fn tally(&self) -> Tallied {
        let structure = self.body.structure();
        Tallied {
            class: Class::new(self.body.form().kind(), structure.encoding()),
            units: Units::of(self.memory_bytes()),
            items: structure.len(),
        }
    }

    /// Returns the effort that Valkey would count to free the object: 1 if it is one piece of memory there.
    pub fn free_effort(&self) -> u64 {
        let structure = self.body.structure();
        match (&self.body, structure.encoding()) {
            (Object::List(_), _) => structure.nodes(),
            (Object::Stream(_), _) => structure.parts(),
            (_, Encoding::Hashtable | Encoding::Skiplist) => structure.len(),
            _ => 1,
        }
    }

    pub fn has_timed_fields(&self) -> bool {
        matches!(&self.body, Object::Hash(fields) if fields.record.volatile > 0)
    }

    /// Returns whether a field of a hash may come due between these moments.
    pub fn has_fields_due(&self, from: UnixMs, to: UnixMs) -> bool {
        let bound = match &self.body {
            Object::Hash(fields) if fields.record.volatile > 0 => fields.record.bound,
            _ => return false,
        };
        bound >= bound_of(from) && is_due(bound, to)
    }

    /// Returns the outline of the object as it is now.
    pub fn outline(&self) -> Outline {
        let structure = self.body.structure();
        Outline {
            kind: self.body.form().kind(),
            encoding: structure.encoding(),
            len: structure.len(),
            nodes: structure.nodes(),
            is_volatile: self.has_timed_fields(),
        }
    }

    fn footprint_now(&self) -> Footprint {
        let structure = self.body.structure();
        let mut footprint = structure.footprint();
        let key = self.key.as_ref().map_or(0, |key| key.len() as u64);
        footprint.malloc_bytes += size_of::<Root>() as u64 + key;
        footprint.kept_bytes = structure.kept_bytes();
        footprint
    }

    pub fn memory_bytes(&self) -> u64 {
        let key = self.key.as_ref().map_or(0, |key| key.len() as u64);
        ROOT_BYTES + key + self.body.structure().memory_bytes()
    }
}

pub(crate) struct Objects {
    chunks: Vec<Box<[Option<Box<Root>>]>>,
    free: Pile<u32>,
    len: u32,
    /// Removed, to be freed.
    pending_free: Pile<u32>,
    /// Removed, but to stay until the snapshot under way has emitted it, or is over.
    kept: BTreeSet<u32>,
    /// Removed before its cut, and to stay until it is over.
    kept_before: Pile<u32>,
    with_garbage: BTreeSet<u32>,
    footprint: Footprint,
    /// Account of the memory that all partitions keep for a snapshot.
    kept_total: Arc<KeptAccount>,
}

impl Objects {
    pub fn new(kept_total: &Arc<KeptAccount>) -> Objects {
        Objects {
            chunks: Vec::new(),
            free: Pile::default(),
            len: 0,
            pending_free: Pile::default(),
            kept: BTreeSet::new(),
            kept_before: Pile::default(),
            with_garbage: BTreeSet::new(),
            footprint: Footprint::default(),
            kept_total: Arc::clone(kept_total),
        }
    }

    #[inline]
    pub fn get(&self, number: u32) -> &Root {
        self.slot(number).as_ref().expect("an entry refers to it")
    }

    pub fn get_mut(&mut self, number: u32) -> &mut Root {
        self.slot_mut(number).as_mut().expect("an entry refers to it")
    }

    /// Takes a root out, to change it along with the store; `put` brings it back.
    #[inline]
    pub fn take(&mut self, number: u32) -> Box<Root> {
        self.slot_mut(number).take().expect("an entry refers to it")
    }

    #[inline]
    pub fn put(&mut self, number: u32, mut root: Box<Root>) {
        self.account(&mut root);
        let old = self.slot_mut(number).replace(root);
        debug_assert!(old.is_none(), "it was taken out");
    }

    #[inline]
    fn account(&mut self, root: &mut Root) {
        let now = root.footprint_now();
        if now != root.footprint {
            self.exchange(root.footprint, now);
            root.footprint = now;
        }
    }

    fn exchange(&mut self, old: Footprint, new: Footprint) {
        self.footprint.exchange(old, new);
        match new.kept_bytes.cmp(&old.kept_bytes) {
            Ordering::Equal => {}
            Ordering::Greater => self.kept_total.add(new.kept_bytes - old.kept_bytes),
            Ordering::Less => self.kept_total.subtract(old.kept_bytes - new.kept_bytes),
        }
    }

    /// Gives an object the key that its entry has no room for, or takes it away.
    pub fn set_key(&mut self, number: u32, key: Option<&[u8]>) {
        let mut root = self.take(number);
        root.key = key.map(Box::from);
        self.put(number, root);
    }

    /// All objects together, removed ones included.
    pub fn footprint(&self) -> Footprint {
        self.footprint
    }

    /// Returns the bytes that the table of numbers and its lists take from the global allocator.
    pub fn table_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Option<Box<Root>>>()
            + self.free.memory_bytes()
            + self.pending_free.memory_bytes()
            + self.kept_before.memory_bytes()
            + (self.kept.len() + self.with_garbage.len()) * size_of::<u32>()
    }

    /// Asks for the line from which `get` reads where a root is.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        prefetch_value(self.slot(number));
    }

    /// A number for a new object; `put` or `give_back` comes next.
    pub fn reserve(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        if self.len as usize == self.chunks.len() * CHUNK {
            self.chunks.push((0..CHUNK).map(|_| None).collect());
        }
        self.len += 1;
        self.len - 1
    }

    pub fn give_back(&mut self, number: u32) {
        debug_assert!(self.slot(number).is_none());
        self.free.push(number);
    }

    /// An entry that named it is gone; whether it was the last. Then the object is pending free, or kept for
    /// a snapshot.
    pub fn release(&mut self, number: u32, keeps: bool) -> bool {
        let root = self.get_mut(number);
        root.references -= 1;
        let is_last = root.references == 0;
        if is_last {
            if keeps {
                self.kept.insert(number);
            } else {
                self.pending_free.push(number);
            }
        }
        is_last
    }

    /// The removed object that is to be freed next: the last one in the list.
    pub fn next_pending_free(&self) -> Option<u32> {
        self.pending_free.last().copied()
    }

    /// A snapshot begins: nodes of what is pending free already carry the epoch before it and would be saved
    /// when they are freed, so they stay.
    pub fn keep_pending_free(&mut self) {
        debug_assert!(self.kept.is_empty() && self.kept_before.is_empty());
        std::mem::swap(&mut self.pending_free, &mut self.kept_before);
    }

    /// The snapshot is over: what was removed before is pending free. `doom_step` has to follow for what it
    /// kept.
    pub fn doom_kept(&mut self) {
        self.pending_free.append(&mut self.kept_before);
    }

    /// Marks up to `objects_max` objects that the last snapshot kept as pending free. No snapshot may be
    /// under way.
    pub fn doom_step(&mut self, objects_max: usize) {
        for _ in 0..objects_max {
            let Some(number) = self.kept.pop_first() else { return };
            self.pending_free.push(number);
        }
    }

    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The snapshot has emitted an object: if it is removed, it is pending free now. Returns whether it is.
    pub fn doom_emitted(&mut self, number: u32) -> bool {
        let is_removed = self.kept.remove(&number);
        if is_removed {
            self.pending_free.push(number);
        }
        is_removed
    }

    pub fn contains(&self, number: u32) -> bool {
        self.slot(number).is_some()
    }

    /// An object that may be gone.
    pub fn find(&self, number: u32) -> Option<&Root> {
        if number < self.len { self.slot(number).as_deref() } else { None }
    }

    /// Numbers given out so far, free ones included.
    pub fn numbers(&self) -> u32 {
        self.len
    }

    /// `next_pending_free` was freed.
    pub fn bury(&mut self) {
        let number = self.pending_free.pop().expect("it is pending free");
        self.with_garbage.remove(&number);
        let gone = self.slot_mut(number).take().expect("it is pending free");
        self.exchange(gone.footprint, Footprint::default());
        self.free.push(number);
    }

    /// Notes and returns whether something is to be freed of it.
    #[inline]
    pub fn note_garbage(&mut self, number: u32) -> bool {
        let has_garbage = self.get(number).body.structure().has_garbage();
        if has_garbage {
            self.with_garbage.insert(number);
        }
        has_garbage
    }

    /// Takes out an object that has something to be freed: it is no longer listed.
    pub fn take_garbage(&mut self) -> Option<u32> {
        self.with_garbage.pop_first()
    }

    pub fn check_invariants(&self) {
        let (mut sum, mut removed) = (Footprint::default(), 0);
        for (_, root) in self.iter() {
            assert_eq!(root.footprint, root.footprint_now());
            sum.exchange(Footprint::default(), root.footprint);
            removed += usize::from(root.references == 0);
        }
        assert_eq!(self.pending_free.len() + self.kept.len() + self.kept_before.len(), removed);
        for &number in self.pending_free.iter().chain(&self.kept).chain(self.kept_before.iter()) {
            assert_eq!(self.get(number).references, 0);
        }
        assert_eq!(self.footprint, sum);
    }

    /// Every object, removed ones included.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Root)> {
        let roots = self.chunks.iter().flat_map(|chunk| chunk.iter()).enumerate();
        roots.filter_map(|(number, root)| Some((number as u32, &**root.as_ref()?)))
    }

    #[inline]
    fn slot(&self, number: u32) -> &Option<Box<Root>> {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    #[inline]
    fn slot_mut(&mut self, number: u32) -> &mut Option<Box<Root>> {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}
