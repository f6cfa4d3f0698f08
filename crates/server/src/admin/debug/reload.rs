//! DEBUG RELOAD and LOADAOF: all data to disk and back, as if the server had stopped in between.

use super::super::AdminCall;
use super::super::persistence::BUSY;
use isotherm_durability::aof::reload as aof;
use isotherm_durability::persistence::background;
use isotherm_durability::persistence::background::Asked;
use isotherm_durability::persistence::load;
use isotherm_durability::persistence::load::{Expired, FilePortions, LoadFailure, Target};
use isotherm_runtime::log;

const AOF_FAILED: &str = "ERR Error trying to load the AOF files, check server logs.";
const FAILED: &str = "ERR Error trying to load the RDB dump, check server logs.";

/// Everything stays locked, so nothing is written between the cut and the flush. It is for tests: nothing
/// else writes to a disk under a lock.
pub fn reload(call: &mut AdminCall<'_>) {
    let (mut saves, mut flushes, mut merges) = (true, true, false);
    for word in call.args.from(2).iter() {
        match word.to_ascii_lowercase().as_slice() {
            b"nosave" => saves = false,
            // COMPAT(debug): DEBUG RELOAD NOFLUSH replaces keys that exist, as with MERGE (but no libraries
            // of functions); Valkey ends on the first one. Why: a test that means this says MERGE.
            b"noflush" => flushes = false,
            b"merge" => merges = true,
            _ => {
                call.reply.error("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
                return;
            }
        }
    }
    let (store, used_memory_bytes) = (call.node.store(), call.node.used_memory_bytes());
    if saves {
        match background::save_held(store, &mut call.exec.held, used_memory_bytes) {
            Asked::Started => {}
            // COMPAT(debug): DEBUG RELOAD is refused while a save or a rewrite of the append-only file is
            // under way; Valkey writes a second file beside it. Why: one walk through the data at a time, and
            // nothing but tests sends it.
            Asked::Busy => {
                call.reply.error(BUSY);
                return;
            }
            _ => {
                call.reply.error("ERR");
                return;
            }
        }
    }
    let opened = FilePortions::open(store).and_then(|source| match source {
        Some(source) => load::check_head(&source, store.config.checks_rdb_version()).map(|()| source),
        None => Err(LoadFailure(vec!["There is no RDB file.".to_string()])),
    });
    if flushes && opened.is_ok() {
        let mut txn = call.txn();
        txn.flush(None);
        txn.free_flushed_now();
        store.libraries.clear();
    }
    let checks_sum = !call.node.debug.skip_checksums.is_on();
    let is_alone = call.node.replication.primary.replicas().is_empty() && !call.node.aof.is_on();
    let expired = if is_alone { Expired::DroppedHere } else { Expired::Dropped };
    let loaded = opened.and_then(|mut source| {
        let held = &mut call.exec.held;
        let target = if merges { Target::Merged(held) } else { Target::Held(held) };
        load::load(store, &mut source, target, expired, checks_sum)
    });
    match loaded {
        Ok(_) => {
            log::warning("DB reloaded by DEBUG RELOAD");
            call.reply.ok();
        }
        Err(LoadFailure(lines)) => {
            lines.iter().for_each(log::warning);
            call.reply.error(FAILED);
        }
    }
}

/// Loads the dataset from the append-only file, which is synced before.
pub fn load_aof(call: &mut AdminCall<'_>) {
    let (node, conditions) = (call.node, call.conditions);
    let exec = &mut *call.exec;
    match aof::reload(node, &mut exec.held, conditions, &mut exec.pump) {
        Ok(()) => {
            log::notice("Append Only File loaded by DEBUG LOADAOF");
            call.reply.ok();
        }
        Err(aof::CannotReload) => call.reply.error(AOF_FAILED),
    }
}
