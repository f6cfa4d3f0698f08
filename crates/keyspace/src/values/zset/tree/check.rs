//! Everything that the files of this folder call an invariant, checked on a whole sorted set.

use super::inner::{self, CHILDREN_MAX};
use super::node::Reading;
use super::node::{self, INDEX, INNER};
use super::score::order_of;
use super::{ZsetTree, leaf};
use crate::layout::heap::Heap;
use crate::values::cold::Cold;

/// The scores that members below a node may have.
#[derive(Clone, Copy)]
struct Limits {
    low: u64,
    high: u64,
}

/// A set that is checked, and counts of what was found in it so far.
struct Check<'t> {
    tree: &'t ZsetTree,
    heap: &'t Heap,
    members: u64,
    leaves: usize,
    inners: usize,
    longs: usize,
    away: usize,
}

pub(super) fn check_tree(tree: &ZsetTree, at: Reading<'_>) {
    let heap = at.heap;
    for table in [&tree.leaves, &tree.inners, &tree.pages] {
        table.check_invariants();
    }
    let mut check = Check { tree, heap, members: 0, leaves: 0, inners: 0, longs: 0, away: 0 };
    if tree.len > 0 {
        check.below(tree.root, usize::from(tree.height), Limits { low: 0, high: u64::MAX });
    }
    assert_eq!(check.members, tree.len);
    assert_eq!(check.leaves, tree.leaves.live());
    assert_eq!(check.inners, tree.inners.live());
    assert_eq!(check.longs, tree.longs.live());
    assert_eq!(check.away, tree.away as usize);
    // A node that is not in memory is not noted as missing for a command.
    let at = Reading { cold: &Cold::default(), ..at };
    check_order(tree, at);
    check_index(tree, at);
    assert_eq!(bytes_of_nodes(tree, heap), tree.nodes.live_bytes);
    tree.saved.check_invariants();
}

impl Check<'_> {
    fn below(&mut self, number: u32, height: usize, limits: Limits) {
        if height == 0 {
            return self.leaf(number, limits);
        }
        let bytes = self.tree.inner(self.heap, number);
        assert_eq!(node::identity(bytes), (self.tree.nodes.object, INNER | number));
        let children = node::count(bytes);
        assert!((1..=CHILDREN_MAX).contains(&children) && node::used(bytes) == inner::size(children));
        self.inners += 1;
        for index in 0..children {
            let before = self.members;
            let low = if index == 0 { limits.low } else { inner::separator(bytes, index) };
            let high = if index + 1 == children { limits.high } else { inner::separator(bytes, index + 1) };
            assert!(limits.low <= low && high <= limits.high);
            self.below(inner::number(bytes, index), height - 1, Limits { low, high });
            assert_eq!(self.members - before, u64::from(inner::members(bytes, index)));
        }
    }

    fn leaf(&mut self, number: u32, limits: Limits) {
        let bytes = node::bytes(self.heap, self.tree.leaves.get(number));
        assert_eq!(node::identity(bytes), (self.tree.nodes.object, number));
        self.leaves += 1;
        if node::used(bytes) == 0 {
            self.away += 1;
            self.members += node::count(bytes) as u64;
            let reference = self.tree.reference_at(self.heap, number);
            return assert!(node::count(bytes) > 0 && reference.is_some());
        }
        let leaf = self.tree.leaf(self.heap, number);
        leaf.check_invariants();
        assert!(limits.low <= leaf.order(0) && leaf.order(leaf.len() - 1) <= limits.high);
        self.members += leaf.len() as u64;
        self.longs += leaf.cells().filter(|cell| cell.tag == leaf::LONG).count();
    }
}

/// Checks that members are in order, from leaf to leaf too.
fn check_order(tree: &ZsetTree, at: Reading<'_>) {
    let mut last: Option<(u64, &[u8])> = None;
    for (member, score) in tree.members(at, 0, tree.len, true) {
        let this = (order_of(super::score::bits_of(score)), member);
        assert!(last.is_none_or(|last| last < this), "members are in order");
        last = Some(this);
    }
}

fn check_index(tree: &ZsetTree, at: Reading<'_>) {
    let heap = at.heap;
    assert_eq!(tree.index_entries(heap), tree.len);
    for (member, score) in tree.members(at, 0, tree.len, true) {
        let found = tree.score(at, member);
        assert_eq!(found.map(f64::to_bits), Some(score.to_bits()), "every member is in the index");
    }
    for number in 0..tree.pages.len() {
        let bytes = node::bytes(heap, tree.pages.get(number));
        assert_eq!(node::identity(bytes), (tree.nodes.object, INDEX | number));
    }
}

fn bytes_of_nodes(tree: &ZsetTree, heap: &Heap) -> usize {
    let tables = [&tree.leaves, &tree.inners, &tree.pages];
    let handles = tables.iter().flat_map(|table| (0..table.len()).filter_map(|at| table.find(at)));
    handles.map(|handle| node::bytes(heap, handle).len()).sum()
}
