//! A sorted set to read.

use super::ZsetBound;
use super::packed_set::PackedSet;
use super::tree::{ZsetTree, reading_of};
use crate::layout::kind::{Encoding, packed_encoding};
use crate::layout::packed::{Element, Packed, TextRoom};
use crate::layout::record::advance;
use crate::values::collection::Stored;
use crate::values::object::Object;
use crate::values::store::Store;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZsetView<'a> {
    stored: Stored<'a>,
}

/// Place of the members, to read them.
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
            Stored::Packed(bytes, _) => Source::Packed(PackedSet(Packed::new(bytes, 2))),
            Stored::Object(root, store) => match &root.body {
                Object::Zset(tree) => Source::Tree(tree, store),
                _ => unreachable!("the entry's form is that of its object"),
            },
        }
    }

    pub fn encoding(&self) -> Encoding {
        match self.stored {
            Stored::Packed(_, form) => packed_encoding(form),
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

    /// Returns the number of members in front of this one, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(u64, f64)> {
        match self.source() {
            Source::Packed(set) => set.find(member).map(|(rank, score)| (rank as u64, score)),
            Source::Tree(tree, store) => tree.rank(reading_of(store), member),
        }
    }

    /// Returns the number of members in front of a boundary.
    pub fn rank_of(&self, bound: ZsetBound<'_>) -> u64 {
        self.source().rank_of(bound)
    }

    /// The members between two boundaries by member: (rank of the first, count). Where scores differ, a
    /// listpack is read from one end, as Valkey does: `forward` says from which.
    pub fn lex_range(&self, start: ZsetBound<'_>, end: ZsetBound<'_>, forward: bool) -> (u64, u64) {
        self.source().lex_range(start, end, forward)
    }

    /// Calls `visit` with `count` members from `rank` on, in order; backward, `rank` counts from the end.
    /// Members that are not in memory are noted and left out.
    pub fn for_each(&self, rank: u64, count: u64, forward: bool, visit: impl FnMut(Element<'a>, f64)) {
        self.source().for_each(rank, count, forward, visit);
    }

    /// Calls `visit` with members as `for_each` does, until `visit` returns false.
    pub fn for_each_while(
        &self,
        rank: u64,
        count: u64,
        forward: bool,
        visit: impl FnMut(Element<'a>, f64) -> bool,
    ) {
        self.source().for_each_while(rank, count, forward, visit);
    }

    /// The member of a rank, which is below the length. `None`: it is not in memory, which was noted.
    pub fn nth(&self, rank: u64) -> Option<(Element<'a>, f64)> {
        let mut found = None;
        self.for_each(rank, 1, true, |member, score| found = Some((member, score)));
        found
    }

    /// ZSCAN: continues at `cursor` until `count` members were seen; the next cursor, 0 at the end. A set
    /// that is a listpack to the outside comes at once.
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
            tree.scan_page(reading_of(store), page, &mut |member, score| {
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
            Source::Tree(tree, store) => tree.score(reading_of(store), member),
        }
    }

    pub fn rank_of(self, bound: ZsetBound<'_>) -> u64 {
        match self {
            Source::Packed(set) => set.rank_of(bound) as u64,
            Source::Tree(tree, store) => tree.rank_of(reading_of(store), bound),
        }
    }

    pub fn lex_range(self, start: ZsetBound<'_>, end: ZsetBound<'_>, forward: bool) -> (u64, u64) {
        if matches!(self, Source::Tree(tree, _) if !tree.compact) {
            // COMPAT(sorted-sets): BYLEX ranges over members with different scores may differ in large sorted
            // sets. Why: the result is unspecified, and in Valkey depends on the random levels of its
            // skiplist.
            let (start, end) = (self.rank_of(start), self.rank_of(end));
            return (start, end.saturating_sub(start));
        }
        // Two bits a member: not below the start, not above the end.
        let mut sides = Vec::with_capacity(self.len() as usize);
        let mut room = TextRoom::default();
        self.for_each(0, self.len(), true, |member, _| {
            let member = member.text(&mut room);
            sides.push((!start.is_behind(member), end.is_behind(member)));
        });
        let meets = sides.last().is_some_and(|last| last.0) && sides.first().is_some_and(|first| first.1);
        if !meets {
            return (0, 0);
        }
        if forward {
            let first = sides.iter().position(|side| side.0).unwrap_or(sides.len());
            let count = sides[first..].iter().take_while(|side| side.1).count();
            return (first as u64, count as u64);
        }
        let end = sides.iter().rposition(|side| side.1).map_or(0, |last| last + 1);
        let count = sides[..end].iter().rev().take_while(|side| side.0).count();
        ((end - count) as u64, count as u64)
    }

    pub fn for_each(self, rank: u64, count: u64, forward: bool, mut visit: impl FnMut(Element<'a>, f64)) {
        self.for_each_while(rank, count, forward, |member, score| {
            visit(member, score);
            true
        });
    }

    pub fn for_each_while(
        self,
        rank: u64,
        count: u64,
        forward: bool,
        mut visit: impl FnMut(Element<'a>, f64) -> bool,
    ) {
        let (skip, take) = (rank as usize, count as usize);
        match self {
            Source::Packed(set) if forward => {
                set.rows().skip(skip).take(take).all(|(member, score)| visit(member, score));
            }
            Source::Packed(set) => {
                let rows: Vec<_> = set.rows().collect();
                rows.into_iter().rev().skip(skip).take(take).all(|(member, score)| visit(member, score));
            }
            Source::Tree(tree, store) => {
                let mut members = tree.members(reading_of(store), rank, count, forward);
                members.all(|(member, score)| visit(Element::Bytes(member), score));
            }
        }
    }
}
