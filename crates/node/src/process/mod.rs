//! State of the process that all threads see: its listeners, its end, its version.

pub mod asked_end;
pub mod debug_switches;
pub mod ending;
pub mod hold_all;
pub mod listeners;
pub mod state;
pub mod system;
pub mod version;
pub mod wish;
