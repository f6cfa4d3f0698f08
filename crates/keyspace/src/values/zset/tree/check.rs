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

/// Counts of what was found below a node.
#[derive(Default)]
struct Found {
    members: u64,
    leaves: usize,
    inners: usize,
    longs: usize,
    away: usize,
}

impl ZsetTree {
    pub fn check_tree(&self, at: Reading<'_>) {
        let heap = at.heap;
        for table in [&self.leaves, &self.inners, &self.pages] {
            table.check_invariants();
        }
        let mut found = Found::default();
        if self.len > 0 {
            let limits = Limits { low: 0, high: u64::MAX };
            self.check_below(heap, self.root, usize::from(self.height), limits, &mut found);
        }
        assert_eq!(found.members, self.len);
        assert_eq!(found.leaves, self.leaves.live());
        assert_eq!(found.inners, self.inners.live());
        assert_eq!(found.longs, self.longs.live());
        assert_eq!(found.away, self.away as usize);
        // A node that is not in memory is not noted as missing for a command.
        let at = Reading { cold: &Cold::default(), ..at };
        self.check_order(at);
        self.check_index(at);
        assert_eq!(self.bytes_of_nodes(heap), self.nodes.live_bytes);
    }

    fn check_below(&self, heap: &Heap, number: u32, height: usize, limits: Limits, found: &mut Found) {
        if height == 0 {
            return self.check_leaf(heap, number, limits, found);
        }
        let bytes = self.inner(heap, number);
        assert_eq!(node::identity(bytes), (self.nodes.object, INNER | number));
        let children = node::count(bytes);
        assert!((1..=CHILDREN_MAX).contains(&children) && node::used(bytes) == inner::size(children));
        found.inners += 1;
        for index in 0..children {
            let before = found.members;
            let low = if index == 0 { limits.low } else { inner::separator(bytes, index) };
            let high = if index + 1 == children { limits.high } else { inner::separator(bytes, index + 1) };
            assert!(limits.low <= low && high <= limits.high);
            self.check_below(heap, inner::number(bytes, index), height - 1, Limits { low, high }, found);
            assert_eq!(found.members - before, u64::from(inner::members(bytes, index)));
        }
    }

    fn check_leaf(&self, heap: &Heap, number: u32, limits: Limits, found: &mut Found) {
        let bytes = node::bytes(heap, self.leaves.get(number));
        assert_eq!(node::identity(bytes), (self.nodes.object, number));
        found.leaves += 1;
        if node::used(bytes) == 0 {
            found.away += 1;
            found.members += node::count(bytes) as u64;
            return assert!(node::count(bytes) > 0 && self.reference_at(heap, number).is_some());
        }
        let leaf = self.leaf(heap, number);
        leaf.check_invariants();
        assert!(limits.low <= leaf.order(0) && leaf.order(leaf.len() - 1) <= limits.high);
        found.members += leaf.len() as u64;
        found.longs += leaf.cells().filter(|cell| cell.tag == leaf::LONG).count();
    }

    /// Checks that members are in order, from leaf to leaf too.
    fn check_order(&self, at: Reading<'_>) {
        let mut last: Option<(u64, &[u8])> = None;
        for (member, score) in self.members(at, 0, self.len, true) {
            let this = (order_of(super::score::bits_of(score)), member);
            assert!(last.is_none_or(|last| last < this), "members are in order");
            last = Some(this);
        }
    }

    fn check_index(&self, at: Reading<'_>) {
        let heap = at.heap;
        assert_eq!(self.index_entries(heap), self.len);
        for (member, score) in self.members(at, 0, self.len, true) {
            let found = self.score(at, member);
            assert_eq!(found.map(f64::to_bits), Some(score.to_bits()), "every member is in the index");
        }
        for number in 0..self.pages.len() {
            let bytes = node::bytes(heap, self.pages.get(number));
            assert_eq!(node::identity(bytes), (self.nodes.object, INDEX | number));
        }
    }

    fn bytes_of_nodes(&self, heap: &Heap) -> usize {
        let tables = [&self.leaves, &self.inners, &self.pages];
        let handles = tables.iter().flat_map(|table| (0..table.len()).filter_map(|at| table.find(at)));
        handles.map(|handle| node::bytes(heap, handle).len()).sum()
    }
}
