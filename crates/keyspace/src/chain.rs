//! The order of the blocks of a list or a stream: a sequence with counts, that splits into groups of 64.
//!
//! ```text
//!   groups   [count, items -->][count, items -->][count, items -->] ...     a ring, so that both ends are cheap
//!                     |
//!                     [item][item] ... up to 64                              an item says how much it counts
//! ```
//!
//! The position of an element is found by the counts of groups, then of items: 10 M elements of 16 B are some 21,000
//! blocks, 330 groups, 5 KB to look through. A group may be shared with a copy of the whole chain (a snapshot's cut):
//! whoever changes it then changes a copy of its own, so that a cut costs 8 B a group and not a block.
//!
//! Invariants: no group is empty or longer than 64; `count` of a group and of the chain are the sums of what is below.

use std::collections::VecDeque;
use std::sync::Arc;

const GROUP_ITEMS_MAX: usize = 64;
/// Groups that would be this full together become one.
const GROUP_ITEMS_MERGED_MAX: usize = 48;

/// Something that stands for several elements.
pub(crate) trait Counted: Clone {
    fn count(&self) -> u64;
}

#[derive(Clone)]
struct Group<T> {
    count: u64,
    items: Arc<Vec<T>>,
}

#[derive(Clone)]
pub(crate) struct Chain<T> {
    groups: VecDeque<Group<T>>,
    count: u64,
}

/// The place of an item. Lasts until the next insertion or removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct At {
    group: usize,
    item: usize,
}

impl<T: Counted> Chain<T> {
    pub fn new() -> Chain<T> {
        Chain { groups: VecDeque::new(), count: 0 }
    }

    /// Elements in all.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Bytes in the global allocator.
    pub fn memory_bytes(&self) -> usize {
        let full = self.groups.len() * (GROUP_ITEMS_MAX * size_of::<T>() + size_of::<Vec<T>>() + 16);
        let items =
            if self.groups.len() == 1 { self.groups[0].items.capacity() * size_of::<T>() } else { full };
        self.groups.capacity() * size_of::<Group<T>>() + items
    }

    // ---- walking ----

    pub fn first(&self) -> Option<At> {
        (!self.is_empty()).then_some(At { group: 0, item: 0 })
    }

    pub fn last(&self) -> Option<At> {
        let group = self.groups.len().checked_sub(1)?;
        Some(At { group, item: self.groups[group].items.len() - 1 })
    }

    pub fn next(&self, at: At) -> Option<At> {
        if at.item + 1 < self.groups[at.group].items.len() {
            return Some(At { item: at.item + 1, ..at });
        }
        (at.group + 1 < self.groups.len()).then_some(At { group: at.group + 1, item: 0 })
    }

    pub fn previous(&self, at: At) -> Option<At> {
        if at.item > 0 {
            return Some(At { item: at.item - 1, ..at });
        }
        let group = at.group.checked_sub(1)?;
        Some(At { group, item: self.groups[group].items.len() - 1 })
    }

    #[inline]
    pub fn get(&self, at: At) -> &T {
        &self.groups[at.group].items[at.item]
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.groups.iter().flat_map(|group| group.items.iter())
    }

    /// The item that stands for element `position`, and how many elements of it come before that.
    pub fn find(&self, position: u64) -> Option<(At, u64)> {
        if position >= self.count {
            return None;
        }
        let (group, mut rest) = self.find_group(position);
        for (item, found) in self.groups[group].items.iter().enumerate() {
            if rest < found.count() {
                return Some((At { group, item }, rest));
            }
            rest -= found.count();
        }
        unreachable!("a group's count is the sum of its items")
    }

    /// From the nearer end.
    fn find_group(&self, position: u64) -> (usize, u64) {
        if position < self.count / 2 {
            let mut rest = position;
            for (at, group) in self.groups.iter().enumerate() {
                if rest < group.count {
                    return (at, rest);
                }
                rest -= group.count;
            }
        } else {
            let mut from = self.count;
            for (at, group) in self.groups.iter().enumerate().rev() {
                from -= group.count;
                if position >= from {
                    return (at, position - from);
                }
            }
        }
        unreachable!("the chain's count is the sum of its groups")
    }

    /// The first item that is not `before`: items are ordered so that those come first. `None` if all are.
    pub fn partition_point(&self, before: impl Fn(&T) -> bool) -> Option<At> {
        let last_is_before = |group: &Group<T>| group.items.last().is_some_and(&before);
        let group = self.groups.partition_point(last_is_before);
        let items = &self.groups.get(group)?.items;
        Some(At { group, item: items.partition_point(&before) })
    }

