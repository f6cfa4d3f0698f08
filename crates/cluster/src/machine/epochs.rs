//! Epochs of the cluster: a clock that all nodes share.
//!
//! A node's own epoch decides whose claim of a slot holds: that of the higher one (`update.rs`). Elections
//! have one too, and a node votes once in each (`votes.rs`).

use super::node::Nodes;
use crate::conf::Conf;

#[derive(Default)]
pub struct Epochs {
    /// The highest that this node knows of.
    pub current: u64,
    pub last_vote: u64,
}

impl Epochs {
    pub fn from_conf(conf: &Conf) -> Epochs {
        let current = conf.nodes.iter().map(|node| node.config_epoch).fold(conf.current_epoch, u64::max);
        Epochs { current, last_vote: conf.last_vote_epoch }
    }

    /// Returns the highest epoch of all nodes.
    pub fn max(&self, nodes: &Nodes) -> u64 {
        nodes.iter().map(|(_, node)| node.config_epoch).fold(self.current, u64::max)
    }

    /// An epoch that is no one's yet, as far as this node knows. At 2^64 - 1 there is none left: the old one
    /// stays.
    pub fn begin_new(&mut self) -> u64 {
        self.current = self.current.saturating_add(1);
        self.current
    }

    /// Adopts a higher epoch that another node has shown. Returns whether it is higher.
    pub fn learn(&mut self, epoch: u64) -> bool {
        let is_higher = epoch > self.current;
        self.current = self.current.max(epoch);
        is_higher
    }
}
