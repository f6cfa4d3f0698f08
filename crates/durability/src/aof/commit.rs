//! Writes of the log as they stand in its file: as they are, or after the line of a commit.
//!
//! ```text
//!   small, within one sector   [ frames ]
//!   else                       #isotherm commit AT LEN SYNCED CRC\r\n [ frames ]     before them #\r\n, if it would end a sector
//!   first of its second        #TS:SECONDS\r\n and one of these
//!   in a prepared file         the same, and a comment to the end of the sector
//! ```
//! The frames of a file that begins without a SELECT of their own have one before them: `unlogged`.
//! Why, and what the line says: `isotherm_persist::aof::commit`.

use isotherm_disk::{File, write_all_at};
use isotherm_log::Piece;
use isotherm_persist::aof::commit;
use isotherm_persist::aof::stream::UNLOGGED;
use std::io;

/// A commit of fewer bytes goes to the system in one call.
const COPIED_BYTES_MAX: u64 = 64 << 10;

/// Layout of the commits in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    Plain,
    WithLines,
    Prepared { file_bytes: u64 },
}

/// Part of the log that is written as one commit.
pub struct Commit<'p> {
    /// Offset in the file at which the commit begins.
    pub at: u64,
    /// Length of the durable part of the file.
    pub durable_bytes: u64,
    /// Stands before the frames, in the file only; mostly nothing.
    pub unlogged: &'p [u8],
    pub pieces: &'p [Piece],
    /// The second in which it is written, if it is the first of it. Before the line: a file that is cut there
    /// ends whole.
    pub timestamp_seconds: Option<i64>,
}

/// A command that stands in a file, and not in the log.
pub fn unlogged(command: &[u8]) -> Vec<u8> {
    [UNLOGGED, b"\r\n", command].concat()
}

impl Commit<'_> {
    /// Writes it. Returns how many bytes it takes in the file.
    pub fn write(&self, file: &dyn File, layout: Layout) -> io::Result<u64> {
        let len: u64 = self.pieces.iter().map(|piece| piece.len() as u64).sum();
        let (before, behind) = self.frame(layout, len);
        let frames = self.pieces.iter().map(|piece| &**piece);
        let parts =
            std::iter::once(before.as_slice()).chain(frames).chain(std::iter::once(behind.as_slice()));
        let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
        if len > COPIED_BYTES_MAX || parts.len() == 1 {
            let mut place = self.at;
            for bytes in parts {
                write(file, bytes, place)?;
                place += bytes.len() as u64;
            }
        } else {
            write(file, &parts.concat(), self.at)?;
        }
        Ok((before.len() + behind.len()) as u64 + len)
    }

    /// Returns the bytes that stand before the frames of the commit, and those after them.
    fn frame(&self, layout: Layout, len: u64) -> (Vec<u8>, Vec<u8>) {
        let frames = || std::iter::once(self.unlogged).chain(self.pieces.iter().map(|piece| &**piece));
        let len = self.unlogged.len() as u64 + len;
        let stamp = self.timestamp_seconds.map(|seconds| format!("#TS:{seconds}\r\n").into_bytes());
        let mut before = stamp.unwrap_or_default();
        let Layout::Prepared { file_bytes } = layout else {
            // The frames must not hang on to a stamp that may be torn away from them.
            let frames_at = self.at + before.len() as u64;
            if layout == Layout::WithLines && commit::needs_header(self.at, before.len() as u64 + len) {
                let filler = commit::filler(frames_at, self.durable_bytes, len);
                let frames = std::iter::once(filler).chain(frames());
                before.extend(commit::header(frames_at, self.durable_bytes, frames));
                before.extend_from_slice(filler);
            }
            before.extend_from_slice(self.unlogged);
            return (before, Vec::new());
        };
        // A commit begins a sector: the stamp is part of it, and the first one stands after the first sector.
        let stamp = std::mem::take(&mut before);
        if self.at == 0 {
            before.extend_from_slice(&commit::prepared_head(file_bytes));
        }
        let at = self.at + before.len() as u64;
        let behind = commit::padding(at, self.durable_bytes, stamp.len() as u64 + len);
        let (first, last) = (std::iter::once(stamp.as_slice()), std::iter::once(behind.as_slice()));
        before.extend(commit::header(at, self.durable_bytes, first.chain(frames()).chain(last)));
        before.extend_from_slice(&stamp);
        before.extend_from_slice(self.unlogged);
        (before, behind)
    }
}

fn write(file: &dyn File, bytes: &[u8], at: u64) -> io::Result<()> {
    write_all_at(file, bytes, at).map_err(|error| error.error)
}
