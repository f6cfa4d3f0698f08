//! `rdb-key-save-delay`: saving that takes as long as a test wants.

use crate::persistence::Store;
use crate::process::routines;
use crate::process::time::{elapsed, instant};
use std::sync::atomic::Ordering::Relaxed;

/// `rdb-key-save-delay`, for tests: so many microseconds for each key, or a microsecond for so many. A save
/// that is cancelled, or whose delay is changed, goes on at once.
pub fn delay(store: Store<'static>, keys: u64) {
    let delay_us = store.config.save_delay_us();
    let micros = match delay_us {
        0 => return,
        1.. => keys.saturating_mul(delay_us.unsigned_abs()),
        _ => keys / delay_us.unsigned_abs(),
    };
    let (began, whole) = (instant(), std::time::Duration::from_micros(micros));
    while let Some(left) = whole.checked_sub(elapsed(began)).filter(|left| !left.is_zero()) {
        if store.state.is_cancelled.load(Relaxed) || store.config.save_delay_us() != delay_us {
            return;
        }
        routines::pause(left.min(DELAY_LOOK));
        // A client that waits for the save sees it go on.
        store.state.progress.moves.fetch_add(1, Relaxed);
    }
}

/// A delay looks so often whether it still holds.
const DELAY_LOOK: std::time::Duration = std::time::Duration::from_millis(20);
