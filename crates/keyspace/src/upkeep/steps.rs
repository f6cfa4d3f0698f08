//! The steps of upkeep, each in a hold of its own, which the watch of holds times from the lock to its end.

use crate::access::effect::EffectSink;
use crate::access::keyspace::Keyspace;
use crate::access::lock::{Held, Want};
use crate::upkeep::age::{AgeHand, AgeStep};
use crate::upkeep::evict::{self, Evicted, EvictionGain, EvictionPolicy};
use crate::upkeep::expire::{self, ExpireStep};
use isotherm_stdx::{Prng, UnixMs};

impl Keyspace {
    fn hold<R>(&self, partition: u16, work: impl FnOnce(&mut Held<'_>) -> R) -> R {
        let mut held = Held::new(self);
        held.acquire(Want::One(partition));
        let watch = self.shared().watch();
        let from = (watch.begin)();
        let result = work(&mut held);
        (watch.end)(from);
        held.release();
        result
    }

    /// Does the same for a thread that others wait for: it passes the partition over if a command has it, and
    /// `rests`, which is called between two attempts, says that there is no time for another.
    fn hold_or_pass<R>(
        &self,
        partition: u16,
        rests: &dyn Fn() -> bool,
        work: impl FnOnce(&mut Held<'_>) -> R,
    ) -> Option<R> {
        let mut held = Held::new(self);
        while !held.try_extend(partition) {
            if !rests() {
                return None;
            }
        }
        let watch = self.shared().watch();
        let from = (watch.begin)();
        let result = work(&mut held);
        (watch.end)(from);
        held.release();
        Some(result)
    }

    /// Removes some of what is due; `None` if a command keeps the partition (`hold_or_pass`).
    pub fn expire_or_pass(
        &self,
        partition: u16,
        rests: &dyn Fn() -> bool,
        now: UnixMs,
        steps_max: u64,
        sink: &mut dyn EffectSink,
    ) -> Option<ExpireStep> {
        self.hold_or_pass(partition, rests, |held| {
            expire::step(held.numbered(partition), now, steps_max, sink)
        })
    }

    /// Frees some of what was removed, in the same way.
    pub fn free_or_pass(&self, partition: u16, rests: &dyn Fn() -> bool, nodes_max: usize) -> Option<bool> {
        self.hold_or_pass(partition, rests, |held| held.numbered(partition).free_step(nodes_max))
    }

    /// Moves the hand by some slots, in the same way.
    pub fn age_or_pass(
        &self,
        hand: &mut AgeHand,
        rests: &dyn Fn() -> bool,
        (slots_max, pages_max): (usize, u64),
        now: UnixMs,
    ) -> Option<AgeStep> {
        self.hold_or_pass(hand.partition(), rests, |held| hand.step(held, slots_max, pages_max, now))
    }

    pub fn expire_step(
        &self,
        partition: u16,
        now: UnixMs,
        steps_max: u64,
        sink: &mut dyn EffectSink,
    ) -> ExpireStep {
        self.hold(partition, |held| expire::step(held.numbered(partition), now, steps_max, sink))
    }

    /// Tries to evict one key, with an arena only one that lies there. `Nothing`: no key may leave.
    pub fn try_evict(
        &self,
        (policy, gain): (EvictionPolicy, EvictionGain),
        arena: Option<usize>,
        now: UnixMs,
        prng: &mut Prng,
        sink: &mut dyn EffectSink,
    ) -> Evicted {
        let Some(partition) = evict::choose_partition(self, policy, arena, prng) else {
            return Evicted::Nothing;
        };
        match self.hold(partition, |held| {
            evict::evict_one(held.numbered(partition), (policy, gain), now, prng, sink)
        }) {
            // Another thread was faster; as long as there are keys elsewhere the caller continues.
            Evicted::Nothing => Evicted::NotYet,
            evicted => evicted,
        }
    }

    /// Evicts one key. Returns false if no key may leave.
    pub fn evict_one(
        &self,
        policy: EvictionPolicy,
        now: UnixMs,
        prng: &mut Prng,
        sink: &mut dyn EffectSink,
    ) -> bool {
        loop {
            match self.try_evict((policy, EvictionGain::Any), None, now, prng, sink) {
                Evicted::Key(_) => return true,
                Evicted::Nothing => return false,
                Evicted::NotYet | Evicted::Leased => {}
            }
        }
    }

    pub fn free_step(&self, partition: u16, nodes_max: usize) -> bool {
        self.hold(partition, |held| held.numbered(partition).free_step(nodes_max))
    }

    /// Frees all that was removed and may go.
    pub fn free_all(&self) {
        for partition in 0..self.partition_count() as u16 {
            while self.free_step(partition, 500) {}
        }
    }

    pub fn age_step(&self, hand: &mut AgeHand, slots_max: usize, pages_max: u64, now: UnixMs) -> AgeStep {
        self.hold(hand.partition(), |held| hand.step(held, slots_max, pages_max, now))
    }
}
