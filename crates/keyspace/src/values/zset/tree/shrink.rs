//! Removal from the tree, and merges.
//!
//! A leaf that has become small takes in a neighbour, or goes into it, as soon as the two leave a quarter of
//! a leaf free together; inner nodes likewise. The one with more members keeps its number, so that fewer
//! entries of the member index change. A merge that finds no memory is left for the next removal.

use super::ZsetTree;
use super::away::used_there;
use super::draft::Draft;
use super::inner::{self, CHILDREN_MAX, Child};
use super::leaf::{self, MEMBERS_MAX};
use super::node::{self, Room};
use super::seek::Path;
use crate::layout::heap::Heap;

/// A leaf with less is merged, if the two together are at most `MERGED_BYTES_MAX`.
const SMALL_BYTES: usize = 512;
pub(super) const MERGED_BYTES_MAX: usize = 800;

const SMALL_CHILDREN: usize = 12;
const MERGED_CHILDREN_MAX: usize = 24;
const _: () = assert!(MERGED_CHILDREN_MAX < CHILDREN_MAX);

impl ZsetTree {
    /// Takes out the member that stands before the path's place. The member index is the caller's; no member
    /// of the leaf but this one may be missing there.
    pub(super) fn remove_at(&mut self, room: &mut Room<'_>, path: &Path) {
        let index = path.index - 1;
        self.before_change(room, path.leaf);
        let handle = self.leaves.get(path.leaf);
        if let Some(number) = self.leaf(room.heap, path.leaf).cell(index).long_number() {
            self.longs.remove(number);
        }
        leaf::remove(node::bytes_mut(room.heap, handle), index);
        self.count_path(room, path, -1);
        let bytes = node::bytes(room.heap, handle);
        if node::count(bytes) == 0 {
            self.nodes.release(room.heap, handle);
            self.leaves.remove(path.leaf);
            self.remove_child(room, path, path.len);
        } else if node::used(bytes) < SMALL_BYTES && path.len > 0 && self.merge_leaf(room, path) {
            self.merge_inners(room, path);
        } else {
            self.tighten_leaf(room, path.leaf);
        }
    }

    /// The child at `level` of the path has gone (`path.len`: the leaf); nodes left without children go too.
    fn remove_child(&mut self, room: &mut Room<'_>, path: &Path, level: usize) {
        if level == 0 {
            (self.root, self.height) = (0, 0);
            return;
        }
        let (number, index) = path.steps[level - 1];
        let handle = self.inners.get(number);
        let bytes = node::bytes_mut(room.heap, handle);
        inner::remove(bytes, index as usize);
        if node::count(bytes) == 0 {
            self.nodes.release(room.heap, handle);
            self.inners.remove(number);
            return self.remove_child(room, path, level - 1);
        }
        self.merge_inners(room, &Path { len: level, ..*path });
    }

    /// Two neighbours of one parent: the child of the path and the one after it, or before it.
    fn neighbours(path: &Path, level: usize, children: usize) -> impl Iterator<Item = usize> + use<> {
        let index = path.steps[level].1 as usize;
        let behind = (index + 1 < children).then_some(index);
        behind.into_iter().chain(index.checked_sub(1))
    }

