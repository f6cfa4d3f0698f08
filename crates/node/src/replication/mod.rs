//! State of replication that all threads see: the role, links, waits.

pub mod failover;
pub mod link_view;
pub mod own_keys;
pub mod primary;
pub mod state;
pub mod waits;
