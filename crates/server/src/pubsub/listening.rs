//! What one session listens to. Few sessions listen, so it lies behind a pointer that is mostly empty.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Audience, Kind, Name};
use crate::node::Node;
use crate::session::Session;

#[derive(Default)]
pub struct Listening {
    names: [HashSet<Name>; Kind::COUNT],
    /// What was in the mailbox before its next command was read has been handed out.
    pub heard: bool,
}

/// The same for other threads (CLIENT LIST).
#[derive(Default)]
pub struct SeenListening {
    counts: [AtomicU32; Kind::COUNT],
    bytes: AtomicU64,
}

impl SeenListening {
    pub fn count(&self, kind: Kind) -> u32 {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    pub fn any(&self) -> bool {
        Kind::ALL.iter().any(|kind| self.count(*kind) > 0)
    }

    /// What its subscriptions take.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Listening {
    pub fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    fn any(&self) -> bool {
        self.names.iter().any(|names| !names.is_empty())
    }

    /// Of the sets; the names are shared. 17 B a place: a pointer, a length, and a byte of the table.
    fn bytes(&self) -> usize {
        const PLACE_BYTES: usize = size_of::<Name>() + 1;
        size_of::<Listening>() + self.names.iter().map(|names| names.capacity() * PLACE_BYTES).sum::<usize>()
    }

    fn show(&self, seen: &SeenListening) {
        for kind in Kind::ALL {
            seen.counts[kind as usize].store(self.count(kind) as u32, Ordering::Relaxed);
        }
        seen.bytes.store(self.bytes() as u64, Ordering::Relaxed);
    }
}

impl Session {
    /// Whether it listens to a channel or a pattern.
    pub fn is_subscriber(&self) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.any())
    }

    /// Channels and patterns together, or shard channels: what answers to SUBSCRIBE and its kin count.
    pub fn subscriptions(&self, kind: Kind) -> usize {
        let count = |kind| self.listening.as_ref().map_or(0, |listening| listening.count(kind));
        match kind {
            Kind::Channel | Kind::Pattern => count(Kind::Channel) + count(Kind::Pattern),
            Kind::ShardChannel => count(Kind::ShardChannel),
        }
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
        listening.show(&self.shared.listening);
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
        listening.show(&self.shared.listening);
        if !listening.any() {
            node.pubsub.sessions.fetch_sub(1, Ordering::AcqRel);
            self.listening = None;
            self.shared.listening.bytes.store(0, Ordering::Relaxed);
        }
    }

    /// RESET, or its end: it listens to nothing.
    pub fn stop_listening(&mut self, node: &Node, audience: &mut Audience) {
        for kind in Kind::ALL {
            for name in self.subscribed(kind) {
                self.unsubscribe(node, audience, kind, &name);
            }
        }
    }
}
