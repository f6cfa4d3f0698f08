//! What connections take, and what happens when all of them together take too much (maxmemory-clients).
//!
//! ```text
//! connection   [itself][bytes of requests][parsed arguments][unread replies][queue of MULTI][watched keys][subscriptions]
//!                 own     query_bytes        argument_bytes    output_bytes    multi_bytes        - only in the total -
//! while it waits for a key its arguments are kept: they count as parsed ones, and in the total with the lists of waiters
//! all          `Clients::bytes`: the sum of the totals, kept by differences
//! ```
//! The owner of a connection books it behind every batch. One that has nothing but itself, which is nearly every one, is
//! booked already: that is what the batch looks at, and all that it costs. What all take is one number, so that every
//! batch and every eviction of keys can ask.
//!
//! Above the limit those that take most are closed. They are closed by their owners, a moment later: until then what
//! they take is counted as leaving, so that nobody evicts a key, or a second connection, for it.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use crate::admin;
use crate::node::{Node, unix_now};
use crate::observe::stats::ThreadStats;
use crate::process::log;
use crate::session::{Attention, ClientShared, Seen};

/// How long nobody looks again after a look that found nobody to close.
const FUTILE_MS: i64 = 100;

/// The parts of what a connection takes that are shown by themselves.
#[derive(Default, Debug)]
pub struct Taken {
    /// Bytes that are not parsed yet, and room for more.
    pub query_bytes: usize,
    pub query_free_bytes: usize,
    /// Arguments of a request that is not complete, or that waits for a key.
    pub argument_bytes: usize,
    pub output_bytes: usize,
    pub output_chunks: usize,
    pub multi_bytes: usize,
    /// All of it, the connection itself included.
    pub total_bytes: usize,
}

impl Node {
    /// Shows what a connection takes; called by its owner only.
    pub fn book(&self, client: &ClientShared, taken: &Taken) {
        let seen = &client.seen;
        seen.query_bytes.store(taken.query_bytes as u64, Relaxed);
        seen.query_free_bytes.store(taken.query_free_bytes as u64, Relaxed);
        seen.argument_bytes.store(taken.argument_bytes as u64, Relaxed);
        seen.output_bytes.store(taken.output_bytes as u64, Relaxed);
        seen.output_chunks.store(taken.output_chunks as u32, Relaxed);
        seen.multi_bytes.store(taken.multi_bytes as u64, Relaxed);
        self.clients.book_total(client, taken.total_bytes as u64);
    }

    /// Closes connections until the rest is below the limit. Returns how many bytes are about to leave with them.
    pub fn evict_clients(&self, stats: &ThreadStats) -> u64 {
        let Some(limit) = self.config.client_memory_bytes_max() else { return 0 };
        let now = unix_now();
        if self.clients.bytes() <= limit || self.futile_until_ms.load(Relaxed) > now.0 {
            return 0;
        }
        // One thread at a time: two would choose the same clients. No partition is held here.
        let _evicting = self.evicting_clients.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clients: Vec<(u64, Arc<ClientShared>)> = self
            .clients
            .all()
            .into_iter()
            .map(|client| (client.seen.total_bytes.load(Relaxed), client))
            .collect();
        let is_leaving = |client: &ClientShared| client.is_asked(Attention::KILL);
        let mut leaving = sum(clients.iter().filter(|(_, client)| is_leaving(client)));
        clients.retain(|(_, client)| !is_leaving(client));
        let mut staying = sum(clients.iter());
        clients.retain(|(_, client)| client.seen.marks.load(Relaxed) & Seen::NO_EVICT == 0);
        clients.sort_unstable_by_key(|(bytes, _)| *bytes);
        while staying > limit {
            let Some((bytes, client)) = clients.pop() else {
                log::warning("Over client maxmemory after evicting all evictable clients");
                self.futile_until_ms.store(now.0 + FUTILE_MS, Relaxed);
                break;
            };
            log::notice(format!("Evicting client: {}", admin::client_line(self, &client, now)));
            self.kill(&client);
            stats.values.evicted_clients.add(1);
            staying -= bytes;
            leaving += bytes;
        }
        leaving
    }
}

// ---- DEBUG CLIENT-EVICTION ----

/// Clients that may be closed, in steps of a doubling from 32 KB to 4 GB; and below, and above.
const STEPS_MIN_LOG: u32 = 15;
const STEPS_MAX_LOG: u32 = 33;
const STEPS: usize = (1 + STEPS_MAX_LOG - STEPS_MIN_LOG) as usize;

fn step_of(bytes: u64) -> usize {
    let bits = u64::BITS - bytes.leading_zeros();
    (bits.clamp(STEPS_MIN_LOG, STEPS_MAX_LOG) - STEPS_MIN_LOG) as usize
}

impl Node {
    /// How many clients take how much; `None` without a limit.
    pub fn clients_by_memory(&self) -> Option<String> {
        self.config.client_memory_bytes_max()?;
        let mut steps = [(0u64, 0usize); STEPS];
        for client in self.clients.all() {
            if client.seen.marks.load(Relaxed) & Seen::NO_EVICT == 0 && !client.is_asked(Attention::KILL) {
                let bytes = client.seen.total_bytes.load(Relaxed);
                let (sum, count) = &mut steps[step_of(bytes)];
                *sum += bytes;
                *count += 1;
            }
        }
        let line = |(at, (sum, count)): (usize, &(u64, usize))| {
            let first = if at == 0 { 0 } else { 1u64 << (at as u32 - 1 + STEPS_MIN_LOG) };
            let last = match at + 1 == STEPS {
                true => "+            ".to_string(),
                false => format!(" - {:>10}", (1u64 << (at as u32 + STEPS_MIN_LOG)) - 1),
            };
            format!("bucket {first:>10}{last}: tot-mem: {sum:>10}, clients: {count}\n")
        };
        Some(steps.iter().enumerate().map(line).collect())
    }
}

fn sum<'a>(clients: impl Iterator<Item = &'a (u64, Arc<ClientShared>)>) -> u64 {
    clients.map(|(bytes, _)| bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_doublings() {
        for (bytes, step) in [
            (0, 0),
            (500, 0),
            (32_767, 0),
            (32_768, 1),
            (65_535, 1),
            (65_536, 2),
            (1 << 31, 17),
            (1 << 32, 18),
            (u64::MAX, 18),
        ] {
            assert_eq!(step_of(bytes), step, "{bytes}");
        }
        assert_eq!(step_of(u64::MAX), STEPS - 1);
    }
}
