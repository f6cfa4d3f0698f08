//! Threads and steps that move values to disk and back.
//!
//! **What this crate does not know:** commands and sessions.

pub mod tier;
