//! Place of a record, in the 8 bytes that its entry has for it.
//!
//! ```text
//!   bits  0-39   address, in units of 16 B: 2^40 x 16 B = 16 TB
//!   bits 40-63   bytes of the payload: to 16 MB
//!
//!   an address   = segment number x 2^22 + offset in the segment / 16;   64 MB / 16 B = 2^22 units
//! ```
//! The length of the record follows from the entry alone: its head, its key, its payload. One read gets it.

use isotherm_stdx::format::{FormatPart, number};

/// Addresses count in these: a record begins at a multiple.
pub const ADDRESS_UNIT_BYTES: u64 = 16;
const ADDRESS_BITS: u32 = 40;
pub const PAYLOAD_BYTES_MAX: usize = (1 << (64 - ADDRESS_BITS)) - 1;

pub const SEGMENT_BYTES: u64 = 64 << 20;
pub const UNITS_OF_SEGMENT: u64 = SEGMENT_BYTES / ADDRESS_UNIT_BYTES;
pub const SEGMENTS_MAX: u32 = 1 << (ADDRESS_BITS - UNITS_OF_SEGMENT.ilog2());

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "swap address",
    &[
        ("unit", number(ADDRESS_UNIT_BYTES as usize)),
        ("bits", number(ADDRESS_BITS as usize)),
        ("payload, most", number(PAYLOAD_BYTES_MAX)),
        ("segment", number(SEGMENT_BYTES as usize)),
        ("segments, most", number(SEGMENTS_MAX as usize)),
    ],
);

const _: () = assert!(UNITS_OF_SEGMENT.is_power_of_two());
const _: () = assert!(SEGMENTS_MAX as u64 * SEGMENT_BYTES == 16 << 40);
// The largest record fits a segment, with the head of its group and padding.
const _: () = assert!((PAYLOAD_BYTES_MAX as u64) < SEGMENT_BYTES / 2);

/// The number of a segment; a segment that was freed gives its number to a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentNumber(pub u32);

/// Suffix of the names of segment files.
pub const SEGMENT_FILE_SUFFIX: &str = ".cold";

impl SegmentNumber {
    pub fn file_name(self) -> String {
        format!("{:08}{SEGMENT_FILE_SUFFIX}", self.0)
    }
}

/// Place of a record, and length of its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place(u64);

impl Place {
    /// Panics if the offset is none of a record in a segment, or the payload is too long.
    pub fn new(segment: SegmentNumber, offset: u64, payload_bytes: usize) -> Place {
        assert!(
            segment.0 < SEGMENTS_MAX && offset < SEGMENT_BYTES && offset.is_multiple_of(ADDRESS_UNIT_BYTES)
        );
        assert!(payload_bytes <= PAYLOAD_BYTES_MAX);
        let address = u64::from(segment.0) * UNITS_OF_SEGMENT + offset / ADDRESS_UNIT_BYTES;
        Place(address | (payload_bytes as u64) << ADDRESS_BITS)
    }

    pub const fn from_raw(raw: u64) -> Place {
        Place(raw)
    }

    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the address in units of [`ADDRESS_UNIT_BYTES`].
    pub const fn address(self) -> u64 {
        self.0 & ((1 << ADDRESS_BITS) - 1)
    }

    pub const fn segment(self) -> SegmentNumber {
        SegmentNumber((self.address() / UNITS_OF_SEGMENT) as u32)
    }

    /// Bytes from the start of its segment.
    pub const fn offset(self) -> u64 {
        self.address() % UNITS_OF_SEGMENT * ADDRESS_UNIT_BYTES
    }

    pub const fn payload_bytes(self) -> usize {
        (self.0 >> ADDRESS_BITS) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_eight_bytes_and_comes_back() {
        let last = SEGMENT_BYTES - ADDRESS_UNIT_BYTES;
        for (segment, offset, payload_bytes) in
            [(0, 0, 0), (1, 16, 1), (SEGMENTS_MAX - 1, last, PAYLOAD_BYTES_MAX), (77, 4096, 400)]
        {
            let place = Place::new(SegmentNumber(segment), offset, payload_bytes);
            assert_eq!(Place::from_raw(place.raw()), place);
            assert_eq!((place.segment().0, place.offset()), (segment, offset));
            assert_eq!(place.payload_bytes(), payload_bytes);
        }
    }

    #[test]
    #[should_panic(expected = "is_multiple_of")]
    fn an_offset_between_units_is_a_bug() {
        Place::new(SegmentNumber(0), 8, 1);
    }
}
