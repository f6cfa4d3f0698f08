//! A list in the order of its insertions in which names are found and removed without going through it: an
//! administrator's tool may give a user tens of thousands of passwords or rules.

use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Clone, Debug)]
pub struct Ordered<K, V = ()> {
    by_age: BTreeMap<u64, (K, V)>,
    ages: BTreeMap<K, u64>,
    next: u64,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Ordered<K, V> {
        Ordered { by_age: BTreeMap::new(), ages: BTreeMap::new(), next: 0 }
    }
}

impl<K: Ord + Clone, V> Ordered<K, V> {
    pub fn contains(&self, name: &K) -> bool {
        self.ages.contains_key(name)
    }

    /// Appends a name that may be there already: it leaves its old place.
    pub fn put_last(&mut self, name: K, value: V) {
        self.remove(&name);
        self.ages.insert(name.clone(), self.next);
        self.by_age.insert(self.next, (name, value));
        self.next += 1;
    }

    /// Returns whether it was there.
    pub fn remove(&mut self, name: &K) -> bool {
        let age = self.ages.remove(name);
        age.is_some_and(|age| self.by_age.remove(&age).is_some())
    }

    pub fn clear(&mut self) {
        *self = Ordered::default();
    }

    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.by_age.values()
    }

    /// The first name from this one on, by the names' own order.
    pub fn next_from(&self, name: &K) -> Option<&K> {
        let mut behind = self.ages.range((Bound::Included(name), Bound::Unbounded));
        behind.next().map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn it_is_what_a_vector_is() {
        let (mut random, mut list, mut model) = (Prng::new(9), Ordered::default(), Vec::<(u64, u64)>::new());
        for round in 0..5000 {
            let name = random.below(40);
            let at = model.iter().position(|(other, _)| *other == name);
            assert_eq!(list.contains(&name), at.is_some());
            let removed = at.map(|at| model.remove(at));
            match random.below(3) {
                0 => assert_eq!(list.remove(&name), removed.is_some()),
                _ => {
                    list.put_last(name, round);
                    model.push((name, round));
                }
            }
            assert!(list.iter().eq(&model) && list.len() == model.len());
            let next = model.iter().map(|(name, _)| name).filter(|other| **other >= name).min();
            assert_eq!(list.next_from(&name), next);
        }
        list.clear();
        assert_eq!((list.len(), list.next_from(&0)), (0, None));
    }
}
