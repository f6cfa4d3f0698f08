//! Effects of a change: events of the keyspace, messages to subscribers, invalidations of client-side
//! caching. The pump receives each change once and passes it on to the others.

pub mod change_log;
pub mod events;
pub mod monitor;
pub mod pubsub;
pub mod pump;
pub mod tracking;
