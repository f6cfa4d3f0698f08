//! An errand: what an admin command does on a thread of its own, since it may wait for a disk or for scripts.
//!
//! ```text
//!   worker                             thread "errand"
//!   ACL SAVE: parked ----------------> files, locks
//!   reply           <----------------- over
//!   error           <-- deadline       goes on; the log has its end
//! ```

use isotherm_keyspace::Waiter;
use isotherm_resp::Reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Thread that answers the client of an errand that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answerer {
    Errand,
    /// Another thread, later.
    Other,
}

/// The work, which writes the reply of the client that waits.
pub type Work = Box<dyn FnOnce(&Arc<Waiter>, &mut Reply) -> Answerer + Send>;

/// Work that a session is about to wait for.
pub struct Errand {
    pub work: Work,
    /// Error of a client whose deadline has come.
    pub late: &'static str,
    /// True if it counts among those of [`UNDER_WAY_MAX`].
    pub is_counted: bool,
}

/// Most errands at once: each has a thread, which a disk that does not answer keeps.
const UNDER_WAY_MAX: usize = 64;

/// Errands of a node.
#[derive(Default)]
pub struct Errands {
    under_way: AtomicUsize,
}

impl Errands {
    /// Counts one more, unless there are too many.
    pub fn admit(&self) -> bool {
        let next = |count| (count < UNDER_WAY_MAX).then_some(count + 1);
        self.under_way.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    /// Counts one that was admitted as over.
    pub fn end(&self) {
        self.under_way.fetch_sub(1, Relaxed);
    }
}
