//! State of rewrites: for INFO, and for the cron, which begins them.
//!
//! After three failures in a row the cron waits a minute, then two, then four, up to an hour.

use std::time::{Duration, Instant};

use isotherm_runtime::log;

const FAILURES_BEFORE_REST: u32 = 3;
const REST_MINUTES_MAX: u64 = 60;

/// State of the rewrites.
#[derive(Clone, Debug)]
pub struct Rewrites {
    /// A rewrite is to begin as soon as no other walk of the keyspace is under way.
    pub is_scheduled: bool,
    /// The base is complete, and the writer has not listed it yet. Since when the rewrite is under way.
    pub listing: Option<Instant>,
    pub begun: u64,
    pub last_failed: bool,
    pub failures_in_row: u32,
    /// Duration of the last rewrite; -1 if there was none.
    pub last_took_seconds: i64,
    pub base_bytes: u64,
    /// The size of all files when the base was new, or the server started.
    pub size_then_bytes: u64,
    /// Duration of the rest before the next try of the cron; `rest_until` is its end.
    rest_minutes: u64,
    rest_until: Option<Instant>,
}

impl Default for Rewrites {
    fn default() -> Rewrites {
        Rewrites {
            is_scheduled: false,
            listing: None,
            begun: 0,
            last_failed: false,
            failures_in_row: 0,
            last_took_seconds: -1,
            base_bytes: 0,
            size_then_bytes: 0,
            rest_minutes: 0,
            rest_until: None,
        }
    }
}

impl Rewrites {
    /// Returns whether the cron does not try a rewrite for now.
    pub fn rests(&mut self, now: Instant) -> bool {
        if self.failures_in_row < FAILURES_BEFORE_REST {
            (self.rest_minutes, self.rest_until) = (0, None);
            return false;
        }
        if let Some(until) = self.rest_until {
            let rests = now < until;
            if !rests {
                self.rest_until = None;
            }
            return rests;
        }
        self.rest_minutes = (self.rest_minutes * 2).clamp(1, REST_MINUTES_MAX);
        self.rest_until = Some(now + Duration::from_secs(60 * self.rest_minutes));
        log::warning(format!(
            "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in {} minutes",
            self.rest_minutes
        ));
        true
    }
}
