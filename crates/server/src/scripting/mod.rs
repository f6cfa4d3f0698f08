//! Scripts of clients: what is known of them, once a node, and how a worker runs them.
//!
//! ```text
//! shebang   `#!lua flags=...`: what a script declares of itself
//! cache     text <-> SHA-1, once a node; EVAL's texts in order of use
//! engine    the interpreter of one worker, made with its first script
//!
//! library_head      `#!lua name=mylib`: the first line of a library of functions
//! libraries         libraries and their functions, once a node
//! library_change    LOAD, DELETE, FLUSH, RESTORE: of a client, a file or a primary
//! function_engine   the interpreter of one worker for functions, made with its first library
//! under_way         the function that runs, as others see it
//! ```
//! What a script may do is decided by the command that runs it (`admin::scripting`).

pub mod cache;
pub mod engine;
pub mod function_engine;
pub mod libraries;
pub mod library_change;
pub mod library_head;
pub mod shebang;
pub mod under_way;
