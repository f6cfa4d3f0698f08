//! The hand that goes round the pages and ages access stamps.
//!
//! Stamps are seconds modulo 65536 (18 hours). Every `LRU_ROUND_SECONDS` a round pulls those older than
//! `IDLE_SECONDS_MAX` (9 hours) up to it, so none ever comes round the corner: 32768 + 16384 < 60000. Under LFU a round
//! every `lfu-decay-time` minutes takes one off every counter, as Redis does lazily, at no stamp per key.

use crate::access::{AccessMode, IDLE_SECONDS_MAX, idle_seconds, stamp};
use crate::lock::Keyspace;
use crate::page::{self, Page};
use crate::partition::Partition;
use isotherm_stdx::UnixMs;

/// A round of the LRU hand: well below 65536 - 2 x 9 hours.
pub const LRU_ROUND_SECONDS: u64 = 16_384;
const _: () = assert!(IDLE_SECONDS_MAX as u64 + LRU_ROUND_SECONDS < 60_000);

/// Where the hand is: one round is every slot of every partition once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgeHand {
    partition: u16,
    slot: usize,
}

impl Keyspace {
    /// Ages the pages of up to `slots_max` slots. True when a round is complete.
    pub fn age_step(&self, hand: &mut AgeHand, slots_max: usize, now: UnixMs) -> bool {
        let mut partition = self.lock(hand.partition);
        let slots = self.geometry.slots_per_partition();
        let end = (hand.slot + slots_max).min(slots);
        for slot in hand.slot..end {
            partition.age_slot(slot, now);
        }
        hand.slot = end;
        if end == slots {
            *hand = AgeHand { partition: hand.partition + 1, slot: 0 };
        }
        let done = usize::from(hand.partition) == self.partition_count();
        if done {
            *hand = AgeHand::default();
        }
        done
    }
}

impl Partition {
    fn age_slot(&mut self, slot: usize, now: UnixMs) {
        let mut pages = Vec::new();
        for db in self.databases() {
            let Some(table) = self.table(db) else { continue };
            if table.sums[slot / table.run_slots()].keys > 0 {
                table.for_each_page(&self.store.heap, slot, |_, page| pages.push(page));
            }
        }
        for page in pages {
            age_page(self.store.heap.page_mut(page), now);
        }
    }
}

fn age_page(bytes: &mut [u8], now: UnixMs) {
    let oldest = stamp(now).wrapping_sub(IDLE_SECONDS_MAX);
    let is_old = |stamp: u16| idle_seconds(stamp, now) > IDLE_SECONDS_MAX;
    if is_old(Page(bytes).stamp()) {
        page::set_stamp(bytes, oldest);
    }
    let width = Page(bytes).width();
    let column = page::access_column(bytes);
    if width == AccessMode::Lfu.width() {
        column.iter_mut().for_each(|counter| *counter = counter.saturating_sub(1));
    } else if width == AccessMode::Lru.width() {
        for entry in column.chunks_exact_mut(2) {
            if is_old(u16::from_le_bytes([entry[0], entry[1]])) {
                entry.copy_from_slice(&oldest.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_stamps_stay_old_and_counters_fall() {
        let mut bytes = vec![0; 320];
        let start = UnixMs(1_800_000_000_000);
        page::init(&mut bytes, 8, 2, 0, stamp(start));
        page::append(&mut bytes, 1, b"\x01\x00kv", stamp(start));
        let mut now = start;
        // A week of rounds: the entry looks 9 hours old for ever, never young.
        for _ in 0..37 {
            now = UnixMs(now.0 + LRU_ROUND_SECONDS as i64 * 1000);
            age_page(&mut bytes, now);
            let idle = u64::from(idle_seconds(Page(&bytes).access(0, 2).unwrap(), now));
            assert!(idle >= LRU_ROUND_SECONDS && idle <= u64::from(IDLE_SECONDS_MAX));
            assert_eq!(idle_seconds(Page(&bytes).stamp(), now) as u64, idle);
        }
        page::init(&mut bytes, 8, 1, 0, 0);
        page::append(&mut bytes, 1, b"\x01\x00kv", 2);
        for expected in [1, 0, 0] {
            age_page(&mut bytes, now);
            assert_eq!(Page(&bytes).access(0, 1), Some(expected));
        }
    }
}
