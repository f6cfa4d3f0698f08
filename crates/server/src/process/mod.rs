//! The process: from the arguments of its command line to its end. It starts the threads, accepts
//! connections and handles signals.

pub mod accepting;
pub mod control;
pub mod daemon;
pub mod descriptors;
pub mod folders;
pub mod formats;
pub mod guard;
pub mod leaving;
pub mod logo;
pub mod shutdown;
pub mod start;
pub mod start_options;
pub mod supervisor;
pub mod swap_start;
pub mod version_line;
