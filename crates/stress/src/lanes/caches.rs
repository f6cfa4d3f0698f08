//! Caches: clients that keep what they have read until the server notifies them that it has changed (CLIENT
//! TRACKING).
//!
//! A value that is older than the acknowledged one, and for which no invalidation has come for a second, is
//! stale: the invalidation was lost, or lies where no one looks. Readers use RESP3, broadcasting, or a second
//! connection to which invalidations are redirected.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;

use super::{Lane, line};
use crate::allowance::Cover;
use crate::connection::Lost;
use crate::plan::Plan;
use crate::world::Member;

const KEYS: usize = 60;
/// An invalidation comes within this, beyond the allowances.
const STALE_MAX: Duration = Duration::from_secs(1);
/// Number of roles: one of this many members writes, the others read.
const ROLES: usize = 4;

/// The version of a key that was acknowledged last, and when.
type Version = (u64, Option<Instant>);

struct Cached {
    version: u64,
    asked_at: Instant,
}

/// Values that one reader has cached.
#[derive(Default)]
struct Cache {
    values: HashMap<usize, Cached>,
    /// Time of the last invalidation of each key: on another connection it may arrive before the value.
    invalidated: HashMap<usize, Instant>,
}

pub struct Caches {
    /// A lock each: the writer that holds it is the only one of this key.
    versions: Vec<Mutex<Version>>,
    next: AtomicU64,
    invalidations: AtomicU64,
}

impl Caches {
    pub fn new(_: &Plan) -> Caches {
        Caches {
            versions: (0..KEYS).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new(1),
            invalidations: AtomicU64::new(0),
        }
    }

    fn write(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        while member.is_busy() {
            let at = member.below(KEYS);
            let mut version = self.versions[at].lock().expect("no thread panics with it");
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            if connection.call(&["SET", &key(at), &next.to_string()])? == Value::Simple(b"OK".to_vec()) {
                *version = (next, Some(Instant::now()));
                member.note_done();
            }
            drop(version);
            member.rest();
        }
        Ok(())
    }

    fn read(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let mut second = None;
        let broadcast = if member.prng.one_in(3) { " BCAST PREFIX c:" } else { "" };
        if member.prng.one_in(2) {
            connection.call(&["HELLO", "3"])?;
            connection.call(&line(&format!("CLIENT TRACKING ON{broadcast}")))?;
        } else {
            let mut other = member.connect()?;
            let id = other.id()?;
            other.send(&["SUBSCRIBE", "__redis__:invalidate"])?;
            other.next()?;
            connection.call(&line(&format!("CLIENT TRACKING ON REDIRECT {id}{broadcast}")))?;
            second = Some(other);
        }
        let mut cache = Cache::default();
        while member.is_staying() {
            let at = member.below(KEYS);
            let asked_at = Instant::now();
            connection.send(&["GET", &key(at)])?;
            let reply = loop {
                match connection.next()? {
                    push @ Value::Push(_) => self.invalidate(&mut cache, &push),
                    reply => break reply,
                }
            };
            if let Value::Bulk(text) = &reply
                && let Some(version) = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
            {
                cache.values.insert(at, Cached { version, asked_at });
                member.note_done();
            }
            let looked = Instant::now();
            for connection in [Some(&mut connection), second.as_mut()].into_iter().flatten() {
                while let Some(push) = connection.next_within(Duration::ZERO)? {
                    self.invalidate(&mut cache, &push);
                }
            }
            self.look_for_stale(member, &mut cache, looked);
            if member.is_busy() { member.rest() } else { std::thread::sleep(Duration::from_millis(50)) }
        }
        Ok(())
    }

    /// `invalidate [keys]`, pushed or as a message; without keys it means all.
    fn invalidate(&self, cache: &mut Cache, push: &Value) {
        let (Value::Push(parts) | Value::Array(parts)) = push else { return };
        self.invalidations.fetch_add(1, Ordering::Relaxed);
        let Some(Value::Array(keys)) = parts.last() else {
            cache.values.clear();
            return;
        };
        for name in keys {
            let Value::Bulk(name) = name else { continue };
            if let Some(at) =
                std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix("c:")?.parse().ok())
            {
                cache.values.remove(&at);
                cache.invalidated.insert(at, Instant::now());
            }
        }
    }

    /// At `looked`, before what had arrived was read: what came later is no wait of the server's.
    fn look_for_stale(&self, member: &Member, cache: &mut Cache, looked: Instant) {
        let Cache { values, invalidated } = cache;
        // An invalidation that came while the value was on its way may be of a later change.
        values.retain(|at, cached| invalidated.get(at).is_none_or(|moment| *moment < cached.asked_at));
        for (at, cached) in values {
            // A writer that is about to change it has the lock.
            let Ok(version) = self.versions[*at].try_lock() else { continue };
            let (newest, Some(since)) = *version else { continue };
            let waited = looked.saturating_duration_since(since);
            if newest <= cached.version || waited <= STALE_MAX {
                continue;
            }
            let longest = STALE_MAX + member.world.allowance.within(Cover::EVERYTHING, since, looked);
            if waited > longest {
                let (key, old, seconds) = (key(*at), cached.version, waited.as_secs_f64());
                member.overdue(
                    waited,
                    longest,
                    format!("{key} is cached as {old}, was set to {newest} {seconds:.1} s ago, and no invalidation has come"),
                );
                return;
            }
        }
    }
}

impl Lane for Caches {
    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        if self.waits(member.number) { self.read(member) } else { self.write(member) }
    }

    fn waits(&self, number: usize) -> bool {
        !number.is_multiple_of(ROLES)
    }

    fn summary(&self) -> String {
        format!("{} invalidations", self.invalidations.load(Ordering::Relaxed))
    }
}

fn key(at: usize) -> String {
    format!("c:{at}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::world::World;
    use std::sync::Arc;

    #[test]
    fn a_stale_value_is_seen_and_an_invalidated_one_is_not() {
        let plan = Plan::draw(1, &Options::parse(&[]).unwrap());
        let caches = Caches::new(&plan);
        let world = Arc::new(World::new(0, 0, Default::default(), Default::default(), plan));
        let member = Member::new(&world, "caches", 1);
        let long_ago = Instant::now() - 2 * STALE_MAX;
        *caches.versions[7].lock().unwrap() = (9, Some(long_ago));
        let mut cache = Cache::default();
        cache.values.insert(7, Cached { version: 9, asked_at: long_ago });
        caches.look_for_stale(&member, &mut cache, Instant::now());
        assert!(!world.has_faults(), "it is the newest");
        cache.values.insert(7, Cached { version: 8, asked_at: long_ago });
        let push = [Value::Bulk(b"invalidate".to_vec()), Value::Array(vec![Value::Bulk(b"c:7".to_vec())])];
        caches.invalidate(&mut cache, &Value::Push(push.to_vec()));
        caches.look_for_stale(&member, &mut cache, Instant::now());
        assert!(!world.has_faults(), "it was invalidated");
        cache = Cache::default();
        cache.values.insert(7, Cached { version: 8, asked_at: long_ago });
        caches.look_for_stale(&member, &mut cache, Instant::now());
        assert!(world.faults()[0].what.starts_with("c:7 is cached as 8"), "{:?}", world.faults());
    }
}
