//! The order of the blocks of a list or a stream, and of what is pending in a group: a sequence with counts,
//! of three levels.
//!
//! ```text
//!   bunches  [count, groups -->][count, groups -->] ...           a ring, so that both ends are cheap
//!                      |
//!   groups             [count, items -->] ... up to 64
//!                                 |
//!   items                         [item][item] ... up to 64      an item says how much it counts
//! ```
//!
//! The position of an element is found by the counts of bunches, groups, items: 10 M elements of 16 B are
//! some 21,000 blocks, 330 groups, 6 bunches. Bunches and groups may be shared with a copy of the whole chain
//! (a snapshot's cut): a change then changes a copy of its own. So a cut costs an eighth of a byte a group
//! and not a block, and the first change after it 64 + 64 places, however long the chain is.
//!
//! Invariants: no group or bunch is empty or longer than 64; counts are the sums of what is below.

use isotherm_arena::prefetch_value;
use isotherm_stdx::steps;
use std::collections::VecDeque;
use std::sync::Arc;

const ROW_ITEMS_MAX: usize = 64;
/// Steps of `Chain::prefetch_last`.
pub(crate) const PREFETCH_STEPS: usize = 5;
/// Rows that would be this full together become one.
const ROW_ITEMS_MERGED_MAX: usize = 48;

/// Something that stands for several elements.
pub(crate) trait Counted: Clone {
    fn count(&self) -> u64;
}

/// A few items, or a few rows of items; shared with copies of the chain until it changes.
struct Row<T> {
    count: u64,
    items: Arc<Vec<T>>,
}

type Group<T> = Row<T>;
type Bunch<T> = Row<Group<T>>;

impl<T> Clone for Row<T> {
    fn clone(&self) -> Row<T> {
        Row { count: self.count, items: Arc::clone(&self.items) }
    }
}

impl<T> Counted for Row<T> {
    fn count(&self) -> u64 {
        self.count
    }
}

impl<T: Counted> Row<T> {
    fn of(items: Vec<T>) -> Row<T> {
        Row { count: items.iter().map(T::count).sum(), items: Arc::new(items) }
    }

    fn len(&self) -> usize {
        self.items.len()
    }

    fn is_full(&self) -> bool {
        self.len() == ROW_ITEMS_MAX
    }

    fn insert(&mut self, at: usize, item: T) {
        self.count += item.count();
        Arc::make_mut(&mut self.items).insert(at, item);
    }

    fn push(&mut self, item: T) {
        self.count += item.count();
        Arc::make_mut(&mut self.items).push(item);
    }

    fn remove(&mut self, at: usize) -> T {
        let item = Arc::make_mut(&mut self.items).remove(at);
        self.count -= item.count();
        item
    }

    /// Takes out what lies from `at` on.
    fn split_off(&mut self, at: usize) -> Row<T> {
        let upper = Row::of(Arc::make_mut(&mut self.items).split_off(at));
        self.count -= upper.count;
        upper
    }

    fn append(&mut self, other: Row<T>) {
        self.count += other.count;
        Arc::make_mut(&mut self.items).extend_from_slice(&other.items);
    }

    /// The item that stands for element `position`, which is there, and how many elements of it come before
    /// that.
    fn find(&self, position: u64) -> (usize, u64) {
        let mut rest = position;
        for (at, item) in self.items.iter().enumerate() {
            steps::note(1);
            if rest < item.count() {
                return (at, rest);
            }
            rest -= item.count();
        }
        unreachable!("a row's count is the sum of its items")
    }
}

#[derive(Clone)]
pub(crate) struct Chain<T> {
    bunches: VecDeque<Bunch<T>>,
    groups: usize,
    count: u64,
}

/// The place of an item. Lasts until the next insertion or removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct At {
    bunch: usize,
    group: usize,
    item: usize,
}

impl<T: Counted> Chain<T> {
    pub fn new() -> Chain<T> {
        Chain { bunches: VecDeque::new(), groups: 0, count: 0 }
    }

