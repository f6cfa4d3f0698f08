//! Members in order, from any rank, in both directions.

use super::ZsetTree;
use super::leaf::Leaf;
use super::seek::Path;
use crate::layout::heap::Heap;

/// Walks over members in order. One path from the root, one leaf at a time.
pub(crate) struct Members<'a> {
    zset: &'a ZsetTree,
    heap: &'a Heap,
    path: Path,
    leaf: Leaf<'a>,
    /// The next member, and where its bytes begin; backward: the one after it.
    index: usize,
    place: usize,
    forward: bool,
    left: u64,
}

impl<'a> Members<'a> {
    /// `count` members from `rank` on; backward, `rank` counts from the end. Both stay within the set.
    pub(super) fn new(
        zset: &'a ZsetTree,
        heap: &'a Heap,
        rank: u64,
        count: u64,
        forward: bool,
    ) -> Option<Members<'a>> {
        if count == 0 {
            return None;
        }
        assert!(rank + count <= zset.len, "the caller has cut the range");
        let path = zset.descend_to_rank(heap, if forward { rank } else { zset.len - 1 - rank });
        let leaf = zset.leaf(heap, path.leaf);
        let index = path.index + usize::from(!forward);
        let place = if forward { leaf.place(index) } else { 0 };
        Some(Members { zset, heap, path, leaf, index, place, forward, left: count })
    }

    fn next_leaf(&mut self) {
        let more = self.zset.step_leaf(self.heap, &mut self.path, self.forward);
        assert!(more, "the counts say that there are more members");
        self.leaf = self.zset.leaf(self.heap, self.path.leaf);
        self.index = if self.forward { 0 } else { self.leaf.len() };
        if self.forward {
            self.place = self.leaf.place(0);
        }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], f64)> {
        self.left = self.left.checked_sub(1)?;
        if self.forward {
            if self.index == self.leaf.len() {
                self.next_leaf();
            }
            let (index, cell) = (self.index, self.leaf.cell_at(self.index, self.place));
            self.index += 1;
            self.place += cell.raw.len();
            return Some((self.leaf.resolve(cell), self.leaf.score(index)));
        }
        if self.index == 0 {
            self.next_leaf();
        }
        self.index -= 1;
        Some((self.leaf.member(self.index), self.leaf.score(self.index)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}