    // ---- changing ----

    /// Changes an item; its count may change.
    #[inline]
    pub fn update(&mut self, at: At, change: impl FnOnce(&mut T)) {
        let group = &mut self.groups[at.group];
        let item = &mut Arc::make_mut(&mut group.items)[at.item];
        let old = item.count();
        change(item);
        let new = item.count();
        group.count = group.count - old + new;
        self.count = self.count - old + new;
    }

    pub fn push_front(&mut self, item: T) {
        match self.first() {
            Some(at) if self.groups[0].items.len() < GROUP_ITEMS_MAX => _ = self.insert(at, item),
            _ => {
                self.count += item.count();
                self.groups.push_front(Group { count: item.count(), items: Arc::new(vec![item]) });
            }
        }
    }

    pub fn push_back(&mut self, item: T) {
        self.count += item.count();
        match self.groups.back_mut() {
            Some(group) if group.items.len() < GROUP_ITEMS_MAX => {
                group.count += item.count();
                Arc::make_mut(&mut group.items).push(item);
            }
            _ => self.groups.push_back(Group { count: item.count(), items: Arc::new(vec![item]) }),
        }
    }

    /// Puts an item before the one at `at`, which it returns the new place of.
    pub fn insert(&mut self, at: At, item: T) -> At {
        let mut at = at;
        if self.groups[at.group].items.len() == GROUP_ITEMS_MAX {
            self.split(at.group);
            if at.item >= GROUP_ITEMS_MAX / 2 {
                at = At { group: at.group + 1, item: at.item - GROUP_ITEMS_MAX / 2 };
            }
        }
        self.count += item.count();
        let group = &mut self.groups[at.group];
        group.count += item.count();
        Arc::make_mut(&mut group.items).insert(at.item, item);
        at
    }

