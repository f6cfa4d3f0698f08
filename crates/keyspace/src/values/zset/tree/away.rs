//! Leaves that leave memory one by one, and come back.
//!
//! ```text
//!   payload   the used bytes of the leaf, bare (`node::bare`), without its stamp
//!   stub      0     13             21           23
//!             [head][reference u64][used u16]                32 B, under the leaf's number; the head has its count, and 0 for `used`
//! ```
//! Inner nodes and the index stay, so counts and ranks are known, and which leaf to read. Leaves with long
//! members, and those that would save little, stay too.
//!
//! A search meets a stub (`Away`): a reader notes that, is shown nothing, and runs again when the leaf was
//! read; a writer brings the leaf back to memory first (`at_home`), from the disk if it was not read before.
//! A merge is left for later if that fails.

use super::index::PAGE_MEMBERS;
use super::leaf::{self, Leaf};
use super::long::Longs;
use super::node::{self, Reading, Room};
use super::object::{reading_of, room_of};
use super::seek::UpTo;
use super::shrink::MERGED_BYTES_MAX;
use super::{ZsetTree, score};
use crate::layout::cold::ColdRef;
use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::layout::last_used;
use crate::layout::node_name::NodeName;
use crate::values::nodewise::Nodewise;
use crate::values::store::Store;
use crate::values::zset::ZsetBound;
use isotherm_stdx::{UnixMs, parse_f64};

const REFERENCE: usize = node::HEAD_BYTES;
const USED_THERE: usize = REFERENCE + 8;
const STUB_BYTES: usize = USED_THERE + 2;
const _: () = assert!(STUB_BYTES <= 32, "the smallest class");
/// A smaller leaf saves too little.
const LEAF_BYTES_MIN: usize = 96;
/// Pages of the index for which leaves are read before.
const SPLITS_MAX: u32 = 64;

/// A leaf that was met and is not in memory, and the number of members of the set that lie on its left in any
/// case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Away {
    pub leaf: u32,
    pub rank: u64,
}

fn reference_of(stub: &[u8]) -> ColdRef {
    ColdRef::new(u64::from_le_bytes(stub[REFERENCE..USED_THERE].try_into().expect("eight bytes")))
}

fn set_reference(stub: &mut [u8], reference: ColdRef) {
    stub[REFERENCE..USED_THERE].copy_from_slice(&reference.raw().to_le_bytes());
}

/// Bytes of a leaf that are in use, wherever it is.
pub(super) fn used_there(bytes: &[u8]) -> usize {
    match node::used(bytes) {
        0 => usize::from(u16::from_le_bytes([bytes[USED_THERE], bytes[USED_THERE + 1]])),
        used => used,
    }
}

/// Members and scores of a leaf whose payload was read. Returns false if that is none.
pub(crate) fn read_payload(payload: &[u8], visit: &mut dyn FnMut(&[u8], f64)) -> bool {
    if payload.len() < node::HEAD_BYTES + 4
        || node::used(payload) != payload.len()
        || leaf::has_longs(payload)
    {
        return false;
    }
    let longs = Longs::default();
    let leaf = Leaf::new(payload, &longs);
    leaf.cells().enumerate().for_each(|(index, cell)| visit(cell.raw, leaf.score(index)));
    true
}

impl ZsetTree {
    pub(super) fn name_of(&self, leaf: u32) -> NodeName {
        NodeName::new(self.nodes.object, leaf)
    }

    /// Returns the reference to a leaf, if it is not in memory.
    pub(super) fn reference_at(&self, heap: &Heap, leaf: u32) -> Option<ColdRef> {
        if self.away == 0 {
            return None;
        }
        let handle = (leaf < self.leaves.len()).then(|| self.leaves.find(leaf))?;
        let bytes = node::bytes(heap, handle?);
        (node::used(bytes) == 0).then(|| reference_of(bytes))
    }

    // ---- for readers ----

    /// Returns what was found. `None` if a leaf is away, which is noted.
    pub(super) fn shown<T>(&self, at: Reading<'_>, found: Result<T, Away>) -> Option<T> {
        found.map_err(|away| self.note_missed(at, away.leaf)).ok()
    }

    #[cold]
    pub(super) fn note_missed(&self, at: Reading<'_>, leaf: u32) {
        if let Some(reference) = self.reference_at(at.heap, leaf) {
            at.cold.note_missed(self.name_of(leaf), reference);
        }
    }

