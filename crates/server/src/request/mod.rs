//! Path of a request from its name to its reply: the command is looked up, the gates let it pass, its
//! partitions are locked, and its handler runs; or it waits.

pub mod ahead;
pub mod beside_locks;
pub mod blocking;
pub mod budget;
pub mod cached_config;
pub mod caller;
pub mod clock;
pub mod dispatch;
pub mod entry;
pub mod errands;
pub mod exec_conditions;
pub mod execute;
pub mod fetching;
pub mod follow_up;
pub mod gate_bits;
pub mod gates;
pub mod gating;
pub mod leases;
pub mod lock_set;
pub mod locking;
pub mod metering;
pub mod name_word;
pub mod next;
pub mod nodes;
pub mod pause;
pub mod prefetch;
pub mod refusal;
pub mod registry;
pub mod reply_gate;
pub mod reply_limits;
pub mod resolve;
pub mod script_flags;
pub mod slots;
pub mod transaction;
pub mod turn;
