//! The member index: from a member's hash to the leaf it is in.
//!
//! ```text
//!   page     [head 13][base u8][print u8 x count][ref u32 x count]      40 members: 14 + 200 B; 6.1 B a member in all
//!   print    bits 56-63 of the member's hash
//!   ref      bits 0-23 the leaf's number, bits 24-31 the hash's bits base .. base + 8
//! ```
//!
//! Pages grow by linear hashing, as the keyspace's do: `page_index` of the hash's low bits. Print and bits
//! propose a leaf, the leaf's members decide: of 40 entries of a page one in 1600 proposes a wrong leaf.
//!
//! *A split needs* the hash bit of its level, and that stands in the entries as long as the level lies in
//! base .. base + 8. When it has left them, in every eighth doubling, the page is made anew from the leaves
//! that it names.
//!
//! *Leaves that split or merge* change the leaf of members: an entry with the member's print and bits and the
//! old leaf gets the new number. Several such entries are interchangeable, so no member needs to be compared.
//!
//! The index is derived from the leaves; snapshots do not know it.

use super::away::Away;
use super::leaf::Leaf;
use super::node::{self, INDEX, Nodes, Room};
use super::{ZsetTree, leaf};
use crate::layout::heap::Heap;
use crate::layout::key::KeyHasher;
use crate::layout::kind::Full;
use crate::layout::page::words::{equal_bytes, word};
use crate::layout::record::{buddy, page_index};
use crate::values::linear::pages_to_part;
use isotherm_stdx::steps;

const BASE: usize = node::HEAD_BYTES;
const PRINTS: usize = BASE + 1;
const REF_BYTES: usize = 4;
/// Cache lines that are fetched ahead: 40 members of an index page (`PAGE_LINES`), and enough of a leaf that
/// the processor continues by itself (`LEAF_LINES`).
const PAGE_LINES: usize = size(40).div_ceil(64);
const LEAF_LINES: usize = 8;
const ENTRIES_MAX: usize = 255;

/// Entries with which a page has to lose some soon: members may come in an order made by their hashes (see
/// `linear`).
const DENSE_ENTRIES: usize = 200;
const _: () = assert!(DENSE_ENTRIES < ENTRIES_MAX);
/// Pages that are added for that, where there are not as many members: some 600 KB, 2 ms under the lock.
const SPREAD_PAGES_MAX: u32 = 1 << 14;

/// Members a page above which pages are split, and those below which they are merged.
pub(super) const PAGE_MEMBERS: u64 = 40;
const PAGE_MEMBERS_MIN: u64 = 28;

const LEAF_BITS: u32 = 24;
const LEAF_MASK: u32 = (1 << LEAF_BITS) - 1;
const WINDOW_BITS: u32 = 8;

#[inline]
fn print_of(hash: u64) -> u8 {
    (hash >> 56) as u8
}
#[inline]
fn window_of(hash: u64, base: u8) -> u8 {
    (hash >> base) as u8
}
#[inline]
fn make_ref(leaf: u32, window: u8) -> u32 {
    leaf | u32::from(window) << LEAF_BITS
}

const fn size(entries: usize) -> usize {
    PRINTS + entries * (1 + REF_BYTES)
}

// ---- one page ----

#[inline]
fn base(page: &[u8]) -> u8 {
    page[BASE]
}
#[inline]
fn reference(page: &[u8], index: usize) -> u32 {
    node::word(page, PRINTS + node::count(page) + index * REF_BYTES)
}
#[inline]
fn set_reference(page: &mut [u8], index: usize, reference: u32) {
    let at = PRINTS + node::count(page) + index * REF_BYTES;
    node::set_word(page, at, reference);
}

