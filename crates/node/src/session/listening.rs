//! Names that one session listens to: channels, commands (MONITOR), changes of keys (CLIENT TRACKING). Few
//! sessions listen, so the state is reached by a pointer that is mostly empty.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use isotherm_acl::User;
use isotherm_keyspace::Held;

use super::Session;
use super::client::SeenListening;
use crate::Node;
use crate::cluster::state::Member;
use crate::effects::pubsub::{Audience, Kind, Name};
use crate::effects::tracking::{Mode, Tracking};

#[derive(Default)]
pub struct Listening {
    names: [HashSet<Name>; Kind::COUNT],
    /// True if the session gets a line for every command (MONITOR).
    pub monitors: bool,
    /// True if the session gets notices of slots that leave this node (CLIENT MAINT_NOTIFICATIONS).
    has_slots: bool,
    pub tracking: Option<Box<Tracking>>,
    /// True if the messages that were in the mailbox before the session's next command was read have been
    /// handed out.
    pub heard: bool,
}

impl Listening {
    pub fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    fn is_idle(&self) -> bool {
        !self.awaits_mail() && !self.has_slots
    }

    /// Returns whether messages in the mailbox may affect the replies to the session's commands.
    pub fn awaits_mail(&self) -> bool {
        self.any() || self.monitors || self.tracking.is_some()
    }

