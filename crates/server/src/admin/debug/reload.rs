//! DEBUG RELOAD: every key through the codec of Valkey's files and back, as if the server had stopped in between.
//!
//! There are no files yet, so the bytes wait in memory, and NOSAVE, which asks for an older file, has nothing to load.

use isotherm_codec::{ItemWriter, load_record};
use isotherm_keyspace::{Db, SnapshotEntry, SnapshotItem};
use isotherm_persist::Limits;
use isotherm_persist::rdb::record::Records;
use isotherm_persist::rdb::{VERSION_FIELD_EXPIRY, Writer};

use super::super::AdminCall;

/// Entries of one step of the scan.
const SCAN_COUNT: u64 = 1000;
const FAILED: &str = "ERR Error trying to load the RDB dump, check server logs.";

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
        if let Err(text) = load_all(call, &saved) {
            call.reply.error(text);
            return;
        }
    }
    call.reply.ok();
}

fn save_all(call: &mut AdminCall<'_>) -> Vec<u8> {
    let databases = call.node.config.databases();
    let limits = call.node.config.collection_limits();
    let mut txn = call.debug_txn();
    let mut writer = ItemWriter::new(Writer::new(true), limits.list_max_listpack_size);
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
                    let (value, expiry) = (entry.value, entry.expiry);
                    writer.item(SnapshotItem::Entry(SnapshotEntry { db, key, value, expiry }));
                },
            );
            if cursor == 0 {
                break;
            }
        }
    }
    writer.finish()
}

/// Keys whose time has come stay behind, as in a server that starts.
fn load_all(call: &mut AdminCall<'_>, saved: &[u8]) -> Result<(), &'static str> {
    let limits = call.node.config.collection_limits();
    let databases = call.node.config.databases();
    let mut txn = call.txn();
    let now = txn.now();
    let mut records = Records::new(saved, VERSION_FIELD_EXPIRY, Limits::default());
    while let Some(record) = records.read().map_err(|_| FAILED)? {
        if record.expiry_ms.is_none_or(|at| at >= now.0) {
            let db = u16::try_from(record.db).ok().filter(|db| *db < databases).ok_or(FAILED)?;
            load_record(&mut txn, Db(db), &record, &limits).map_err(|_| FAILED)?;
        }
    }
    Ok(())
}
