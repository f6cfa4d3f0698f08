//! CLIENT TRACKING of one session: what it asks for is entered where all workers look, and taken out again.

use isotherm_keyspace::Held;
use std::sync::atomic::Ordering;

use super::Session;
use crate::Node;
use crate::effects::pubsub::Audience;
use crate::effects::tracking::{Tracker, Tracking};

impl Session {
    pub fn tracking(&self) -> Option<&Tracking> {
        self.listening.as_ref().and_then(|listening| listening.tracking.as_deref())
    }

    /// Returns the tracker to note as a reader of what the next command reads, if it is to be noted.
    pub fn reader(&self) -> Option<Tracker> {
        let notes = self.tracking().is_some_and(Tracking::notes_reads);
        notes.then(|| Tracker::new(self.id(), self.shared.worker))
    }

    /// A command is over. CLIENT CACHING holds for the next one, or for a whole transaction.
    pub fn end_caching(&mut self, keeps_caching: bool) {
        if self.multi.is_none()
            && !keeps_caching
            && let Some(tracking) = self.listening.as_mut().and_then(|listening| listening.tracking.as_mut())
        {
            tracking.caching = false;
        }
    }

    /// CLIENT TRACKING ON: `wanted` in place of what it had; of the prefixes those that it had stay.
    pub fn track(
        &mut self,
        node: &Node,
        held: &mut Held<'static>,
        audience: &mut Audience,
        mut wanted: Tracking,
    ) {
        let (id, worker) = (self.id(), self.shared.worker);
        let token = self.shared.token.load(Ordering::Relaxed);
        if self.tracking().is_none() {
            node.trackers.add(held, &node.stats);
            audience.add_tracker(id, token);
        }
        self.has_tracked = true;
        let listening = self.listening.get_or_insert_default();
        let mut had = listening.tracking.take().map(|before| before.prefixes).unwrap_or_default();
        for prefix in std::mem::take(&mut wanted.prefixes) {
            if had.insert(prefix.clone()) {
                node.trackers.add_prefix(&prefix, worker);
                audience.add_prefix(prefix, token);
            }
        }
        wanted.prefixes = had;
        listening.tracking = Some(Box::new(wanted));
        self.listening_changed();
    }

    pub fn stop_tracking(&mut self, node: &Node, held: &mut Held<'static>, audience: &mut Audience) {
        let Some(listening) = &mut self.listening else { return };
        let Some(tracking) = listening.tracking.take() else { return };
        let token = self.shared.token.load(Ordering::Relaxed);
        for prefix in &tracking.prefixes {
            node.trackers.remove_prefix(prefix, self.shared.worker);
            audience.remove_prefix(prefix, token);
        }
        audience.remove_tracker(self.shared.id);
        node.trackers.remove(held, &node.stats);
        self.listening_changed();
    }
}
