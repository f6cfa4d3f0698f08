//! What DEBUG switches off and on, for tests.

use std::sync::atomic::{AtomicBool, Ordering};

/// All are off at the start.
#[derive(Default)]
pub struct DebugSwitches {
    /// DEBUG SET-ACTIVE-EXPIRE 0
    pub no_active_expire: Switch,
    /// DEBUG PAUSE-CRON
    pub cron_paused: Switch,
    /// DEBUG CLIENT-ENFORCE-REPLY-LIST
    pub reply_lists: Switch,
    /// DEBUG SET-SKIP-CHECKSUM-VALIDATION
    pub skip_checksums: Switch,
    /// DEBUG SET-DISABLE-DENY-SCRIPTS
    pub scripts_may_debug: Switch,
}

#[derive(Default)]
pub struct Switch(AtomicBool);

impl Switch {
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Release);
    }

    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
