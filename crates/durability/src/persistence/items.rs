//! Writers that turn the items of a snapshot into bytes: an RDB file, or commands.

use isotherm_codec::{CommandWriter, ItemWriter};
use isotherm_keyspace::{Db, SnapshotItem};

/// Writer that makes bytes of items.
pub enum Items {
    Rdb(Box<ItemWriter<Vec<u8>>>),
    Commands(CommandWriter),
}

impl Items {
    pub fn item(&mut self, item: SnapshotItem<'_>) {
        match self {
            Items::Rdb(writer) => writer.item(item),
            Items::Commands(writer) => writer.item(item),
        }
    }

    pub fn sink_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Items::Rdb(writer) => writer.sink_mut(),
            Items::Commands(writer) => writer.sink_mut(),
        }
    }

    /// Returns whether values that are not in memory stay where they are.
    pub fn refers(&self) -> bool {
        matches!(self, Items::Rdb(writer) if writer.refers())
    }

    /// The first key that a file of version 11 has no place for.
    pub fn field_expiry(&self) -> Option<(Db, &[u8])> {
        match self {
            Items::Rdb(writer) => writer.field_expiry(),
            Items::Commands(_) => None,
        }
    }
}
