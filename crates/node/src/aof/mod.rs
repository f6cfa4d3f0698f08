//! State of the append-only file that all threads see: its files, what was asked of it, its rewrites.

pub mod files;
pub mod request;
pub mod rewrites;
pub mod state;
