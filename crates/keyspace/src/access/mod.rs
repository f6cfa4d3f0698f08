//! Layer 5 of 7: the way in. Partitions and their locks, transactions over what is locked, effects on the way
//! out, and the clients that watch keys or wait for them.

pub(crate) mod budget;
pub(crate) mod carry;
pub(crate) mod cold;
pub(crate) mod databases;
pub(crate) mod edit;
pub(crate) mod effect;
pub(crate) mod element_prefetch;
pub(crate) mod finding;
pub(crate) mod followers;
pub(crate) mod frozen;
pub(crate) mod key_events;
pub(crate) mod keyspace;
pub(crate) mod lease;
pub(crate) mod leasing;
pub(crate) mod leaving;
pub(crate) mod lending;
pub(crate) mod lock;
pub(crate) mod lost;
pub(crate) mod named;
pub(crate) mod nodes;
pub(crate) mod partition;
pub(crate) mod prefetch;
pub(crate) mod ready;
pub(crate) mod scan;
pub(crate) mod serving;
pub(crate) mod shared;
pub(crate) mod slot_keys;
pub(crate) mod staging;
pub(crate) mod strings;
pub(crate) mod sync;
pub(crate) mod terms;
pub(crate) mod txn;
pub(crate) mod waiter;
pub(crate) mod walk;
pub(crate) mod watch;
pub(crate) mod work_guard;

#[cfg(test)]
mod flood_tests;
