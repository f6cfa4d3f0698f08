//! The way down: to a member's leaf, to the place of a boundary, to a rank.
//!
//! Separators hold scores only. Where a score ties, the first member below the child decides, which lies in
//! the child's leftmost leaf: a few more steps, paid only among equal scores. If a leaf that decides is not
//! in memory, the way ends there (`Away`).

use super::away::Away;
use super::inner;
use super::leaf::{Leaf, Target};
use super::score::order_of;
use super::{ZsetTree, node};
use crate::layout::heap::Heap;
use isotherm_stdx::steps;

/// Children of the smallest inner node but one: merging keeps two neighbours above 3/4 of a full node
/// together, so that 12 levels hold more than memory does.
pub(super) const LEVELS_MAX: usize = 16;

/// Path from the root to a leaf.
#[derive(Clone, Copy)]
pub(super) struct Path {
    /// Inner nodes from the root down, and which child the way goes through: two words, which are zeroed
    /// without gaps.
    pub steps: [(u32, u32); LEVELS_MAX],
    pub len: usize,
    pub leaf: u32,
    /// Members of the leaf on the left of the place.
    pub index: usize,
    /// Members of the whole set on the left of the place.
    pub rank: u64,
}

impl Path {
    pub(super) fn new() -> Path {
        Path { steps: [(0, 0); LEVELS_MAX], len: 0, leaf: 0, index: 0, rank: 0 }
    }

    fn push(&mut self, node: u32, child: usize) {
        assert!(self.len < LEVELS_MAX, "a tree of 16 levels does not fit into memory");
        self.steps[self.len] = (node, child as u32);
        self.len += 1;
    }
}

/// Members up to this one, itself included.
#[derive(Clone, Copy)]
pub(super) struct UpTo<'a> {
    pub bits: u64,
    pub member: &'a [u8],
}

impl Target for UpTo<'_> {
    #[inline]
    fn by_order(&self, order: u64) -> Option<bool> {
        let own = order_of(self.bits);
        (order != own).then_some(order < own)
    }
    #[inline]
    fn includes(&self, order: u64, member: &[u8]) -> bool {
        (order, member) <= (order_of(self.bits), self.member)
    }
}

/// Members below a score, or up to it.
pub(super) struct ByScore {
    pub order: u64,
    pub with_equal: bool,
}

impl Target for ByScore {
    fn by_order(&self, order: u64) -> Option<bool> {
        Some(order < self.order || self.with_equal && order == self.order)
    }
    fn includes(&self, order: u64, _: &[u8]) -> bool {
        order < self.order || self.with_equal && order == self.order
    }
}

/// Members below a member, or up to it, whatever their scores (which are equal where this is used with
/// sense).
pub(super) struct ByMember<'a> {
    pub member: &'a [u8],
    pub with_equal: bool,
}

impl Target for ByMember<'_> {
    fn by_order(&self, _: u64) -> Option<bool> {
        None
    }
    fn includes(&self, _: u64, member: &[u8]) -> bool {
        member < self.member || self.with_equal && member == self.member
    }
}

impl ZsetTree {
    /// A leaf that is known to be in memory.
    #[inline(always)]
    pub(super) fn leaf<'a>(&'a self, heap: &'a Heap, number: u32) -> Leaf<'a> {
        let bytes = node::bytes(heap, self.leaves.get(number));
        assert!(node::used(bytes) > 0, "the leaf was brought home");
        Leaf::new(bytes, &self.longs)
    }

    #[inline(always)]
    pub(super) fn leaf_here<'a>(&'a self, heap: &'a Heap, number: u32) -> Result<Leaf<'a>, Away> {
        let bytes = node::bytes(heap, self.leaves.get(number));
        match node::used(bytes) {
            0 => Err(Away { leaf: number, rank: 0 }),
            _ => Ok(Leaf::new(bytes, &self.longs)),
        }
    }

    #[inline]
    pub(super) fn inner<'a>(&'a self, heap: &'a Heap, number: u32) -> &'a [u8] {
        node::bytes(heap, self.inners.get(number))
    }

    /// The way to a boundary. The set has members.
    #[inline]
    pub(super) fn descend(&self, heap: &Heap, target: &impl Target) -> Result<Path, Away> {
        let mut path = Path::new();
        self.descend_by(heap, target, &mut path).map(|()| path)
    }

