//! Values between the keyspace and the bytes of RDB files, in both directions.
//!
//! ```text
//! a view        --parts--+
//! a snapshot    --items--+--write--> RDB bytes --> a sink
//!
//! RDB bytes     --persist--> owned value --load--> edits of the keyspace
//!
//! a view        --digest--> twenty bytes, equal for equal data in Valkey and here
//! ```
//!
//! `persist` knows the bytes and no keyspace; the keyspace knows its layouts and no files. This crate
//! connects them. One writer serves DUMP and files, so that a value is the same bytes wherever it goes but
//! for where lists are cut into nodes.
//!
//! **Architecture invariant:** `codec` does not know its caller (a command, a save, a replica, a migration),
//! nor where the bytes go.

mod commands;
mod digest;
mod load;
mod parts;
mod portions;
mod save;
mod stream;
mod write;

pub use commands::CommandWriter;
pub use digest::{add_value, mix, xor};
pub use load::{FileTerms, LoadError, Loaded, load, load_piece};
pub use portions::{Payload, Portions};
pub use save::{ListNodes, dump, list_nodes, saved_bytes};
pub use write::ItemWriter;
