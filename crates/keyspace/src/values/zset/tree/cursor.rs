//! Members in order, from any rank, in both directions. Those of leaves that are not in memory are passed
//! over, and the leaves noted.

use super::ZsetTree;
use super::leaf::Leaf;
use super::node::{self, Reading};
use super::seek::Path;

/// Walks over members in order. One path from the root, one leaf at a time.
pub(crate) struct Members<'a> {
    zset: &'a ZsetTree,
    at: Reading<'a>,
    path: Path,
    leaf: Leaf<'a>,
    /// The next member, and where its bytes begin; backward: the one after it.
    index: usize,
    place: usize,
    forward: bool,
    left: u64,
}

impl<'a> Members<'a> {
    /// Up to `count` members from `rank` on; backward, `rank` counts from the end.
    pub(super) fn new(
        zset: &'a ZsetTree,
        at: Reading<'a>,
        rank: u64,
        count: u64,
        forward: bool,
    ) -> Option<Members<'a>> {
        let count = count.min(zset.len.saturating_sub(rank));
        if count == 0 {
            return None;
        }
        let mut path = zset.descend_to_rank(at.heap, if forward { rank } else { zset.len - 1 - rank });
        let start = path.index + usize::from(!forward);
        let mut left = count;
        let (leaf, index) = find_leaf(zset, at, &mut path, Some(start), forward, &mut left)?;
        let place = if forward { leaf.place(index) } else { 0 };
        Some(Members { zset, at, path, leaf, index, place, forward, left })
    }

    /// Goes to the next leaf in memory. Returns whether there is one with members of the range.
    fn next_leaf(&mut self) -> bool {
        let more = self.zset.step_leaf(self.at.heap, &mut self.path, self.forward);
        assert!(more, "the counts say that there are more members");
        let next = find_leaf(self.zset, self.at, &mut self.path, None, self.forward, &mut self.left);
        let Some((leaf, index)) = next else { return false };
        (self.leaf, self.index) = (leaf, index);
        if self.forward {
            self.place = self.leaf.place(0);
        }
        true
    }
}

/// Finds the first leaf in memory, from the path's leaf on, and the index at which its members begin: `start`
/// in the path's own leaf.
fn find_leaf<'a>(
    zset: &'a ZsetTree,
    at: Reading<'a>,
    path: &mut Path,
    mut start: Option<usize>,
    forward: bool,
    left: &mut u64,
) -> Option<(Leaf<'a>, usize)> {
    loop {
        let count = node::count(node::bytes(at.heap, zset.leaves.get(path.leaf)));
        let index = start.take().unwrap_or(if forward { 0 } else { count });
        if let Some(leaf) = zset.shown(at, zset.leaf_here(at.heap, path.leaf)) {
            return Some((leaf, index));
        }
        *left = left.saturating_sub((if forward { count - index } else { index }) as u64);
        if *left == 0 {
            return None;
        }
        let more = zset.step_leaf(at.heap, path, forward);
        assert!(more, "the counts say that there are more members");
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], f64)> {
        if self.left == 0 {
            return None;
        }
        if self.forward {
            if self.index == self.leaf.len() && !self.next_leaf() {
                return None;
            }
            self.left -= 1;
            let (index, cell) = (self.index, self.leaf.cell_at(self.index, self.place));
            self.index += 1;
            self.place += cell.raw.len();
            return Some((self.leaf.resolve(cell), self.leaf.score(index)));
        }
        if self.index == 0 && !self.next_leaf() {
            return None;
        }
        self.left -= 1;
        self.index -= 1;
        Some((self.leaf.member(self.index), self.leaf.score(self.index)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let least = if self.zset.away > 0 { 0 } else { self.left as usize };
        (least, Some(self.left as usize))
    }
}
