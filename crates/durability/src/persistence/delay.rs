//! `rdb-key-save-delay`: saving that takes as long as a test wants.

use isotherm_node::persistence::Store;
use isotherm_runtime::routines;
use isotherm_runtime::time::{elapsed, instant};
use std::sync::atomic::Ordering::Relaxed;

/// Waits for `rdb-key-save-delay`, for tests: its microseconds for each key, or if it is negative a
/// microsecond for its number of keys. A save that is cancelled, or whose delay is changed, continues at
/// once.
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
        // A client that waits for the save sees its progress.
        store.state.progress.moves.fetch_add(1, Relaxed);
    }
}

/// Time between two looks whether a delay still holds.
const DELAY_LOOK: std::time::Duration = std::time::Duration::from_millis(20);
