//! Bytes that many clients are sent, and large values: one copy, however many clients have not read it yet.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Sum of all shared bytes that are kept: by their makers, and in the outboxes of clients.
#[derive(Clone, Default, Debug)]
pub struct SharedAccount(Arc<AtomicUsize>);

impl SharedAccount {
    pub fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// Bytes of a reply that are not copied.
pub struct SharedBytes {
    source: Source,
}

enum Source {
    /// Made for replies.
    Own(Box<[u8]>, SharedAccount),
    /// Part of a value that is kept elsewhere, which accounts for it.
    Value(Box<dyn Deref<Target = [u8]> + Send + Sync>, Range<usize>),
}

impl SharedBytes {
    pub fn new(bytes: impl Into<Box<[u8]>>, account: &SharedAccount) -> Arc<SharedBytes> {
        let bytes = bytes.into();
        account.0.fetch_add(bytes.len(), Relaxed);
        Arc::new(SharedBytes { source: Source::Own(bytes, account.clone()) })
    }

    /// Shares a part of a value, which does not change while it is shared.
    pub fn of_value(
        value: impl Deref<Target = [u8]> + Send + Sync + 'static,
        part: Range<usize>,
    ) -> Arc<SharedBytes> {
        Arc::new(SharedBytes { source: Source::Value(Box::new(value), part) })
    }

    /// Returns whether it is a value, which may stay for this reply alone once another has taken its place.
    pub fn is_value(&self) -> bool {
        matches!(self.source, Source::Value(..))
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        if let Source::Own(bytes, account) = &self.source {
            account.0.fetch_sub(bytes.len(), Relaxed);
        }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.source {
            Source::Own(bytes, _) => bytes,
            Source::Value(value, part) => &value[part.clone()],
        }
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBytes").field("bytes", &self.len()).finish_non_exhaustive()
    }
}
