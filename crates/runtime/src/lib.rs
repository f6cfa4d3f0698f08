//! Needs of every thread of the server: the log, the clocks, work in steps, random numbers and files of
//! operators.
//!
//! **What this crate does not know:** what runs.

pub mod log;
pub mod operator_file;
pub mod random;
pub mod routines;
pub mod time;