/// The entry with this print and these bits that `is_it` accepts.
#[inline]
fn find(page: &[u8], hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<usize> {
    let (entries, print, window) = (node::count(page), print_of(hash), window_of(hash, base(page)));
    let column = &page[PRINTS..];
    for at in 0..entries.div_ceil(8) {
        // The last word reaches into the references, which the count leaves out.
        let mut hits = equal_bytes(word(column, at), print);
        while hits != 0 {
            let index = at * 8 + (hits.trailing_zeros() / 8) as usize;
            if index >= entries {
                return None;
            }
            let reference = reference(page, index);
            if (reference >> LEAF_BITS) as u8 == window {
                steps::note(1);
                if is_it(reference & LEAF_MASK) {
                    return Some(index);
                }
            }
            hits &= hits - 1;
        }
    }
    None
}
// A word of eight prints stays inside the smallest page.
const _: () = assert!(PRINTS + 8 <= 32);

fn push(page: &mut [u8], print: u8, reference: u32) {
    let entries = node::count(page);
    let refs = PRINTS + entries;
    page.copy_within(refs..refs + entries * REF_BYTES, refs + 1);
    page[PRINTS + entries] = print;
    node::set_count(page, entries + 1);
    node::set_used(page, size(entries + 1));
    set_reference(page, entries, reference);
}

fn take(page: &mut [u8], index: usize) {
    let last = node::count(page) - 1;
    let moved = reference(page, last);
    set_reference(page, index, moved);
    page[PRINTS + index] = page[PRINTS + last];
    let refs = PRINTS + last + 1;
    page.copy_within(refs..refs + last * REF_BYTES, refs - 1);
    node::set_count(page, last);
    node::set_used(page, size(last));
}

/// Entries of a page on their way to another.
#[derive(Default)]
struct Entries(Vec<(u8, u32)>);

impl Entries {
    fn write(&self, page: &mut [u8], base: u8) {
        page[BASE] = base;
        let refs = PRINTS + self.0.len();
        for (index, &(print, reference)) in self.0.iter().enumerate() {
            page[PRINTS + index] = print;
            node::set_word(page, refs + index * REF_BYTES, reference);
        }
        node::set_count(page, self.0.len());
        node::set_used(page, size(self.0.len()));
    }
}

// ---- the index ----

impl ZsetTree {
    #[inline]
    fn page<'a>(&self, heap: &'a Heap, number: u32) -> &'a [u8] {
        node::bytes(heap, self.pages.get(number))
    }

    /// The leaf that has the member, and its place there.
    pub(super) fn find_member(
        &self,
        heap: &Heap,
        hasher: &KeyHasher,
        member: &[u8],
    ) -> Result<Option<(u32, usize)>, Away> {
        if self.pages.len() == 0 {
            return Ok(None);
        }
        let hash = hasher.hash(member);
        let page = self.page(heap, page_index(hash, self.pages.len()));
        let mut found = Ok(None);
        find(page, hash, |number| match self.leaf_here(heap, number) {
            Ok(leaf) => match leaf.find(member) {
                Some(index) => {
                    found = Ok(Some((number, index)));
                    true
                }
                None => false,
            },
            Err(away) => {
                found = Err(away);
                false
            }
        });
        found
    }

    /// Asks for the lines that `find_member` will read, of members by their hashes.
    pub fn prefetch(&self, heap: &Heap, hashes: &[u64]) {
        let line = |raw: u32, at: usize| heap.arena().prefetch(raw, at);
        if self.pages.len() == 0 {
            return;
        }
        for &hash in hashes {
            let page = self.pages.get(page_index(hash, self.pages.len())).raw();
            (0..PAGE_LINES).for_each(|at| line(page, at * 64));
        }
        for &hash in hashes {
            let page = self.page(heap, page_index(hash, self.pages.len()));
            find(page, hash, |number| {
                let leaf = self.leaves.get(number).raw();
                (0..LEAF_LINES).for_each(|at| line(leaf, at * 64));
                true
            });
        }
    }

    /// Makes room in the member's page, so that `index_insert` finds it. Called while every member is in the
    /// index.
    pub(super) fn index_prepare(&mut self, room: &mut Room<'_>, hash: u64) -> Result<(), Full> {
        if self.pages.len() == 0 {
            let handle = self.nodes.allocate(room, INDEX, size(1))?;
            Entries::default().write(node::bytes_mut(room.heap, handle), 0);
            self.pages.insert(handle);
        } else if self.len >= u64::from(self.pages.len()) * PAGE_MEMBERS {
            // Without memory for another page the old ones grow.
            let _ = self.split_page(room);
        }
        if node::count(self.page(room.heap, page_index(hash, self.pages.len()))) >= DENSE_ENTRIES {
            self.spread(room, hash);
        }
        let number = page_index(hash, self.pages.len());
        let page = self.page(room.heap, number);
        let (entries, used) = (node::count(page), node::used(page));
        if entries == ENTRIES_MAX {
            return Err(Full);
        }
        if size(entries + 1) > page.len() {
            let moved = self.nodes.resize(room, self.pages.get(number), used, size(entries + 1))?;
            self.pages.set(number, moved);
        }
        Ok(())
    }

    /// Adds pages until the members of the page that a hash belongs to part.
    #[cold]
    fn spread(&mut self, room: &mut Room<'_>, hash: u64) {
        let mut hashes = vec![hash];
        let number = page_index(hash, self.pages.len());
        if self.bring_page_home(room, number).is_err() {
            return;
        }
        self.for_each_of_page(room.heap, room.hasher, number, &mut |hash, _, _, _| hashes.push(hash));
        let pages_max = u64::from(SPREAD_PAGES_MAX).max(self.len);
        let Some(wanted) = pages_to_part(hashes.into_iter()).filter(|wanted| u64::from(*wanted) <= pages_max)
        else {
            return;
        };
        while self.pages.len() < wanted {
            steps::note(1);
            // Without memory for more pages it stays as full as it is.
            if self.split_page(room).is_err() {
                return;
            }
        }
    }

    /// Enters a member whose page was prepared.
    pub(super) fn index_insert(&mut self, room: &mut Room<'_>, hash: u64, leaf: u32) {
        let handle = self.pages.get(page_index(hash, self.pages.len()));
        let page = node::bytes_mut(room.heap, handle);
        let window = window_of(hash, base(page));
        push(page, print_of(hash), make_ref(leaf, window));
    }

    pub(super) fn index_remove(&mut self, room: &mut Room<'_>, hash: u64, leaf: u32) {
        let number = page_index(hash, self.pages.len());
        let handle = self.pages.get(number);
        let page = node::bytes_mut(room.heap, handle);
        let index = find(page, hash, |other| other == leaf).expect("every member is in the index");
        take(page, index);
        self.tighten_page(room, number);
    }

    /// The member has moved to another leaf.
    pub(super) fn repoint(&mut self, room: &mut Room<'_>, hash: u64, from: u32, to: u32) {
        let page = node::bytes_mut(room.heap, self.pages.get(page_index(hash, self.pages.len())));
        let index = find(page, hash, |other| other == from).expect("every member is in the index");
        let window = window_of(hash, base(page));
        set_reference(page, index, make_ref(to, window));
    }

    /// The members that lie in a leaf now have moved between two leaves; but for `skip`, which is not in the
    /// index.
    pub(super) fn repoint_leaf(
        &mut self,
        room: &mut Room<'_>,
        lies_in: u32,
        from: u32,
        to: u32,
        skip: Option<usize>,
    ) {
        let mut hashes = [0; leaf::MEMBERS_MAX];
        let mut count = 0;
        let members = self.leaf(room.heap, lies_in);
        for (index, cell) in members.cells().enumerate() {
            if Some(index) != skip {
                hashes[count] = room.hasher.hash(members.resolve(cell));
                let page = self.pages.get(page_index(hashes[count], self.pages.len()));
                room.heap.arena().prefetch(page.raw(), 0);
                count += 1;
            }
        }
        for &hash in &hashes[..count] {
            self.repoint(room, hash, from, to);
        }
    }

    fn tighten_page(&mut self, room: &mut Room<'_>, number: u32) {
        let handle = self.pages.get(number);
        let page = node::bytes(room.heap, handle);
        let used = node::used(page);
        if Nodes::is_loose(page.len(), used)
            && let Ok(moved) = self.nodes.resize(room, handle, used, used)
        {
            self.pages.set(number, moved);
        }
    }

    /// The entries of a page with bits from `wanted` on: as they are, or made anew from the leaves.
    fn entries_of(&self, heap: &Heap, hasher: &KeyHasher, number: u32, wanted: u8) -> Entries {
        let page = self.page(heap, number);
        let entries = node::count(page);
        if base(page) == wanted {
            return Entries((0..entries).map(|i| (page[PRINTS + i], reference(page, i))).collect());
        }
        let mut fresh = Vec::with_capacity(entries);
        self.for_each_of_page(heap, hasher, number, &mut |hash, leaf_number, _, _| {
            fresh.push((print_of(hash), make_ref(leaf_number, window_of(hash, wanted))));
        });
        assert_eq!(fresh.len(), entries, "a page has an entry for each of its members");
        Entries(fresh)
    }

    /// Leaves with members of a page, in rising order.
    pub(super) fn leaves_of_page(&self, heap: &Heap, number: u32) -> Vec<u32> {
        let page = self.page(heap, number);
        let mut leaves: Vec<u32> =
            (0..node::count(page)).map(|index| reference(page, index) & LEAF_MASK).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// Brings the leaves of a page to memory: the page is about to be made anew of them.
    fn bring_page_home(&mut self, room: &mut Room<'_>, number: u32) -> Result<(), Full> {
        if self.away == 0 {
            return Ok(());
        }
        let leaves = self.leaves_of_page(room.heap, number);
        if leaves.into_iter().all(|leaf| self.is_brought_home(room, leaf)) { Ok(()) } else { Err(Full) }
    }

    /// The page that is split to make page `new`, and the bits that its entries are to have then.
    fn split_to(&self, heap: &Heap, new: u32) -> (u32, u8) {
        let old = buddy(new);
        // The bit in which the two differ.
        let level = new.ilog2();
        let old_base = base(self.page(heap, old));
        let has_bit = (u32::from(old_base)..u32::from(old_base) + WINDOW_BITS).contains(&level);
        (old, if has_bit { old_base } else { level as u8 })
    }

    /// Leaves that the next splits of pages need: none as a rule.
    pub(super) fn leaves_of_splits(&self, heap: &Heap, splits: u32) -> Vec<u32> {
        let pages = self.pages.len();
        let sources = (pages..pages + splits).filter(|new| buddy(*new) < pages);
        let leaves = sources.flat_map(|new| {
            let (old, wanted) = self.split_to(heap, new);
            if base(self.page(heap, old)) == wanted { Vec::new() } else { self.leaves_of_page(heap, old) }
        });
        leaves.collect()
    }

    /// Every member whose hash belongs to a page. Those of leaves that are not in memory are passed over.
    pub(super) fn for_each_of_page<'a>(
        &'a self,
        heap: &'a Heap,
        hasher: &KeyHasher,
        number: u32,
        visit: &mut dyn FnMut(u64, u32, Leaf<'a>, usize),
    ) {
        let leaves = self.leaves_of_page(heap, number);
        for &leaf in &leaves {
            heap.arena().prefetch(self.leaves.get(leaf).raw(), 0);
        }
        for leaf_number in leaves {
            let Ok(leaf) = self.leaf_here(heap, leaf_number) else { continue };
            for (index, cell) in leaf.cells().enumerate() {
                let hash = hasher.hash(leaf.resolve(cell));
                if page_index(hash, self.pages.len()) == number {
                    visit(hash, leaf_number, leaf, index);
                }
            }
        }
    }

    /// Adds a page: the next one in turn gives away about half of its entries.
    fn split_page(&mut self, room: &mut Room<'_>) -> Result<(), Full> {
        let new = self.pages.len();
        let level = new.ilog2();
        let (old, wanted) = self.split_to(room.heap, new);
        if base(self.page(room.heap, old)) != wanted {
            self.bring_page_home(room, old)?;
        }
        let Entries(all) = self.entries_of(room.heap, room.hasher, old, wanted);
        let goes = |entry: &(u8, u32)| entry.1 >> (LEAF_BITS + level - u32::from(wanted)) & 1 == 1;
        let (moved, kept): (Vec<_>, Vec<_>) = all.into_iter().partition(goes);
        let handle = self.nodes.allocate(room, INDEX | new, size(moved.len()))?;
        Entries(moved).write(node::bytes_mut(room.heap, handle), wanted);
        Entries(kept).write(node::bytes_mut(room.heap, self.pages.get(old)), wanted);
        self.pages.insert(handle);
        self.tighten_page(room, old);
        Ok(())
    }

    /// Called after a removal, while every member is in the index: one page less if there are too many.
    pub(super) fn index_shrink(&mut self, room: &mut Room<'_>) {
        let pages = self.pages.len();
        if pages > 1 && self.len < u64::from(pages) * PAGE_MEMBERS_MIN {
            // Without memory for a larger page the two stay.
            let _ = self.merge_page(room);
        } else if self.len == 0 && pages == 1 {
            let handle = self.pages.remove(0);
            self.nodes.release(room.heap, handle);
        }
    }

    fn merge_page(&mut self, room: &mut Room<'_>) -> Result<(), Full> {
        let last = self.pages.len() - 1;
        let into = buddy(last);
        let wanted = base(self.page(room.heap, into));
        let total = node::count(self.page(room.heap, into)) + node::count(self.page(room.heap, last));
        if total > ENTRIES_MAX {
            return Err(Full);
        }
        if base(self.page(room.heap, last)) != wanted {
            self.bring_page_home(room, last)?;
        }
        let mut entries = self.entries_of(room.heap, room.hasher, into, wanted);
        entries.0.extend(self.entries_of(room.heap, room.hasher, last, wanted).0);
        let handle = self.pages.get(into);
        let page = self.page(room.heap, into);
        let (have, used) = (page.len(), node::used(page));
        if size(total) > have {
            let moved = self.nodes.resize(room, handle, used, size(total))?;
            self.pages.set(into, moved);
        }
        entries.write(node::bytes_mut(room.heap, self.pages.get(into)), wanted);
        let handle = self.pages.remove(last);
        self.nodes.release(room.heap, handle);
        Ok(())
    }

    /// Entries in all pages, for the check of invariants.
    pub(super) fn index_entries(&self, heap: &Heap) -> u64 {
        (0..self.pages.len()).map(|number| node::count(self.page(heap, number)) as u64).sum()
    }
}
