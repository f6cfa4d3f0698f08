//! Replication in this process: the role of the node, the link to its primary, and what it sends to its
//! replicas.
//!
//! The machines of the crate `replication` decide what is said on a link; here are their threads, sockets and
//! files. Commands write the log and know nothing of this.

pub mod feeder;
mod full_sync;
pub mod handover;
pub mod link;
pub mod report;
pub mod role;
mod spill;
mod spool;
pub mod stream;
mod sync;
