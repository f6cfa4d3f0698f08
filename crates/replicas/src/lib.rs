//! Links to the primary and to replicas (`replication`), and slots on their way to other nodes (`migration`).
//!
//! **What this crate does not know:** clients. One is known by its id.

pub mod migration;
pub mod replication;
