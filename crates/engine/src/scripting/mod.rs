//! Scripts of clients: what is known of them, once a node, and how a worker runs them.
//!
//! ```text
//! shebang   `#!lua flags=...`: what a script declares of itself
//! cache     text <-> SHA-1, once a node; EVAL's texts in order of use
//! bound     whether its text shows that it looks at no key but those that it is called with
//! engine    the interpreter of one worker, made with its first script
//! callee    what a run calls: a script or a function, with its interpreter
//! run       one run: what it has met and leased, and where it stands while it is suspended
//! runs      the runs of a worker that are suspended
//! registry  the runs of the node: which may begin, which are asked to end
//!
//! library_head      `#!lua name=mylib`: the first line of a library of functions
//! libraries         libraries and their functions, once a node
//! library_change    LOAD, DELETE, FLUSH, RESTORE: of a client, a file or a primary
//! function_engine   the interpreter of one worker for functions, made with its first library
//! ```
//! The command that runs a script decides what the script may do (`admin::scripting`).

pub mod callee;
pub mod engine;
pub mod library_change;
pub mod run;
pub mod runs;
