//! Path of a request from its name to its reply: the command is looked up, the gates let it pass, its
//! partitions are locked, and its handler runs; or it waits.

pub mod admin_call;
pub mod ahead;
pub mod beside_locks;
pub mod blocking;
pub mod budget;
pub mod cached_config;
pub mod clock;
pub mod dispatch;
pub mod errands;
pub mod eviction;
pub mod exec_conditions;
pub mod execute;
pub mod fetching;
pub mod follow_up;
pub mod gates;
pub mod gating;
pub mod leases;
pub mod lock_set;
pub mod locking;
pub mod metering;
pub mod nodes;
pub mod own_expiry;
pub mod prefetch;
pub mod refusal;
pub mod reply_limits;
pub mod resolve;
pub mod sample;
pub mod script_flags;
pub mod slots;
pub mod transaction;
pub mod turn;
