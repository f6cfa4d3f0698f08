//! Insertion into the tree, and splits.
//!
//! A leaf that has no room for one more is cut in the middle. At the right edge of the tree it stays full and
//! the new member begins a leaf of its own (at the left edge likewise): scores that only rise make full
//! leaves and move no member. Full inner nodes above are cut before, from the top down, each cut leaving a
//! tree that is right: if memory ends in between, nothing has to be taken back.

use super::ZsetTree;
use super::draft::Draft;
use super::inner::{self, CHILDREN_MAX, Child};
use super::leaf::{self, Cell, MEMBERS_MAX};
use super::node::{self, INNER, LEAVES_MAX, Nodes, Room};
use super::score::order_of;
use super::seek::{Path, UpTo};
use crate::layout::kind::Full;
use crate::layout::last_used;

/// A leaf is split when it would outgrow this.
const LEAF_BYTES_MAX: usize = 1024;

impl ZsetTree {
    /// Puts a member that is not there in its place; the member index is the caller's. The leaf that has it.
    pub(super) fn insert_cell(
        &mut self,
        room: &mut Room<'_>,
        bits: u64,
        member: &[u8],
        cell: Cell<'_>,
    ) -> Result<u32, Full> {
        if self.len == 0 {
            return self.insert_first(room, bits, cell);
        }
        let mut path = Path::new();
        self.at_home(room, |zset, heap| zset.descend_by(heap, &UpTo { bits, member }, &mut path))?;
        let leaf = self.leaf(room.heap, path.leaf);
        if leaf.len() < MEMBERS_MAX {
            if leaf.fits(bits, cell.tag) {
                let need = leaf.used_with(cell);
                if need <= LEAF_BYTES_MAX {
                    self.insert_in_place(room, &path, need, bits, cell)?;
                    return Ok(path.leaf);
                }
            } else {
                let mut draft = Draft::of(&leaf);
                draft.insert(path.index, bits, cell);
                let size = draft.size(0..draft.len());
                if size <= LEAF_BYTES_MAX {
                    self.before_change(room, path.leaf);
                    self.write_leaf(room, path.leaf, &draft, 0..draft.len())?;
                    self.count_path(room, &path, 1);
                    return Ok(path.leaf);
                }
            }
        }
        self.make_room(room, &mut path)?;
        self.split_leaf(room, &path, bits, cell)
    }

    fn insert_first(&mut self, room: &mut Room<'_>, bits: u64, cell: Cell<'_>) -> Result<u32, Full> {
        let mut draft = Draft::new();
        draft.insert(0, bits, cell);
        self.root = self.new_leaf(room, &draft, 0..1)?;
        self.height = 0;
        Ok(self.root)
    }

    fn insert_in_place(
        &mut self,
        room: &mut Room<'_>,
        path: &Path,
        need: usize,
        bits: u64,
        cell: Cell<'_>,
    ) -> Result<(), Full> {
        self.before_change(room, path.leaf);
        self.give_leaf_room(room, path.leaf, need)?;
        let handle = self.leaves.get(path.leaf);
        leaf::insert(node::bytes_mut(room.heap, handle), path.index, bits, cell);
        self.count_path(room, path, 1);
        Ok(())
    }

    /// Moves a leaf to a larger class if it needs one.
    pub(super) fn give_leaf_room(
        &mut self,
        room: &mut Room<'_>,
        number: u32,
        need: usize,
    ) -> Result<(), Full> {
        let handle = self.leaves.get(number);
        let bytes = node::bytes(room.heap, handle);
        if need > bytes.len() {
            let used = node::used(bytes);
            let moved = self.nodes.resize(room, handle, used, need)?;
            self.leaves.set(number, moved);
        }
        Ok(())
    }

    /// Writes a leaf anew, in the class that it needs then.
    pub(super) fn write_leaf(
        &mut self,
        room: &mut Room<'_>,
        number: u32,
        draft: &Draft,
        range: std::ops::Range<usize>,
    ) -> Result<(), Full> {
        let size = draft.size(range.clone());
        self.give_leaf_room(room, number, size)?;
        draft.write(range, node::bytes_mut(room.heap, self.leaves.get(number)));
        self.tighten_leaf(room, number);
        Ok(())
    }

