//! The append-only file and snapshots: written, loaded, switched on and off.
//!
//! **What this crate does not know:** sessions. It plays commands back as their log has them.

pub mod aof;
pub mod persistence;
