//! Configuration epochs: the higher one decides whose claim of a slot holds
//! (clusterBumpConfigEpochWithoutConsensus, clusterHandleConfigEpochCollision).

use super::{Handle, Machine};

impl Machine {
    fn max_epoch(&self) -> u64 {
        self.nodes.iter().map(|(_, node)| node.config_epoch).fold(self.current_epoch, u64::max)
    }

    /// The epoch that a node's claims have: a replica's are its primary's.
    pub(super) fn epoch_of(&self, node: Handle) -> u64 {
        let node = &self.nodes[node];
        node.primary.map_or(node.config_epoch, |primary| self.nodes[primary].config_epoch)
    }

    /// Gives this node the highest epoch of all, unless it has it: without asking others, after a slot was
    /// moved by hand.
    pub(super) fn bump_epoch(&mut self) -> bool {
        let epoch = self.my().config_epoch;
        if epoch != 0 && epoch == self.max_epoch() {
            return false;
        }
        self.take_new_epoch();
        self.notice(format!("New configEpoch set to {}", self.current_epoch));
        true
    }

    /// An epoch that is no one's yet, as far as this node knows. At 2^64 - 1 there is none left: the old one
    /// stays.
    fn take_new_epoch(&mut self) {
        self.current_epoch = self.current_epoch.saturating_add(1);
        self.my_mut().config_epoch = self.current_epoch;
        self.todo.save_first();
        self.todo.broadcast = true;
    }

    /// Two primaries with one epoch: the one with the smaller id takes another, so of many all but one move
    /// on.
    pub(super) fn resolve_collision(&mut self, sender: Handle) {
        let other = &self.nodes[sender];
        let (me, both) = (self.my(), other.is_primary() && self.my().is_primary());
        if !both || other.config_epoch != me.config_epoch || other.id <= me.id {
            return;
        }
        self.take_new_epoch();
        let text = format!(
            "configEpoch collision with node {}. configEpoch set to {}",
            self.name(sender),
            self.current_epoch
        );
        self.notice(text);
    }

    /// Adopts a higher epoch that another node has shown. It is shown to others at once: forgetting it in a
    /// crash does no harm.
    pub(super) fn learn_epoch(&mut self, epoch: u64) {
        if epoch > self.current_epoch {
            self.current_epoch = epoch;
            self.commits.standing.current_epoch = self.commits.standing.current_epoch.max(epoch);
        }
    }
}