    fn any(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    /// Returns the bytes of the sets and of the tracking state; the names are shared. A place takes 17 B: a
    /// pointer, a length, and a byte of the table.
    fn bytes(&self) -> usize {
        const PLACE_BYTES: usize = size_of::<Name>() + 1;
        let names = self.names.iter().map(|names| names.capacity() * PLACE_BYTES).sum::<usize>();
        size_of::<Listening>() + names + self.tracking.as_ref().map_or(0, |tracking| tracking.bytes())
    }

    fn marks(&self) -> u8 {
        let mark = |is: bool, mark: u8| if is { mark } else { 0 };
        let tracking = self.tracking.as_deref();
        mark(self.monitors, SeenListening::MONITORS)
            | mark(tracking.is_some(), SeenListening::TRACKS)
            | mark(tracking.is_some_and(|tracking| tracking.is_broken), SeenListening::BROKEN)
            | mark(
                tracking.is_some_and(|tracking| tracking.mode == Mode::Broadcast),
                SeenListening::BROADCAST,
            )
    }

    fn show(&self, seen: &SeenListening) {
        for kind in Kind::ALL {
            seen.counts[kind as usize].store(self.count(kind) as u32, Ordering::Relaxed);
        }
        seen.bytes.store(self.bytes() as u64, Ordering::Relaxed);
        let redirect = self.tracking.as_ref().map_or(0, |tracking| tracking.redirect as i64);
        seen.redirect.store(redirect, Ordering::Relaxed);
        seen.marks.store(self.marks(), Ordering::Relaxed);
    }
}

impl Session {
    /// Returns whether the session listens to a channel or a pattern.
    pub fn is_subscriber(&self) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.any())
    }

    /// Returns whether the client is connected to listen, so that no sign of life is expected.
    pub fn may_be_silent(&self) -> bool {
        self.is_subscriber() || self.monitors()
    }

    /// Channels and patterns together, or shard channels: what answers to SUBSCRIBE and its kin count.
    pub fn subscriptions(&self, kind: Kind) -> usize {
        let count = |kind| self.listening.as_ref().map_or(0, |listening| listening.count(kind));
        match kind {
            Kind::Channel | Kind::Pattern => count(Kind::Channel) + count(Kind::Pattern),
            Kind::ShardChannel => count(Kind::ShardChannel),
        }
    }

    /// Returns the number of names that the session has given so far and that its end removes again: watched
    /// keys, channels, patterns, prefixes.
    pub fn named_items(&self) -> usize {
        let prefixes = self.tracking().map_or(0, |tracking| tracking.prefixes.len());
        let names = self.subscriptions(Kind::Channel) + self.subscriptions(Kind::ShardChannel);
        self.watch.as_ref().map_or(0, |list| list.keys.len()) + names + prefixes
    }

    /// Returns whether `user` may listen to everything that the session listens to.
    pub fn may_listen_on(&self, user: &User) -> bool {
        let Some(listening) = &self.listening else { return true };
        Kind::ALL.into_iter().all(|kind| {
            let mut names = listening.names[kind as usize].iter();
            names.all(|name| user.may_listen(name, kind == Kind::Pattern))
        })
    }

    /// The names of one kind.
    pub fn subscribed(&self, kind: Kind) -> Vec<Name> {
        let names = self.listening.as_ref().map(|listening| &listening.names[kind as usize]);
        names.into_iter().flatten().cloned().collect()
    }

    pub fn subscribe(&mut self, node: &Node, audience: &mut Audience, kind: Kind, name: &[u8]) {
        if !self.is_subscriber() {
            node.pubsub.sessions.fetch_add(1, Ordering::AcqRel);
        }
        let listening = self.listening.get_or_insert_default();
        if listening.names[kind as usize].contains(name) {
            return;
        }
        let (shared, since) = node.pubsub.subscribe(kind, name, self.shared.worker);
        listening.names[kind as usize].insert(Name::clone(&shared));
        audience.add(kind, shared, self.shared.token.load(Ordering::Relaxed), since);
        self.listening_changed();
    }

    pub fn unsubscribe(&mut self, node: &Node, audience: &mut Audience, kind: Kind, name: &[u8]) {
        let Some(listening) = &mut self.listening else { return };
        let names = &mut listening.names[kind as usize];
        if !names.remove(name) {
            return;
        }
        if names.capacity() > 64 && names.len() < names.capacity() / 8 {
            names.shrink_to(names.len() * 2);
        }
        node.pubsub.unsubscribe(kind, name, self.shared.worker);
        audience.remove(kind, name, self.shared.token.load(Ordering::Relaxed));
        let any = listening.any();
        if !any {
            node.pubsub.sessions.fetch_sub(1, Ordering::AcqRel);
        }
        self.listening_changed();
    }

    // ---- monitoring ----

    pub fn monitors(&self) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.monitors)
    }

    /// MONITOR.
    pub fn monitor(&mut self, node: &Node, audience: &mut Audience) {
        node.monitors.add(&node.mail, self.shared.worker);
        audience.add_monitor(self.shared.token.load(Ordering::Relaxed));
        self.listening.get_or_insert_default().monitors = true;
        self.listening_changed();
    }

    fn stop_monitoring(&mut self, node: &Node, audience: &mut Audience) {
        if !self.monitors() {
            return;
        }
        node.monitors.remove(&node.mail, self.shared.worker);
        audience.remove_monitor(self.shared.token.load(Ordering::Relaxed));
        if let Some(listening) = &mut self.listening {
            listening.monitors = false;
        }
        self.listening_changed();
    }

    // ---- slots that leave ----

    /// CLIENT MAINT_NOTIFICATIONS, in a member of a cluster.
    pub fn listen_to_slots(&mut self, member: &Member, audience: &mut Audience, listens: bool) {
        if listens == self.listening.as_ref().is_some_and(|listening| listening.has_slots) {
            return;
        }
        let token = self.shared.token.load(Ordering::Relaxed);
        match listens {
            true => {
                member.slot_listeners.fetch_add(1, Ordering::AcqRel);
                audience.add_slot_listener(token);
            }
            false => {
                member.slot_listeners.fetch_sub(1, Ordering::AcqRel);
                audience.remove_slot_listener(token);
            }
        }
        self.listening.get_or_insert_default().has_slots = listens;
        self.listening_changed();
    }

    // ---- all of it ----

    /// RESET, or its end: it listens to nothing.
    pub fn stop_listening(&mut self, node: &Node, held: &mut Held<'static>, audience: &mut Audience) {
        if self.listening.is_none() {
            return;
        }
        for kind in Kind::ALL {
            for name in self.subscribed(kind) {
                self.unsubscribe(node, audience, kind, &name);
            }
        }
        self.stop_monitoring(node, audience);
        self.stop_tracking(node, held, audience);
        if let Some(member) = node.cluster.get() {
            self.listen_to_slots(member, audience, false);
        }
        assert!(self.listening.is_none(), "without subscriptions nothing is kept");
    }

    /// The session that it redirects to is gone.
    pub fn redirect_is_broken(&mut self) {
        if let Some(tracking) = self.listening.as_mut().and_then(|listening| listening.tracking.as_mut()) {
            tracking.is_broken = true;
        }
        self.listening_changed();
    }

    /// Shows it to others, and forgets what is empty.
    pub fn listening_changed(&mut self) {
        let Some(listening) = &self.listening else { return };
        listening.show(&self.shared.listening);
        if listening.is_idle() {
            self.listening = None;
            self.shared.listening.bytes.store(0, Ordering::Relaxed);
        }
    }
}
