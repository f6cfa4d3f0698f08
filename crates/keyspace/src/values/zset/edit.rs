//! A sorted set to change.

use super::ZsetBound;
use super::packed_set::PackedSet;
use super::tree::{ZsetTree, reading_of, room_of};
use super::view::Source;
use crate::layout::kind::Full;
use crate::layout::packed::{Element, PackedBuf, TextRoom};
use crate::values::collection::{EditBody, Editing, PACKED_BYTES_MAX};
use crate::values::object::Object;
use crate::values::store::Store;
use isotherm_stdx::UnixMs;

pub struct ZsetEdit<'c, 'e> {
    pub(crate) editing: &'c mut Editing<'e>,
}

/// Scores of a member before and after a change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ZsetUpdate {
    pub old: Option<f64>,
    /// The score that the member has now, unless it is not there.
    pub new: Option<f64>,
}

impl ZsetUpdate {
    pub fn is_added(&self) -> bool {
        self.old.is_none() && self.new.is_some()
    }

    pub fn is_changed(&self) -> bool {
        self.old.is_some() && self.old != self.new
    }
}

/// A tree and the store that it lies in.
fn tree_of<'a>(body: &'a mut EditBody, store: &'a mut Store) -> Option<(&'a mut ZsetTree, &'a mut Store)> {
    match body {
        EditBody::Packed(_) => None,
        EditBody::Object(_, root) => match &mut root.body {
            Object::Zset(tree) => Some((tree, store)),
            _ => unreachable!("the entry's form is that of its object"),
        },
    }
}

