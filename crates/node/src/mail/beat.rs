//! A question to a worker: does it still serve clients?

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A worker stores the moment that it was sent.
#[derive(Clone)]
pub struct Beat {
    sent_ms: u64,
    answered: Arc<AtomicU64>,
}

impl Beat {
    pub fn new(sent_ms: u64, answered: &Arc<AtomicU64>) -> Beat {
        Beat { sent_ms, answered: Arc::clone(answered) }
    }

    pub fn answer(&self) {
        self.answered.store(self.sent_ms, Relaxed);
    }
}
