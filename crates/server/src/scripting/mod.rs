//! Scripts of clients: what is known of them, once a node, and how a worker runs them.
//!
//! ```text
//! shebang   `#!lua flags=...`: what a script declares of itself
//! cache     text <-> SHA-1, once a node; EVAL's texts in order of use
//! engine    the interpreter of one worker, made with its first script
//! ```
//! What a script may do is decided by the command that runs it (`admin::scripting`).

pub mod cache;
pub mod engine;
pub mod shebang;
