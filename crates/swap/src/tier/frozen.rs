//! Small keys that leave memory with their values: what the thread that writes does with them.
//!
//! ```text
//!   gather    a part of a slot, under its lock:  keys, in the order of their hashes  -->  a record of up to 4 KB  -->  the open group
//!   flip      the group is on disk:              the keys that still have these values leave their pages
//!   clean     a record lives while a bundle refers to it
//! ```
//! **What this module does not know:** how records are found again, which is the keyspace's.

use isotherm_keyspace::{
    BundleAt, BundleName, ColdRef, Db, EffectSink, EvictionPolicy, FreezeLimits, Held, Keyspace, SlotHand,
    UnixMs, Want,
};
use isotherm_tier::{Full, Log, Place, Record, Stream};

use isotherm_runtime::time::unix_now;

/// Larger values leave alone: of them a record would have few, and no key of it would be cheap.
const VALUE_BYTES_MAX: usize = 512;
/// Fewer keys of one part of a slot stay, or leave by their values: the bundle would cost as much.
const KEYS_MIN: usize = 4;

/// Keys that expire within that time stay, or leave by their values: they would be read again to be removed.
const TTL_MS_MIN: i64 = 300_000;

pub const FORM: u8 = isotherm_keyspace::Freezable::FORM_NUMBER;

/// Size of what was gathered; `bytes` counts keys and values.
#[derive(Clone, Copy, Default)]
pub struct Gathered {
    pub bytes: u64,
    pub keys: u64,
}

/// Returns the limits for keys that leave: they were not used for `idle_seconds_min`. In haste (DEBUG
/// SWAP-CHAOS) keys leave also if their time is near, and a bundle may have one key.
pub fn limits(idle_seconds_min: u32, in_haste: bool) -> FreezeLimits {
    let ttl_ms_min = if in_haste { 0 } else { TTL_MS_MIN };
    FreezeLimits {
        value_bytes_max: VALUE_BYTES_MAX,
        idle_seconds_min,
        keys_min: keys_min(in_haste),
        expiry_min: UnixMs(unix_now().0 + ttl_ms_min),
    }
}

/// The fewest keys of a bundle.
pub fn keys_min(in_haste: bool) -> usize {
    if in_haste { 1 } else { KEYS_MIN }
}

/// Writes what may freeze to the log, in one hold of the hand's slot.
pub fn gather(
    (keyspace, log): (&Keyspace, &mut Log),
    hand: &mut SlotHand,
    limits: FreezeLimits,
) -> (Gathered, Result<(), Full>) {
    let (mut gathered, mut result) = (Gathered::default(), Ok(()));
    let mut held = Held::new(keyspace);
    held.acquire(Want::One(keyspace.partition_of(hand.slot())));
    hand.show_freezable(&mut held, limits, unix_now(), &mut |bundle| {
        if result.is_err() {
            return;
        }
        let record = Record {
            form: FORM,
            expiry: None,
            database: u32::from(bundle.db.0),
            slot: bundle.slot,
            key: bundle.name.as_bytes(),
            payload: bundle.payload,
        };
        match log.append(Stream::Fresh, &record, None) {
            Ok(_) => {
                gathered.bytes += bundle.payload.len() as u64;
                gathered.keys += bundle.keys as u64;
            }
            Err(full) => result = Err(full),
        }
    });
    (gathered, result)
}

/// A record is on disk: its keys leave memory, or if it was moved its bundle refers to it. How many keys
/// left.
pub fn flip(
    keyspace: &Keyspace,
    record: &Record<'_>,
    before: Option<Place>,
    to: Place,
    keys_min: usize,
) -> usize {
    let (db, to) = (Db(record.database as u16), ColdRef::new(to.raw()));
    let name = name_of(record);
    let mut held = Held::new(keyspace);
    held.acquire(Want::One(keyspace.partition_of(record.slot)));
    match before {
        None => held.freeze((db, record.slot), name, record.payload, to, keys_min, unix_now()),
        Some(before) => {
            let before = ColdRef::new(before.raw());
            let found = held.database_of_bundle((db, record.slot), name, before).unwrap_or(db);
            held.move_bundle((found, record.slot), name, before, to);
            0
        }
    }
}

/// Evicts the keys of a record that the policy may take. How many left, and whether no bundle refers to it
/// any more.
pub fn evict(
    keyspace: &Keyspace,
    place: Place,
    record: &Record<'_>,
    policy: EvictionPolicy,
    sink: &mut dyn EffectSink,
) -> (u64, bool) {
    let (db, slot, name) = (Db(record.database as u16), record.slot, name_of(record));
    let reference = ColdRef::new(place.raw());
    let mut held = Held::new(keyspace);
    held.acquire(Want::One(keyspace.partition_of(slot)));
    let Some(db) = held.database_of_bundle((db, slot), name, reference) else { return (0, true) };
    let bundle = BundleAt { db, slot, name, reference };
    let evicted = held.evict_bundle(&bundle, record.payload, policy, unix_now(), sink);
    (evicted, held.bundle_keys(&bundle).is_none())
}

/// Returns whether a bundle refers to a record.
pub fn lives(keyspace: &Keyspace, place: Place, record: &Record<'_>) -> bool {
    let (db, reference) = (Db(record.database as u16), ColdRef::new(place.raw()));
    let mut held = Held::new(keyspace);
    held.acquire(Want::One(keyspace.partition_of(record.slot)));
    held.database_of_bundle((db, record.slot), name_of(record), reference).is_some()
}

/// Checked by the record's own sum.
fn name_of(record: &Record<'_>) -> BundleName {
    BundleName::of_bytes(record.key).expect("a record of this form has the name of a bundle")
}
