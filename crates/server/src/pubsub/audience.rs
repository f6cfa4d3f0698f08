//! Which sessions of a worker listen to what: what the registry's numbers mean here.
//!
//! Only the worker touches it: messages come by mailbox, so nobody waits for a lock while they are handed out.

use std::collections::HashMap;

use super::{Kind, Message, Moment, Name, shrink};

#[derive(Default)]
pub struct Audience {
    rooms: [HashMap<Name, Room>; Kind::COUNT],
}

/// A session that listens to one name.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    pub token: usize,
    since: Moment,
}

/// Mostly there is one: no memory of its own.
enum Room {
    One(Seat),
    Several(Vec<Seat>),
}

impl Room {
    fn seats(&self) -> &[Seat] {
        match self {
            Room::One(seat) => std::slice::from_ref(seat),
            Room::Several(seats) => seats,
        }
    }

    fn add(&mut self, seat: Seat) {
        match self {
            Room::One(first) => *self = Room::Several(vec![*first, seat]),
            Room::Several(seats) => seats.push(seat),
        }
    }

    /// Whether nobody is left.
    fn remove(&mut self, token: usize) -> bool {
        let Room::Several(seats) = self else { return true };
        let at = seats.iter().position(|seat| seat.token == token).expect("the session has a seat");
        seats.swap_remove(at);
        if let [last] = seats[..] {
            *self = Room::One(last);
        }
        false
    }
}

impl Audience {
    pub fn add(&mut self, kind: Kind, name: Name, token: usize, since: Moment) {
        let seat = Seat { token, since };
        match self.rooms[kind as usize].entry(name) {
            std::collections::hash_map::Entry::Occupied(mut room) => room.get_mut().add(seat),
            std::collections::hash_map::Entry::Vacant(room) => drop(room.insert(Room::One(seat))),
        }
    }

    pub fn remove(&mut self, kind: Kind, name: &[u8], token: usize) {
        let rooms = &mut self.rooms[kind as usize];
        let room = rooms.get_mut(name).expect("the session listens to it");
        if room.remove(token) {
            rooms.remove(name);
            shrink(rooms);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rooms.iter().all(|rooms| rooms.is_empty())
    }

    /// Who listens to `name` and did so already when `message` was published.
    pub fn hearers(&self, kind: Kind, name: &[u8], message: &Message) -> impl Iterator<Item = usize> + '_ {
        let moment = if kind == Kind::Pattern { message.pattern_moment } else { message.channel_moment };
        let seats = self.rooms[kind as usize].get(name).map(Room::seats).unwrap_or_default();
        seats.iter().filter(move |seat| seat.since <= moment).map(|seat| seat.token)
    }
}
