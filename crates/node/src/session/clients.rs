//! Every connection, by its id, and what they take together.
//!
//! Each owner shows the bytes of its connection after every batch; the sum is kept by differences, so that
//! every batch and every eviction of keys can ask for it (`session::client_memory`).

use isotherm_keyspace::UnixMs;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mail::Mail;
use crate::mail::message::WorkerMessage;
use crate::session::client::{Attention, ClientShared, Seen};

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
    /// Bytes of values of the keyspace that it has not read yet, which are accounted for there.
    pub shared_bytes: usize,
    /// All of it, the connection itself included.
    pub total_bytes: usize,
}

/// Every connection.
#[derive(Default)]
pub struct Clients {
    next_id: AtomicU64,
    /// Number of connections, including those on their way to their worker.
    count: AtomicUsize,
    all: Mutex<BTreeMap<u64, Arc<ClientShared>>>,
    /// Bytes that all connections take together (`client_memory`).
    bytes: AtomicU64,
    /// Bytes of values among them.
    shared_bytes: AtomicU64,
    /// Number of clients that wait for a key.
    pub blocked: AtomicUsize,
    /// Until when no look for connections to close is worth it (`client_memory`).
    futile_until_ms: AtomicI64,
    /// Held by the thread that chooses connections to close.
    evicting: Mutex<()>,
}

impl Clients {
    /// A connection was accepted.
    pub fn next_id(&self) -> u64 {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a client that has been given to its owner. The connection takes `own_bytes` by itself.
    pub fn add(&self, client: &Arc<ClientShared>, own_bytes: u64) {
        self.account_total(client, own_bytes);
        self.lock().insert(client.id, Arc::clone(client));
    }

    pub fn remove(&self, id: u64) {
        if let Some(client) = self.lock().remove(&id) {
            self.account_total(&client, 0);
            self.account_shared(&client, 0);
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub fn has(&self, id: u64) -> bool {
        self.lock().contains_key(&id)
    }

    pub fn get(&self, id: u64) -> Option<Arc<ClientShared>> {
        self.lock().get(&id).cloned()
    }

    /// All of them, by id.
    pub fn all(&self) -> Vec<Arc<ClientShared>> {
        self.lock().values().cloned().collect()
    }

    /// Returns the bytes that all clients take.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that all of them take, without values that they share with the keyspace.
    pub fn own_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.shared_bytes.load(Ordering::Relaxed))
    }

    /// Notes how many bytes of values of the keyspace a client has to read. Only its owner says so.
    pub fn account_shared(&self, client: &ClientShared, bytes: u64) {
        let before = client.seen.shared_bytes.load(Ordering::Relaxed);
        if before != bytes {
            client.seen.shared_bytes.store(bytes, Ordering::Relaxed);
            self.shared_bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Accounts `bytes` as what the client takes now. Called by the owner of the client only: there is no
    /// second writer of the total.
    pub fn account_total(&self, client: &ClientShared, bytes: u64) {
        let before = client.seen.total_bytes.load(Ordering::Relaxed);
        client.seen.total_bytes.store(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Shows what a connection takes; called by its owner only.
    pub fn account(&self, client: &ClientShared, taken: &Taken) {
        let seen = &client.seen;
        seen.query_bytes.store(taken.query_bytes as u64, Relaxed);
        seen.query_free_bytes.store(taken.query_free_bytes as u64, Relaxed);
        seen.argument_bytes.store(taken.argument_bytes as u64, Relaxed);
        seen.output_bytes.store(taken.output_bytes as u64, Relaxed);
        seen.output_chunks.store(taken.output_chunks as u32, Relaxed);
        seen.multi_bytes.store(taken.multi_bytes as u64, Relaxed);
        self.account_shared(client, taken.shared_bytes as u64);
        self.account_total(client, taken.total_bytes as u64);
    }

    /// The connection runs no further command, takes nothing that it waits for, and is closed by its owner.
    pub fn kill(&self, mail: &Mail, client: &ClientShared) {
        client.ask(Attention::KILL);
        client.end_waiting();
        self.wake(mail, client);
    }

    /// Wakes the owner of the client, which then checks its requests.
    pub fn wake(&self, mail: &Mail, client: &ClientShared) {
        let token = client.token.load(Ordering::Acquire);
        mail.post(usize::from(client.worker), WorkerMessage::Attend { token, id: client.id });
    }

    /// Returns whether a look for connections to close may find some.
    pub fn may_evict(&self, now: UnixMs) -> bool {
        self.futile_until_ms.load(Ordering::Relaxed) <= now.0
    }

    /// Notes that there is no connection to close: no thread looks again before `until`.
    pub fn note_futile(&self, until: UnixMs) {
        self.futile_until_ms.store(until.0, Ordering::Relaxed);
    }

    /// Locks the choice of connections to close: one thread at a time makes it.
    pub fn evicting(&self) -> MutexGuard<'_, ()> {
        self.evicting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the text of DEBUG CLIENT-EVICTION: the number of clients and their bytes, by size of client.
    pub fn by_memory(&self) -> String {
        let mut steps = [(0u64, 0usize); STEPS];
        for client in self.all() {
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
        steps.iter().enumerate().map(line).collect()
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientShared>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clients that may be closed, in steps of a doubling from 32 KB to 4 GB; and below, and above.
const STEPS_MIN_LOG: u32 = 15;
const STEPS_MAX_LOG: u32 = 33;
const STEPS: usize = (1 + STEPS_MAX_LOG - STEPS_MIN_LOG) as usize;

fn step_of(bytes: u64) -> usize {
    let bits = u64::BITS - bytes.leading_zeros();
    (bits.clamp(STEPS_MIN_LOG, STEPS_MAX_LOG) - STEPS_MIN_LOG) as usize
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
