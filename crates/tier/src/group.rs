//! A group: records that are written with one call.
//!
//! ```text
//!   [head 48][record][record] ... [zeros to a multiple of 4096]
//!
//!   head     a record of form 255 without a key; payload [bytes of the group u32][records u32][8 B of zeros]
//! ```
//! A group begins and ends at multiples of 4 KB, as O_DIRECT wants it. A walk over a segment goes from head
//! to head. A record that is larger than a group is one of its own.

use crate::place::{Place, SegmentNumber};
use crate::record::{Damage, FORM_OF_GROUP, Record, record_bytes};
use isotherm_stdx::Slot;
use isotherm_stdx::format::{FormatPart, number};

/// Unit in which a device reads and writes.
pub const BLOCK_BYTES: usize = 4096;
/// A group is ready to be written at this size; with a larger record it is larger.
pub const GROUP_BYTES: usize = 1 << 20;
const HEAD_PAYLOAD_BYTES: usize = 16;
pub(crate) const HEAD_OF_GROUP_BYTES: usize = record_bytes(0, HEAD_PAYLOAD_BYTES);

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "swap group",
    &[("block", number(BLOCK_BYTES)), ("group", number(GROUP_BYTES)), ("head", number(HEAD_OF_GROUP_BYTES))],
);

const _: () = assert!(HEAD_OF_GROUP_BYTES == 48);
const _: () = assert!(GROUP_BYTES.is_multiple_of(BLOCK_BYTES));

/// Records in memory that are, or will be, at one place on disk.
#[derive(Debug)]
pub struct Group {
    segment: SegmentNumber,
    offset: u64,
    bytes: Vec<u8>,
    /// Limit of the group's bytes: it takes records up to this limit, or a single larger one. Less than
    /// [`GROUP_BYTES`] at the end of a segment.
    bytes_max: usize,
    /// Former place of each record, in a group of survivors of cleaning. Empty in a group of values that come
    /// from memory.
    before: Vec<Place>,
    records: u32,
}

impl Group {
    /// Creates an empty group. `room_bytes`: the part of the segment that is left for it.
    pub(crate) fn new(segment: SegmentNumber, offset: u64, room_bytes: u64) -> Group {
        assert!(offset.is_multiple_of(BLOCK_BYTES as u64) && room_bytes > 0);
        let bytes_max = GROUP_BYTES.min(room_bytes as usize);
        let bytes = vec![0; HEAD_OF_GROUP_BYTES];
        Group { segment, offset, bytes, bytes_max, before: Vec::new(), records: 0 }
    }

    /// The bytes that a group with this record alone takes on disk.
    pub(crate) fn bytes_with(record_bytes: usize) -> usize {
        (HEAD_OF_GROUP_BYTES + record_bytes).next_multiple_of(BLOCK_BYTES)
    }

    /// Returns whether the group can take a further record: it fits, or there is none yet.
    pub(crate) fn takes(&self, record_bytes: usize) -> bool {
        self.records == 0 || self.bytes.len() + record_bytes <= self.bytes_max
    }

    pub(crate) fn push(&mut self, record: &Record<'_>, before: Option<Place>) -> Place {
        let place = Place::new(self.segment, self.offset + self.bytes.len() as u64, record.payload.len());
        record.write(place, &mut self.bytes);
        self.before.extend(before);
        self.records += 1;
        assert!(self.before.is_empty() || self.before.len() == self.records as usize);
        place
    }

    /// Writes the head, and pads to whole blocks.
    pub(crate) fn seal(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let mut payload = [0; HEAD_PAYLOAD_BYTES];
        payload[..4].copy_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        payload[4..8].copy_from_slice(&self.records.to_le_bytes());
        let (form, key) = (FORM_OF_GROUP, &b""[..]);
        let head = Record { form, expiry: None, database: 0, slot: Slot::new(0), key, payload: &payload };
        let mut bytes = Vec::with_capacity(HEAD_OF_GROUP_BYTES);
        head.write(Place::new(self.segment, self.offset, HEAD_PAYLOAD_BYTES), &mut bytes);
        self.bytes[..HEAD_OF_GROUP_BYTES].copy_from_slice(&bytes);
    }

    pub fn segment(&self) -> SegmentNumber {
        self.segment
    }

    /// Bytes from the start of its segment.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.before.capacity() * size_of::<Place>()) as u64
    }

    /// Returns the bytes that are to be written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The records with their places, and where each was before if it survived a cleaning.
    pub fn records(&self) -> impl Iterator<Item = (Place, Record<'_>, Option<Place>)> {
        let mut at = HEAD_OF_GROUP_BYTES;
        (0..self.records as usize).map(move |number| {
            let (place, record) = Record::read_at(self.segment, self.offset + at as u64, &self.bytes[at..])
                .expect("a group in memory holds what was written to it");
            at += record.bytes();
            (place, record, self.before.get(number).copied())
        })
    }
}

/// Contents of the head of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupHead {
    pub bytes: usize,
    pub records: u32,
}

impl GroupHead {
    pub fn read(segment: SegmentNumber, offset: u64, bytes: &[u8]) -> Result<GroupHead, Damage> {
        let (_, record) = Record::read_at(segment, offset, bytes)?;
        if record.form != FORM_OF_GROUP || record.payload.len() != HEAD_PAYLOAD_BYTES {
            return Err(Damage::Lengths);
        }
        let number = |at| u32::from_le_bytes(record.payload[at..at + 4].try_into().expect("four bytes"));
        Ok(GroupHead { bytes: number(0) as usize, records: number(4) })
    }
}
