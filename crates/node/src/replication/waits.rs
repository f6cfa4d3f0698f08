//! Clients that wait until replicas, or this node's disk, have their changes (WAIT, WAITAOF).
//!
//! ```text
//!   worker    WAIT --> nothing yet: the session is parked as one that waits for a key, without a key; an ACK is asked for
//!   feeder    REPLCONF ACK --> look: whose wish is met? --wake--> its worker answers with the counts
//!   sync      durable --------> the same
//! ```
//! The client's worker decides whether it is answered, and looks at the counts again.

use isotherm_keyspace::Waiter;
use isotherm_log::LogOffset;
use isotherm_replication::acks::{Reached, Wish};
use isotherm_resp::Reply;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::primary::Primary;

pub const NOTHING_SYNCED: &str =
    "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

#[derive(Default)]
pub struct Waits {
    list: Mutex<Vec<(Arc<Waiter>, Wish)>>,
    /// Number of waits in the list, for threads that have news much more often than a client waits.
    count: AtomicUsize,
}

impl Waits {
    fn list(&self) -> MutexGuard<'_, Vec<(Arc<Waiter>, Wish)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller looks afterwards whether the wish was met meanwhile.
    pub fn add(&self, waiter: &Arc<Waiter>, wish: Wish) {
        let mut list = self.list();
        list.retain(|(waiter, _)| !waiter.has_ended());
        list.push((Arc::clone(waiter), wish));
        self.count.store(list.len(), SeqCst);
    }

    /// Replicas or the disk have come further: the workers of those whose wish is met are to look.
    pub fn look(&self, is_over: impl Fn(&Wish) -> bool) {
        if self.count.load(SeqCst) == 0 {
            return;
        }
        let mut list = self.list();
        list.retain(|(waiter, _)| !waiter.has_ended());
        self.count.store(list.len(), SeqCst);
        list.iter().filter(|(_, wish)| is_over(wish)).for_each(|(waiter, _)| waiter.wake());
    }
}

/// Returns how far a wish has come. `durable`: the offset to which this node has synced, if it has an
/// append-only file.
pub fn reached(primary: &Primary, wish: &Wish, durable: Option<LogOffset>) -> Reached {
    let replicas = primary.replicas();
    let online = replicas.iter().filter(|replica| replica.seen.state().is_online());
    let acks = online.map(|replica| (replica.seen.acked(), replica.seen.synced()));
    let reached = wish.reached(acks, durable.unwrap_or_default());
    // Without an append-only file nothing is synced, not even what there is nothing of.
    Reached { here: reached.here && durable.is_some(), ..reached }
}

/// The reply of WAIT, or of WAITAOF.
pub fn reply(reply: &mut Reply, wish: &Wish, reached: Reached) {
    if wish.synced {
        reply.array(2);
        reply.integer(i64::from(reached.here));
    }
    reply.integer(reached.replicas as i64);
}
