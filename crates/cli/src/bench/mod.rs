//! The load generator: many connections that send the same command again and again, and how long each took.
//!
//! ```text
//! options --> suite (which commands) --> template (one command as bytes, with places to fill in)
//!                                           |
//!                        engine: workers, each with its connections and its histogram
//!                                           |
//!             report  <---  progress line, histogram merged, figures
//! ```
//! Each connection to a cluster belongs to a node (`nodes`), and keys get a tag that leads to it.

pub mod engine;
pub mod histogram;
pub mod nodes;
pub mod options;
pub mod report;
pub mod suite;
pub mod template;
mod worker;
