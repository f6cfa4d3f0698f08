//! Figures of the map of memory that are kept.

pub mod mark;
