//! Numbers of the sessions of each worker that listen to one name. Mostly it is one session: 16 B, and no
//! memory of its own.

/// Invariants: no count is 0, except that of `first` when there is no subscriber; no worker is named twice.
#[derive(Default, Debug)]
pub struct WorkerCounts {
    first: (u16, u32),
    #[expect(clippy::box_collection, reason = "mostly there is none, and 8 B say so")]
    more: Option<Box<Vec<(u16, u32)>>>,
}

const _: () = assert!(size_of::<WorkerCounts>() == 16);

impl WorkerCounts {
    pub fn add(&mut self, worker: u16) {
        if self.first.1 == 0 {
            self.first.0 = worker;
        }
        if self.first.0 == worker {
            self.first.1 += 1;
            return;
        }
        let more = self.more.get_or_insert_default();
        match more.iter_mut().find(|(at, _)| *at == worker) {
            Some((_, count)) => *count += 1,
            None => more.push((worker, 1)),
        }
    }

    pub fn remove(&mut self, worker: u16) {
        if self.first.0 == worker && self.first.1 > 0 {
            self.first.1 -= 1;
            if self.first.1 == 0
                && let Some(next) = self.more.as_mut().and_then(|more| more.pop())
            {
                self.first = next;
            }
        } else {
            let more = self.more.as_mut().expect("a session of this worker subscribes");
            let at =
                more.iter().position(|(at, _)| *at == worker).expect("a session of this worker subscribes");
            more[at].1 -= 1;
            if more[at].1 == 0 {
                more.swap_remove(at);
            }
        }
        if self.more.as_ref().is_some_and(|more| more.is_empty()) {
            self.more = None;
        }
    }

    pub fn total(&self) -> usize {
        self.by_worker().map(|(_, count)| count as usize).sum()
    }

    /// Workers with subscribers, and how many.
    pub fn by_worker(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        let more = self.more.iter().flat_map(|more| more.iter());
        std::iter::once(&self.first).chain(more).copied().filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn counts_as_a_map_does() {
        let mut prng = isotherm_stdx::Prng::new(3);
        let (mut subscribers, mut model) = (WorkerCounts::default(), BTreeMap::<u16, u32>::new());
        for _ in 0..10_000 {
            let worker = prng.below(4) as u16;
            if prng.below(2) == 0 {
                subscribers.add(worker);
                *model.entry(worker).or_default() += 1;
            } else if let Some(count) = model.get_mut(&worker) {
                subscribers.remove(worker);
                *count -= 1;
                model.retain(|_, count| *count > 0);
            }
            assert_eq!(subscribers.by_worker().collect::<BTreeMap<_, _>>(), model);
            assert_eq!(subscribers.total(), model.values().sum::<u32>() as usize);
            assert_eq!(subscribers.more.is_some(), model.len() > 1);
        }
    }
}
