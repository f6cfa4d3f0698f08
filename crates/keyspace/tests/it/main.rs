//! Tests of the keyspace through its public face: one program, because each costs its own building and
//! linking.

#[path = "../support/mod.rs"]
mod support;

mod cold;
mod cold_collections;
mod cold_fields;
mod cold_lists;
mod cold_nodes;
mod cold_snapshots;
mod cold_stream_blocks;
mod cold_streams;
mod cold_world;
mod cold_zsets;
mod collections;
mod evict;
mod frozen;
mod full;
mod leases;
mod model;
mod scan;
mod scan_order;
mod slots;
mod snapshot;
mod snapshot_large;
mod staging;
mod survey;
mod upkeep;
mod waiters;
mod watch;