    /// Moves a leaf to a smaller class once that saves enough. Without memory for that it stays where it is.
    pub(super) fn tighten_leaf(&mut self, room: &mut Room<'_>, number: u32) {
        let handle = self.leaves.get(number);
        let bytes = node::bytes(room.heap, handle);
        let used = node::used(bytes);
        if Nodes::is_loose(bytes.len(), used)
            && let Ok(moved) = self.nodes.resize(room, handle, used, used)
        {
            self.leaves.set(number, moved);
        }
    }

    fn new_leaf(
        &mut self,
        room: &mut Room<'_>,
        draft: &Draft,
        range: std::ops::Range<usize>,
    ) -> Result<u32, Full> {
        let number = self.leaves.next();
        if number >= LEAVES_MAX {
            return Err(Full);
        }
        let handle = self.nodes.allocate(room, number, draft.size(range.clone()))?;
        let bytes = node::bytes_mut(room.heap, handle);
        draft.write(range, bytes);
        leaf::set_stamp(bytes, last_used::stamp(room.now));
        Ok(self.leaves.insert(handle))
    }

    pub(super) fn count_path(&mut self, room: &mut Room<'_>, path: &Path, more: i32) {
        for &(number, child) in &path.steps[..path.len] {
            let bytes = node::bytes_mut(room.heap, self.inners.get(number));
            let members = inner::members(bytes, child as usize);
            inner::set_members(bytes, child as usize, members.wrapping_add_signed(more));
        }
    }

    // ---- splits ----

    /// Returns whether the place is at the end of the whole set.
    fn at_right_edge(&self, room: &Room<'_>, path: &Path) -> bool {
        path.rank == self.len && self.leaf(room.heap, path.leaf).len() == path.index
    }

    /// Splits the leaf; its parent has room for one more child.
    fn split_leaf(
        &mut self,
        room: &mut Room<'_>,
        path: &Path,
        bits: u64,
        cell: Cell<'_>,
    ) -> Result<u32, Full> {
        self.before_change(room, path.leaf);
        if path.rank == 0 || self.at_right_edge(room, path) {
            return self.begin_edge_leaf(room, path, bits, cell);
        }
        let leaf = self.leaf(room.heap, path.leaf);
        let mut draft = Draft::of(&leaf);
        draft.insert(path.index, bits, cell);
        let (middle, end) = (draft.middle(), draft.len());
        self.give_leaf_room(room, path.leaf, draft.size(0..middle))?;
        let right = self.new_leaf(room, &draft, middle..end)?;
        self.write_leaf(room, path.leaf, &draft, 0..middle).expect("it has been given room");
        let child =
            Child { separator: order_of(draft.bits(middle)), number: right, members: (end - middle) as u32 };
        self.add_child(room, path, child, true);
        // The new member itself is not in the member index yet.
        let new_at = path.index.checked_sub(middle);
        self.repoint_leaf(room, right, path.leaf, right, new_at);
        Ok(if new_at.is_some() { right } else { path.leaf })
    }

    /// The new member begins a leaf at the edge of the tree.
    fn begin_edge_leaf(
        &mut self,
        room: &mut Room<'_>,
        path: &Path,
        bits: u64,
        cell: Cell<'_>,
    ) -> Result<u32, Full> {
        let mut draft = Draft::new();
        draft.insert(0, bits, cell);
        let number = self.new_leaf(room, &draft, 0..1)?;
        self.tighten_leaf(room, path.leaf);
        if path.index > 0 {
            let child = Child { separator: order_of(bits), number, members: 1 };
            self.add_child(room, path, child, true);
        } else {
            let next = self.leaf(room.heap, path.leaf).order(0);
            self.add_child(room, path, Child { separator: 0, number, members: 1 }, false);
            let (parent, child) = path.steps[path.len - 1];
            let bytes = node::bytes_mut(room.heap, self.inners.get(parent));
            let neighbour = inner::child(bytes, child as usize + 1);
            inner::set_child(bytes, child as usize + 1, Child { separator: next, ..neighbour });
        }
        Ok(number)
    }

    /// Adds a child next to the one that the path goes through, which has one member more than before,
    /// wherever it is.
    fn add_child(&mut self, room: &mut Room<'_>, path: &Path, child: Child, behind: bool) {
        self.count_path(room, path, 1);
        let (parent, index) = path.steps[path.len - 1];
        let index = index as usize;
        let bytes = node::bytes_mut(room.heap, self.inners.get(parent));
        inner::set_members(bytes, index, inner::members(bytes, index) - child.members);
        inner::insert(bytes, index + usize::from(behind), child);
    }

