//! `reshard`: a number of slots, from these nodes, each in proportion to the slots that it has.

/// Slots of one source, and how many of them go.
pub struct Source<'a> {
    pub node: usize,
    pub slots: &'a super::super::slots::SlotSet,
}

/// Slots that leave a node.
#[derive(Debug, PartialEq)]
pub struct Leaving {
    pub node: usize,
    pub slots: Vec<u16>,
}

// COMPAT(tools): isotherm-cli --cluster reshard moves as many slots as it was asked for. valkey-cli rounds
// the share of each source, so that of 9 slots from 5 equal nodes 6 are moved. Why: the number is what was
// asked for.
/// The sources with the most slots first; of each the lowest slots.
pub fn plan(sources: &[Source<'_>], count: usize) -> Vec<Leaving> {
    let mut sizes: Vec<(usize, usize)> =
        sources.iter().enumerate().map(|(at, source)| (at, source.slots.len())).collect();
    sizes.sort_by_key(|&(_, size)| std::cmp::Reverse(size));
    let total: usize = sizes.iter().map(|&(_, size)| size).sum();
    let count = count.min(total);
    if count == 0 {
        return Vec::new();
    }
    let mut shares: Vec<usize> = sizes.iter().map(|&(_, size)| count * size / total).collect();
    let missing = count - shares.iter().sum::<usize>();
    // The largest remainders get what is missing; among equals the larger source, which stands first.
    let mut by_remainder: Vec<usize> = (0..sizes.len()).collect();
    by_remainder.sort_by_key(|&at| std::cmp::Reverse(count * sizes[at].1 % total));
    by_remainder[..missing].iter().for_each(|&at| shares[at] += 1);
    let leaving = |(&(at, _), share): (&(usize, usize), usize)| Leaving {
        node: sources[at].node,
        slots: sources[at].slots.iter().take(share).collect(),
    };
    sizes.iter().zip(shares).map(leaving).filter(|leaving| !leaving.slots.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::slots::SlotSet;
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn shares_of_three_nodes() {
        let sets: Vec<SlotSet> = [(0, 5461), (5461, 10923), (10923, 16384)]
            .into_iter()
            .map(|(first, end)| (first..end).collect())
            .collect();
        let sources: Vec<Source<'_>> =
            sets.iter().enumerate().map(|(node, slots)| Source { node, slots }).collect();
        let moved: Vec<_> =
            plan(&sources, 100).iter().map(|part| (part.node, part.slots[0], part.slots.len())).collect();
        assert_eq!(moved, [(1, 5461, 34), (0, 0, 33), (2, 10923, 33)]);
        assert_eq!(plan(&sources, 0), []);
    }

    #[test]
    fn as_many_as_asked_for() {
        let mut prng = Prng::new(3);
        for _ in 0..200 {
            let sets: Vec<SlotSet> = (0..1 + prng.below(7))
                .map(|_| (0..prng.below(400)).map(|_| prng.below(16384) as u16).collect())
                .collect();
            let sources: Vec<Source<'_>> =
                sets.iter().enumerate().map(|(node, slots)| Source { node, slots }).collect();
            let total: usize = sets.iter().map(SlotSet::len).sum();
            let count = prng.below(3000) as usize;
            let moved = plan(&sources, count);
            assert_eq!(moved.iter().map(|part| part.slots.len()).sum::<usize>(), count.min(total));
            for part in moved {
                assert!(part.slots.iter().all(|&slot| sets[part.node].has(slot)));
                assert!(part.slots.is_sorted());
            }
        }
    }
}
