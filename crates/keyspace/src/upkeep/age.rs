//! The hand that goes round the pages and ages access stamps.
//!
//! Stamps are seconds modulo 65536 (18 hours). Every `LRU_ROUND_SECONDS` a round pulls those older than
//! `IDLE_SECONDS_MAX` (9 hours) up to it, so none ever comes round the corner: 32768 + 16384 < 60000. Under
//! LFU a round every `lfu-decay-time` minutes takes one off every counter, as Redis does lazily, at no stamp
//! per key.

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::layout::directory;
use crate::layout::kind::Db;
use crate::layout::last_used::{AccessMode, IDLE_SECONDS_MAX, idle_seconds, stamp};
use crate::layout::page::{self, Page};
use isotherm_stdx::{Steps, UnixMs};

// COMPAT(memory): OBJECT IDLETIME stops at some nine hours under an LRU policy. Why: a time of last use takes
// 2 bytes and wraps after 18 hours.
/// A round of the LRU hand: well below 65536 - 2 x 9 hours.
pub const LRU_ROUND_SECONDS: u64 = 16_384;
const _: () = assert!(IDLE_SECONDS_MAX as u64 + LRU_ROUND_SECONDS < 60_000);

/// Position of the hand: one round is every page of every partition once. A page that is split or merged
/// while the hand stands in its slot may be met twice or not at all in this round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgeHand {
    partition: u16,
    slot: usize,
    db: u16,
    page: u32,
}

/// Outcome of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgeStep {
    /// Slots that the step has completed.
    pub slots: usize,
    /// A round is complete.
    pub is_round: bool,
}

impl AgeHand {
    /// The partition that the next step needs.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// Ages pages of up to `slots_max` slots of the hand's partition, which is held, until `pages_max` were
    /// looked at.
    pub(crate) fn step(
        &mut self,
        held: &mut Held<'_>,
        slots_max: usize,
        pages_max: u64,
        now: UnixMs,
    ) -> AgeStep {
        let slots = held.keyspace.geometry.slots_per_partition();
        let partition_count = held.keyspace.partition_count();
        let partition = held.numbered(self.partition);
        let (mut steps, mut done) = (Steps::new(pages_max), AgeStep::default());
        while self.slot < slots && done.slots < slots_max && !steps.is_spent() {
            if self.age_slot(partition, &mut steps, now) {
                (self.slot, self.db, self.page) = (self.slot + 1, 0, 0);
                done.slots += 1;
            }
        }
        if self.slot == slots {
            *self = AgeHand { partition: self.partition + 1, ..AgeHand::default() };
        }
        if usize::from(self.partition) == partition_count {
            (*self, done.is_round) = (AgeHand::default(), true);
        }
        done
    }

    /// Continues with the slot, by a page or a database at least. Returns whether the slot is done.
    fn age_slot(&mut self, partition: &mut Partition, steps: &mut Steps, now: UnixMs) -> bool {
        while usize::from(self.db) < partition.databases().len() {
            let table = partition.table(Db(self.db));
            let record = table.filter(|table| table.sums[self.slot / table.run_slots()].keys > 0);
            let record = record.map(|table| table.slot(&partition.store.heap, self.slot).record);
            while let Some(record) = record.filter(|record| self.page < record.pages) {
                if let (Some(page), _) = directory::get(&partition.store.heap, &record, self.page) {
                    age_page(partition.store.heap.page_mut(page), now);
                }
                self.page += 1;
                steps.look(1);
                if steps.is_spent() {
                    return false;
                }
            }
            (self.db, self.page) = (self.db + 1, 0);
            steps.look(1);
            if steps.is_spent() {
                break;
            }
        }
        usize::from(self.db) == partition.databases().len()
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
