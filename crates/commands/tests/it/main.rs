//! Tests of the commands through a server without sockets: one program, because each costs its own building
//! and linking. (What a payload takes is measured in a program of its own: it counts what the whole process
//! allocates.)

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../persist/tests/payloads/mod.rs"]
mod payloads;

mod copies;
mod damaged;
mod declarations;
mod growth;
mod modes;
mod needs;
mod random;
mod replay;
mod replay_full;
mod transcripts;
mod unions;
