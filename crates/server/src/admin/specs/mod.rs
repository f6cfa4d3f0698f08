//! What is said of the commands of a session and of the server. Their code is in the files beside this one.
//!
//! The texts are Valkey's: clients and people look them up by COMMAND DOCS.

mod client;
mod cluster;
mod connection;
mod observe;
mod pubsub;
mod server;

pub use client::*;
pub use cluster::*;
pub use connection::*;
pub use observe::*;
pub use pubsub::*;
pub use server::*;
