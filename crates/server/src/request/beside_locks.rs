//! What a transaction has beside its locks: taken before them, or left for later.

use crate::config::Writing;
use crate::node::Node;
use crate::session::WatchList;
use std::time::Duration;

/// A worker waits so long for another thread that changes parameters.
pub const RIGHT_MAX: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct BesideLocks {
    /// Watched keys that are too many for its locks: they are taken out behind them.
    pub unwatched: Option<Box<WatchList>>,
    /// One of its commands may change parameters.
    pub writing: Option<Writing<'static>>,
}

/// The right to change parameters for a command that no transaction has taken it for. `None` if another
/// thread keeps it.
pub fn own_right(node: &'static Node, holds_keys: bool) -> Option<Writing<'static>> {
    node.config.begin_writing(if holds_keys { Duration::ZERO } else { RIGHT_MAX })
}
