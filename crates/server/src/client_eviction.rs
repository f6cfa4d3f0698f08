//! maxmemory-clients: connections together may take so much; above it those that take most are closed.
//!
//! What a connection takes (requests that are not complete, replies that are not read, a queued transaction, watched
//! keys, subscriptions) is what it
//! has published last. A connection is closed by its owner, a moment later: until then what it takes is counted as
//! leaving, so that nobody evicts a key, or a second connection, for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::node::Node;
use crate::session::{Attention, ClientShared, Seen};
use crate::stats::ThreadStats;

impl Node {
    /// Closes connections until the rest is below the limit. Returns how many bytes are about to leave with them.
    pub fn evict_clients(&self, stats: &ThreadStats) -> u64 {
        let Some(limit) = self.config.client_memory_bytes_max() else { return 0 };
        let mut clients: Vec<(u64, Arc<ClientShared>)> =
            self.clients.all().into_iter().map(|client| (memory_bytes(&client), client)).collect();
        let is_leaving = |client: &ClientShared| client.is_asked(Attention::KILL);
        let mut leaving: u64 = sum(clients.iter().filter(|(_, client)| is_leaving(client)));
        clients.retain(|(_, client)| {
            !is_leaving(client) && client.seen.marks.load(Relaxed) & Seen::NO_EVICT == 0
        });
        let mut staying = sum(clients.iter());
        if staying > limit {
            clients.sort_unstable_by_key(|(bytes, _)| *bytes);
        }
        while staying > limit
            && let Some((bytes, client)) = clients.pop()
        {
            self.kill(&client);
            stats.values.evicted_clients.add(1);
            staying -= bytes;
            leaving += bytes;
        }
        leaving
    }
}

fn memory_bytes(client: &ClientShared) -> u64 {
    let seen = &client.seen;
    let buffers = [&seen.query_bytes, &seen.output_bytes, &seen.multi_bytes, &seen.watch_bytes];
    buffers.iter().map(|bytes| bytes.load(Relaxed)).sum::<u64>() + client.listening.bytes()
}

fn sum<'a>(clients: impl Iterator<Item = &'a (u64, Arc<ClientShared>)>) -> u64 {
    clients.map(|(bytes, _)| bytes).sum()
}
