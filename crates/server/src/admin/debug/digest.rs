//! DEBUG DIGEST and DIGEST-VALUE: a signature of keys, values and which of them expire. Equal data sets have equal
//! signatures in Valkey and here, whatever the order in which they lie in memory.
//!
//! ```text
//! all        for each database with keys: mix(number), then xor(mix(key), value) of each key
//! ```
//! Parts of large collections that are not in memory come there for it, and leave again behind it.
//!
//! What `mix` and `xor` are, and what they make of a value, is described where values are known: crate `codec`.

use isotherm_codec::{add_value, mix, xor};
use isotherm_keyspace::{Db, Entry, Lookup, Value};
use isotherm_stdx::sha1::{Digest, hex};

use super::super::AdminCall;
use crate::node::Node;

pub fn all(call: &mut AdminCall<'_>) {
    let (databases, node) = (call.node.config.databases(), call.node);
    call.exec.fetch_all_nodes();
    let mut txn = call.debug_txn();
    let mut digest = Digest::default();
    for db in (0..databases).map(Db) {
        if txn.is_empty(db) {
            continue;
        }
        mix(&mut digest, &u32::from(db.0).to_be_bytes());
        let mut cursor = 0;
        loop {
            cursor = txn.scan(
                db,
                cursor,
                SCAN_COUNT,
                None,
                |_, _| true,
                |key, entry| {
                    let mut own = Digest::default();
                    mix(&mut own, key);
                    add(node, &mut own, key, entry);
                    xor(&mut digest, &own);
                },
            );
            if cursor == 0 {
                break;
            }
        }
    }
    call.reply.simple(&hex(&digest));
}

/// Adds the value of an entry, wherever it is. One that cannot be read is none.
fn add(node: &Node, digest: &mut Digest, key: &[u8], entry: &Entry<'_>) {
    let Value::Cold(cold) = entry.value else { return add_value(digest, entry) };
    let tier = node.tier().expect("values leave memory to a disk");
    if let Ok(bytes) = tier.read_in_order(cold.reference, key) {
        let read = cold.with_bytes(&bytes);
        let mut entry = *entry;
        entry.value = read.value();
        add_value(digest, &entry);
    }
}

/// Entries of one step of the scan.
const SCAN_COUNT: u64 = 1000;

pub fn values(call: &mut AdminCall<'_>) {
    let (db, names, node) = (call.session.db, call.args.from(2), call.node);
    call.reply.array(names.len());
    for name in names.iter() {
        let key = node.keyspace.key(name);
        call.exec.fetch_nodes_of(db, &key);
        let mut txn = call.debug_txn();
        let key = txn.key(name);
        let mut digest = Digest::default();
        if let Some(entry) = txn.find(db, &key, Lookup::Silent) {
            add(node, &mut digest, name, &entry);
        }
        call.reply.simple(&hex(&digest));
    }
}
