//! DEBUG DIGEST and DIGEST-VALUE: a signature of keys, values and which of them expire. Equal data sets have equal
//! signatures in Valkey and here, whatever the order in which they lie in memory.
//!
//! ```text
//! xor(d, x)  d = d ^ sha1(x)                 order does not matter
//! mix(d, x)  d = sha1(d ^ sha1(x))           order matters
//! value      mix(type), mix(bytes), xor("!!expire!!") if it expires
//! all        for each database with keys: mix(number), then xor(mix(key), value) of each key
//! ```

use isotherm_keyspace::{Db, Entry, Lookup, Value};
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::sha1::{Digest, hex, sha1};

use super::super::AdminCall;

/// The number of the type "string" in the field's files.
const TYPE_STRING: u32 = 0;

pub fn all(call: &mut AdminCall<'_>) {
    let databases = call.node.config.databases();
    let mut txn = call.debug_txn();
    let mut digest = Digest::default();
    for db in (0..databases).map(Db) {
        if txn.is_empty(db) {
            continue;
        }
        mix(&mut digest, &u32::from(db.0).to_be_bytes());
        let mut cursor = 0;
        loop {
            cursor = txn.scan(db, cursor, SCAN_COUNT, None, |key, entry| {
                let mut own = Digest::default();
                mix(&mut own, key);
                add_value(&mut own, entry);
                xor(&mut digest, &own);
            });
            if cursor == 0 {
                break;
            }
        }
    }
    call.reply.simple(&hex(&digest));
}

/// Entries of one step of the scan.
const SCAN_COUNT: u64 = 1000;

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

fn add_value(digest: &mut Digest, entry: &Entry<'_>) {
    mix(digest, &TYPE_STRING.to_be_bytes());
    with_bytes(&entry.value, |bytes| mix(digest, bytes));
    if entry.expiry.is_some() {
        xor(digest, b"!!expire!!");
    }
}

fn xor(digest: &mut Digest, bytes: &[u8]) {
    for (byte, other) in digest.iter_mut().zip(sha1(bytes)) {
        *byte ^= other;
    }
}

fn mix(digest: &mut Digest, bytes: &[u8]) {
    xor(digest, bytes);
    *digest = sha1(digest);
}

fn with_bytes<T>(value: &Value<'_>, run: impl FnOnce(&[u8]) -> T) -> T {
    match value {
        Value::Bytes(bytes) => run(bytes),
        Value::Int(number) => run(write_i64(*number, &mut [0; I64_BYTES_MAX])),
        // Until the codec of collections stands.
        _ => run(b""),
    }
}

/// What the value would take in a file, uncompressed: small integers have forms of their own, and everything else
/// its length before it.
pub fn serialized_len(entry: &Entry<'_>) -> usize {
    match entry.value {
        Value::Int(-128..=127) => 2,
        Value::Int(-32_768..=32_767) => 3,
        Value::Int(number) if i32::try_from(number).is_ok() => 5,
        _ => with_bytes(&entry.value, |bytes| {
            let header = match bytes.len() {
                0..64 => 1,
                64..16_384 => 2,
                _ => 5,
            };
            header + bytes.len()
        }),
    }
}
