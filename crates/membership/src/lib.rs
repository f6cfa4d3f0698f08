//! The thread of the cluster bus, and its helpers.
//!
//! **What this crate does not know:** clients. What they ask comes as requests.

pub mod cluster;
