//! A sorted set to read.

use super::ZsetBound;
use super::packed_set::PackedSet;
use super::tree::ZsetTree;
use crate::collection::{Stored, packed_encoding};
use crate::entry::Form;
use crate::object::Object;
use crate::packed::{Element, Packed};
use crate::scan::advance;
use crate::store::Store;
use crate::value::Encoding;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZsetView<'a> {
    stored: Stored<'a>,
}

/// Where the members are.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Packed(PackedSet<'a>),
    Tree(&'a ZsetTree, &'a Store),
}

impl<'a> ZsetView<'a> {
    #[inline]
    pub(crate) fn new(stored: Stored<'a>) -> ZsetView<'a> {
        ZsetView { stored }
    }

    #[inline]
    fn source(&self) -> Source<'a> {
        match self.stored {
            Stored::Packed(bytes) => Source::Packed(PackedSet(Packed::new(bytes, 2))),
            Stored::Object(root, store) => match &root.body {
                Object::Zset(tree) => Source::Tree(tree, store),
                _ => unreachable!("the entry's form is that of its object"),
            },
        }
    }

    pub fn encoding(&self) -> Encoding {
        match self.stored {
            Stored::Packed(_) => packed_encoding(Form::Zset),
            Stored::Object(root, _) => root.body.structure().encoding(),
        }
    }

    /// Members.
    #[allow(clippy::len_without_is_empty, reason = "an empty one is absent")]
    pub fn len(&self) -> u64 {
        self.source().len()
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.source().score(member)
    }

    /// How many members lie in front of this one, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(u64, f64)> {
        match self.source() {
            Source::Packed(set) => set.find(member).map(|(rank, score)| (rank as u64, score)),
            Source::Tree(tree, store) => tree.rank(&store.heap, &store.hasher, member),
        }
    }

    /// How many members lie in front of a boundary.
    pub fn rank_of(&self, bound: ZsetBound<'_>) -> u64 {
        self.source().rank_of(bound)
    }

    /// Calls `visit` with `count` members from `rank` on, in order; backward, `rank` counts from the end.
    pub fn for_each(&self, rank: u64, count: u64, forward: bool, visit: impl FnMut(Element<'a>, f64)) {
        self.source().for_each(rank, count, forward, visit);
    }

    /// The member of a rank.
    pub fn nth(&self, rank: u64) -> (Element<'a>, f64) {
        let mut found = None;
        self.for_each(rank, 1, true, |member, score| found = Some((member, score)));
        found.expect("the rank is below the length")
    }

    /// ZSCAN: goes on at `cursor` until `count` members were seen; the next cursor, 0 at the end. What is a listpack to
    /// the outside comes at once.
    pub fn scan(&self, cursor: u64, count: u64, mut visit: impl FnMut(Element<'a>, f64)) -> u64 {
        let Source::Tree(tree, store) = self.source() else {
            self.for_each(0, self.len(), true, visit);
            return 0;
        };
        if tree.compact {
            self.for_each(0, self.len(), true, visit);
            return 0;
        }
        let (mut position, mut seen) = (cursor as u32, 0);
        loop {
            let (page, next) = advance(position, tree.scan_pages());
            tree.scan_page(&store.heap, &store.hasher, page, &mut |member, score| {
                seen += 1;
                visit(Element::Bytes(member), score);
            });
            position = next;
            if position == 0 || seen >= count {
                return u64::from(position);
            }
        }
    }
}

impl<'a> Source<'a> {
    pub fn len(self) -> u64 {
        match self {
            Source::Packed(set) => set.len() as u64,
            Source::Tree(tree, _) => tree.len(),
        }
    }

    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Source::Packed(set) => set.find(member).map(|(_, score)| score),
            Source::Tree(tree, store) => tree.score(&store.heap, &store.hasher, member),
        }
    }

    pub fn rank_of(self, bound: ZsetBound<'_>) -> u64 {
        match self {
            Source::Packed(set) => set.rank_of(bound) as u64,
            Source::Tree(tree, store) => tree.rank_of(&store.heap, bound),
        }
    }

    pub fn for_each(self, rank: u64, count: u64, forward: bool, mut visit: impl FnMut(Element<'a>, f64)) {
        match self {
            Source::Packed(set) if forward => {
                let rows = set.rows().skip(rank as usize).take(count as usize);
                rows.for_each(|(member, score)| visit(member, score));
            }
            Source::Packed(set) => {
                let rows: Vec<_> = set.rows().collect();
                let rows = rows.into_iter().rev().skip(rank as usize).take(count as usize);
                rows.for_each(|(member, score)| visit(member, score));
            }
            Source::Tree(tree, store) => {
                let members = tree.members(&store.heap, rank, count, forward);
                members.for_each(|(member, score)| visit(Element::Bytes(member), score));
            }
        }
    }
}
