//! State of a transaction in addition to its locks: taken before them, or left for later.

use isotherm_config::Writing;
use isotherm_node::cluster::requests::Quiet;
use isotherm_node::session::WatchList;
use std::time::Duration;

/// Time that a command waits for another thread that changes parameters.
pub const RIGHT_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct BesideLocks {
    /// Watched keys that are too many for its locks: they are taken out after these are released.
    pub unwatched: Option<Box<WatchList>>,
    /// Right to change parameters, held while a command of the transaction may change some.
    pub writing: Option<Writing<'static>>,
    /// Messages of other nodes wait for the changes of the cluster that the transaction makes.
    pub quiet: Option<Quiet>,
}