    /// Makes sure that the leaf's parent has room for another child, with a new root and cuts of inner nodes
    /// if it must be. The path is still one afterwards.
    fn make_room(&mut self, room: &mut Room<'_>, path: &mut Path) -> Result<(), Full> {
        let full = path.steps[..path.len]
            .iter()
            .rev()
            .take_while(|step| node::count(self.inner(room.heap, step.0)) == CHILDREN_MAX)
            .count();
        if full == path.len {
            self.raise_root(room, path)?;
        }
        for level in path.len - full..path.len {
            self.split_inner(room, path, level)?;
        }
        let parent = path.steps[path.len - 1].0;
        self.give_inner_room(room, parent)
    }

    /// A new root above the old one.
    fn raise_root(&mut self, room: &mut Room<'_>, path: &mut Path) -> Result<(), Full> {
        let number = self.new_inner(room, 2)?;
        let only = Child { separator: 0, number: self.root, members: self.len as u32 };
        inner::insert(node::bytes_mut(room.heap, self.inners.get(number)), 0, only);
        self.root = number;
        self.height += 1;
        path.steps.copy_within(0..path.len, 1);
        path.steps[0] = (number, 0);
        path.len += 1;
        assert!(path.len < path.steps.len(), "a tree of 16 levels does not fit into memory");
        Ok(())
    }

    fn new_inner(&mut self, room: &mut Room<'_>, children: usize) -> Result<u32, Full> {
        let number = self.inners.next();
        let handle = self.nodes.allocate(room, INNER | number, inner::size(children))?;
        inner::truncate(node::bytes_mut(room.heap, handle), 0);
        Ok(self.inners.insert(handle))
    }

    /// Gives an inner node that is not full room for one more child.
    fn give_inner_room(&mut self, room: &mut Room<'_>, number: u32) -> Result<(), Full> {
        let handle = self.inners.get(number);
        let bytes = node::bytes(room.heap, handle);
        let (used, need) = (node::used(bytes), inner::size(node::count(bytes) + 1));
        if need > bytes.len() {
            let moved = self.nodes.resize(room, handle, used, need)?;
            self.inners.set(number, moved);
        }
        Ok(())
    }

    pub(super) fn tighten_inner(&mut self, room: &mut Room<'_>, number: u32) {
        let handle = self.inners.get(number);
        let bytes = node::bytes(room.heap, handle);
        let used = node::used(bytes);
        if Nodes::is_loose(bytes.len(), used)
            && let Ok(moved) = self.nodes.resize(room, handle, used, used)
        {
            self.inners.set(number, moved);
        }
    }

    /// Cuts the full inner node at `level` of the path in two; the one above has fewer children than it may
    /// have.
    fn split_inner(&mut self, room: &mut Room<'_>, path: &mut Path, level: usize) -> Result<(), Full> {
        let (number, child) = path.steps[level];
        let (parent, place) = path.steps[level - 1];
        self.give_inner_room(room, parent)?;
        let children: Vec<Child> = inner::children(self.inner(room.heap, number)).collect();
        // A tree that grows at one end only keeps its nodes full.
        let middle = match child as usize {
            0 => 1,
            last if last + 1 == children.len() => last,
            _ => children.len() / 2,
        };
        let right = self.new_inner(room, children.len() - middle + 1)?;
        let moved = &children[middle..];
        inner::append(node::bytes_mut(room.heap, self.inners.get(right)), moved);
        inner::truncate(node::bytes_mut(room.heap, self.inners.get(number)), middle);
        self.tighten_inner(room, number);
        let members = moved.iter().map(|child| child.members).sum();
        let bytes = node::bytes_mut(room.heap, self.inners.get(parent));
        let place = place as usize;
        inner::set_members(bytes, place, inner::members(bytes, place) - members);
        inner::insert(bytes, place + 1, Child { separator: moved[0].separator, number: right, members });
        if child as usize >= middle {
            path.steps[level] = (right, child - middle as u32);
            path.steps[level - 1].1 += 1;
        }
        Ok(())
    }
}
