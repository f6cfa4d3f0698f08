//! Records of frozen keys that commands of a log will name, read together before these run: else each command
//! would wait for the disk, one after the other.
//!
//! ```text
//!   keys of a window  --look, some in a hold-->  records, each once  --64 at a time, no lock-->  their keys come to memory
//! ```
//! Reading together is a guess, and no command depends on it: what cannot be read here, or has not come in
//! time, is read by its command, which judges the disk. A key that comes to memory is no change of the data.

use isotherm_disk::{Ended, Ring};
use isotherm_keyspace::{BundleName, ColdRef, Db, Held, Key, Keyspace, Want, Whereabouts};
use isotherm_tier::Place;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use isotherm_node::tier::files::Files;
use isotherm_node::tier::state::Tier;
use isotherm_runtime::time::unix_now;

/// Keys after which others may look at partitions.
const KEYS_PER_HOLD: usize = 32;
/// Time after which a disk that brings nothing is left to the commands.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Reader of one thread.
#[derive(Default)]
pub struct Together {
    ring: Option<Ring>,
    /// The thread has no ring: there can be none, or the disk brought nothing.
    is_refused: bool,
}

/// A record, and which keys it may have.
struct Wanted {
    from: ColdRef,
    name: BundleName,
    keys: Vec<usize>,
    since: Instant,
}

impl Together {
    /// Thaws those of the keys that are frozen. Nothing is held. In `keys`, those of a partition lie
    /// together.
    pub fn thaw(&mut self, (keyspace, tier): (&Keyspace, &Tier), keys: &[(Db, Key<'_>)]) {
        if self.is_refused || !tier.rings.is_on() || !tier.may_have_frozen() {
            return;
        }
        let wanted = find(keyspace, keys);
        if wanted.len() < 2 {
            return;
        }
        if self.ring.is_none() {
            self.ring = Ring::new().ok();
        }
        let done = match &mut self.ring {
            Some(ring) => read_all(ring, (keyspace, tier), wanted, keys),
            None => false,
        };
        if !done {
            (self.ring, self.is_refused) = (None, true);
        }
    }
}

fn find(keyspace: &Keyspace, keys: &[(Db, Key<'_>)]) -> Vec<Wanted> {
    let (mut wanted, mut places) = (Vec::<Wanted>::new(), HashMap::new());
    let mut held = Held::new(keyspace);
    for (number, (db, key)) in keys.iter().enumerate() {
        if number.is_multiple_of(KEYS_PER_HOLD) || !held.holds(key) {
            held.release();
            held.acquire(Want::One(keyspace.partition_of(key.slot)));
        }
        let Whereabouts::Frozen(from, name) = held.whereabouts(*db, key, false) else { continue };
        let place = *places.entry(from).or_insert_with(|| {
            wanted.push(Wanted { from, name, keys: Vec::new(), since: Instant::now() });
            wanted.len() - 1
        });
        wanted[place].keys.push(number);
    }
    wanted
}

/// False if the disk brings nothing.
fn read_all(
    ring: &mut Ring,
    (keyspace, tier): (&Keyspace, &Tier),
    wanted: Vec<Wanted>,
    keys: &[(Db, Key<'_>)],
) -> bool {
    let mut wanted = wanted.into_iter();
    let mut under_way: HashMap<usize, Wanted> = HashMap::new();
    let mut moved_at = Instant::now();
    loop {
        while !ring.is_full()
            && let Some(mut next) = wanted.next()
        {
            let place = Place::from_raw(next.from.raw());
            let Some((file, at, len)) = tier.files.locate(place, next.name.as_bytes().len()) else {
                continue;
            };
            next.since = Instant::now();
            if let Ok(room) = ring.begin(&file, at, len) {
                under_way.insert(room, next);
            }
        }
        if under_way.is_empty() {
            return true;
        }
        if ring.wait(WAIT_MAX).is_err() || moved_at.elapsed() > WAIT_MAX {
            return false;
        }
        while let Some(Ended { room, bytes }) = ring.next_ended() {
            moved_at = Instant::now();
            let Some(Wanted { from, name, keys: numbers, since }) = under_way.remove(&room) else { continue };
            let Ok(bytes) = bytes else { continue };
            let payload = Files::verify(Place::from_raw(from.raw()), name.as_bytes(), bytes);
            if payload.is_ok() {
                tier.note_read_end(since, &payload);
            }
            let Ok(payload) = payload else { continue };
            let mut held = Held::new(keyspace);
            for (db, key) in numbers.iter().map(|number| &keys[*number]) {
                if !held.holds(key) {
                    held.release();
                    held.acquire(Want::One(keyspace.partition_of(key.slot)));
                }
                // Without memory its command says so.
                _ = held.thaw(*db, key, &payload, from, unix_now());
            }
        }
    }
}
