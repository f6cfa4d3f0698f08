//! Values between the keyspace and the bytes of RDB files, in both directions.
//!
//! ```text
//! view --save--> bytes --persist--> owned value --load--> edits of the keyspace
//! view --digest--> twenty bytes, equal for equal data in Valkey and here
//! ```
//!
//! `persist` knows the bytes and no keyspace; the keyspace knows its layouts and no files. This crate connects them.
//!
//! **Architecture invariant:** `codec` does not know who asks (a command, a save, a replica, a migration), nor where the
//! bytes go.

mod digest;
mod load;
mod save;
mod stream;

pub use digest::{add_value, mix, xor};
pub use load::load;
pub use save::{dump, save, saved_bytes};