    /// Elements in all.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.bunches.is_empty()
    }

    /// Items in all. It looks at every group: 131,000 blocks of 8 KB (1 GB) are some 3,000.
    pub fn items(&self) -> u64 {
        self.bunches.iter().flat_map(|bunch| bunch.items.iter()).map(|group| group.len() as u64).sum()
    }

    /// Bytes in the global allocator.
    pub fn memory_bytes(&self) -> usize {
        // A shared vector: two counts, and the vector itself.
        const SHARED_BYTES: usize = 16 + size_of::<Vec<u8>>();
        // By lengths: a copy that a snapshot asked for has other capacities.
        let room = |len: usize| len.next_power_of_two().max(4);
        let (items, groups) = match self.bunches.len() {
            0 => return 0,
            // The first group is made alone.
            1 if self.groups == 1 => (room(self.group(0, 0).len()), 1),
            1 => (self.groups * ROW_ITEMS_MAX, room(self.groups)),
            bunches => (self.groups * ROW_ITEMS_MAX, bunches * ROW_ITEMS_MAX),
        };
        (room(self.bunches.len()) + groups) * size_of::<Row<T>>()
            + (self.bunches.len() + self.groups) * SHARED_BYTES
            + items * size_of::<T>()
    }

    // ---- walking ----

    #[inline]
    fn group(&self, bunch: usize, group: usize) -> &Group<T> {
        &self.bunches[bunch].items[group]
    }

    pub fn first(&self) -> Option<At> {
        (!self.is_empty()).then_some(At { bunch: 0, group: 0, item: 0 })
    }

    pub fn last(&self) -> Option<At> {
        Some(self.last_of(self.bunches.len().checked_sub(1)?))
    }

    fn last_of(&self, bunch: usize) -> At {
        let group = self.bunches[bunch].len() - 1;
        At { bunch, group, item: self.group(bunch, group).len() - 1 }
    }

    pub fn next(&self, at: At) -> Option<At> {
        let At { bunch, group, item } = at;
        if item + 1 < self.group(bunch, group).len() {
            return Some(At { item: item + 1, ..at });
        }
        if group + 1 < self.bunches[bunch].len() {
            return Some(At { group: group + 1, item: 0, ..at });
        }
        (bunch + 1 < self.bunches.len()).then_some(At { bunch: bunch + 1, group: 0, item: 0 })
    }

    pub fn previous(&self, at: At) -> Option<At> {
        if at.item > 0 {
            return Some(At { item: at.item - 1, ..at });
        }
        if let Some(group) = at.group.checked_sub(1) {
            return Some(At { group, item: self.group(at.bunch, group).len() - 1, ..at });
        }
        Some(self.last_of(at.bunch.checked_sub(1)?))
    }

    /// Asks for the memory of the last item, in `PREFETCH_STEPS` steps: each reads what the ones before have
    /// asked for.
    pub fn prefetch_last(&self, step: usize) {
        let Some(bunch) = self.bunches.back() else { return };
        let group = || bunch.items.last();
        match step {
            0 => prefetch_value(bunch),
            1 => prefetch_value(&*bunch.items),
            2 => group().into_iter().for_each(prefetch_value),
            3 => group().into_iter().for_each(|group| prefetch_value(&*group.items)),
            _ => group().and_then(|group| group.items.last()).into_iter().for_each(prefetch_value),
        }
    }

    #[inline]
    pub fn get(&self, at: At) -> &T {
        &self.group(at.bunch, at.group).items[at.item]
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.bunches.iter().flat_map(|bunch| bunch.items.iter()).flat_map(|group| group.items.iter())
    }

    /// The item that stands for element `position`, and how many elements of it come before that.
    pub fn find(&self, position: u64) -> Option<(At, u64)> {
        if position >= self.count {
            return None;
        }
        let (bunch, rest) = self.find_bunch(position);
        let (group, rest) = self.bunches[bunch].find(rest);
        let (item, rest) = self.group(bunch, group).find(rest);
        Some((At { bunch, group, item }, rest))
    }

    /// Finds the bunch that a position is in, and the position within it. Searches from the nearer end.
    fn find_bunch(&self, position: u64) -> (usize, u64) {
        if position < self.count / 2 {
            let mut rest = position;
            for (at, bunch) in self.bunches.iter().enumerate() {
                steps::note(1);
                if rest < bunch.count {
                    return (at, rest);
                }
                rest -= bunch.count;
            }
        } else {
            let mut from = self.count;
            for (at, bunch) in self.bunches.iter().enumerate().rev() {
                steps::note(1);
                from -= bunch.count;
                if position >= from {
                    return (at, position - from);
                }
            }
        }
        unreachable!("the chain's count is the sum of its bunches")
    }

    /// The first item that is not `before`: items are ordered so that those come first. `None` if all are.
    pub fn partition_point(&self, before: impl Fn(&T) -> bool) -> Option<At> {
        let group_is_before = |group: &Group<T>| group.items.last().is_some_and(&before);
        let bunch_is_before = |bunch: &Bunch<T>| bunch.items.last().is_some_and(group_is_before);
        let bunch = self.bunches.partition_point(bunch_is_before);
        let group = self.bunches.get(bunch)?.items.partition_point(group_is_before);
        Some(At { bunch, group, item: self.group(bunch, group).items.partition_point(&before) })
    }

    // ---- changing ----

    /// Changes an item; its count may change.
    #[inline]
    pub fn update(&mut self, at: At, change: impl FnOnce(&mut T)) {
        let bunch = &mut self.bunches[at.bunch];
        let group = &mut Arc::make_mut(&mut bunch.items)[at.group];
        let item = &mut Arc::make_mut(&mut group.items)[at.item];
        let old = item.count();
        change(item);
        let new = item.count();
        for count in [&mut group.count, &mut bunch.count, &mut self.count] {
            *count = *count - old + new;
        }
    }

    /// Changes a group whose bunch and chain count for it.
    fn change_group<R>(&mut self, bunch: usize, group: usize, change: impl FnOnce(&mut Group<T>) -> R) -> R {
        let bunch = &mut self.bunches[bunch];
        let group = &mut Arc::make_mut(&mut bunch.items)[group];
        let old = group.count;
        let result = change(group);
        for count in [&mut bunch.count, &mut self.count] {
            *count = *count - old + group.count;
        }
        result
    }

    pub fn push_front(&mut self, item: T) {
        match self.first() {
            Some(at) if !self.group(0, 0).is_full() => _ = self.insert(at, item),
            _ => {
                let group = Row::of(vec![item]);
                (self.count, self.groups) = (self.count + group.count, self.groups + 1);
                match self.bunches.front_mut().filter(|bunch| !bunch.is_full()) {
                    Some(bunch) => bunch.insert(0, group),
                    None => self.bunches.push_front(Row::of(vec![group])),
                }
            }
        }
    }

    pub fn push_back(&mut self, item: T) {
        match self.last() {
            Some(at) if !self.group(at.bunch, at.group).is_full() => {
                self.change_group(at.bunch, at.group, |group| group.push(item));
            }
            _ => {
                let group = Row::of(vec![item]);
                (self.count, self.groups) = (self.count + group.count, self.groups + 1);
                match self.bunches.back_mut().filter(|bunch| !bunch.is_full()) {
                    Some(bunch) => bunch.push(group),
                    None => self.bunches.push_back(Row::of(vec![group])),
                }
            }
        }
    }

    /// Puts an item before the one at `at`, which it returns the new place of.
    pub fn insert(&mut self, at: At, item: T) -> At {
        let mut at = at;
        if self.group(at.bunch, at.group).is_full() {
            at = self.split_group(at);
        }
        self.change_group(at.bunch, at.group, |group| group.insert(at.item, item));
        at
    }

    /// Puts an item after the one at `at`; returns where it is now.
    pub fn insert_after(&mut self, at: At, item: T) -> At {
        match self.next(at) {
            Some(next) => self.insert(next, item),
            None => {
                self.push_back(item);
                self.last().expect("it was just put there")
            }
        }
    }

    pub fn remove(&mut self, at: At) -> T {
        let item = self.change_group(at.bunch, at.group, |group| group.remove(at.item));
        if self.group(at.bunch, at.group).len() == 0 {
            self.bunches[at.bunch].remove(at.group);
            self.groups -= 1;
            self.merge_bunch(at.bunch);
        } else {
            self.merge_group(at.bunch, at.group);
        }
        item
    }

    /// Takes out the items from `from` up to, but without, `to` (`None`: all that follow).
    pub fn remove_range(&mut self, from: At, to: Option<At>) -> Chain<T> {
        let behind = to.map_or(0, |to| {
            let end = self.split_at(to);
            self.bunches.len() - end
        });
        let start = self.split_at(from);
        let end = self.bunches.len() - behind;
        let bunches: VecDeque<Bunch<T>> = self.bunches.drain(start..end).collect();
        let taken = Chain {
            groups: bunches.iter().map(Row::len).sum(),
            count: bunches.iter().map(|bunch| bunch.count).sum(),
            bunches,
        };
        self.count -= taken.count;
        self.groups -= taken.groups;
        if start > 0 && start < self.bunches.len() {
            self.merge_bunch(start);
        }
        taken
    }

    /// Puts all items of another chain after these.
    pub fn append(&mut self, mut other: Chain<T>) {
        (self.count, self.groups) = (self.count + other.count, self.groups + other.groups);
        self.bunches.append(&mut other.bunches);
    }

    /// Drops up to about `groups_max` groups from the end; one that is shared costs nothing. Returns true
    /// when nothing is left.
    pub fn drop_step(&mut self, groups_max: usize) -> bool {
        for _ in 0..groups_max {
            let Some(bunch) = self.bunches.back_mut() else { return true };
            match Arc::get_mut(&mut bunch.items).filter(|groups| groups.len() > 1).and_then(Vec::pop) {
                Some(group) => {
                    bunch.count -= group.count;
                    (self.count, self.groups) = (self.count - group.count, self.groups - 1);
                }
                None => {
                    (self.count, self.groups) = (self.count - bunch.count, self.groups - bunch.len());
                    self.bunches.pop_back();
                }
            }
        }
        self.is_empty()
    }

    /// Makes two of a full group; where the item is then.
    fn split_group(&mut self, at: At) -> At {
        const HALF: usize = ROW_ITEMS_MAX / 2;
        let mut at = at;
        if self.bunches[at.bunch].is_full() {
            let upper = self.bunches[at.bunch].split_off(HALF);
            self.bunches.insert(at.bunch + 1, upper);
            if at.group >= HALF {
                at = At { bunch: at.bunch + 1, group: at.group - HALF, ..at };
            }
        }
        let upper = self.change_group(at.bunch, at.group, |group| group.split_off(HALF));
        self.put_group(at.bunch, at.group + 1, upper);
        if at.item >= HALF {
            at = At { group: at.group + 1, item: at.item - HALF, ..at };
        }
        at
    }

    /// A group that was part of another one.
    fn put_group(&mut self, bunch: usize, at: usize, group: Group<T>) {
        (self.count, self.groups) = (self.count + group.count, self.groups + 1);
        self.bunches[bunch].insert(at, group);
    }

    /// Makes an item the first of its bunch, whose number it returns.
    fn split_at(&mut self, at: At) -> usize {
        let At { bunch, mut group, item } = at;
        if item > 0 {
            let upper = self.change_group(bunch, group, |group| group.split_off(item));
            group += 1;
            self.put_group(bunch, group, upper);
        }
        if group == 0 {
            return bunch;
        }
        let upper = self.bunches[bunch].split_off(group);
        self.bunches.insert(bunch + 1, upper);
        bunch + 1
    }

    /// Joins a group that has become small with a neighbour in its bunch.
    fn merge_group(&mut self, bunch: usize, number: usize) {
        let len = |at: usize| self.bunches[bunch].items.get(at).map(Row::len);
        let Some(left) = mergeable(number, len) else { return };
        let groups = Arc::make_mut(&mut self.bunches[bunch].items);
        let right = groups.remove(left + 1);
        groups[left].append(right);
        self.groups -= 1;
        self.merge_bunch(bunch);
    }

    /// Joins a bunch that has become small with a neighbour, or drops one that is empty.
    fn merge_bunch(&mut self, number: usize) {
        if self.bunches[number].len() == 0 {
            self.bunches.remove(number);
            return;
        }
        let Some(left) = mergeable(number, |at| self.bunches.get(at).map(Row::len)) else { return };
        let right = self.bunches.remove(left + 1).expect("it has groups");
        let seam = self.bunches[left].len();
        self.bunches[left].append(right);
        self.merge_group(left, seam);
    }

    pub fn check_invariants(&self) {
        fn check<T: Counted>(row: &Row<T>) {
            assert!((1..=ROW_ITEMS_MAX).contains(&row.len()), "a row has 1 to 64 items");
            assert_eq!(row.count, row.items.iter().map(T::count).sum::<u64>());
        }
        for bunch in &self.bunches {
            check(bunch);
            bunch.items.iter().for_each(check);
        }
        assert_eq!(self.count, self.bunches.iter().map(|bunch| bunch.count).sum::<u64>());
        assert_eq!(self.groups, self.bunches.iter().map(Row::len).sum::<usize>());
    }
}

/// The left one of two rows that may be joined, one of them row `number`.
fn mergeable(number: usize, len: impl Fn(usize) -> Option<usize>) -> Option<usize> {
    let fits = |left: usize| {
        len(left).zip(len(left + 1)).is_some_and(|(left, right)| left + right <= ROW_ITEMS_MERGED_MAX)
    };
    number.checked_sub(1).filter(|&left| fits(left)).or_else(|| fits(number).then_some(number))
}

#[cfg(test)]
mod tests;
