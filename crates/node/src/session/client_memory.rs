//! Memory of connections, and the closing of connections when all of them together take too much
//! (maxmemory-clients).
//!
//! ```text
//! connection   [itself][bytes of requests][parsed arguments][unread replies][queue of MULTI][watched keys][subscriptions]
//!                 own     query_bytes        argument_bytes    output_bytes    multi_bytes        - only in the total -
//! while it waits for a key its arguments are kept: they count as parsed ones, and in the total with the lists of waiters
//! all          `Clients::bytes`: the sum of the totals, kept by differences
//! ```
//! The owner of a connection accounts for it after every batch. A connection that has nothing but itself, as
//! nearly every one, is accounted for already; the batch checks that, which is its only cost. The memory of
//! all connections is one number, so that every batch and every eviction of keys can ask for it.
//!
//! Above the limit the connections that take most are closed. Their owners close them a moment later. Until
//! then their memory counts as leaving, so that no key is evicted, and no second connection closed, for it.

use isotherm_keyspace::UnixMs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::Node;
use crate::observe::stats::ThreadStats;
use crate::session::line;
use crate::session::{Attention, ClientShared, Seen};
use isotherm_runtime::log;
use isotherm_runtime::time::unix_now;

/// Time to wait after a scan that found too few clients to close.
const FUTILE_MS: i64 = 100;

/// Closes connections until the rest is below the limit. Returns how many bytes are about to leave with them.
pub fn evict_clients(node: &Node, stats: &ThreadStats) -> u64 {
    let Some(limit) = node.config.client_memory_bytes_max() else { return 0 };
    let now = unix_now();
    if node.clients.bytes() <= limit || !node.clients.may_evict(now) {
        return 0;
    }
    // One thread at a time: two would choose the same clients. No partition is held here.
    let _evicting = node.clients.evicting();
    let mut clients: Vec<(u64, Arc<ClientShared>)> = node
        .clients
        .all()
        .into_iter()
        .map(|client| (client.seen.total_bytes.load(Relaxed), client))
        .collect();
    let is_leaving = |client: &ClientShared| client.is_asked(Attention::KILL);
    let mut leaving = sum(clients.iter().filter(|(_, client)| is_leaving(client)));
    clients.retain(|(_, client)| !is_leaving(client));
    let mut staying = sum(clients.iter());
    clients.retain(|(_, client)| client.seen.marks.load(Relaxed) & (Seen::NO_EVICT | Seen::REPLICA) == 0);
    clients.sort_unstable_by_key(|(bytes, _)| *bytes);
    while staying > limit {
        let Some((bytes, client)) = clients.pop() else {
            log::warning("Over client maxmemory after evicting all evictable clients");
            node.clients.note_futile(UnixMs(now.0 + FUTILE_MS));
            break;
        };
        log::notice(format!("Evicting client: {}", line::of_log(node, &client, now)));
        node.clients.kill(&node.mail, &client);
        stats.values.evicted_clients.add(1);
        staying -= bytes;
        leaving += bytes;
    }
    leaving
}

fn sum<'a>(clients: impl Iterator<Item = &'a (u64, Arc<ClientShared>)>) -> u64 {
    clients.map(|(bytes, _)| bytes).sum()
}
