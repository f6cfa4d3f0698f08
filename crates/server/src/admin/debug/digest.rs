//! DEBUG DIGEST and DIGEST-VALUE: a signature of keys, values and which of them expire. Equal data sets have
//! equal signatures in Valkey and here, whatever the order in which they lie in memory.
//!
//! ```text
//! all        for each database with keys: mix(number), then xor(mix(key), value) of each key
//! ```
//! Values on disk are read while nothing is held, and the walk continues from where it stopped: with writers
//! meanwhile, the signature mixes several moments.
//!
//! Crate `codec`, which knows values, describes `mix` and `xor` and what they make of a value.

use isotherm_codec::{add_value, mix, xor};
use isotherm_commands::Outcome;
use isotherm_commands::call::ColdKey;
use isotherm_commands::spec::Need;
use isotherm_keyspace::{Db, Lookup, OnCold, Value, WalkProgress};
use isotherm_stdx::sha1::{Digest, hex};

use super::super::AdminCall;

/// Keys of one step, about, and bytes of their values that are read for it: where these are more it has the
/// keys of one page.
const STEP_KEYS: u64 = 512;
const STEP_BYTES_MAX: usize = 1 << 20;

/// The place to which the walk has come, and the signature of what lies before it.
#[derive(Clone, Default)]
struct Walked {
    digest: Digest,
    db: u16,
    /// 0: its first key.
    cursor: u64,
}

impl Walked {
    /// Reads what was kept of the last run.
    fn of(progress: &WalkProgress) -> Walked {
        let mut walked = Walked { cursor: progress.cursor, db: progress.count as u16, ..Walked::default() };
        if progress.found.len() == walked.digest.len() {
            walked.digest.copy_from_slice(&progress.found);
        }
        walked
    }

    fn progress(&self) -> WalkProgress {
        WalkProgress { cursor: self.cursor, found: self.digest.to_vec(), count: usize::from(self.db) }
    }
}

// COMPAT(debug): DEBUG DIGEST of data that lies on disk in part goes in steps, between which others run. It,
// OBJECT and DIGEST-VALUE answer an error in a transaction if they would have to read. Why: no client is to
// wait for the disk of another.
pub fn all(call: &mut AdminCall<'_>) -> Outcome {
    let databases = call.node.config.databases();
    let mut walked = Walked::of(&call.exec.held.walk.take_progress());
    let from = (walked.db, walked.cursor);
    while walked.db < databases {
        if walked.cursor == 0 && call.debug_txn().is_empty(Db(walked.db)) {
            walked.db += 1;
            continue;
        }
        let keys = match step(call, &mut walked, STEP_KEYS) {
            Some((_, bytes)) if bytes > STEP_BYTES_MAX => {
                call.exec.held.take_missing();
                step(call, &mut walked, 1)
            }
            lacking => lacking,
        };
        let Some((keys, _)) = keys else { continue };
        if call.session.in_exec {
            call.exec.refuse_look(call.reply);
            return Outcome::Done;
        }
        let has_advanced = from != (walked.db, walked.cursor);
        call.exec.held.walk.keep_progress(walked.progress(), has_advanced);
        return call.exec.fetch_for_look(keys, call.reply);
    }
    call.reply.simple(&hex(&walked.digest));
    Outcome::Done
}

/// Adds the next keys. If something of them is on disk nothing was added: returns the keys whose values are,
/// and how long these are.
fn step(call: &mut AdminCall<'_>, walked: &mut Walked, count: u64) -> Option<(Vec<ColdKey>, usize)> {
    let (mut digest, db) = (walked.digest, Db(walked.db));
    if walked.cursor == 0 {
        mix(&mut digest, &u32::from(db.0).to_be_bytes());
    }
    let (mut keys, mut bytes) = (Vec::new(), 0);
    let mut txn = call.debug_txn();
    txn.on_cold = OnCold::Collect;
    let next = txn.walk_values(db, walked.cursor, count, |key, entry| {
        if let Value::Cold(cold) = entry.value {
            bytes += cold.reference.value_bytes();
            return keys.push(ColdKey::of(db, key, Need::All, false));
        }
        let mut own = Digest::default();
        mix(&mut own, key);
        add_value(&mut own, entry);
        xor(&mut digest, &own);
    });
    txn.finish();
    let held = &call.exec.held;
    if !keys.is_empty() || held.has_missed() || held.walk.is_wanting() {
        return Some((keys, bytes));
    }
    (walked.digest, walked.cursor) = (digest, next);
    walked.db += u16::from(next == 0);
    None
}

/// The values of its keys are in memory, or cannot be read.
pub fn values(call: &mut AdminCall<'_>) {
    let (db, names) = (call.session.db, call.args.from(2));
    call.reply.array(names.len());
    for name in names.iter() {
        let mut txn = call.debug_txn();
        let key = txn.key(name);
        let mut digest = Digest::default();
        if let Some(entry) = txn.find(db, &key, Lookup::Silent) {
            add_value(&mut digest, &entry);
        }
        call.reply.simple(&hex(&digest));
    }
}
