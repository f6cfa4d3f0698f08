//! DEBUG RELOAD: every key through a snapshot, into RDB bytes and back, as if the server had stopped in between.
//!
//! There are no files yet, so the bytes wait in memory, and NOSAVE, which asks for an older file, has nothing to load.

use isotherm_codec::{FileTerms, ItemWriter, load_piece};
use isotherm_keyspace::Db;
use isotherm_persist::Limits;
use isotherm_persist::rdb::Writer;
use isotherm_persist::rdb::file::{FileReader, FileVersion, Item, Options, Step};

use super::super::AdminCall;

/// Items of one step of the snapshot.
const STEP_ITEMS: u64 = 1000;
const PART_BYTES: usize = 64 << 10;
/// Where a file has the sum of its bytes.
const NO_SUM: &[u8] = &[0; 8];
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
        let Some(saved) = save_all(call) else {
            call.reply.error(FAILED);
            return;
        };
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

/// `None` if another snapshot is under way. Everything stays locked, so nothing is written between the cut and the flush.
fn save_all(call: &mut AdminCall<'_>) -> Option<Vec<u8>> {
    let limits = call.node.config.collection_limits();
    let mut writer = ItemWriter::new(Writer::new(true), limits.list_max_listpack_size);
    let mut snapshot = call.exec.held.snapshot()?;
    while snapshot.step_in(&mut call.exec.held, STEP_ITEMS, &mut |item| writer.item(item)) {}
    Some(writer.finish())
}

/// Keys whose time has come stay behind, as in a server that starts.
fn load_all(call: &mut AdminCall<'_>, saved: &[u8]) -> Result<(), &'static str> {
    let limits = call.node.config.collection_limits();
    let databases = call.node.config.databases();
    let mut txn = call.txn();
    txn.mute_events();
    let terms = FileTerms { limits: &limits, keeps_from: Some(txn.now()), replaces: true };
    let options = Options { limits: Limits::default(), strict_version: true, checksum: false };
    let mut reader = FileReader::new(options);
    reader.feed(&FileVersion::FIELD_EXPIRY.magic());
    let mut parts = saved.chunks(PART_BYTES).chain(std::iter::once(NO_SUM));
    loop {
        match reader.step().map_err(|_| FAILED)? {
            Step::End => return Ok(()),
            Step::NeedsMore => match parts.next() {
                Some(part) => reader.feed(part),
                None => reader.end(),
            },
            Step::Item(Item::Piece(piece)) => {
                let db = u16::try_from(piece.key.db).ok().filter(|db| *db < databases).ok_or(FAILED)?;
                load_piece(&mut txn, Db(db), &piece, &terms).map_err(|_| FAILED)?;
            }
            Step::Item(_) => {}
        }
    }
}
