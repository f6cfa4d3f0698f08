//! Keys that lie in the swap log with their values, as a base of the append-only file has them: where their
//! record is, and what is to be known of each key without it.
//!
//! ```text
//! [name 5 B][slot u16][reference u64][keys u16][volatile u16] then of each key in the order of the record [16 bits of its hash]
//! ```

use super::super::read::{RdbError, Reader};

/// Length of the key of a bundle's record.
pub const BUNDLE_NAME_BYTES: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bundle<'a> {
    pub db: u64,
    pub name: [u8; BUNDLE_NAME_BYTES],
    pub slot: u16,
    pub reference: u64,
    /// Number of keys that expire, none of them before `bound_ms`.
    pub volatile: u16,
    pub bound_ms: Option<i64>,
    /// Fingerprint of each key; 0 for a key that is no longer in the bundle.
    pub prints: &'a [[u8; 2]],
}

impl Bundle<'_> {
    /// Returns the number of keys.
    pub fn keys(&self) -> u64 {
        self.prints.iter().filter(|print| **print != [0, 0]).count() as u64
    }
}

/// Bundle without the fingerprints, which follow it.
pub(super) struct FoundBundle {
    name: [u8; BUNDLE_NAME_BYTES],
    slot: u16,
    reference: u64,
    keys: u16,
    volatile: u16,
}

impl FoundBundle {
    pub fn read(reader: &mut Reader<'_>) -> Result<FoundBundle, RdbError> {
        let name = reader.array()?;
        let slot = u16::from_le_bytes(reader.array()?);
        let reference = u64::from_le_bytes(reader.array()?);
        let keys = u16::from_le_bytes(reader.array()?);
        let volatile = u16::from_le_bytes(reader.array()?);
        reader.take(usize::from(keys) * 2)?;
        Ok(FoundBundle { name, slot, reference, keys, volatile })
    }

    /// `read`: the bytes that end with its last one.
    pub fn show<'a>(&self, db: u64, bound_ms: Option<i64>, read: &'a [u8]) -> Bundle<'a> {
        let FoundBundle { name, slot, reference, volatile, .. } = *self;
        let (prints, _) = read[read.len() - 2 * usize::from(self.keys)..].as_chunks();
        Bundle { db, name, slot, reference, volatile, bound_ms, prints }
    }
}
