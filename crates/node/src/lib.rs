//! State that all threads of the process share, one type a concern, and [`Node`], which has them all.
//!
//! A change of data is followed up here (`effects`: the log, events, tracking), and messages between threads
//! lie here (`mail`).
//!
//! **What this crate does not know:** threads and commands. It runs no command, and starts no thread but the
//! one that reads certificates again.

pub mod aof;
pub mod cluster;
pub mod effects;
pub mod mail;
pub mod migration;
mod node;
pub mod observe;
pub mod persistence;
pub mod process;
pub mod replication;
pub mod request;
pub mod room;
pub mod scripting;
pub mod session;
pub mod tier;
pub mod tls;
pub mod users;

pub use node::{Hooks, Node, Parts};
