//! Threads and steps that move values to disk and back.
//!
//! **What this crate does not know:** requests and sessions. Of commands it has the name for what a key
//! lacks.

pub mod tier;
