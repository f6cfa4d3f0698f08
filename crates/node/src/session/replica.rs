//! A session that is about to become a replica: what it has said of itself, and what it has asked for.

use isotherm_replication::feed::{Announced, SyncRequest};

#[derive(Default)]
pub struct ReplicaTalk {
    /// REPLCONF
    pub announced: Announced,
    /// PSYNC, SYNC: its connection leaves its worker.
    pub request: Option<SyncRequest>,
}
