//! Frozen keys whose time is over: in which records they may be, and what becomes of them.
//!
//! ```text
//!   step        one partition: bundles whose bound is over           (the caller reads their records, without a lock)
//!   thaw_due    the keys that are due come to memory, the bundle gets another bound
//!   expire      there the expiry cycle finds and removes them as any other: events, log and replicas follow from that
//! ```
//! No reader sees a frozen key that is due: a reader of its record sees its expiry too.

use crate::access::lock::Held;
use crate::layout::bundle::{self, BundleAt};
use crate::layout::key::Key;
use crate::layout::kind::Full;
use crate::tables::frozen::BundleAddress;
use isotherm_stdx::{UnixMs, steps};

/// Bundles with keys that expire that are looked at in one hold: their bounds lie side by side.
const LOOKS_PER_HOLD: usize = 1000;

/// Position of the next look.
#[derive(Clone, Copy, Default, Debug)]
pub struct DueHand {
    partition: u16,
    db: u16,
    behind: Option<BundleAddress>,
    /// Rounds over all partitions that are complete.
    pub rounds: u64,
}

impl DueHand {
    /// Returns the partition of the hand, which is to be held.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    fn pass_database(&mut self) {
        (self.db, self.behind) = (self.db + 1, None);
    }

    fn pass_partition(&mut self, partitions: usize) {
        let next = self.partition + 1;
        let is_round = usize::from(next) == partitions;
        let partition = if is_round { 0 } else { next };
        *self = DueHand { partition, rounds: self.rounds + u64::from(is_round), ..DueHand::default() };
    }
    /// Returns bundles of the partition that may have keys whose time was over at `before`, and moves on.
    pub fn step(&mut self, held: &mut Held<'_>, before: UnixMs) -> Vec<BundleAt> {
        let partitions = held.keyspace.partition_count();
        let partition = held.numbered(self.partition);
        let (mut found, mut looks) = (Vec::new(), LOOKS_PER_HOLD);
        while looks > 0 {
            let Some(db) = partition.next_used(self.db) else {
                self.pass_partition(partitions);
                break;
            };
            if self.db != db.0 {
                (self.db, self.behind) = (db.0, None);
            }
            looks -= 1;
            let frozen = partition.table(db).and_then(|table| table.frozen.as_ref());
            let Some(frozen) = frozen.filter(|frozen| frozen.volatile > 0) else {
                self.pass_database();
                continue;
            };
            let (due, behind) = frozen.due(self.behind, before, looks);
            looks = if behind.is_some() { 0 } else { looks.saturating_sub(due.len()) };
            let bundle_of = |(address, reference)| partition.bundle_of(db, &address, reference);
            found.extend(due.into_iter().map(bundle_of));
            match behind {
                Some(_) => self.behind = behind,
                None => self.pass_database(),
            }
        }
        steps::note((LOOKS_PER_HOLD - looks) as u64);
        found
    }
}

/// Brings keys of a bundle whose time is over to memory, if it is still where its record was read. Returns
/// how many; an error if there is no memory for all of them, or the record is none. The partition is held.
pub fn thaw_due(held: &mut Held<'_>, due: &BundleAt, payload: &[u8], now: UnixMs) -> Result<usize, Full> {
    let BundleAt { db, slot, name, reference } = *due;
    let partition = held.partition(slot);
    let Some(address) = partition.bundle_at((db, slot), name, reference) else { return Ok(0) };
    let items = bundle::items(payload).ok_or(Full)?;
    let live_ordinals = partition.live_ordinals(db, &address);
    let live = || live_ordinals.iter().filter_map(|ordinal| Some((*ordinal, items.get(*ordinal)?)));
    let bound = live().filter(|(_, item)| !item.is_due(now)).filter_map(|(_, item)| item.expiry).min();
    partition.save_bundle(db, slot, &address);
    let (hasher, mut came) = (partition.store.hasher, 0);
    for (ordinal, item) in live().filter(|(_, item)| item.is_due(now)) {
        steps::note(1);
        let key: Key<'_> = hasher.key(item.key);
        partition.come_home(db, &address, (&key, ordinal), item, now)?;
        came += 1;
    }
    let frozen = partition.table_and_store(db).and_then(|(table, _)| table.frozen.as_mut());
    if let Some((bound, frozen)) = bound.zip(frozen) {
        frozen.set_bound(&address, bound);
    }
    partition.thaw_sparse(db, slot, &address, &items, now);
    Ok(came)
}