    /// The pairs of leaves that may be merged: the path's own and a neighbour, and the place of the left one
    /// in their parent.
    pub(super) fn pairs_of<'a>(
        &'a self,
        heap: &'a Heap,
        path: &Path,
    ) -> impl Iterator<Item = (usize, u32, u32)> + use<'a> {
        let parent = self.inner(heap, path.steps[path.len - 1].0);
        let pairs = Self::neighbours(path, path.len - 1, node::count(parent));
        pairs.map(|left| (left, inner::number(parent, left), inner::number(parent, left + 1)))
    }

    /// Merges the path's leaf with a neighbour, if they are small enough together. One that is away is read
    /// if they are.
    fn merge_leaf(&mut self, room: &mut Room<'_>, path: &Path) -> bool {
        let level = path.len - 1;
        let mut pairs = [None; 2];
        pairs.iter_mut().zip(self.pairs_of(room.heap, path)).for_each(|(place, pair)| *place = Some(pair));
        let mut chosen = None;
        for (index, left, right) in pairs.into_iter().flatten() {
            let [a, b] = [left, right].map(|leaf| node::bytes(room.heap, self.leaves.get(leaf)));
            let is_small = used_there(a) + used_there(b) <= MERGED_BYTES_MAX;
            if !is_small || node::count(a) + node::count(b) > MEMBERS_MAX {
                continue;
            }
            if self.away > 0 && ![left, right].into_iter().all(|leaf| self.is_brought_home(room, leaf)) {
                continue;
            }
            let (a, b) = (self.leaf(room.heap, left), self.leaf(room.heap, right));
            let mut draft = Draft::of(&a);
            draft.append(&b);
            if draft.size(0..draft.len()) <= MERGED_BYTES_MAX {
                chosen = Some((index, left, right, a.len() >= b.len(), draft));
                break;
            }
        }
        let Some((index, left, right, left_stays, draft)) = chosen else { return false };
        let (stays, goes) = if left_stays { (left, right) } else { (right, left) };
        self.before_change(room, stays);
        self.before_change(room, goes);
        if self.write_leaf(room, stays, &draft, 0..draft.len()).is_err() {
            return false;
        }
        self.repoint_leaf(room, goes, goes, stays, None);
        let handle = self.leaves.remove(goes);
        self.nodes.release(room.heap, handle);
        let bytes = node::bytes_mut(room.heap, self.inners.get(path.steps[level].0));
        let first = inner::child(bytes, index);
        inner::set_child(bytes, index, Child { number: stays, members: draft.len() as u32, ..first });
        inner::remove(bytes, index + 1);
        true
    }

    /// Merges inner nodes of the path from its end up as long as they are small, and lowers the root.
    fn merge_inners(&mut self, room: &mut Room<'_>, path: &Path) {
        for level in (1..path.len).rev() {
            let children = node::count(self.inner(room.heap, path.steps[level].0));
            if children > SMALL_CHILDREN || !self.merge_inner(room, path, level) {
                self.tighten_inner(room, path.steps[level].0);
                break;
            }
        }
        self.lower_root(room);
    }

    fn merge_inner(&mut self, room: &mut Room<'_>, path: &Path, level: usize) -> bool {
        let parent = path.steps[level - 1].0;
        let bytes = self.inner(room.heap, parent);
        let mut found = None;
        for index in Self::neighbours(path, level - 1, node::count(bytes)) {
            let pair = (inner::number(bytes, index), inner::number(bytes, index + 1));
            let count = |number| node::count(self.inner(room.heap, number));
            if count(pair.0) + count(pair.1) <= MERGED_CHILDREN_MAX {
                found = Some((index, pair));
                break;
            }
        }
        let Some((index, (left, right))) = found else { return false };
        let separator = inner::separator(bytes, index + 1);
        let mut moved: Vec<Child> = inner::children(self.inner(room.heap, right)).collect();
        moved[0].separator = separator;
        let (handle, used) = (self.inners.get(left), node::used(self.inner(room.heap, left)));
        let need = inner::size(node::count(self.inner(room.heap, left)) + moved.len());
        if need > node::bytes(room.heap, handle).len() {
            match self.nodes.resize(room, handle, used, need) {
                Ok(larger) => self.inners.set(left, larger),
                Err(_) => return false,
            }
        }
        inner::append(node::bytes_mut(room.heap, self.inners.get(left)), &moved);
        let handle = self.inners.remove(right);
        self.nodes.release(room.heap, handle);
        let members: u32 = moved.iter().map(|child| child.members).sum();
        let bytes = node::bytes_mut(room.heap, self.inners.get(parent));
        inner::set_members(bytes, index, inner::members(bytes, index) + members);
        inner::remove(bytes, index + 1);
        true
    }

    /// A root with one child makes room for it.
    fn lower_root(&mut self, room: &mut Room<'_>) {
        while self.height > 0 && node::count(self.inner(room.heap, self.root)) == 1 {
            let child = inner::number(self.inner(room.heap, self.root), 0);
            let handle = self.inners.remove(self.root);
            self.nodes.release(room.heap, handle);
            self.root = child;
            self.height -= 1;
        }
    }
}