    /// Goes from the root to a boundary, and writes the way into `path`: a path is long to copy. The set has
    /// members.
    pub(super) fn descend_by(&self, heap: &Heap, target: &impl Target, path: &mut Path) -> Result<(), Away> {
        (path.len, path.rank) = (0, 0);
        let mut at = self.root;
        for below in (0..usize::from(self.height)).rev() {
            let bytes = self.inner(heap, at);
            let index =
                self.choose(heap, bytes, below, target).map_err(|leaf| Away { leaf, rank: path.rank })?;
            steps::note(1);
            path.rank += (0..index).map(|left| u64::from(inner::members(bytes, left))).sum::<u64>();
            path.push(at, index);
            at = inner::number(bytes, index);
        }
        path.leaf = at;
        let leaf = self.leaf_here(heap, at).map_err(|away| Away { rank: path.rank, ..away })?;
        path.index = leaf.partition(target);
        path.rank += path.index as u64;
        Ok(())
    }

    /// The last child whose first member lies on the left of the boundary, or the first one. `below` levels
    /// of inner nodes lie under the children. Where a leaf decides that is not in memory: that leaf.
    fn choose(&self, heap: &Heap, bytes: &[u8], below: usize, target: &impl Target) -> Result<usize, u32> {
        let (mut low, mut high) = (0, node::count(bytes) - 1);
        while low < high {
            let middle = (low + high).div_ceil(2);
            let is_left = match target.by_order(inner::separator(bytes, middle)) {
                Some(decided) => decided,
                None => {
                    let first = self.first_leaf(heap, inner::number(bytes, middle), below);
                    let leaf = self.leaf_here(heap, first).map_err(|away| away.leaf)?;
                    target.includes(leaf.order(0), leaf.member(0))
                }
            };
            if is_left { low = middle } else { high = middle - 1 }
        }
        Ok(low)
    }

    /// The way to a member whose leaf is in memory, whichever others are not: by looking at all leaves that
    /// may have it. For what cannot be given up any more when one of the others cannot be read.
    #[cold]
    pub(super) fn search(&self, heap: &Heap, member: &UpTo<'_>) -> Path {
        let mut path = Path::new();
        let is_found = self.search_below(heap, (self.root, usize::from(self.height)), member, &mut path);
        assert!(is_found, "a member lies between the separators that its score lies between");
        path
    }

    fn search_below(
        &self,
        heap: &Heap,
        (number, height): (u32, usize),
        member: &UpTo<'_>,
        path: &mut Path,
    ) -> bool {
        let order = order_of(member.bits);
        if height == 0 {
            let Ok(leaf) = self.leaf_here(heap, number) else { return false };
            (path.leaf, path.index) = (number, leaf.partition(member));
            let last = path.index.checked_sub(1);
            return last.is_some_and(|at| leaf.order(at) == order && leaf.member(at) == member.member);
        }
        let bytes = self.inner(heap, number);
        let children = node::count(bytes);
        for index in 0..children {
            let is_left = index + 1 < children && inner::separator(bytes, index + 1) < order;
            if is_left || index > 0 && inner::separator(bytes, index) > order {
                continue;
            }
            path.push(number, index);
            if self.search_below(heap, (inner::number(bytes, index), height - 1), member, path) {
                return true;
            }
            path.len -= 1;
        }
        false
    }

    fn first_leaf(&self, heap: &Heap, mut number: u32, levels: usize) -> u32 {
        for _ in 0..levels {
            number = inner::number(self.inner(heap, number), 0);
        }
        number
    }

    /// The way to the member of a rank, which is below the number of members.
    pub(super) fn descend_to_rank(&self, heap: &Heap, rank: u64) -> Path {
        let mut path = Path::new();
        let (mut at, mut left) = (self.root, rank);
        for _ in 0..self.height {
            steps::note(1);
            let bytes = self.inner(heap, at);
            let mut index = 0;
            while left >= u64::from(inner::members(bytes, index)) {
                left -= u64::from(inner::members(bytes, index));
                index += 1;
            }
            path.push(at, index);
            at = inner::number(bytes, index);
        }
        (path.leaf, path.index, path.rank) = (at, left as usize, rank);
        path
    }

    /// Moves a path to the leaf after (or before) its own. Returns whether there is one.
    pub(super) fn step_leaf(&self, heap: &Heap, path: &mut Path, forward: bool) -> bool {
        for level in (0..path.len).rev() {
            let (number, child) = path.steps[level];
            let last = node::count(self.inner(heap, number)) - 1;
            let next = match forward {
                true if (child as usize) < last => child + 1,
                false if child > 0 => child - 1,
                _ => continue,
            };
            path.steps[level].1 = next;
            let mut at = inner::number(self.inner(heap, number), next as usize);
            for lower in level + 1..path.len {
                let bytes = self.inner(heap, at);
                let child = if forward { 0 } else { node::count(bytes) - 1 };
                path.steps[lower] = (at, child as u32);
                at = inner::number(bytes, child);
            }
            path.leaf = at;
            return true;
        }
        false
    }
}
