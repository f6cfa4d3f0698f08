//! One value on its own: what DUMP sends, and what DEBUG OBJECT counts.

use crate::parts;
use crate::write::ItemWriter;
use isotherm_keyspace::{Entry, Limits};
use isotherm_persist::dump;
use isotherm_persist::rdb::Writer;

/// A whole payload, with its footer. `None` of a hash whose last field has just expired.
pub fn dump(entry: &Entry<'_>, limits: &Limits, compress: bool) -> Option<Vec<u8>> {
    if parts::is_empty(&entry.value) {
        return None;
    }
    Some(dump::seal(save(entry, limits, compress)))
}

/// What the value takes in a file, uncompressed and without its type.
pub fn saved_bytes(entry: &Entry<'_>, limits: &Limits) -> usize {
    save(entry, limits, false).len() - 1
}

/// Type and value.
fn save(entry: &Entry<'_>, limits: &Limits, compress: bool) -> Vec<u8> {
    let mut writer = ItemWriter::new(Writer::new(compress), limits.list_max_listpack_size);
    writer.value(&entry.value);
    writer.into_writer().into_bytes()
}
