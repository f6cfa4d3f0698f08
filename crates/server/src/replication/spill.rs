//! The part of the log that has left memory and that a replica still lacks: a ring in a file without a name.
//!
//! ```text
//!   offset    first                    end
//!   log       [  ring, at offset % size ][  memory: repl-backlog-size  ]
//!   file      ...end][ ....... ][first...      a byte of the log has its place; what is `size` further writes over it
//! ```
//! Nothing is written while all replicas have what leaves memory. What a replica may lack - one that is slow, waits for its snapshot, or
//! left a while ago - is written as it leaves, so the ring is contiguous with memory.
//!
//! Invariants: `end - first <= size`; the ring ends where memory begins, or is empty.

use isotherm_disk::{Disk, File, write_all_at};
use isotherm_log::{LogOffset, Piece};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::spool::open_nameless;

/// What is read at once.
const READ_BYTES_MAX: u64 = 256 << 10;

pub struct Spill {
    disk: Arc<dyn Disk>,
    file: Option<Arc<dyn File>>,
    size: u64,
    first: LogOffset,
    end: LogOffset,
}

impl Spill {
    pub fn new(disk: Arc<dyn Disk>) -> Spill {
        Spill { disk, file: None, size: 0, first: LogOffset(0), end: LogOffset(0) }
    }

    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    pub fn first(&self) -> LogOffset {
        self.first
    }

    pub fn end(&self) -> LogOffset {
        self.end
    }

    pub fn covers(&self, at: LogOffset) -> bool {
        self.first <= at && at < self.end
    }

    /// No replica lacks what it has, or all of it is of another history.
    pub fn clear(&mut self) {
        (self.file, self.first) = (None, self.end);
    }

    /// Adds the bytes of the log from `from` on. If they are not those behind its end, it begins anew.
    pub fn append(
        &mut self,
        folder: PathBuf,
        size: u64,
        from: LogOffset,
        pieces: &[Piece],
    ) -> io::Result<()> {
        if from != self.end || size != self.size || self.file.is_none() {
            // A ring of another size has other places: what it has is given up.
            (self.file, self.first, self.end, self.size) = (None, from, from, size);
        }
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(self.file.insert(open_nameless(&*self.disk, &folder)?)),
        };
        let mut at = from;
        for piece in pieces {
            let mut bytes = &piece[..];
            while !bytes.is_empty() {
                let place = at.0 % size;
                let (now, rest) = bytes.split_at(bytes.len().min((size - place) as usize));
                // What is written over is gone, whatever comes of it.
                self.first = self.first.max(LogOffset((at.0 + now.len() as u64).saturating_sub(size)));
                write_all_at(&*file, now, place).map_err(|failed| failed.error)?;
                at = at + now.len() as u64;
                bytes = rest;
            }
        }
        self.end = at;
        self.check_invariants();
        Ok(())
    }

    /// Reads some of what stands at `at`, which is covered.
    pub fn read(&self, at: LogOffset, into: &mut Vec<u8>) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let place = at.0 % self.size;
        let len = (self.end - at).min(READ_BYTES_MAX).min(self.size - place);
        into.resize(len as usize, 0);
        let count = file.read_at(into, place)?;
        into.truncate(count);
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    pub fn check_invariants(&self) {
        assert!(self.first <= self.end && self.end - self.first <= self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_disk::OsDisk;
    use isotherm_log::{Frame, Log, ReaderKind};
    use isotherm_stdx::Prng;

    /// A log with a random command after the other, a part of which is spilled each time.
    #[test]
    fn a_ring_has_the_last_bytes() {
        const SIZE: u64 = 10_000;
        let (log, mut prng) = (Log::new(LogOffset(777), u64::MAX), Prng::new(3));
        let reader = log.add_reader(ReaderKind::Follower, LogOffset(777)).unwrap();
        let mut spill = Spill::new(Arc::new(OsDisk));
        let (mut all, mut frame) = (Vec::new(), Frame::default());
        for round in 0..300 {
            frame.push_wire(0, &vec![round as u8; 1 + prng.below(900) as usize]);
            log.append(&mut frame);
            log.gather();
            let (from, end) = (if spill.is_empty() { LogOffset(777) } else { spill.end() }, log.end());
            let to = from + prng.below(end - from + 1);
            let pieces = log.read(from, to).unwrap();
            pieces.iter().for_each(|piece| all.extend_from_slice(piece));
            spill.append(std::env::temp_dir(), SIZE, from, &pieces).unwrap();
            log.advance(reader, to);
            assert_eq!(spill.end(), to);
            if !spill.is_empty() {
                assert_eq!(to - spill.first(), SIZE.min(to.0 - 777));
                let mut at = spill.first() + prng.below(to - spill.first());
                while at < to {
                    let mut bytes = Vec::new();
                    spill.read(at, &mut bytes).unwrap();
                    let place = (at.0 - 777) as usize;
                    assert!(bytes == all[place..place + bytes.len()], "{at}");
                    at = at + bytes.len() as u64;
                }
            }
        }
        assert!(!spill.covers(spill.end()) && spill.covers(spill.first()));
        spill.clear();
        assert!(spill.is_empty());
    }
}
