//! Bytes that many clients are sent: one copy, however many of them have not read it yet.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What shared bytes take that are kept anywhere: by who makes them, and in the outboxes of clients.
#[derive(Clone, Default, Debug)]
pub struct SharedAccount(Arc<AtomicUsize>);

impl SharedAccount {
    pub fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

#[derive(Debug)]
pub struct SharedBytes {
    bytes: Box<[u8]>,
    account: SharedAccount,
}

impl SharedBytes {
    pub fn new(bytes: impl Into<Box<[u8]>>, account: &SharedAccount) -> Arc<SharedBytes> {
        let bytes = bytes.into();
        account.0.fetch_add(bytes.len(), Relaxed);
        Arc::new(SharedBytes { bytes, account: account.clone() })
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        self.account.0.fetch_sub(self.bytes.len(), Relaxed);
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
