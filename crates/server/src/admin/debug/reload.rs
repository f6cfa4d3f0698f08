//! DEBUG RELOAD: every key through the codec of the field's files and back, as if the server had stopped in between.
//!
//! There are no files yet, so the bytes wait in memory, and NOSAVE, which asks for an older file, has nothing to load.

use isotherm_codec as codec;
use isotherm_keyspace::{Db, UnixMs};
use isotherm_persist::rdb::{self, VERSION_FIELD_EXPIRY, Writer};
use isotherm_persist::{Limits, RdbError};

use super::super::AdminCall;

/// Entries of one step of the scan.
const SCAN_COUNT: u64 = 1000;
const FAILED: &str = "ERR Error trying to load the RDB dump, check server logs.";

struct Saved {
    db: Db,
    key: Vec<u8>,
    /// Type and value.
    bytes: Vec<u8>,
    expiry: Option<UnixMs>,
}

pub fn reload(call: &mut AdminCall<'_>) {
    let (mut saves, mut flushes) = (true, true);
    for word in call.args.from(2).iter() {
        match word.to_ascii_lowercase().as_slice() {
            // COMPAT(debug): DEBUG RELOAD writes all keys as RDB values and reads them back, in memory. Its NOSAVE
            // does nothing, and NOFLUSH replaces keys that exist. Why: there is no RDB file yet.
            b"nosave" => saves = false,
            b"merge" | b"noflush" => flushes = false,
            _ => {
                call.reply.error("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
                return;
            }
        }
    }
    if saves {
        let saved = save_all(call);
        if flushes {
            let mut txn = call.txn();
            txn.flush(None);
            txn.free_flushed_now();
        }
        if let Err(text) = load_all(call, saved) {
            call.reply.error(text);
            return;
        }
    }
    call.reply.ok();
}

fn save_all(call: &mut AdminCall<'_>) -> Vec<Saved> {
    let databases = call.node.config.databases();
    let limits = call.node.config.collection_limits();
    let mut txn = call.debug_txn();
    let mut writer = Writer::new(true);
    let mut all = Vec::new();
    for db in (0..databases).map(Db) {
        let mut cursor = 0;
        loop {
            cursor = txn.scan(
                db,
                cursor,
                SCAN_COUNT,
                None,
                |_, _| true,
                |key, entry| {
                    writer.clear();
                    codec::save(&mut writer, entry, &limits);
                    all.push(Saved {
                        db,
                        key: key.to_vec(),
                        bytes: writer.bytes().to_vec(),
                        expiry: entry.expiry,
                    });
                },
            );
            if cursor == 0 {
                break;
            }
        }
    }
    all
}

/// Keys whose time has come stay behind, as in a server that starts.
fn load_all(call: &mut AdminCall<'_>, all: Vec<Saved>) -> Result<(), &'static str> {
    let limits = call.node.config.collection_limits();
    let mut txn = call.txn();
    for saved in all {
        let now = txn.now();
        if saved.expiry.is_some_and(|expiry| expiry < now) {
            continue;
        }
        let (&code, bytes) = saved.bytes.split_first().ok_or(FAILED)?;
        let decoded = rdb::decode(code, VERSION_FIELD_EXPIRY, bytes, &Limits::default());
        let value = match decoded {
            Ok((value, _)) => value,
            // The last field of a hash had expired.
            Err(RdbError::Empty) => continue,
            Err(_) => return Err(FAILED),
        };
        let key = txn.key(&saved.key);
        txn.remove(saved.db, &key);
        let loaded = codec::load(&mut txn, saved.db, &key, (code, &value), &limits);
        loaded.and_then(|()| txn.set_expiry(saved.db, &key, saved.expiry)).map_err(|_| FAILED)?;
    }
    Ok(())
}
