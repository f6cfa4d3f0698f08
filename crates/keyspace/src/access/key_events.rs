//! The keyspace events that follow from what a transaction did to keys, besides those that a command emits
//! itself.
//!
//! ```text
//!   keymiss    at once: a key that was to be read is not there
//!   new        before the first event of the command for that key; at the end if it has none
//!   del        of a key that lost its last element: behind the command's events for it
//! ```
//! The order is Valkey's: `SMOVE a b x` emits `srem a`, `del a`, `new b`, `sadd b`, whatever was stored
//! first.
//!
//! A name is kept, and a key copied, only while a client subscribes to events.

use crate::access::effect::{Effect, EffectMask, EffectSink, EventClass};
use crate::layout::kind::Db;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// `new`, before the next event of the key.
    New,
    /// `del`, after the next event of the key.
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

    /// A key has left. One that was stored and removed by the same command, for lack of memory, never was
    /// there.
    #[inline]
    pub fn removed(&mut self, db: Db, key: &[u8]) {
        if !self.pending.is_empty() {
            self.pending
                .retain(|pending| pending.due != Due::New || pending.db != db || *pending.key != *key);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Names(Vec<String>);

    impl EffectSink for Names {
        fn mask(&self) -> EffectMask {
            EffectMask::EVENTS
        }
        fn effect(&mut self, effect: Effect<'_>) {
            let Effect::Event { name, key, .. } = effect else { panic!("{effect:?}") };
            self.0.push(format!("{name} {}", key.escape_ascii()));
        }
    }

    fn emit(events: &mut KeyEvents, names: &mut Names, name: &'static str, key: &[u8]) {
        events.emit(names, EventClass::Generic, name, (Db(0), key));
    }

    #[test]
    fn new_stands_before_and_del_behind_the_events_of_a_key() {
        let (mut events, mut names) = (KeyEvents::new(EffectMask::EVENTS), Names::default());
        events.emptied(Db(0), b"a");
        emit(&mut events, &mut names, "hset", b"a");
        emit(&mut events, &mut names, "hexpired", b"a");
        events.created(Db(0), b"b");
        emit(&mut events, &mut names, "sadd", b"b");
        events.emptied(Db(0), b"c");
        events.finish(&mut names);
        assert_eq!(names.0, ["hset a", "hexpired a", "del a", "new b", "sadd b", "del c"]);
    }

    #[test]
    fn a_key_that_is_removed_again_was_never_new() {
        let (mut events, mut names) = (KeyEvents::new(EffectMask::EVENTS), Names::default());
        events.created(Db(0), b"a");
        events.created(Db(1), b"a");
        events.removed(Db(0), b"a");
        events.finish(&mut names);
        assert_eq!(names.0.len(), 1, "that of database 1");
    }

    #[test]
    fn without_subscribers_nothing_is_kept() {
        let (mut events, mut names) = (KeyEvents::new(EffectMask::LOG), Names::default());
        events.created(Db(0), b"a");
        events.emptied(Db(0), b"b");
        assert!(events.pending.is_empty());
        events.finish(&mut names);
        assert!(names.0.is_empty());
    }
}
