//! Document 1's keys: ids of 32 hexadecimal digits, at random.

use isotherm_stdx::{Prng, Slot};

pub const ID_BYTES: usize = 32;

pub type Id = [u8; ID_BYTES];

/// Slots up to this one are those of the document's first primary.
pub const FIRST_THIRD: u16 = 5460;

pub struct Ids {
    prng: Prng,
    count: u64,
    limit: u64,
    slots: SlotsBy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotsBy {
    /// CRC16 of the id, as in a cluster.
    Crc,
    /// The i-th id falls into slot i mod 16384, and those above `FIRST_THIRD` are left out: the document's
    /// tree.
    Turn,
}

impl Ids {
    pub fn new(seed: u64, limit: u64, slots: SlotsBy) -> Ids {
        Ids { prng: Prng::new(seed), count: 0, limit, slots }
    }
}

impl Iterator for Ids {
    type Item = (u16, Id);

    fn next(&mut self) -> Option<(u16, Id)> {
        while self.count < self.limit {
            let id = hex(self.prng.next_u64(), self.prng.next_u64());
            let turn = (self.count % Slot::COUNT as u64) as u16;
            self.count += 1;
            match self.slots {
                SlotsBy::Crc => return Some((Slot::of_key(&id).get(), id)),
                SlotsBy::Turn if turn <= FIRST_THIRD => return Some((turn, id)),
                SlotsBy::Turn => {}
            }
        }
        None
    }
}

fn hex(high: u64, low: u64) -> Id {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let number = u128::from(high) << 64 | u128::from(low);
    std::array::from_fn(|at| DIGITS[(number >> (4 * at)) as usize & 15])
}

/// Returns how many of `count` consecutive ids fall into the first third of the slots.
pub fn in_first_third(count: u64) -> u64 {
    let (rounds, rest) = (count / Slot::COUNT as u64, count % Slot::COUNT as u64);
    let third = u64::from(FIRST_THIRD) + 1;
    rounds * third + rest.min(third)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_counted_right() {
        assert_eq!(in_first_third(45_000_000), 15_001_367);
        let ids = Ids::new(1, 40_000, SlotsBy::Turn);
        assert_eq!(ids.count() as u64, in_first_third(40_000));
        let (slot, id) = Ids::new(1, 1, SlotsBy::Crc).next().unwrap();
        assert_eq!(slot, Slot::of_key(&id).get());
        assert!(id.iter().all(u8::is_ascii_hexdigit));
    }
}
