//! Scripts of clients: what is known of them, once a node, and how a worker runs them.
//!
//! ```text
//! shebang   `#!lua flags=...`: what a script declares of itself
//! cache     text <-> SHA-1, once a node; EVAL's texts in order of use
//! bound     whether its text shows that it looks at no key but those that it is called with
//! engine    the interpreter of one worker, made with its first script
//! run       one run: what it has met and leased, and where it stands while it is suspended
//! runs      the runs of a worker that are suspended
//! registry  the runs of the node: which may begin, which are asked to end
//! ```
//! What a script may do is decided by the command that runs it (`admin::scripting`).

pub mod bound;
pub mod cache;
pub mod engine;
pub mod registry;
pub mod run;
pub mod runs;
pub mod shebang;
