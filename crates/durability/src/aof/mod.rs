//! The append-only file: the log of changes on disk, and the data read back from it.

pub mod applier;
pub mod base_head;
pub mod commit;
pub mod driver;
pub mod ended;
pub mod load;
pub mod open;
pub mod prepare;
pub mod reference;
pub mod refused;
pub mod reload;
pub mod replay;
pub mod rewrite;
pub mod settings;
mod slots;
pub mod staged;
pub mod switch;
mod syncs;
pub mod thawing;
