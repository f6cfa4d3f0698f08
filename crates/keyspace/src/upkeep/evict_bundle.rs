//! Eviction of frozen keys, those of one record at a time.
//!
//! Which they are only the record says. Who evicts has read it, while nothing was held: where the space on disk is won segment by segment,
//! with all else that lies there. They have not been used since it was written, or they would be in memory: none of them is worth more
//! than another.

use crate::access::effect::EffectSink;
use crate::access::followers::ChangeCause;
use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::layout::bundle::{self, BundleAt};
use crate::upkeep::evict::EvictionPolicy;
use isotherm_stdx::{UnixMs, steps};

impl Held<'_> {
    /// Evicts the keys of a bundle that the policy may take, if its record is still there: `payload`. Its partition is held. How many left.
    pub fn evict_bundle(
        &mut self,
        at: &BundleAt,
        payload: &[u8],
        policy: EvictionPolicy,
        now: UnixMs,
        sink: &mut dyn EffectSink,
    ) -> u64 {
        self.partition(at.slot).evict_bundle(at, payload, policy, now, sink)
    }
}

impl Partition {
    fn evict_bundle(
        &mut self,
        at: &BundleAt,
        payload: &[u8],
        policy: EvictionPolicy,
        now: UnixMs,
        sink: &mut dyn EffectSink,
    ) -> u64 {
        let BundleAt { db, slot, name, reference } = *at;
        let address = self.bundle_at((db, slot), name, reference);
        let Some((address, items)) = address.zip(bundle::items(payload)) else { return 0 };
        self.save_bundle(db, slot, &address);
        let hasher = self.store.hasher;
        let mut evicted = 0;
        // At most as many as a bundle has.
        for ordinal in self.live_ordinals(db, &address) {
            steps::note(1);
            let Some(item) = items.get(ordinal) else { break };
            let key = hasher.key(item.key);
            // A script needs it.
            if !policy.takes(item.expiry) || self.leases.has(key.hash) {
                continue;
            }
            self.leave(db, &address, ordinal, item.expiry.is_some());
            let cause = ChangeCause::Evicted { was_stale: item.is_due(now) };
            self.followers.changed(db, item.key, cause, None, sink);
            evicted += 1;
        }
        self.drop_table_if_empty(db);
        evicted
    }
}
