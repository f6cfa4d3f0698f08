//! Sessions of a worker by the names that they listen to. The registry has their numbers only.
//!
//! Only the worker touches them: messages come by mailbox, so no thread waits for a lock while they are
//! handed out.

use isotherm_stdx::steps;
use std::collections::{BTreeMap, HashMap};

use super::{Kind, Message, Moment, Name, shrink};

#[derive(Default)]
pub struct Audience {
    rooms: [HashMap<Name, Room>; Kind::COUNT],
    monitors: Vec<usize>,
    /// CLIENT MAINT_NOTIFICATIONS
    slot_listeners: Vec<usize>,
    /// Sessions that track: their connections, by id.
    trackers: HashMap<u64, usize>,
    /// Connections of sessions that track prefixes, by prefix.
    prefixes: BTreeMap<Box<[u8]>, Vec<usize>>,
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

    /// Removes the seat of a session. Returns whether no seat is left.
    fn remove(&mut self, token: usize) -> bool {
        let Room::Several(seats) = self else { return true };
        let at = seats.iter().position(|seat| seat.token == token).expect("the session has a seat");
        steps::note(at as u64);
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

    /// Returns the tokens of the connections that listen to `name` and did so already when `message` was
    /// published.
    pub fn subscribers(
        &self,
        kind: Kind,
        name: &[u8],
        message: &Message,
    ) -> impl Iterator<Item = usize> + '_ {
        let moment = if kind == Kind::Pattern { message.pattern_moment } else { message.channel_moment };
        let seats = self.rooms[kind as usize].get(name).map(Room::seats).unwrap_or_default();
        seats.iter().filter(move |seat| seat.since <= moment).map(|seat| seat.token)
    }

    /// The shard channels that are `wanted`, and the sessions that listen to each.
    pub fn shard_channels(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<(Name, Vec<usize>)> {
        let rooms = self.rooms[Kind::ShardChannel as usize].iter().filter(|(name, _)| wanted(name));
        let tokens = |room: &Room| room.seats().iter().map(|seat| seat.token).collect();
        rooms.map(|(name, room)| (Name::clone(name), tokens(room))).collect()
    }

    // ---- monitors ----

    pub fn add_monitor(&mut self, token: usize) {
        self.monitors.push(token);
    }

    pub fn remove_monitor(&mut self, token: usize) {
        self.monitors.retain(|other| *other != token);
    }

    pub fn monitors(&self) -> &[usize] {
        &self.monitors
    }

    // ---- sessions that hear of slots that leave ----

    pub fn add_slot_listener(&mut self, token: usize) {
        self.slot_listeners.push(token);
    }

    pub fn remove_slot_listener(&mut self, token: usize) {
        steps::note(self.slot_listeners.len() as u64);
        self.slot_listeners.retain(|other| *other != token);
    }

    pub fn slot_listeners(&self) -> &[usize] {
        &self.slot_listeners
    }

    // ---- trackers ----

    pub fn add_tracker(&mut self, id: u64, token: usize) {
        self.trackers.insert(id, token);
    }

    pub fn remove_tracker(&mut self, id: u64) {
        self.trackers.remove(&id);
    }

    pub fn tracker(&self, id: u64) -> Option<usize> {
        self.trackers.get(&id).copied()
    }

    pub fn trackers(&self) -> Vec<usize> {
        self.trackers.values().copied().collect()
    }

    pub fn add_prefix(&mut self, prefix: Box<[u8]>, token: usize) {
        self.prefixes.entry(prefix).or_default().push(token);
    }

    pub fn remove_prefix(&mut self, prefix: &[u8], token: usize) {
        let tokens = self.prefixes.get_mut(prefix).expect("the session has named it");
        steps::note(tokens.len() as u64);
        tokens.retain(|other| *other != token);
        if tokens.is_empty() {
            self.prefixes.remove(prefix);
        }
    }

    /// Prefixes, and the sessions that have named each.
    pub fn prefixes(&self) -> Vec<(Box<[u8]>, Vec<usize>)> {
        self.prefixes.iter().map(|(prefix, tokens)| (prefix.clone(), tokens.clone())).collect()
    }
}
