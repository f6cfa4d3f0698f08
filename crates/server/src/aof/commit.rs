//! How a write of the log stands in its file: as it is, or behind the line of a commit.
//!
//! ```text
//!   small, within one sector   [ frames ]
//!   else                       #isotherm commit AT LEN SYNCED CRC\r\n [ frames ]
//!   first of its second        #TS:SECONDS\r\n and one of these
//! ```
//! Why, and what the line says: `isotherm_persist::aof::commit`.

use isotherm_disk::{File, write_all_at};
use isotherm_log::Piece;
use isotherm_persist::aof::commit;
use std::io;

/// A commit of fewer bytes goes to the system in one call.
const COPIED_BYTES_MAX: u64 = 64 << 10;

/// What is written as one commit.
pub struct Commit<'p> {
    /// Where it begins in the file.
    pub at: u64,
    /// So much of the file is durable.
    pub durable_bytes: u64,
    pub pieces: &'p [Piece],
    /// The second in which it is written, if it is the first of it. Before the line: a file that is cut there ends whole.
    pub timestamp_seconds: Option<i64>,
}

impl Commit<'_> {
    /// Writes it, with a line if `has_lines` and it needs one. Returns how many bytes it takes in the file.
    pub fn write(&self, file: &dyn File, has_lines: bool) -> io::Result<u64> {
        let pieces = || self.pieces.iter().map(|piece| &**piece);
        let len: u64 = pieces().map(|piece| piece.len() as u64).sum();
        let stamp = self.timestamp_seconds.map(|seconds| format!("#TS:{seconds}\r\n").into_bytes());
        let mut line = stamp.unwrap_or_default();
        let frames_at = self.at + line.len() as u64;
        // The frames must not hang on to a stamp that may be torn away from them.
        if has_lines && commit::needs_header(self.at, line.len() as u64 + len) {
            line.extend(commit::header(frames_at, self.durable_bytes, pieces()));
        }
        if line.is_empty() && self.pieces.len() == 1 || len > COPIED_BYTES_MAX {
            let mut place = self.at;
            for bytes in std::iter::once(line.as_slice()).chain(pieces()) {
                write(file, bytes, place)?;
                place += bytes.len() as u64;
            }
        } else {
            write(
                file,
                &std::iter::once(line.as_slice()).chain(pieces()).collect::<Vec<_>>().concat(),
                self.at,
            )?;
        }
        Ok(line.len() as u64 + len)
    }
}

fn write(file: &dyn File, bytes: &[u8], at: u64) -> io::Result<()> {
    write_all_at(file, bytes, at).map_err(|error| error.error)
}
