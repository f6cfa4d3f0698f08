//! The lines of the handshake, as they come in pieces.

use super::failure::Failure;

/// A line with its end. Valkey reads replies of 256 B and the head of a snapshot of 1 KB at most.
pub const LINE_BYTES_MAX: usize = 1024;

/// The beginning of a line whose end has not come.
#[derive(Default)]
pub struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Takes bytes up to the end of a line. Returns how many, and the line without its end if it is there.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Vec<u8>>), Failure> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(bytes.len(), |end| end + 1);
        if self.begun.len() + count > LINE_BYTES_MAX {
            return Err(Failure::LongLine);
        }
        self.begun.extend_from_slice(&bytes[..count]);
        if end.is_none() {
            return Ok((count, None));
        }
        let mut line = std::mem::take(&mut self.begun);
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok((count, Some(line)))
    }

    pub fn check_invariants(&self) {
        assert!(self.begun.len() <= LINE_BYTES_MAX && !self.begun.contains(&b'\n'));
    }
}

/// A line of another server, as the log may show it.
pub fn text(line: &[u8]) -> String {
    match std::str::from_utf8(line) {
        Ok(text) if !text.contains(|c: char| c.is_control()) => text.to_string(),
        _ => line.escape_ascii().to_string(),
    }
}
