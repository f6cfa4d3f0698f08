//! Tests of the server from outside, over sockets. One program, because each costs its own building and linking.

mod accounting;
mod admin;
mod allocator;
mod aof;
mod aof_rewrite;
mod attribution;
mod bad_input;
mod bad_start;
mod bad_world;
mod blocking;
mod client_memory;
#[cfg(debug_assertions)]
mod cold;
mod common;
mod compaction;
mod connections;
mod failover;
mod feeder_disk;
mod growth;
mod libraries;
mod load_memory;
mod locks;
mod monitor;
mod observe;
mod peers;
mod persistence;
mod primary;
mod process;
mod pubsub;
mod replica;
mod replica_aof;
mod requests;
mod sentinel;
mod slots;
mod tracking;
mod transactions;
