//! What a transaction has beside its locks: taken before them, or left for later.

use crate::config::Writing;
use crate::node::Node;
use crate::session::WatchList;

#[derive(Default)]
pub struct BesideLocks {
    /// Watched keys that are too many for its locks: they are taken out behind them.
    pub unwatched: Option<Box<WatchList>>,
    /// One of its commands may change parameters.
    pub writing: Option<Writing<'static>>,
}

impl BesideLocks {
    /// The right to change parameters for a command that no transaction has taken it for. It holds nothing.
    pub fn own_right(&self, node: &'static Node) -> Option<Writing<'static>> {
        self.writing.is_none().then(|| node.config.begin_writing())
    }
}
