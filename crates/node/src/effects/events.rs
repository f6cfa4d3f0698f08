//! Events of the keyspace: what happened to a key, as messages of two channels.
//!
//! ```text
//! SET k v in database 0     __keyspace@0__:k   "set"        if `K` is chosen
//!                           __keyevent@0__:set "k"          if `E` is chosen
//! ```
//! `notify-keyspace-events` chooses the channels and the classes of events. Without a channel or without a
//! class nothing is ever made: a worker then does not even hear of its events.

use isotherm_keyspace::{Db, EventClass};

use isotherm_config::{Config, Id, id};

/// Classes and channels, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Events(u16);

const KEYSPACE: u16 = 1 << 14;
const KEYEVENT: u16 = 1 << 15;
const CHANNELS: u16 = KEYSPACE | KEYEVENT;
/// Classes that `A` stands for: every class but misses and new keys.
const ALL: &[u8] = b"g$lshzxetd";

impl Events {
    /// Returns the events that the parameter chooses.
    pub fn chosen(config: &Config) -> Events {
        const NOTIFY_KEYSPACE_EVENTS: Id = id("notify-keyspace-events");
        Events::of(&config.text(NOTIFY_KEYSPACE_EVENTS))
    }

    /// Returns the events that the text of the parameter chooses.
    pub fn of(text: &[u8]) -> Events {
        let characters = text.iter().flat_map(|character| match character {
            b'A' => ALL,
            character => std::slice::from_ref(character),
        });
        Events(characters.map(|character| bit(*character)).fold(0, |bits, bit| bits | bit))
    }

    /// Returns whether any event is emitted: the parameter chooses a channel and a class.
    pub fn any(self) -> bool {
        self.0 & CHANNELS != 0 && self.0 & !CHANNELS != 0
    }

    pub fn has(self, class: EventClass) -> bool {
        self.0 & bit(character(class)) != 0
    }

    /// The channels and the messages of an event: `name` happened to `key`.
    #[cold]
    pub fn messages<'e>(
        self,
        name: &'e str,
        db: Db,
        key: &'e [u8],
    ) -> impl Iterator<Item = (Vec<u8>, &'e [u8])> {
        let channel = |kind: &str, rest: &[u8]| [format!("__{kind}@{}__:", db.0).as_bytes(), rest].concat();
        let of_key = (self.0 & KEYSPACE != 0).then(|| (channel("keyspace", key), name.as_bytes()));
        let of_event = (self.0 & KEYEVENT != 0).then(|| (channel("keyevent", name.as_bytes()), key));
        of_key.into_iter().chain(of_event)
    }
}

fn character(class: EventClass) -> u8 {
    match class {
        EventClass::Generic => b'g',
        EventClass::String => b'$',
        EventClass::List => b'l',
        EventClass::Set => b's',
        EventClass::Hash => b'h',
        EventClass::Zset => b'z',
        EventClass::Stream => b't',
        EventClass::Expired => b'x',
        EventClass::Evicted => b'e',
        EventClass::New => b'n',
        EventClass::KeyMiss => b'm',
    }
}

fn bit(character: u8) -> u16 {
    match character {
        b'K' => KEYSPACE,
        b'E' => KEYEVENT,
        character => b"g$lshzxetdnm".iter().position(|&known| known == character).map_or(0, |at| 1 << at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_choose() {
        let check = |text: &[u8], any: bool, class: EventClass, has: bool| {
            let events = Events::of(text);
            assert_eq!((events.any(), events.has(class)), (any, has), "{}", text.escape_ascii());
        };
        check(b"", false, EventClass::String, false);
        check(b"KE", false, EventClass::String, false);
        check(b"A", false, EventClass::String, true);
        check(b"AK", true, EventClass::Evicted, true);
        check(b"AE", true, EventClass::Stream, true);
        check(b"AKE", true, EventClass::New, false);
        check(b"AKE", true, EventClass::KeyMiss, false);
        check(b"mnE", true, EventClass::New, true);
        check(b"mnE", true, EventClass::KeyMiss, true);
        check(b"lK", true, EventClass::List, true);
        check(b"lK", true, EventClass::Set, false);
    }
}
