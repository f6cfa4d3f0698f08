//! Commands as the registry has them, and state that requests of all workers share.

pub mod caller;
pub mod entry;
pub mod gate_bits;
pub mod name_word;
pub mod next;
pub mod pause;
pub mod registry;
pub mod reply_gate;
