//! Keys that come again while they are gathered: the last value counts, and what it replaces does not stay.
//!
//! ```text
//!   group > its bound --> keys counted, by a bit for each hash --> most are different:  the bound is doubled
//!                                                              \-> others:  the last record of each stays, and the bound is
//!                                                                           twice what these take
//! ```
//! Memory of what is gathered of a log is at most about four times the memory of the keys that it sets, and
//! `BYTES_MIN` a group (32 MB of all), however long the log is.

use super::{Group, Record, Records, SLOTS_PER_GROUP, Staging};
use crate::tables::table::build::NewEntry;

/// Below this a group is not looked through.
const BYTES_MIN: u64 = 32 << 10;
/// Bits for each record: of 16 different keys, one meets a bit that is set.
const BITS_PER_RECORD: usize = 8;

impl Staging {
    /// Removes what has been replaced from a group that has reached its bound, and moves the bound.
    #[cold]
    pub(super) fn thin(&mut self, number: usize) {
        let group = &mut self.groups[number];
        if group.bytes <= BYTES_MIN {
            group.bytes_max = BYTES_MIN;
            return;
        }
        if self.has_many_repeats(number) {
            self.drop_repeats(number);
        }
        let group = &mut self.groups[number];
        group.bytes_max = BYTES_MIN.max(2 * group.bytes);
    }

    /// Returns whether at least half of the records have keys that other records have too.
    fn has_many_repeats(&self, number: usize) -> bool {
        let group = &self.groups[number];
        let records = || group.chunks().flat_map(Records);
        let count = records().count();
        let words = (count * BITS_PER_RECORD).next_power_of_two().max(64) / 64;
        let mut bits = vec![0u64; words];
        for Record { bytes, .. } in records() {
            let hash = self.hasher.hash(bytes.inline_key().unwrap_or_default()) as usize;
            bits[hash / 64 % words] |= 1 << (hash % 64);
        }
        let different: u32 = bits.iter().map(|word| word.count_ones()).sum();
        different as usize <= count / 2
    }

    fn drop_repeats(&mut self, number: usize) {
        let all = self.take(number);
        let mut group = Group::default();
        for (place, entries) in all.by_slot(self.hasher).iter_mut().enumerate() {
            keep_last(entries);
            for entry in entries {
                group.push(place as u8, entry.access, entry.bytes.0);
            }
        }
        self.bytes += group.bytes;
        self.groups[number] = group;
    }
}

const _: () = assert!(SLOTS_PER_GROUP <= 128, "a place is seven bits");

impl Group {
    fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.full.iter().chain([&self.open]).map(Vec::as_slice)
    }
}

/// Keeps the last entry of each key. The order of the entries changes.
pub(super) fn keep_last(entries: &mut Vec<NewEntry<'_>>) {
    entries.reverse();
    // Stable: of each key the last one comes first.
    entries.sort_by(|one, other| one.hash.cmp(&other.hash).then_with(|| one.key().cmp(other.key())));
    entries.dedup_by(|other, first| other.hash == first.hash && other.key() == first.key());
}