    // ---- for writers ----

    /// Looks until what it looks at is in memory.
    #[inline(always)]
    pub(super) fn at_home<T>(
        &mut self,
        room: &mut Room<'_>,
        mut look: impl FnMut(&ZsetTree, &Heap) -> Result<T, Away>,
    ) -> Result<T, Full> {
        match look(self, room.heap) {
            Ok(found) if self.away == 0 => Ok(found),
            _ => self.brought_home(room, look),
        }
    }

    #[cold]
    fn brought_home<T>(
        &mut self,
        room: &mut Room<'_>,
        mut look: impl FnMut(&ZsetTree, &Heap) -> Result<T, Away>,
    ) -> Result<T, Full> {
        if room.cold.has_failed() {
            return Err(Full);
        }
        loop {
            match look(self, room.heap) {
                Ok(found) => return Ok(found),
                Err(away) => self.bring_home(room, away.leaf)?,
            }
        }
    }

    /// A leaf that is about to be looked at by a change is in memory: the command waits for the disk. As a
    /// rule it was read before.
    #[cold]
    pub(super) fn bring_home(&mut self, room: &mut Room<'_>, leaf: u32) -> Result<(), Full> {
        if room.cold.has_failed() {
            // All that the command has seen so far may be wrong.
            return Err(Full);
        }
        if self.read_home(room, leaf)? {
            return Ok(());
        }
        room.cold.note_failed(self.name_of(leaf));
        Err(Full)
    }

    /// Brings a leaf to memory for a change that can be left for later. Returns whether the leaf is in
    /// memory.
    #[cold]
    pub(super) fn is_brought_home(&mut self, room: &mut Room<'_>, leaf: u32) -> bool {
        !room.cold.has_failed() && self.read_home(room, leaf) == Ok(true)
    }

    /// Reads a leaf that is not in memory. Returns whether it could be read, or was there.
    fn read_home(&mut self, room: &mut Room<'_>, leaf: u32) -> Result<bool, Full> {
        let Some(from) = self.reference_at(room.heap, leaf) else { return Ok(true) };
        let Some(payload) = room.cold.read_node(from, self.name_of(leaf)) else { return Ok(false) };
        self.warm_leaf(room, leaf, &payload, from, false)
    }

    fn warm_leaf(
        &mut self,
        room: &mut Room<'_>,
        leaf: u32,
        payload: &[u8],
        from: ColdRef,
        keeps: bool,
    ) -> Result<bool, Full> {
        if self.reference_at(room.heap, leaf) != Some(from) {
            return Ok(false);
        }
        let stub = self.leaves.get(leaf);
        let version = node::version(node::bytes(room.heap, stub));
        let handle = self.nodes.allocate(room, leaf, payload.len())?;
        let bytes = node::bytes_mut(room.heap, handle);
        node::restore(bytes, payload);
        node::set_version(bytes, version);
        leaf::set_stamp(bytes, last_used::stamp(room.now));
        self.nodes.release(room.heap, stub);
        self.leaves.set(leaf, handle);
        self.away -= 1;
        room.cold.node_came_home(self.name_of(leaf), from, keeps);
        Ok(true)
    }

    /// Brings the leaves of a range to memory, before its members are taken out. If one cannot be read, no
    /// member is to go.
    pub fn bring_range_home(&mut self, room: &mut Room<'_>, rank: u64, count: u64) -> Result<(), Full> {
        for leaf in self.away_in_range(room.heap, rank, count) {
            self.bring_home(room, leaf)?;
        }
        if room.cold.has_failed() { Err(Full) } else { Ok(()) }
    }

    /// Returns whether the leaves of a range are in memory. If not, a command that has changed nothing yet,
    /// and does not, runs again when they are.
    pub fn wants_range(&self, at: Reading<'_>, rank: u64, count: u64) -> bool {
        let away = self.away_in_range(at.heap, rank, count);
        away.iter().for_each(|leaf| self.note_wanted(at, *leaf));
        away.is_empty()
    }

    /// Returns whether the leaves of members that are about to be taken out are in memory. If not, a command
    /// that has changed nothing yet, and does not, runs again when they are.
    pub fn wants_members(&self, store: &Store, members: &[&[u8]]) -> bool {
        if self.away == 0 {
            return true;
        }
        let needed = self.needed(store, members, true);
        let away: Vec<u32> =
            needed.into_iter().filter(|leaf| self.reference_at(&store.heap, *leaf).is_some()).collect();
        away.iter().for_each(|leaf| self.note_wanted(reading_of(store), *leaf));
        away.is_empty()
    }

