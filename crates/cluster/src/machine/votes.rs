//! Votes for replicas that want to take the place of their failed primary (clusterSendFailoverAuthIfNeeded).
//!
//! Invariant: one vote an epoch, also after a crash: the vote leaves when its epoch is on disk.

use super::{Handle, Level, Machine, Output};
use crate::Flags;
use crate::wire::{self, Body, Header, Message};

impl Machine {
    pub(super) fn vote_request(&mut self, node: Handle, request: &Header) {
        if !self.nodes.my().votes() {
            return;
        }
        match self.refusal(node, request) {
            Some(why) => {
                let text = format!("Failover auth denied to {}: {why}", self.name(node));
                self.outputs.say(Level::Warning, text);
            }
            None => self.vote(node),
        }
    }

    fn refusal(&mut self, node: Handle, request: &Header) -> Option<String> {
        if !self.health.is_safe {
            return Some("it is not safe to vote in this moment".to_string());
        }
        let (asked, current) = (request.current_epoch, self.epochs.current);
        if asked < current {
            return Some(format!("reqEpoch ({asked}) < curEpoch({current})"));
        }
        if self.epochs.last_vote == current {
            return Some(format!("already voted for epoch {current}"));
        }
        if self.nodes[node].is_primary() {
            return Some(format!("for epoch {asked}: it is a primary node"));
        }
        let Some(primary) = self.nodes[node].primary else {
            return Some(format!("for epoch {asked}: I don't know its primary"));
        };
        if !self.nodes[primary].flags.has(Flags::FAIL) && !request.forces_vote {
            return Some(format!("for epoch {asked}: its primary is up"));
        }
        let newer = request.slots.iter().find_map(|slot| {
            let owner = self.slots.owner(slot).filter(|_| !self.slots.is_unclaimed(slot))?;
            (self.nodes[owner].config_epoch > request.config_epoch).then_some((slot, owner))
        });
        let (slot, owner) = newer?;
        // It lost something while it was away; with this it can ask again.
        self.send_update(node, owner);
        Some(format!(
            "slot {} epoch ({}) > reqConfigEpoch ({})",
            slot.get(),
            self.nodes[owner].config_epoch,
            request.config_epoch
        ))
    }

    fn vote(&mut self, node: Handle) {
        self.epochs.last_vote = self.epochs.current;
        self.todo.save_first();
        self.outputs.notice(format!(
            "Failover auth granted to {} for epoch {}",
            self.name(node),
            self.epochs.current
        ));
        let Some(link) = self.nodes[node].outbound else { return };
        let mut header = self.header();
        header.current_epoch = self.epochs.current;
        let message = Message { header: Some(Box::new(header)), body: Body::Vote };
        let mut bytes = Vec::new();
        wire::encode(&message, &mut bytes);
        self.todo.hold(Output::Send { link, bytes: bytes.into() });
    }
}
