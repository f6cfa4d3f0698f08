//! Single value in encoded form: the payload of DUMP, and the sizes of DEBUG OBJECT.

use crate::parts;
use crate::stream::element_to_rdb;
use crate::write::ItemWriter;
use isotherm_keyspace::{Encoding, Entry, Limits, Part, Type};
use isotherm_persist::dump;
use isotherm_persist::rdb::{ListpackBuilder, Writer};

/// A whole payload, with its footer. `None` of a hash whose last field has just expired.
pub fn dump(entry: &Entry<'_>, limits: &Limits, compress: bool) -> Option<Vec<u8>> {
    if parts::is_empty(&entry.value) {
        return None;
    }
    Some(dump::seal(save(entry, limits, compress)))
}

/// Returns the bytes of the value in a file, uncompressed and without its type.
pub fn saved_bytes(entry: &Entry<'_>, limits: &Limits) -> usize {
    save(entry, limits, false).len() - 1
}

/// The nodes in which a list lies in Valkey, and in a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ListNodes {
    pub nodes: u64,
    pub elements: u64,
    /// Bytes of all nodes, uncompressed.
    pub bytes: u64,
}

/// Returns the nodes of a list that is more than a listpack.
pub fn list_nodes(entry: &Entry<'_>, limits: &Limits) -> Option<ListNodes> {
    if entry.kind() != Type::List || entry.encoding() != Encoding::Quicklist {
        return None;
    }
    let (mut all, mut node, mut is_alone) = (ListNodes::default(), ListpackBuilder::new(), false);
    let bytes_of = |node: &ListpackBuilder| if node.is_empty() { 0 } else { node.bytes() as u64 };
    parts::for_each_part(&entry.value, limits.list_max_listpack_size, |part| match part {
        Part::Node { alone } => {
            all.nodes += 1;
            all.bytes += bytes_of(&std::mem::replace(&mut node, ListpackBuilder::new()));
            is_alone = alone;
        }
        Part::Item(element) => {
            all.elements += 1;
            match is_alone {
                true => all.bytes += element.text_len() as u64,
                false => node.add(element_to_rdb(element)),
            }
        }
        _ => unreachable!("a list has nodes and elements"),
    });
    all.bytes += bytes_of(&node);
    Some(all)
}

/// Type and value.
fn save(entry: &Entry<'_>, limits: &Limits, compress: bool) -> Vec<u8> {
    let mut writer = ItemWriter::new(Writer::new(compress), limits.list_max_listpack_size);
    writer.value(&entry.value);
    writer.into_writer().into_bytes()
}