impl ZsetEdit<'_, '_> {
    fn source(&self) -> Source<'_> {
        match &self.editing.body {
            EditBody::Packed(buf) => Source::Packed(PackedSet(buf.view())),
            EditBody::Object(_, root) => match &root.body {
                Object::Zset(tree) => Source::Tree(tree, self.editing.store),
                _ => unreachable!("the entry's form is that of its object"),
            },
        }
    }

    pub fn len(&self) -> u64 {
        self.source().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes the leaves of a range that are not in memory: a command that has changed nothing by then runs
    /// again when they were read. Returns whether all are there.
    pub fn wants_range(&self, rank: u64, count: u64) -> bool {
        match self.source() {
            Source::Tree(tree, store) => tree.wants_range(reading_of(store), rank, count),
            Source::Packed(_) => true,
        }
    }

    /// Notes the leaves of members that are about to be taken out, if they are not in memory: a command that
    /// has changed nothing by then runs again when they were read. Returns whether all are there.
    pub fn wants_members(&self, members: &[&[u8]]) -> bool {
        match self.source() {
            Source::Tree(tree, store) => tree.wants_members(store, members),
            Source::Packed(_) => true,
        }
    }

    /// Returns the number of members in front of a boundary, before anything was changed. A leaf that decides
    /// and is not in memory is noted, as `wants_range` does; then the result is too small, and nothing can be
    /// changed.
    pub fn rank_of(&self, bound: ZsetBound<'_>) -> u64 {
        match self.source() {
            Source::Tree(tree, store) => tree.rank_wanted(reading_of(store), bound),
            packed => packed.rank_of(bound),
        }
    }

    /// Returns the range that `ZsetView::lex_range` returns. Leaves that decide and are not in memory are
    /// noted, as `rank_of` does.
    pub fn lex_range(&self, start: ZsetBound<'_>, end: ZsetBound<'_>, forward: bool) -> (u64, u64) {
        match self.source() {
            Source::Tree(tree, _) if !tree.compact => {
                let (start, end) = (self.rank_of(start), self.rank_of(end));
                (start, end.saturating_sub(start))
            }
            _ if !self.wants_range(0, self.len()) => (0, 0),
            source => source.lex_range(start, end, forward),
        }
    }

    fn bring_range_home(&mut self, rank: u64, count: u64) -> Result<(), Full> {
        let now = self.editing.now;
        match tree_of(&mut self.editing.body, self.editing.store) {
            Some((tree, store)) => tree.bring_range_home(&mut room_of(store, now), rank, count),
            None => Ok(()),
        }
    }

    /// The score of a member that is about to change.
    fn score_home(&mut self, member: &[u8]) -> Result<Option<f64>, Full> {
        let now = self.editing.now;
        match tree_of(&mut self.editing.body, self.editing.store) {
            Some((tree, store)) => tree.score_home(&mut room_of(store, now), member),
            None => Ok(self.source().score(member)),
        }
    }

    /// Prepares for `members` members, the longest with `longest_bytes` bytes: what is too much for a
    /// listpack ends it now, even if some of them turn out to be there already.
    pub fn expect(&mut self, members: usize, longest_bytes: usize) -> Result<(), Full> {
        let limits = self.editing.limits;
        if members <= limits.zset_max_listpack_entries && longest_bytes <= limits.zset_max_listpack_value {
            return Ok(());
        }
        self.promote()?;
        if let Some((tree, _)) = tree_of(&mut self.editing.body, self.editing.store) {
            tree.compact = false;
        }
        Ok(())
    }

    fn promote(&mut self) -> Result<(), Full> {
        let now = self.editing.now;
        self.editing.promote(|store, number, buf| tree_from(store, number, buf, true, now))
    }

    /// Calls `visit` with `count` members from `rank` on, in order; backward, `rank` counts from the end.
    /// With none if some cannot be brought to memory: then nothing changes any more.
    pub fn for_each(&mut self, rank: u64, count: u64, forward: bool, visit: impl FnMut(Element<'_>, f64)) {
        let first = if forward { rank } else { self.len().saturating_sub(rank + count) };
        if self.bring_range_home(first, count).is_ok() {
            self.source().for_each(rank, count, forward, visit);
        }
    }

    /// Gives a member the score that `choose` finds for it, from the one it has; `None` leaves it as it is.
    pub fn update(
        &mut self,
        member: &[u8],
        choose: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Result<ZsetUpdate, Full> {
        let old = self.score_home(member)?;
        let Some(new) = choose(old) else { return Ok(ZsetUpdate { old, new: old }) };
        debug_assert!(!new.is_nan());
        match old {
            None => self.add(member, new)?,
            Some(old) if old == new => {}
            Some(_) => self.change(member, new)?,
        }
        Ok(ZsetUpdate { old, new: Some(new) })
    }

    /// Sets the score of a member.
    pub fn set(&mut self, member: &[u8], score: f64) -> Result<ZsetUpdate, Full> {
        self.update(member, |_| Some(score))
    }

    fn add(&mut self, member: &[u8], score: f64) -> Result<(), Full> {
        let (limits, now) = (self.editing.limits, self.editing.now);
        let fits_listpack = self.len() < limits.zset_max_listpack_entries as u64
            && member.len() <= limits.zset_max_listpack_value;
        if let EditBody::Packed(buf) = &mut self.editing.body {
            if fits_listpack && buf.bytes_bound() + member.len() + 16 <= PACKED_BYTES_MAX {
                insert_row(buf, member, score);
                self.editing.changed = true;
                return Ok(());
            }
            self.promote()?;
            self.editing.changed = true;
        }
        let (tree, store) = tree_of(&mut self.editing.body, self.editing.store).expect("it is a tree now");
        let score = if tree.compact && fits_listpack { listpack_score(score) } else { score };
        tree.insert(&mut room_of(store, now), member, score)?;
        tree.compact &= fits_listpack;
        self.editing.changed = true;
        Ok(())
    }

    fn change(&mut self, member: &[u8], score: f64) -> Result<(), Full> {
        let now = self.editing.now;
        self.editing.changed = true;
        if let EditBody::Packed(buf) = &mut self.editing.body {
            let (row, _) = PackedSet(buf.view()).find(member).expect("it was found");
            buf.remove(2 * row, 2);
            insert_row(buf, member, score);
            return Ok(());
        }
        let (tree, store) = tree_of(&mut self.editing.body, self.editing.store).expect("it is a tree");
        let score = if tree.compact { listpack_score(score) } else { score };
        tree.update(&mut room_of(store, now), member, score)
    }

    /// Takes a member out; its score if it was there.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let now = self.editing.now;
        let removed = match &mut self.editing.body {
            EditBody::Packed(buf) => {
                let found = PackedSet(buf.view()).find(member);
                if let Some((row, _)) = found {
                    buf.remove(2 * row, 2);
                }
                found.map(|(_, score)| score)
            }
            body => {
                let (tree, store) = tree_of(body, self.editing.store).expect("it is a tree");
                tree.remove(&mut room_of(store, now), member)
            }
        };
        self.editing.changed |= removed.is_some();
        removed
    }

    /// Takes out `count` members from `rank` on. Returns how many went: all, unless some cannot be brought to
    /// memory.
    pub fn remove_range(&mut self, rank: u64, count: u64) -> u64 {
        if count == 0 || self.bring_range_home(rank, count).is_err() {
            return 0;
        }
        let now = self.editing.now;
        self.editing.changed = true;
        if let EditBody::Packed(buf) = &mut self.editing.body {
            buf.remove(2 * rank as usize, 2 * count as usize);
            return count;
        }
        let (tree, store) = tree_of(&mut self.editing.body, self.editing.store).expect("it is a tree now");
        (0..count).take_while(|_| tree.remove_nth(&mut room_of(store, now), rank).is_ok()).count() as u64
    }

    /// Takes out the first or the last member.
    pub fn pop(&mut self, last: bool) -> Option<(Vec<u8>, f64)> {
        let mut popped = None;
        if !self.is_empty() {
            self.for_each(0, 1, !last, |member, score| popped = Some((member.to_vec(), score)));
            self.remove_range(if last { self.len() - 1 } else { 0 }, 1);
        }
        popped
    }
}

/// A listpack keeps whole numbers as integers, which have no negative zero.
fn listpack_score(score: f64) -> f64 {
    if score == 0.0 { 0.0 } else { score }
}

fn insert_row(buf: &mut PackedBuf, member: &[u8], score: f64) {
    let row = PackedSet(buf.view()).place_of(member, score);
    buf.insert_scored(2 * row, Element::of(member), listpack_score(score));
}

/// A tree of the same members. `compact`: a listpack for Valkey.
pub(crate) fn tree_from(
    store: &mut Store,
    number: u32,
    buf: &PackedBuf,
    compact: bool,
    now: UnixMs,
) -> Result<Object, Full> {
    let mut tree = ZsetTree::new(number);
    tree.compact = compact;
    let mut text = TextRoom::default();
    for (member, score) in PackedSet(buf.view()).rows() {
        let inserted = tree.insert(&mut room_of(store, now), member.text(&mut text), score);
        if inserted.is_err() {
            tree.free(&mut room_of(store, now));
            return Err(Full);
        }
    }
    Ok(Object::Zset(tree))
}
