//! The pump: where effects go on their way from a command to whoever follows it.
//!
//! One pump a worker. Today nobody listens: WATCH is served inside the keyspace, and what is counted (hits, expired
//! keys) comes with the transaction. The log, keyspace events and client-side caching attach here.

use isotherm_keyspace::{Effect, EffectMask, EffectSink};

#[derive(Default)]
pub struct Pump {}

impl EffectSink for Pump {
    #[inline]
    fn mask(&self) -> EffectMask {
        EffectMask::NONE
    }

    fn effect(&mut self, _: Effect<'_>) {}
}