    /// Returns the number of members in front of a boundary, as `rank_of` does. If the leaf that the boundary
    /// leads to is not in memory, a command that has changed nothing yet, and does not, runs again when it
    /// is.
    pub fn rank_wanted(&self, at: Reading<'_>, bound: ZsetBound<'_>) -> u64 {
        self.look_rank(at.heap, bound).unwrap_or_else(|away| {
            self.note_wanted(at, away.leaf);
            away.rank
        })
    }

    #[cold]
    fn note_wanted(&self, at: Reading<'_>, leaf: u32) {
        if let Some(reference) = self.reference_at(at.heap, leaf) {
            at.cold.note_wanted(self.name_of(leaf), reference);
        }
    }

    fn away_in_range(&self, heap: &Heap, rank: u64, count: u64) -> Vec<u32> {
        let mut away = Vec::new();
        if self.away == 0 || count == 0 {
            return away;
        }
        let mut path = self.descend_to_rank(heap, rank);
        let mut left = count + path.index as u64;
        loop {
            let bytes = node::bytes(heap, self.leaves.get(path.leaf));
            if node::used(bytes) == 0 {
                away.push(path.leaf);
            }
            left = left.saturating_sub(node::count(bytes) as u64);
            if left == 0 || !self.step_leaf(heap, &mut path, true) {
                return away;
            }
        }
    }

    /// A leaf is about to change, or to go: what was read from disk is no longer what it is.
    #[inline]
    pub(super) fn drop_clean(&self, room: &mut Room<'_>, leaf: u32) {
        if room.cold.has_clean() {
            room.cold.drop_clean(self.name_of(leaf));
        }
    }

    /// A leaf of a set that is being freed, wherever it is.
    pub(super) fn release_leaf(&mut self, room: &mut Room<'_>, leaf: u32, handle: isotherm_arena::Handle) {
        let bytes = node::bytes(room.heap, handle);
        if node::used(bytes) == 0 {
            room.cold.retire_node(reference_of(bytes));
            self.away -= 1;
        } else {
            self.drop_clean(room, leaf);
        }
        self.nodes.release(room.heap, handle);
    }

    /// Puts a stub in the place of a leaf. Returns whether there was memory for it.
    fn put_stub(&mut self, room: &mut Room<'_>, leaf: u32, reference: ColdRef) -> bool {
        let Ok(stub) = self.nodes.allocate(room, leaf, STUB_BYTES) else { return false };
        let old = self.leaves.get(leaf);
        let bytes = node::bytes(room.heap, old);
        let (version, count, used) = (node::version(bytes), node::count(bytes), node::used(bytes));
        let bytes = node::bytes_mut(room.heap, stub);
        node::set_version(bytes, version);
        node::set_count(bytes, count);
        node::set_used(bytes, 0);
        set_reference(bytes, reference);
        bytes[USED_THERE..STUB_BYTES].copy_from_slice(&(used as u16).to_le_bytes());
        self.nodes.release(room.heap, old);
        self.leaves.set(leaf, stub);
        self.away += 1;
        room.cold.drop_clean(self.name_of(leaf));
        room.cold.note_node(reference);
        true
    }

    // ---- what a command needs ----

    /// The leaf that a member is in; those that it would be merged with if it were taken out.
    fn add_member(&self, store: &Store, member: &[u8], reshapes: bool, needed: &mut Vec<u32>) -> Option<f64> {
        let heap = &store.heap;
        let (number, index) = match self.find_member(heap, &store.hasher, member) {
            Ok(found) => found?,
            Err(away) => {
                needed.push(away.leaf);
                return None;
            }
        };
        let leaf = self.leaf(heap, number);
        let score = leaf.score(index);
        if reshapes {
            match self.descend(heap, &UpTo { bits: leaf.bits(index), member }) {
                Err(away) => needed.push(away.leaf),
                Ok(path) if path.len > 0 => {
                    let pairs = self.pairs_of(heap, &path);
                    let with =
                        |other: u32| leaf.used() + used_there(node::bytes(heap, self.leaves.get(other)));
                    let others = pairs.flat_map(|(_, left, right)| [left, right]);
                    // The member itself is not there any more when it is looked whether the two fit.
                    let spare = member.len() + 16;
                    needed.extend(
                        others.filter(|other| *other != number && with(*other) <= MERGED_BYTES_MAX + spare),
                    );
                }
                Ok(_) => {}
            }
        }
        Some(score)
    }

