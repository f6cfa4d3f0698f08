//! Who may use the server: today one user, whose password may be empty.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Users {
    /// The default user has a password.
    password: AtomicBool,
    /// Attempts to authenticate that failed, since the start or CONFIG RESETSTAT.
    auth_denied: AtomicU64,
}

impl Users {
    pub fn new(password: &[u8]) -> Users {
        Users { password: AtomicBool::new(!password.is_empty()), auth_denied: AtomicU64::new(0) }
    }

    /// Whether a session has to authenticate.
    #[inline]
    pub fn auth_required(&self) -> bool {
        self.password.load(Ordering::Acquire)
    }

    /// The password has changed (CONFIG SET requirepass). Sessions that are there stay as they are.
    pub fn set_password(&self, password: &[u8]) {
        self.password.store(!password.is_empty(), Ordering::Release);
    }

    pub fn note_denied(&self) {
        self.auth_denied.fetch_add(1, Ordering::Relaxed);
    }

    pub fn denied(&self) -> u64 {
        self.auth_denied.load(Ordering::Relaxed)
    }

    pub fn reset_denied(&self) {
        self.auth_denied.store(0, Ordering::Relaxed);
    }
}
