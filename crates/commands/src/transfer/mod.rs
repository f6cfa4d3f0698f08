//! Values on their way out of the keyspace and into it: DUMP, RESTORE, and what DEBUG does with all keys at once.
//!
//! ```text
//! view --save--> payload --persist--> owned value --load--> edits of the keyspace
//! view --digest--> twenty bytes, equal for equal data in Valkey and here
//! ```
//!
//! `persist` knows the bytes and no keyspace; the keyspace knows its layouts and no files. This is where the two meet.

mod digest;
mod load;
mod save;
mod stream;

mod dump;
mod restore;

use crate::Handler;
use crate::spec::Command;

pub use digest::{add_value, mix, xor};
pub use load::load;
pub use save::{dump, save, saved_bytes};

pub const COMMANDS: &[Command<Handler>] = &[dump::DUMP, restore::RESTORE];
