//! Stalls of the primary's stream: the log has no room for more, or commands are paused.
//!
//! ```text
//!   socket --> buffer, to client-query-buffer-limit --|pause|--> batches --|log is full|--> applied
//! ```

use isotherm_replication::link::Phase;

use super::LinkThread;
use crate::replication::stream;
use isotherm_node::mail::tasks::Tasks;
use isotherm_runtime::time::unix_now;

impl LinkThread {
    /// Returns whether the bytes that have come cannot be applied now, and no more are to be read: the log
    /// has no room, or a pause has filled the buffer.
    pub fn has_stalled(&self) -> bool {
        !stream::has_room(self.node)
            || self.stream.unapplied_bytes() >= self.node.config.query_buffer_bytes_max() && self.is_paused()
    }

    // COMPAT(replication): While writes are paused on a replica (CLIENT PAUSE, SHUTDOWN), nothing of its
    // primary's stream is applied, and of what comes `client-query-buffer-limit` is read; Valkey applies what
    // stands before the first write, and reads without limit. Why: a pause does not take all memory.
    fn is_paused(&self) -> bool {
        let node = self.node;
        if !node.mail.tasks().has(Tasks::PAUSES) {
            return false;
        }
        node.pause.end_if_over(&node.mail, unix_now());
        node.mail.tasks().has(Tasks::PAUSES)
    }

    /// Returns whether the next batch of the stream may be applied.
    pub fn may_apply(&mut self) -> bool {
        self.was_paused = self.is_paused();
        self.link.phase() == Phase::Connected && !self.was_paused && stream::has_room(self.node)
    }
}
