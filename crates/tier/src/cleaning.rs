//! A walk over one segment, in reads of one group at a time, to find what lives in it.
//!
//! ```text
//!   next_read -> (segment, offset, bytes) -> the caller reads -> records -> those that live go to Stream::Survivors
//! ```
//! A group that does not verify is left: the walk looks for the next head at the next block. Its live values
//! stay where they are, and each of its records that is whole can still be read by its place.

use crate::group::{BLOCK_BYTES, GROUP_BYTES, GroupHead, HEAD_OF_GROUP_BYTES};
use crate::place::{Place, SEGMENT_BYTES, SegmentNumber};
use crate::record::Record;
use crate::segments::Hole;

/// A stretch of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    pub segment: SegmentNumber,
    pub offset: u64,
    pub bytes: usize,
}

#[derive(Debug)]
pub struct Cleaning {
    segment: SegmentNumber,
    at: u64,
    end: u64,
    /// Number of bytes that are read at once: a group, or the large one that was met.
    stretch_bytes: usize,
    is_damaged: bool,
    holes: Vec<Hole>,
}

impl Cleaning {
    pub(crate) fn new(segment: SegmentNumber, bytes: u64, holes: Vec<Hole>) -> Cleaning {
        Cleaning { segment, at: 0, end: bytes, stretch_bytes: GROUP_BYTES, is_damaged: false, holes }
    }

    pub fn segment(&self) -> SegmentNumber {
        self.segment
    }

    /// Returns how many bytes of the segment were processed: their living records are elsewhere.
    pub(crate) fn passed_bytes(&self) -> u64 {
        self.at
    }

    #[cfg(test)]
    pub(crate) fn pass(&mut self, bytes: u64) {
        self.at += bytes;
    }

    pub(crate) fn is_through(&self) -> bool {
        self.at == self.end
    }

    /// Returns whether a part could not be read.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Returns the next part to read; `None` at the end of the segment.
    pub fn next_read(&self) -> Option<Stretch> {
        let bytes = (self.end - self.at).min(self.stretch_bytes as u64) as usize;
        (bytes > 0).then_some(Stretch { segment: self.segment, offset: self.at, bytes })
    }

    /// The stretch cannot be read at all.
    pub fn skip(&mut self) {
        self.is_damaged = true;
        self.at = (self.at + self.stretch_bytes as u64).min(self.end);
        self.stretch_bytes = GROUP_BYTES;
    }

    /// The records of the groups that lie wholly in the bytes of the stretch. None of them: the next stretch
    /// is longer, or what is there is damaged and was passed.
    pub fn records<'a>(&mut self, bytes: &'a [u8]) -> Vec<(Place, Record<'a>)> {
        let (start, mut records) = (self.at, Vec::new());
        while let Some(rest) = bytes.get((self.at - start) as usize..).filter(|rest| !rest.is_empty()) {
            let head = match GroupHead::read(self.segment, self.at, rest) {
                // A hole can show the bytes of a group that was there before.
                Ok(head) if self.is_plausible(head) && !self.is_hole() => head,
                _ => {
                    self.pass_block();
                    continue;
                }
            };
            if head.bytes > rest.len() {
                self.stretch_bytes = head.bytes.max(GROUP_BYTES);
                return records;
            }
            self.read_group(head, rest, &mut records);
            self.at += head.bytes as u64;
        }
        self.stretch_bytes = GROUP_BYTES;
        records
    }

    fn is_hole(&self) -> bool {
        self.holes.iter().any(|(from, to)| (*from..*to).contains(&self.at))
    }

    fn is_plausible(&self, head: GroupHead) -> bool {
        head.bytes >= BLOCK_BYTES
            && head.bytes.is_multiple_of(BLOCK_BYTES)
            && head.bytes as u64 <= (self.end - self.at).min(SEGMENT_BYTES)
    }

    /// Continues after a part that was never written, or at the next block of a damaged part.
    fn pass_block(&mut self) {
        match self.holes.iter().find(|(from, to)| (*from..*to).contains(&self.at)) {
            Some((_, to)) => self.at = *to,
            None => {
                self.is_damaged = true;
                self.at = (self.at + BLOCK_BYTES as u64).min(self.end);
            }
        }
    }

    fn read_group<'a>(&mut self, head: GroupHead, bytes: &'a [u8], records: &mut Vec<(Place, Record<'a>)>) {
        let mut at = HEAD_OF_GROUP_BYTES;
        for _ in 0..head.records {
            match Record::read_at(self.segment, self.at + at as u64, &bytes[at.min(head.bytes)..head.bytes]) {
                Ok((place, record)) => {
                    at += record.bytes();
                    records.push((place, record));
                }
                Err(_) => {
                    self.is_damaged = true;
                    return;
                }
            }
        }
    }
}
