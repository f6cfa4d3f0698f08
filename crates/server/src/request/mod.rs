//! What happens to a request, from its name to its reply: the command is looked up, the gates let it pass, its partitions
//! are locked, and its handler runs; or it waits.

pub mod blocking;
pub mod cached_config;
pub mod clock;
pub mod dispatch;
pub mod lock_set;
pub mod prefetch;
pub mod registry;
pub mod transaction;