    /// Puts an item behind the one at `at`; where it is now.
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
        let group = &mut self.groups[at.group];
        let item = Arc::make_mut(&mut group.items).remove(at.item);
        group.count -= item.count();
        self.count -= item.count();
        if group.items.is_empty() {
            self.groups.remove(at.group);
        } else {
            self.merge_group(at.group);
        }
        item
    }

    /// Takes out the items from `from` up to, but without, `to` (`None`: all that follow).
    pub fn remove_range(&mut self, from: At, to: Option<At>) -> Chain<T> {
        let to = to.unwrap_or(At { group: self.groups.len(), item: 0 });
        let mut taken = Chain::new();
        for number in from.group..=to.group.min(self.groups.len() - 1) {
            let start = if number == from.group { from.item } else { 0 };
            let len = self.groups[number].items.len();
            let end = if number == to.group { to.item } else { len };
            if start == 0 && end == len {
                let empty = Group { count: 0, items: Arc::new(Vec::new()) };
                taken.groups.push_back(std::mem::replace(&mut self.groups[number], empty));
            } else if start < end {
                let group = &mut self.groups[number];
                let items: Vec<T> = Arc::make_mut(&mut group.items).drain(start..end).collect();
                let count = items.iter().map(T::count).sum();
                group.count -= count;
                taken.groups.push_back(Group { count, items: Arc::new(items) });
            }
        }
        taken.count = taken.groups.iter().map(|group| group.count).sum();
        self.count -= taken.count;
        let emptied = from.group..(to.group + 1).min(self.groups.len());
        let kept: Vec<Group<T>> =
            self.groups.drain(emptied.clone()).filter(|group| !group.items.is_empty()).collect();
        for group in kept.into_iter().rev() {
            self.groups.insert(emptied.start, group);
        }
        if emptied.start < self.groups.len() {
            self.merge_group(emptied.start);
        }
        taken
    }

    /// Puts all items of another chain behind these.
    pub fn append(&mut self, mut other: Chain<T>) {
        self.count += other.count;
        self.groups.append(&mut other.groups);
    }

    fn split(&mut self, number: usize) {
        let group = &mut self.groups[number];
        let upper = Arc::make_mut(&mut group.items).split_off(GROUP_ITEMS_MAX / 2);
        let count = upper.iter().map(T::count).sum();
        group.count -= count;
        self.groups.insert(number + 1, Group { count, items: Arc::new(upper) });
    }

    /// Joins a group that has become small with its neighbour.
    fn merge_group(&mut self, number: usize) {
        let len = |number: usize| self.groups.get(number).map_or(GROUP_ITEMS_MAX, |group| group.items.len());
        let left = if number > 0 && len(number - 1) + len(number) <= GROUP_ITEMS_MERGED_MAX {
            number - 1
        } else if len(number) + len(number + 1) <= GROUP_ITEMS_MERGED_MAX {
            number
        } else {
            return;
        };
        let right = self.groups.remove(left + 1).expect("it has items");
        let left = &mut self.groups[left];
        left.count += right.count;
        Arc::make_mut(&mut left.items).extend_from_slice(&right.items);
    }

    pub fn check_invariants(&self) {
        for group in &self.groups {
            assert!((1..=GROUP_ITEMS_MAX).contains(&group.items.len()), "a group has 1 to 64 items");
            assert_eq!(group.count, group.items.iter().map(T::count).sum::<u64>());
        }
        assert_eq!(self.count, self.groups.iter().map(|group| group.count).sum::<u64>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    impl Counted for (u32, u64) {
        fn count(&self) -> u64 {
            self.1
        }
    }

    fn check(chain: &Chain<(u32, u64)>, model: &[(u32, u64)]) {
        chain.check_invariants();
        assert!(chain.iter().eq(model.iter()));
        let (mut forward, mut at) = (Vec::new(), chain.first());
        while let Some(here) = at {
            forward.push(*chain.get(here));
            at = chain.next(here);
        }
        assert_eq!(forward, model);
        let (mut backward, mut at) = (Vec::new(), chain.last());
        while let Some(here) = at {
            backward.push(*chain.get(here));
            at = chain.previous(here);
        }
        backward.reverse();
        assert_eq!(backward, model);
    }

    /// The place of the n-th item.
    fn at(chain: &Chain<(u32, u64)>, index: usize) -> At {
        let mut at = chain.first().expect("it has items");
        (0..index).for_each(|_| at = chain.next(at).expect("it has more items"));
        at
    }

    #[test]
    fn a_chain_is_a_sequence() {
        for seed in 0..20 {
            let mut prng = Prng::new(seed);
            let mut random = |below: usize| prng.below(below as u64) as usize;
            let (mut chain, mut model) = (Chain::new(), Vec::new());
            let (mut cut, mut cut_model) = (chain.clone(), Vec::<(u32, u64)>::new());
            for step in 0..1500u32 {
                let item = (step, 1 + random(9) as u64);
                let grows = step % 600 < 400;
                match random(if grows { 5 } else { 9 }) {
                    0 => {
                        chain.push_front(item);
                        model.insert(0, item);
                    }
                    1 => {
                        chain.push_back(item);
                        model.push(item);
                    }
                    _ if model.is_empty() => {}
                    2 | 3 => {
                        let index = random(model.len());
                        let place = at(&chain, index);
                        let (place, index) = match random(2) {
                            0 => (chain.insert(place, item), index),
                            _ => (chain.insert_after(place, item), index + 1),
                        };
                        assert_eq!(*chain.get(place), item);
                        model.insert(index, item);
                    }
                    4 => {
                        let index = random(model.len());
                        chain.update(at(&chain, index), |found| found.1 = item.1);
                        model[index].1 = item.1;
                    }
                    5 => {
                        let (from, to) = (random(model.len()), random(model.len() + 1));
                        if from < to && to - from < 40 {
                            let end = (to < model.len()).then(|| at(&chain, to));
                            let taken = chain.remove_range(at(&chain, from), end);
                            check(&taken, &model[from..to]);
                            model.drain(from..to);
                        }
                    }
                    _ => {
                        let index = random(model.len());
                        assert_eq!(chain.remove(at(&chain, index)), model.remove(index));
                    }
                }
                if step % 50 == 0 {
                    check(&chain, &model);
                    check(&cut, &cut_model);
                }
                if step % 300 == 0 {
                    (cut, cut_model) = (chain.clone(), model.clone());
                }
            }
        }
    }

    #[test]
    fn elements_are_found_by_position_and_items_by_order() {
        let mut chain = Chain::new();
        (0..1000u32).for_each(|n| chain.push_back((n * 10, u64::from(n % 4))));
        let expected: Vec<(u32, u64)> =
            chain.iter().flat_map(|&(n, count)| (0..count).map(move |rest| (n, rest))).collect();
        for (position, &wanted) in expected.iter().enumerate() {
            let (at, rest) = chain.find(position as u64).expect("it is there");
            assert_eq!((chain.get(at).0, rest), wanted);
        }
        assert!(chain.find(expected.len() as u64).is_none());
        for wanted in 0..10_000 {
            let found = chain.partition_point(|item| item.0 < wanted).map(|at| chain.get(at).0);
            assert_eq!(found, (wanted <= 9990).then_some(wanted.next_multiple_of(10)));
        }
    }
}
