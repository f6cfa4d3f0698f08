//! The frame of a snapshot: a number of bytes, or all bytes until a mark.
//!
//! ```text
//!   $<length>\r\n      [.... length bytes ....]
//!   $EOF:<mark>\r\n    [.........][mark]            40 random bytes that the primary has chosen for this
//! ```
//! The mark is looked for where the bytes that came together end, as Valkey does: the primary sends nothing
//! after it before it gets an ACK. So bytes like the mark inside the data end the snapshot only if they come
//! last, and then it cannot be read.

use super::failure::Failure;
use super::lines::text;
use isotherm_stdx::parse_i64;

pub const MARK_BYTES: usize = 40;

type Mark = [u8; MARK_BYTES];

#[derive(Default)]
pub struct Transfer {
    frame: Option<Frame>,
}

enum Frame {
    Length {
        left: u64,
    },
    /// With the last bytes that came.
    Mark {
        mark: Mark,
        last: Vec<u8>,
    },
}

/// Size of a snapshot, if it is known.
#[derive(Clone, Copy)]
pub struct Size(Option<u64>);

impl Size {
    pub fn known(self) -> Option<u64> {
        self.0
    }
}

impl Transfer {
    pub fn has_begun(&self) -> bool {
        self.frame.is_some()
    }

    /// Reads the line before the snapshot. An empty one only says that the primary is still there.
    pub fn begin(&mut self, line: &[u8]) -> Result<Option<Size>, Failure> {
        if line.is_empty() {
            return Ok(None);
        }
        if line.starts_with(b"-") {
            return Err(Failure::Aborted(text(&line[1..])));
        }
        let bad = || Failure::BadHead(text(line));
        let rest = line.strip_prefix(b"$").ok_or_else(bad)?;
        let (frame, size) = match rest.strip_prefix(b"EOF:") {
            Some(mark) => {
                let mark = mark.try_into().map_err(|_| bad())?;
                (Frame::Mark { mark, last: Vec::with_capacity(2 * MARK_BYTES) }, None)
            }
            None => {
                let left = parse_i64(rest).and_then(|len| u64::try_from(len).ok()).ok_or_else(bad)?;
                (Frame::Length { left }, Some(left))
            }
        };
        self.frame = Some(frame);
        Ok(Some(Size(size)))
    }

    /// Takes bytes of the snapshot. Returns how many, and if it ends with them, how many of its last are no
    /// part of it.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, Option<usize>) {
        match self.frame.as_mut().expect("a snapshot has begun") {
            Frame::Length { left } => {
                let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                (count, (*left == 0).then_some(0))
            }
            Frame::Mark { mark, last } => {
                let tail = &bytes[bytes.len().saturating_sub(MARK_BYTES)..];
                last.extend_from_slice(tail);
                last.drain(..last.len().saturating_sub(MARK_BYTES));
                (bytes.len(), (last[..] == mark[..]).then_some(MARK_BYTES))
            }
        }
    }

    pub fn check_invariants(&self) {
        if let Some(Frame::Mark { last, .. }) = &self.frame {
            assert!(last.len() <= MARK_BYTES);
        }
    }
}
