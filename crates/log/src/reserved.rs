//! The tail's rival: a place is reserved by one compare-and-swap, and the log thread puts the bytes in order.
//!
//! ```text
//!   word    [ end 56 bits | database 8 bits, 255: unknown ]
//!   worker  reserve (CAS) -> copy into its own buffer -> hand over once a batch
//!   log     merge by offset: a contiguous prefix becomes blocks
//! ```

use crate::frame::{Database, Frame};
use crate::offset::LogOffset;
use crate::tail::{Block, CHUNK_BYTES_MAX};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const UNKNOWN: u64 = 255;

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each frame lies in the log, and its length.
    marks: Vec<(u64, u32)>,
}

pub struct Shared {
    word: AtomicU64,
    inbox: Mutex<Vec<Batch>>,
}

impl Shared {
    pub fn new(start: LogOffset) -> Shared {
        Shared { word: AtomicU64::new(start.0 << 8 | UNKNOWN), inbox: Mutex::default() }
    }
}

/// Of one worker.
pub struct Appender {
    shared: Arc<Shared>,
    batch: Batch,
}

impl Appender {
    pub fn new(shared: Arc<Shared>) -> Appender {
        Appender { shared, batch: Batch::default() }
    }

    #[inline]
    pub fn append(&mut self, frame: &mut Frame) -> LogOffset {
        frame.seal();
        let mut word = self.shared.word.load(Ordering::Relaxed);
        let (from, at, len) = loop {
            let before = if word & 255 == UNKNOWN { None } else { Some((word & 255) as Database) };
            let from = frame.write_head(before);
            let len = (frame.bytes().len() - from) as u64;
            let tag = u64::from(frame.database_last()).min(UNKNOWN);
            let next = ((word >> 8) + len) << 8 | tag;
            match self.shared.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break (from, word >> 8, len),
                Err(seen) => word = seen,
            }
        };
        self.batch.bytes.extend_from_slice(&frame.bytes()[from..]);
        match self.batch.marks.last_mut() {
            Some((before, run)) if *before + u64::from(*run) == at => *run += len as u32,
            _ => self.batch.marks.push((at, len as u32)),
        }
        frame.clear();
        LogOffset(at + len)
    }

    pub fn hand_over(&mut self) {
        let (bytes, marks) = (self.batch.bytes.capacity(), self.batch.marks.capacity());
        let next = Batch { bytes: Vec::with_capacity(bytes), marks: Vec::with_capacity(marks) };
        let batch = std::mem::replace(&mut self.batch, next);
        self.shared.inbox.lock().expect("no panic").push(batch);
    }
}

/// The log thread's side.
pub struct Merger {
    shared: Arc<Shared>,
    end: u64,
    batches: Vec<Option<(Batch, usize)>>,
    /// Offset to batch, place and length.
    pending: BTreeMap<u64, (usize, usize, u32)>,
    open: Vec<u8>,
}

impl Merger {
    pub fn new(shared: Arc<Shared>, start: LogOffset) -> Merger {
        let (batches, pending) = (Vec::new(), BTreeMap::new());
        Merger { shared, end: start.0, batches, pending, open: Vec::with_capacity(CHUNK_BYTES_MAX) }
    }

    pub fn collect(&mut self, blocks: &mut Vec<Block>) {
        let batches = std::mem::take(&mut *self.shared.inbox.lock().expect("no panic"));
        for batch in batches {
            let number = self.batches.iter().position(Option::is_none).unwrap_or(self.batches.len());
            let mut place = 0;
            for (at, len) in &batch.marks {
                self.pending.insert(*at, (number, place, *len));
                place += *len as usize;
            }
            let left = batch.marks.len();
            if number == self.batches.len() {
                self.batches.push(None);
            }
            self.batches[number] = Some((batch, left));
        }
        while let Some(entry) = self.pending.first_entry().filter(|entry| *entry.key() == self.end) {
            let (number, place, len) = entry.remove();
            if self.open.len() + len as usize > CHUNK_BYTES_MAX {
                self.close(blocks);
            }
            let (batch, left) = self.batches[number].as_mut().expect("it has marks left");
            self.open.extend_from_slice(&batch.bytes[place..place + len as usize]);
            self.end += u64::from(len);
            *left -= 1;
            if *left == 0 {
                self.batches[number] = None;
            }
        }
        self.close(blocks);
    }

    fn close(&mut self, blocks: &mut Vec<Block>) {
        if !self.open.is_empty() {
            let bytes = std::mem::replace(&mut self.open, Vec::with_capacity(CHUNK_BYTES_MAX));
            blocks.push(Block { bytes, from: 0 });
        }
    }
}