    /// The leaf where a member with a score has its place.
    fn add_place(&self, heap: &Heap, score: f64, member: &[u8], needed: &mut Vec<u32>) {
        if let Err(away) = self.descend(heap, &UpTo { bits: score::bits_of(score), member }) {
            needed.push(away.leaf);
        }
    }
}

impl Nodewise for ZsetTree {
    fn node_count(&self) -> u32 {
        self.leaves.len()
    }

    fn away_at(&self, store: &Store, index: u32) -> Option<ColdRef> {
        self.reference_at(&store.heap, index)
    }

    /// Returns the leaves that elements need. Elements that are a number and a member, as ZADD and ZINCRBY
    /// have them, also need the leaf in which that member would come to lie.
    fn needed(&self, store: &Store, elements: &[&[u8]], reshapes: bool) -> Vec<u32> {
        let (heap, mut needed) = (&store.heap, Vec::new());
        if self.len == 0 {
            return needed;
        }
        let mut before = None;
        for element in elements {
            let old = self.add_member(store, element, reshapes, &mut needed);
            if let Some(score) = before.filter(|_| reshapes) {
                self.add_place(heap, score, element, &mut needed);
                let sum = old.map(|old| old + score).filter(|sum| elements.len() == 2 && !sum.is_nan());
                sum.into_iter().for_each(|sum| self.add_place(heap, sum, element, &mut needed));
            }
            before = parse_f64(element).filter(|score| !score.is_nan());
        }
        if reshapes {
            needed.extend(self.leaves_to_split(heap, elements.len() as u64));
        }
        needed.sort_unstable();
        needed.dedup();
        needed.retain(|leaf| self.reference_at(heap, *leaf).is_some());
        needed
    }

    fn leaving(&self, store: &Store, index: u32, now: UnixMs) -> Option<(usize, u32)> {
        let bytes = node::bytes(&store.heap, self.leaves.find(index)?);
        let (snapshot, used) = (&store.snapshot, node::used(bytes));
        let is_to_be_seen = snapshot.is_active() && node::version(bytes) != snapshot.version();
        if used == 0 || bytes.len() < LEAF_BYTES_MIN || leaf::has_longs(bytes) || is_to_be_seen {
            return None;
        }
        Some((used, u32::from(last_used::idle_seconds(leaf::stamp(bytes), now))))
    }

    fn write_payload(&self, store: &Store, index: u32, into: &mut Vec<u8>) {
        node::bare(node::bytes(&store.heap, self.leaves.get(index)), into);
        leaf::set_stamp(into, 0);
    }

    fn leave(&mut self, store: &mut Store, index: u32, reference: ColdRef) -> bool {
        // A stub that is made here has the version of the leaf that it replaces.
        self.put_stub(&mut room_of(store, UnixMs(0)), index, reference)
    }

    fn name(&self, index: u32) -> NodeName {
        self.name_of(index)
    }

    fn set_reference(&self, store: &mut Store, index: u32, to: ColdRef) {
        set_reference(node::bytes_mut(&mut store.heap, self.leaves.get(index)), to);
    }

    fn warm(
        &mut self,
        store: &mut Store,
        index: u32,
        payload: &[u8],
        from: ColdRef,
        keeps: bool,
        now: UnixMs,
    ) -> Result<bool, Full> {
        self.warm_leaf(&mut room_of(store, now), index, payload, from, keeps)
    }
}

impl ZsetTree {
    /// The leaves that the next pages of the index need, which are made of them when `more` members come.
    fn leaves_to_split(&self, heap: &Heap, more: u64) -> Vec<u32> {
        let pages = u64::from(self.pages.len());
        if self.away == 0 || pages == 0 || self.len + more < pages * PAGE_MEMBERS {
            return Vec::new();
        }
        let splits = (self.len + more - pages * PAGE_MEMBERS) / PAGE_MEMBERS + 1;
        self.leaves_of_splits(heap, splits.min(u64::from(SPLITS_MAX)) as u32)
    }
}
