//! Description of the log in a base of the append-only file that refers to it, byte by byte.
//!
//! ```text
//!   [version u8 = 1][log id 16 B][count u32] ([segment u32][bytes u32][sum u32]) x count [crc32c of all before it, u32]
//!
//!   log id   drawn when the log was empty: of another log the same numbers of segments mean other bytes
//!   bytes    so much of the segment counts; what lies behind is none of this base's values
//!   sum      CRC-32C of the segment's first block of 4 KB: of an older copy of the segment it is another one. 0: not known
//! ```
//! All numbers are little endian. A version that is not known is refused: a later one may keep what this one
//! does not know of.

use crate::group::BLOCK_BYTES;
use crate::place::{SEGMENT_BYTES, SEGMENTS_MAX, SegmentNumber};
use crate::segments::Named;
use isotherm_stdx::format::{FormatPart, number};
use std::fmt;

const VERSION: u8 = 1;
pub const LOG_ID_BYTES: usize = 16;
const HEAD_BYTES: usize = 1 + LOG_ID_BYTES + 4;
const SEGMENT_ENTRY_BYTES: usize = 12;
const CRC_BYTES: usize = 4;
/// The longest one: of a log of 16 TB some 3 MB.
pub const CHECKPOINT_BYTES_MAX: usize = HEAD_BYTES + SEGMENTS_MAX as usize * SEGMENT_ENTRY_BYTES + CRC_BYTES;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "swap checkpoint",
    &[
        ("version", number(VERSION as usize)),
        ("head", number(HEAD_BYTES)),
        ("log id", number(LOG_ID_BYTES)),
        ("entry of a segment", number(SEGMENT_ENTRY_BYTES)),
        ("checksum", number(CRC_BYTES)),
    ],
);

/// Identity of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LogId(pub [u8; LOG_ID_BYTES]);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The file of the folder that says which log it has, and which server refers to that.
pub const OWNER_FILE_NAME: &str = "owner";
/// Maximum length of the owner file: a path has at most 4096 bytes.
pub const OWNER_BYTES_MAX: u64 = 8192;

impl LogId {
    /// The line of that file.
    pub fn owner_line(self) -> String {
        format!("id {self}")
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A segment that a base refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedSegment {
    pub named: Named,
    /// [`block_sum`] of its first block; `None`: it is not known.
    pub first_block: Option<u32>,
}

/// Log and segments that a base refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    pub log: LogId,
    /// Segments in the order of their numbers.
    pub segments: Vec<NamedSegment>,
}

/// Why bytes are no checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointError {
    /// Checkpoint of a later version.
    Version(u8),
    Damaged,
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::Version(number) => {
                write!(f, "what it says of the swap log is of version {number}, which is not known here")
            }
            CheckpointError::Damaged => f.write_str("what it says of the swap log is damaged"),
        }
    }
}

/// Returns the checksum of the beginning of a segment's first group. Never 0.
pub fn block_sum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(&bytes[..bytes.len().min(BLOCK_BYTES)]).max(1)
}

impl Checkpoint {
    pub fn named(&self) -> Vec<Named> {
        self.segments.iter().map(|segment| segment.named).collect()
    }

    pub fn write(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&self.log.0);
        bytes.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for NamedSegment { named, first_block } in &self.segments {
            bytes.extend_from_slice(&named.segment.0.to_le_bytes());
            bytes.extend_from_slice(&(named.bytes as u32).to_le_bytes());
            bytes.extend_from_slice(&first_block.unwrap_or(0).to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
        match bytes.first() {
            Some(&VERSION) => {}
            Some(&other) => return Err(CheckpointError::Version(other)),
            None => return Err(CheckpointError::Damaged),
        }
        let (all, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(CheckpointError::Damaged)?;
        if all.len() < HEAD_BYTES || crc32c::crc32c(all) != u32::from_le_bytes(*crc) {
            return Err(CheckpointError::Damaged);
        }
        let (head, entries) = all.split_at(HEAD_BYTES);
        let log = LogId(head[1..=LOG_ID_BYTES].try_into().expect("sixteen bytes"));
        let count = u32::from_le_bytes(head[1 + LOG_ID_BYTES..].try_into().expect("four bytes"));
        let (entries, rest) = entries.as_chunks::<SEGMENT_ENTRY_BYTES>();
        let segments: Vec<NamedSegment> = entries.iter().map(NamedSegment::parse).collect();
        let is_rising = segments.is_sorted_by(|a, b| a.named.segment < b.named.segment);
        let is_possible =
            |it: &NamedSegment| it.named.segment.0 < SEGMENTS_MAX && it.named.bytes <= SEGMENT_BYTES;
        let is_whole = rest.is_empty() && segments.len() == count as usize;
        match is_whole && is_rising && segments.iter().all(is_possible) {
            true => Ok(Checkpoint { log, segments }),
            false => Err(CheckpointError::Damaged),
        }
    }
}

impl NamedSegment {
    fn parse(entry: &[u8; SEGMENT_ENTRY_BYTES]) -> NamedSegment {
        let number = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four bytes"));
        let named = Named { segment: SegmentNumber(number(0)), bytes: u64::from(number(4)) };
        NamedSegment { named, first_block: Some(number(8)).filter(|sum| *sum != 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u32) -> Checkpoint {
        let segment = |number: u32| NamedSegment {
            named: Named { segment: SegmentNumber(number * 3), bytes: SEGMENT_BYTES - u64::from(number) },
            first_block: number.is_multiple_of(2).then_some(number + 1),
        };
        Checkpoint { log: LogId(*b"sixteen bytes, !"), segments: (0..count).map(segment).collect() }
    }

    #[test]
    fn a_checkpoint_comes_back() {
        for count in [0, 1, 100] {
            let checkpoint = sample(count);
            assert!(checkpoint.write().len() <= CHECKPOINT_BYTES_MAX);
            assert_eq!(Checkpoint::parse(&checkpoint.write()), Ok(checkpoint));
        }
    }

    #[test]
    fn each_flipped_bit_and_each_cut_is_found() {
        let bytes = sample(2).write();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Checkpoint::parse(&bytes).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Checkpoint::parse(&bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn numbers_that_no_log_has_are_refused() {
        let mut twice = sample(2);
        twice.segments[1] = twice.segments[0];
        let mut beyond = sample(1);
        beyond.segments[0].named.segment = SegmentNumber(SEGMENTS_MAX);
        let mut long = sample(1);
        long.segments[0].named.bytes = SEGMENT_BYTES + 1;
        for wrong in [twice, beyond, long] {
            assert_eq!(Checkpoint::parse(&wrong.write()), Err(CheckpointError::Damaged));
        }
    }
}
