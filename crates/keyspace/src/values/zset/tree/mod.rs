//! A large sorted set: a tree whose leaves hold the members in order, and an index from members to leaves.
//!
//! ```text
//!                      [inner: separator, child, count x 31]          counts make ranks
//!                       /              |               \
//!              [inner]              [inner]             [inner]
//!             /   |   \
//!       [leaf][leaf][leaf] ...                    scores and members, some 1 KB: `leaf`
//!          ^     ^
//!   [print, ref][print, ref] ...                  pages of a linear hash over members: `index`
//!
//!   numbers -> handles    tables of leaves, inner nodes, index pages: nodes know each other by number only
//! ```
//!
//! The score of a member stands once, in its leaf: ZSCORE goes index, leaf; ZRANK then goes down the tree with the
//! score and adds up what lies to the left. Of 16-byte members with random doubles as scores, bytes a member:
//!
//! ```text
//!   leaf      5 score + 16 member + 1 head and class rounding       22
//!   tree      (4 table + 16 / 0.7 inner entry) / 33 members          0.8
//!   index     5 entry + 1.1 head, rounding and directory             6.1
//!   slabs     2 %                                                    0.6
//! ```
//!
//! No operation on one member touches more than a path of the tree, two leaves and two index pages; growth and
//! shrinking happen a node at a time.
//!
//! Reading order: `score`, `leaf`, `draft`, `inner`, `node`, `seek`, `grow`, `shrink`, `index`, `cursor`, `saved`.

mod check;
mod cursor;
mod draft;
mod grow;
mod index;
mod inner;
mod leaf;
mod long;
mod node;
mod object;
mod saved;
mod score;
mod seek;
mod shrink;

pub(crate) use node::Room;
pub(crate) use object::room_of;

use cursor::Members;

use crate::layout::heap::Heap;
use crate::layout::key::KeyHasher;
use crate::layout::kind::Full;
use crate::layout::nodes::Table;
use crate::layout::pile::Pile;
use crate::values::zset::ZsetBound;
use leaf::{Cell, INLINE_BYTES_MAX, LONG};
use long::Longs;
use node::Nodes;
use saved::SavedLeaf;
use seek::{ByMember, ByScore, UpTo};

pub(crate) struct ZsetTree {
    len: u64,
    /// A leaf if `height` is 0, else an inner node; nothing while there are no members.
    root: u32,
    /// Levels of inner nodes.
    height: u8,
    nodes: Nodes,
    leaves: Table,
    inners: Table,
    pages: Table,
    longs: Longs,
    /// A snapshot is under way that has yet to see some leaves: what it has not seen is saved before it changes.
    saving: bool,
    saved: Pile<SavedLeaf>,
    saved_bytes: u64,
    /// Still within the limits of a listpack: what OBJECT ENCODING says, and nothing else, follows from it.
    pub compact: bool,
}

