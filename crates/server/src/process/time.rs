//! The clock of everything but commands.

use isotherm_keyspace::UnixMs;
use std::time::{SystemTime, UNIX_EPOCH};

pub fn unix_now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(since.as_millis() as i64)
}
