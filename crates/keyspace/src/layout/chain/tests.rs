//! Chains compared with a plain vector of items.

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
        let (mut chain, mut model) = (Chain::new(), Vec::<(u32, u64)>::new());
        if seed % 3 == 0 && !cfg!(miri) {
            model.extend((0..7000u32).map(|n| (n, 1 + u64::from(n % 9))));
            model.iter().for_each(|item| chain.push_back(*item));
        }
        let (mut cut, mut cut_model) = (chain.clone(), model.clone());
        for step in 0..if cfg!(miri) { 300 } else { 1500u32 } {
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
                    if from < to && to - from < if random(20) == 0 { 5000 } else { 40 } {
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
        for mut chain in [chain, cut] {
            while !chain.drop_step(3) {
                chain.check_invariants();
            }
            assert_eq!((chain.count(), chain.groups), (0, 0));
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
