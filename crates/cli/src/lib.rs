//! The command line client and the load generator.
//!
//! **Architecture invariant:** `cli` knows a server only by what it answers: the protocol, and COMMAND DOCS, INFO, SCAN, CLUSTER
//! SLOTS; the cluster manager also by the other commands of CLUSTER, and MIGRATE. It links nothing of the server, and serves any server that speaks the protocol.
//!
//! Reading order: how a server is reached (`address`, `connection`), how a reply looks (`text`, `render`), what the command line
//! says (`options`), what a connection becomes by its commands (`session`, `cluster::topology`), what is known of commands (`docs`,
//! `hint`, `help`), the conversation (`terminal`, `line`, `preferences`, `conversation`), everything else one can be asked for
//! (`modes`), the cluster manager (`cluster`), and the load generator (`bench`).

pub mod address;
pub mod connection;
pub mod text;

pub mod render;

pub mod options;
pub mod tls;
pub mod usage;

pub mod cluster;
pub mod session;

pub mod docs;
pub mod help;
pub mod hint;

pub mod conversation;
pub mod line;
pub mod preferences;
pub mod terminal;

pub mod modes;

pub mod bench;

/// What went wrong, in words for the person in front; empty if it has been said already.
pub type Fallible<T = ()> = Result<T, String>;

/// A number that differs from run to run and from machine to machine.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
