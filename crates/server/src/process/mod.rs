//! The process: from the arguments of its command line to its end. It starts the threads, accepts
//! connections and handles signals.

pub mod accepting;
pub mod asked_end;
pub mod control;
pub mod daemon;
pub mod debug_switches;
pub mod descriptors;
pub mod ending;
pub mod folders;
pub mod formats;
pub mod guard;
pub mod hold_all;
pub mod leaving;
pub mod listeners;
pub mod logo;
pub mod shutdown;
pub mod start;
pub mod start_options;
pub mod state;
pub mod supervisor;
pub mod swap_start;
pub mod system;
pub mod version;
pub mod wish;
