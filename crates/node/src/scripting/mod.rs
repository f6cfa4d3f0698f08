//! Scripts and libraries of functions that all workers share, and which scripts may run.

pub mod bound;
pub mod cache;
pub mod function_engine;
pub mod libraries;
pub mod library_head;
pub mod registry;
pub mod shebang;
