//! The pump: where effects go on their way from a command to whoever follows it.
//!
//! One pump a thread that changes keys: each worker's, and the cron's. It hears of effects while the partitions are
//! locked, so what it tells of a key is told in the order in which it happened. WATCH is served inside the keyspace, and
//! what is counted (hits, expired keys) comes with the transaction. The log attaches here.

use isotherm_keyspace::{Db, Effect, EffectMask, EffectSink, EventClass};

use crate::events::Events;
use crate::node::Node;

pub struct Pump {
    node: &'static Node,
    /// The worker whose pump it is.
    worker: Option<u16>,
    mask: EffectMask,
    events: Events,
}

impl Pump {
    pub fn new(node: &'static Node, worker: Option<u16>) -> Pump {
        Pump { node, worker, mask: EffectMask::NONE, events: Events::default() }
    }

    /// Which events are to be told from now on.
    pub fn listen(&mut self, events: Events) {
        self.events = events;
        self.mask = if events.any() { EffectMask::EVENTS } else { EffectMask::NONE };
    }

    fn event(&self, class: EventClass, name: &str, db: Db, key: &[u8]) {
        if self.events.has(class) {
            self.node.notify(self.events, self.worker, name, db, key);
        }
    }
}

impl EffectSink for Pump {
    #[inline]
    fn mask(&self) -> EffectMask {
        self.mask
    }

    fn effect(&mut self, effect: Effect<'_>) {
        match effect {
            Effect::Event { class, name, db, key } => self.event(class, name, db, key),
            Effect::Expired { db, key } => self.event(EventClass::Expired, "expired", db, key),
            Effect::Evicted { db, key } => self.event(EventClass::Evicted, "evicted", db, key),
            Effect::LogVerbatim { .. } | Effect::Log { .. } => {}
        }
    }
}