impl ZsetTree {
    /// An empty one, the object of this number.
    pub fn new(object: u32) -> ZsetTree {
        ZsetTree {
            len: 0,
            root: 0,
            height: 0,
            nodes: Nodes { object, live_bytes: 0 },
            leaves: Table::default(),
            inners: Table::default(),
            pages: Table::default(),
            longs: Longs::default(),
            saving: false,
            saved: Pile::default(),
            saved_bytes: 0,
            compact: false,
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Nodes by class, tables, long members: all but the root itself.
    fn bytes_outside(&self) -> usize {
        let tables = [&self.leaves, &self.inners, &self.pages].map(Table::memory_bytes);
        self.nodes.live_bytes + tables.iter().sum::<usize>() + self.longs.memory_bytes()
    }

    // ---- reading ----

    pub fn score(&self, heap: &Heap, hasher: &KeyHasher, member: &[u8]) -> Option<f64> {
        let (leaf, index) = self.find_member(heap, hasher, member)?;
        Some(self.leaf(heap, leaf).score(index))
    }

    /// How many members lie in front of this one, and its score.
    pub fn rank(&self, heap: &Heap, hasher: &KeyHasher, member: &[u8]) -> Option<(u64, f64)> {
        let (leaf, index) = self.find_member(heap, hasher, member)?;
        let leaf = self.leaf(heap, leaf);
        let path = self.descend(heap, &UpTo { bits: leaf.bits(index), member });
        Some((path.rank - 1, leaf.score(index)))
    }

    /// How many members lie in front of a boundary.
    pub fn rank_of(&self, heap: &Heap, bound: ZsetBound<'_>) -> u64 {
        let by_score = |score: f64, with_equal| {
            let order = score::order_of(score::bits_of(score));
            self.descend(heap, &ByScore { order, with_equal }).rank
        };
        match bound {
            ZsetBound::Start => 0,
            ZsetBound::End => self.len,
            _ if self.len == 0 => 0,
            ZsetBound::BeforeScore(score) => by_score(score, false),
            ZsetBound::AfterScore(score) => by_score(score, true),
            ZsetBound::BeforeMember(member) => {
                self.descend(heap, &ByMember { member, with_equal: false }).rank
            }
            ZsetBound::AfterMember(member) => self.descend(heap, &ByMember { member, with_equal: true }).rank,
        }
    }

    /// `count` members from `rank` on; backward, `rank` counts from the end.
    pub fn members<'a>(
        &'a self,
        heap: &'a Heap,
        rank: u64,
        count: u64,
        forward: bool,
    ) -> impl Iterator<Item = (&'a [u8], f64)> + use<'a> {
        Members::new(self, heap, rank, count, forward).into_iter().flatten()
    }

    /// Pages of the index: what a scan goes over, in the order that the caller chooses.
    pub fn scan_pages(&self) -> u32 {
        self.pages.len()
    }

    /// The members of one page of the index.
    pub fn scan_page<'a>(
        &'a self,
        heap: &'a Heap,
        hasher: &KeyHasher,
        page: u32,
        visit: &mut dyn FnMut(&'a [u8], f64),
    ) {
        self.for_each_of_page(heap, hasher, page, &mut |_, _, leaf, index| {
            visit(leaf.member(index), leaf.score(index));
        });
    }

    // ---- changing ----

    /// Adds a member that is not there.
    pub fn insert(&mut self, room: &mut Room<'_>, member: &[u8], score: f64) -> Result<(), Full> {
        debug_assert!(!score.is_nan());
        let hash = room.hasher.hash(member);
        self.index_prepare(room, hash)?;
        let inserted = self.insert_member(room, member, score);
        if inserted.is_err() {
            // An empty set takes nothing.
            self.index_shrink(room);
        }
        let leaf = inserted?;
        self.len += 1;
        self.index_insert(room, hash, leaf);
        Ok(())
    }

    /// Puts the member into the tree, its bytes aside if they are many.
    fn insert_member(&mut self, room: &mut Room<'_>, member: &[u8], score: f64) -> Result<u32, Full> {
        let bits = score::bits_of(score);
        if member.len() <= INLINE_BYTES_MAX {
            return self.insert_cell(room, bits, member, Cell { tag: member.len() as u8, raw: member });
        }
        let number = self.longs.insert(member);
        let cell = Cell { tag: LONG, raw: &number.to_le_bytes() };
        let inserted = self.insert_cell(room, bits, member, cell);
        if inserted.is_err() {
            self.longs.remove(number);
        }
        inserted
    }

    /// Gives a member that is there another score.
    pub fn update(&mut self, room: &mut Room<'_>, member: &[u8], score: f64) -> Result<(), Full> {
        let (leaf, index) = self.find_member(room.heap, room.hasher, member).expect("the member is there");
        let old_bits = self.leaf(room.heap, leaf).bits(index);
        if self.update_in_leaf(room, leaf, index, member, score::bits_of(score)) {
            return Ok(());
        }
        // In first, so that a lack of memory changes nothing. The index learns of it before anything can merge.
        let to = self.insert_member(room, member, score)?;
        self.len += 1;
        let path = self.descend(room.heap, &UpTo { bits: old_bits, member });
        self.repoint(room, room.hasher.hash(member), path.leaf, to);
        self.remove_at(room, &path);
        self.len -= 1;
        Ok(())
    }

    /// Moves a member within its leaf, if it stays between two others and the new score fits the leaf's form.
    fn update_in_leaf(
        &mut self,
        room: &mut Room<'_>,
        number: u32,
        index: usize,
        member: &[u8],
        bits: u64,
    ) -> bool {
        let leaf = self.leaf(room.heap, number);
        let at = leaf.partition(&UpTo { bits, member });
        let inside = at > usize::from(index == 0) && at < leaf.len() - usize::from(index + 1 == leaf.len());
        let cell = leaf.cell(index);
        if !inside || cell.tag == LONG || !leaf.fits(bits, cell.tag) {
            return false;
        }
        self.before_change(room, number);
        let bytes = node::bytes_mut(room.heap, self.leaves.get(number));
        leaf::remove(bytes, index);
        let at = if at > index { at - 1 } else { at };
        leaf::insert(bytes, at, bits, Cell { tag: member.len() as u8, raw: member });
        true
    }

    /// Takes a member out; its score if it was there.
    pub fn remove(&mut self, room: &mut Room<'_>, member: &[u8]) -> Option<f64> {
        let (leaf, index) = self.find_member(room.heap, room.hasher, member)?;
        let bits = self.leaf(room.heap, leaf).bits(index);
        let path = self.descend(room.heap, &UpTo { bits, member });
        assert_eq!(path.leaf, leaf, "the tree and the index agree");
        self.index_remove(room, room.hasher.hash(member), leaf);
        self.remove_at(room, &path);
        self.len -= 1;
        self.index_shrink(room);
        Some(score::score_of(bits))
    }

    /// Takes out the member of a rank.
    pub fn remove_nth(&mut self, room: &mut Room<'_>, rank: u64) {
        let mut path = self.descend_to_rank(room.heap, rank);
        path.index += 1;
        let hash = room.hasher.hash(self.leaf(room.heap, path.leaf).member(path.index - 1));
        self.index_remove(room, hash, path.leaf);
        self.remove_at(room, &path);
        self.len -= 1;
        self.index_shrink(room);
    }

    // ---- the whole ----

    /// Frees all nodes of a small set at once.
    pub fn free(mut self, heap: &mut Heap) {
        while !self.free_nodes(heap, usize::MAX) {}
    }

    /// Frees up to `nodes_max` nodes of a set that is not used any more. Whether nothing is left.
    fn free_nodes(&mut self, heap: &mut Heap, nodes_max: usize) -> bool {
        self.len = 0;
        for _ in 0..nodes_max {
            let tables = [&mut self.pages, &mut self.inners, &mut self.leaves];
            match tables.into_iter().find_map(Table::pop) {
                Some(Some(handle)) => self.nodes.release(heap, handle),
                Some(None) => {}
                None => return self.longs.free_step(nodes_max),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
