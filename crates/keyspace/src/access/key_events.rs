//! The keyspace events that follow from what a transaction did to keys, beside those that a command emits itself.
//!
//! ```text
//!   keymiss    at once: a key that was to be read is not there
//!   new        before the first event of the command for that key; at the end if it has none
//!   del        of a key that lost its last element: behind the command's events for it
//! ```
//! That is Valkey's order: `SMOVE a b x` emits `srem a`, `del a`, `new b`, `sadd b`, whatever was stored first.
//!
//! Nothing is kept, and no key is copied, unless somebody subscribes to events.

use crate::access::effect::{Effect, EffectMask, EffectSink, EventClass};
use crate::layout::kind::Db;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// `new`, before the next event of the key.
    New,
    /// `del`, behind the next event of the key.
    Del,
    /// `del`: the key has had its event, and the next one is another key's.
    DelNow,
}

struct Pending {
    db: Db,
    key: Box<[u8]>,
    due: Due,
}

/// The events of one transaction.
pub(crate) struct KeyEvents {
    is_wanted: bool,
    pending: Vec<Pending>,
}

impl KeyEvents {
    pub fn new(mask: EffectMask) -> KeyEvents {
        KeyEvents { is_wanted: mask.has(EffectMask::EVENTS), pending: Vec::new() }
    }

    /// An event that the command says, or that stands by itself.
    #[inline]
    pub fn emit(
        &mut self,
        sink: &mut dyn EffectSink,
        class: EventClass,
        name: &'static str,
        (db, key): (Db, &[u8]),
    ) {
        if self.is_wanted {
            self.emit_in_order(sink, class, name, (db, key));
        }
    }

    /// A key is there that was not.
    #[inline]
    pub fn created(&mut self, db: Db, key: &[u8]) {
        if self.is_wanted {
            self.pending.push(Pending { db, key: key.into(), due: Due::New });
        }
    }

    /// A key has lost its last element, and is gone.
    #[inline]
    pub fn emptied(&mut self, db: Db, key: &[u8]) {
        if self.is_wanted {
            self.pending.push(Pending { db, key: key.into(), due: Due::Del });
        }
    }

    /// The command is over.
    #[inline]
    pub fn finish(&mut self, sink: &mut dyn EffectSink) {
        if !self.pending.is_empty() {
            self.emit_pending(sink, |_| true);
        }
    }

    #[cold]
    fn emit_in_order(
        &mut self,
        sink: &mut dyn EffectSink,
        class: EventClass,
        name: &'static str,
        (db, key): (Db, &[u8]),
    ) {
        let is_same = |pending: &Pending| pending.db == db && *pending.key == *key;
        self.emit_pending(sink, |pending| match pending.due {
            Due::New => is_same(pending),
            Due::Del => false,
            Due::DelNow => !is_same(pending),
        });
        sink.effect(Effect::Event { class, name, db, key });
        for pending in self.pending.iter_mut().filter(|pending| is_same(pending)) {
            pending.due = Due::DelNow;
        }
    }

    #[cold]
    fn emit_pending(&mut self, sink: &mut dyn EffectSink, is_due: impl Fn(&Pending) -> bool) {
        for Pending { db, key, due } in self.pending.extract_if(.., |pending| is_due(pending)) {
            let (class, name) = match due {
                Due::New => (EventClass::New, "new"),
                Due::Del | Due::DelNow => (EventClass::Generic, "del"),
            };
            sink.effect(Effect::Event { class, name, db, key: &key });
        }
    }
}
