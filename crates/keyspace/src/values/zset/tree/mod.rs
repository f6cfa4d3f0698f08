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
//! The score of a member stands once, in its leaf: ZSCORE goes index, leaf; ZRANK then goes down the tree
//! with the score and adds up what lies to the left. Of 16-byte members with random doubles as scores, bytes
//! a member:
//!
//! ```text
//!   leaf      5 score + 16 member + 1 head and class rounding       22
//!   tree      (4 table + 16 / 0.7 inner entry) / 33 members          0.8
//!   index     5 entry + 1.1 head, rounding and directory             6.1
//!   slabs     2 %                                                    0.6
//! ```
//!
//! No operation on one member touches more than a path of the tree, two leaves and two index pages; growth
//! and shrinking happen a node at a time.
//!
//! A leaf may leave memory: what else there is stays (`away`).
//!
//! Reading order: `score`, `leaf`, `draft`, `inner`, `node`, `seek`, `grow`, `shrink`, `index`, `cursor`,
//! `saved`, `away`.

mod away;
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

pub(crate) use away::read_payload;
pub(crate) use node::{Reading, Room};
pub(crate) use object::{reading_of, room_of};

use cursor::Members;

use crate::layout::handles::Table;
use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::values::zset::ZsetBound;
use away::Away;
use leaf::{Cell, INLINE_BYTES_MAX, LONG};
use long::Longs;
use node::Nodes;
use saved::SavedLeaves;
use seek::{ByMember, ByScore, Path, UpTo};

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
    /// Leaves that are not in memory.
    away: u32,
    /// A snapshot is under way that has yet to see some leaves: what it has not seen is saved before it
    /// changes.
    saving: bool,
    saved: SavedLeaves,
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
            away: 0,
            saving: false,
            saved: SavedLeaves::default(),
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

    // ---- reading: what is not in memory is noted, and nothing of it shown ----

    pub fn score(&self, at: Reading<'_>, member: &[u8]) -> Option<f64> {
        let (leaf, index) = self.shown(at, self.find_member(at.heap, at.hasher, member))??;
        Some(self.leaf(at.heap, leaf).score(index))
    }

    /// Returns the number of members in front of this one, and its score.
    pub fn rank(&self, at: Reading<'_>, member: &[u8]) -> Option<(u64, f64)> {
        let (leaf, index) = self.shown(at, self.find_member(at.heap, at.hasher, member))??;
        let leaf = self.leaf(at.heap, leaf);
        let path = self.shown(at, self.descend(at.heap, &UpTo { bits: leaf.bits(index), member }))?;
        Some((path.rank - 1, leaf.score(index)))
    }

    /// Returns the number of members in front of a boundary. The result is smaller if a leaf that decides is
    /// not in memory.
    pub fn rank_of(&self, at: Reading<'_>, bound: ZsetBound<'_>) -> u64 {
        self.look_rank(at.heap, bound).unwrap_or_else(|away| {
            self.note_missed(at, away.leaf);
            away.rank
        })
    }

    fn look_rank(&self, heap: &Heap, bound: ZsetBound<'_>) -> Result<u64, Away> {
        let by_score = |score: f64, with_equal| {
            let order = score::order_of(score::bits_of(score));
            self.descend(heap, &ByScore { order, with_equal })
        };
        let path = match bound {
            ZsetBound::Start => return Ok(0),
            ZsetBound::End => return Ok(self.len),
            _ if self.len == 0 => return Ok(0),
            ZsetBound::BeforeScore(score) => by_score(score, false),
            ZsetBound::AfterScore(score) => by_score(score, true),
            ZsetBound::BeforeMember(member) => self.descend(heap, &ByMember { member, with_equal: false }),
            ZsetBound::AfterMember(member) => self.descend(heap, &ByMember { member, with_equal: true }),
        };
        path.map(|path| path.rank)
    }

    /// `count` members from `rank` on; backward, `rank` counts from the end.
    pub fn members<'a>(
        &'a self,
        at: Reading<'a>,
        rank: u64,
        count: u64,
        forward: bool,
    ) -> impl Iterator<Item = (&'a [u8], f64)> + use<'a> {
        Members::new(self, at, rank, count, forward).into_iter().flatten()
    }

    /// Pages of the index: what a scan goes over, in the order that the caller chooses.
    pub fn scan_pages(&self) -> u32 {
        self.pages.len()
    }

    /// The members of one page of the index.
    pub fn scan_page<'a>(&'a self, at: Reading<'a>, page: u32, visit: &mut dyn FnMut(&'a [u8], f64)) {
        if self.away > 0 {
            self.leaves_of_page(at.heap, page).into_iter().for_each(|leaf| self.note_missed(at, leaf));
        }
        self.for_each_of_page(at.heap, at.hasher, page, &mut |_, _, leaf, index| {
            visit(leaf.member(index), leaf.score(index));
        });
    }

    // ---- changing: nodes outside memory are brought back first, or nothing changes ----

    /// The score of a member that is about to change.
    pub fn score_home(&mut self, room: &mut Room<'_>, member: &[u8]) -> Result<Option<f64>, Full> {
        let found = self.find_home(room, member)?;
        Ok(found.map(|(leaf, index)| self.leaf(room.heap, leaf).score(index)))
    }

    fn find_home(&mut self, room: &mut Room<'_>, member: &[u8]) -> Result<Option<(u32, usize)>, Full> {
        let hasher = room.hasher;
        self.at_home(room, |zset, heap| zset.find_member(heap, hasher, member))
    }

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
        let (leaf, index) = self.find_home(room, member)?.expect("the member is there");
        let old_bits = self.leaf(room.heap, leaf).bits(index);
        if self.update_in_leaf(room, leaf, index, member, score::bits_of(score)) {
            return Ok(());
        }
        // In first, so that a lack of memory changes nothing. The index learns of it before anything can
        // merge.
        let to = self.insert_member(room, member, score)?;
        self.len += 1;
        let mut path = Path::new();
        self.path_of_old(room, &UpTo { bits: old_bits, member }, &mut path);
        self.repoint(room, room.hasher.hash(member), path.leaf, to);
        self.remove_at(room, &path);
        self.len -= 1;
        Ok(())
    }

    /// The way to a member whose leaf is in memory.
    fn path_of_old(&mut self, room: &mut Room<'_>, member: &UpTo<'_>, path: &mut Path) {
        // Among equal scores a leaf may decide that cannot be read.
        if self.at_home(room, |zset, heap| zset.descend_by(heap, member, path)).is_err() {
            *path = self.search(room.heap, member);
        }
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
        let (leaf, index) = self.find_home(room, member).ok()??;
        let bits = self.leaf(room.heap, leaf).bits(index);
        let mut path = Path::new();
        self.at_home(room, |zset, heap| zset.descend_by(heap, &UpTo { bits, member }, &mut path)).ok()?;
        assert_eq!(path.leaf, leaf, "the tree and the index agree");
        self.index_remove(room, room.hasher.hash(member), leaf);
        self.remove_at(room, &path);
        self.len -= 1;
        self.index_shrink(room);
        Some(score::score_of(bits))
    }

    /// Takes out the member of a rank, if its leaf can be had.
    pub fn remove_nth(&mut self, room: &mut Room<'_>, rank: u64) -> Result<(), Full> {
        let mut path = self.descend_to_rank(room.heap, rank);
        if self.away > 0 {
            self.bring_home(room, path.leaf)?;
        }
        path.index += 1;
        let hash = room.hasher.hash(self.leaf(room.heap, path.leaf).member(path.index - 1));
        self.index_remove(room, hash, path.leaf);
        self.remove_at(room, &path);
        self.len -= 1;
        self.index_shrink(room);
        Ok(())
    }

    // ---- the whole ----

    /// Frees all nodes of a small set at once.
    pub fn free(mut self, room: &mut Room<'_>) {
        while !self.free_nodes(room, usize::MAX) {}
    }

    /// Frees up to `nodes_max` nodes of a set that is not used any more. Returns whether nothing is left.
    fn free_nodes(&mut self, room: &mut Room<'_>, nodes_max: usize) -> bool {
        self.len = 0;
        for _ in 0..nodes_max {
            let tables = [&mut self.pages, &mut self.inners];
            if let Some(popped) = tables.into_iter().find_map(Table::pop) {
                popped.into_iter().for_each(|handle| self.nodes.release(room.heap, handle));
                continue;
            }
            match self.leaves.pop() {
                Some(popped) => {
                    let leaf = self.leaves.len();
                    popped.into_iter().for_each(|handle| self.release_leaf(room, leaf, handle));
                }
                None => return self.longs.free_step(nodes_max),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
