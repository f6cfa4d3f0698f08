//! Partition that a slot belongs to, and the slot's place there.
//!
//! ```text
//!   spread = slot x SPREAD mod 16384          a permutation of the slots
//!   [ partition: high bits ][ place: low bits ]
//! ```
//!
//! The multiplier spreads the slots of a node that owns every k-th slot, or one contiguous range, evenly over
//! the partitions. SCAN walks in the order of `spread`, which does not depend on the number of partitions.

use isotherm_stdx::Slot;

/// Odd, so that multiplying permutes the slots; near 16384 / the golden ratio, so that runs and strides
/// spread.
const SPREAD: usize = 10_127;

const _: () = assert!(SPREAD % 2 == 1);

/// Undoes the multiplication: each round doubles the bits that are right, from 3 to 24.
const UNSPREAD: usize = {
    let (mut inverse, mut round) = (SPREAD, 0);
    while round < 3 {
        inverse = inverse.wrapping_mul(2usize.wrapping_sub(SPREAD.wrapping_mul(inverse)));
        round += 1;
    }
    inverse % Slot::COUNT
};

const _: () = assert!(SPREAD * UNSPREAD % Slot::COUNT == 1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Bits of the place.
    shift: u32,
}

impl Geometry {
    pub fn new(partitions: usize) -> Geometry {
        assert!(
            partitions.is_power_of_two() && partitions <= 1024,
            "partitions are a power of two up to 1024"
        );
        Geometry { shift: Slot::COUNT.trailing_zeros() - partitions.trailing_zeros() }
    }

    #[inline]
    pub fn spread(slot: Slot) -> usize {
        slot.index() * SPREAD % Slot::COUNT
    }

    pub fn slot_at(spread: usize) -> Slot {
        Slot::new((spread * UNSPREAD % Slot::COUNT) as u16)
    }

    #[inline]
    pub fn partition_of(self, slot: Slot) -> u16 {
        (Geometry::spread(slot) >> self.shift) as u16
    }

    #[inline]
    pub fn place_of(self, slot: Slot) -> usize {
        Geometry::spread(slot) & (self.slots_per_partition() - 1)
    }

    pub fn slots_per_partition(self) -> usize {
        1 << self.shift
    }

    /// The partition of a number in the order of SCAN.
    pub fn partition_of_spread(self, spread: usize) -> u16 {
        (spread >> self.shift) as u16
    }

    pub fn place_of_spread(self, spread: usize) -> usize {
        spread & (self.slots_per_partition() - 1)
    }

    pub fn spread_of(self, partition: u16, place: usize) -> usize {
        usize::from(partition) << self.shift | place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        for partitions in [1, 2, 64, 1024] {
            let geometry = Geometry::new(partitions);
            let mut seen = vec![false; Slot::COUNT];
            for slot in Slot::all() {
                let place = geometry.spread_of(geometry.partition_of(slot), geometry.place_of(slot));
                assert!(!std::mem::replace(&mut seen[place], true));
                assert_eq!(Geometry::slot_at(place), slot);
            }
        }
    }

    /// A node that owns every third slot, or the first third, uses all partitions about equally.
    #[test]
    fn shares_of_a_cluster_spread_evenly() {
        let geometry = Geometry::new(32);
        let shares: [&dyn Fn(usize) -> bool; 3] =
            [&|slot| slot % 3 == 0, &|slot| slot < 5461, &|slot| slot % 16 == 5];
        for share in shares {
            let mut load = [0usize; 32];
            Slot::all()
                .filter(|slot| share(slot.index()))
                .for_each(|slot| load[usize::from(geometry.partition_of(slot))] += 1);
            let mean = load.iter().sum::<usize>() / 32;
            assert!(load.iter().all(|&n| n * 10 <= mean * 13 && n * 13 >= mean * 10), "{load:?}");
        }
    }
}
