//! A snapshot on its way to replicas: bytes that one thread makes at full speed and others take when they
//! can.
//!
//! ```text
//!   walk --append--> [ memory ][ memory ][ file ][ file ][ memory ] --read--> a replica
//!                        ^ dropped once all have it   \ of which nothing but the disk is used
//! ```
//! Bytes that no replica has taken yet lie in memory up to `MEMORY_BYTES_MAX`, beyond that in a file without
//! a name in the folder of the data. So the walk never waits for a socket, and a slow replica costs disk. If
//! there is no room on the disk, the walk waits.

use isotherm_disk::{Disk, File, Mode, write_all_at};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A snapshot that is taken as fast as it is made needs no more.
const MEMORY_BYTES_MAX: u64 = 32 << 20;

pub struct Spool {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    inner: Mutex<Inner>,
    /// Bytes that all spools have in memory.
    total_bytes: Arc<AtomicU64>,
}

#[derive(Default)]
struct Inner {
    segments: VecDeque<Segment>,
    /// End of the last segment.
    end: u64,
    memory_bytes: u64,
    file: Option<Arc<dyn File>>,
    file_bytes: u64,
    ended: Option<Ended>,
}

struct Segment {
    start: u64,
    len: u64,
    body: Body,
}

enum Body {
    Memory(Arc<Vec<u8>>),
    /// At this place of the file.
    File(u64),
}

/// Outcome of the snapshot in a spool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Whole,
    Failed,
}

/// Content at a place of a snapshot.
pub enum Found {
    /// Bytes in memory, from this index on.
    Memory(Arc<Vec<u8>>, usize),
    /// Bytes in a file: the file, their place in it, and their number.
    File(Arc<dyn File>, u64, u64),
    /// No bytes yet.
    Later,
    End(Ended),
}

impl Spool {
    /// `total_bytes` counts what all spools have in memory.
    pub fn new(disk: Arc<dyn Disk>, folder: PathBuf, total_bytes: Arc<AtomicU64>) -> Spool {
        Spool { disk, folder, inner: Mutex::default(), total_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts bytes at the end, and empties `bytes`. `Err` where neither memory nor disk has room; then nothing
    /// was taken.
    pub fn append(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let len = bytes.len() as u64;
        let mut inner = self.lock();
        let body = if inner.memory_bytes + len <= MEMORY_BYTES_MAX {
            inner.memory_bytes += len;
            self.total_bytes.fetch_add(len, Relaxed);
            Body::Memory(Arc::new(std::mem::take(bytes)))
        } else {
            let (file, at) = (inner.file.clone(), inner.file_bytes);
            drop(inner);
            let file = file.map_or_else(|| open_nameless(&*self.disk, &self.folder), Ok)?;
            write_all_at(&*file, bytes, at).map_err(|failed| failed.error)?;
            bytes.clear();
            inner = self.lock();
            (inner.file, inner.file_bytes) = (Some(file), at + len);
            Body::File(at)
        };
        let start = inner.end;
        inner.segments.push_back(Segment { start, len, body });
        inner.end += len;
        Ok(())
    }

    pub fn finish(&self, ended: Ended) {
        self.lock().ended = Some(ended);
    }

    pub fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    pub fn find(&self, at: u64) -> Found {
        let inner = self.lock();
        if at >= inner.end || inner.ended == Some(Ended::Failed) {
            return inner.ended.map_or(Found::Later, Found::End);
        }
        let number = inner.segments.partition_point(|segment| segment.start + segment.len <= at);
        let segment = &inner.segments[number];
        let from = at - segment.start;
        match &segment.body {
            Body::Memory(bytes) => Found::Memory(Arc::clone(bytes), from as usize),
            Body::File(place) => {
                let file = inner.file.as_ref().expect("it has what it was given");
                Found::File(Arc::clone(file), place + from, segment.len - from)
            }
        }
    }

    /// All have what lies before `to`.
    pub fn release(&self, to: u64) {
        let mut dropped = Vec::new();
        let mut inner = self.lock();
        while inner.segments.front().is_some_and(|segment| segment.start + segment.len <= to) {
            let segment = inner.segments.pop_front();
            if let Some(Segment { body: Body::Memory(bytes), len, .. }) = segment {
                inner.memory_bytes -= len;
                self.total_bytes.fetch_sub(len, Relaxed);
                dropped.push(bytes);
            }
        }
        drop(inner);
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let left = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).memory_bytes;
        self.total_bytes.fetch_sub(left, Relaxed);
    }
}

/// A file in `folder` that has no name: it is gone when it is closed, however the process ends.
pub fn open_nameless(disk: &dyn Disk, folder: &Path) -> io::Result<Arc<dyn File>> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let path = folder.join(format!("temp-{}-{number}.repl", std::process::id()));
    let file = disk.open(&path, Mode::Truncate)?;
    disk.remove(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_disk::OsDisk;

    fn read(spool: &Spool, mut at: u64, to: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while at < to {
            match spool.find(at) {
                Found::Memory(bytes, from) => all.extend_from_slice(&bytes[from..]),
                Found::File(file, place, len) => {
                    let mut bytes = vec![0; len as usize];
                    assert_eq!(file.read_at(&mut bytes, place).unwrap(), bytes.len());
                    all.extend(bytes);
                }
                Found::Later | Found::End(_) => break,
            }
            at = to.min(at + all.len() as u64);
        }
        all
    }

    #[test]
    fn what_memory_does_not_hold_lies_on_disk() {
        let total = Arc::new(AtomicU64::new(0));
        let spool = Spool::new(Arc::new(OsDisk), std::env::temp_dir(), Arc::clone(&total));
        const PIECE: usize = 12 << 20;
        let mut expected = Vec::new();
        for byte in b'a'..=b'f' {
            expected.extend(std::iter::repeat_n(byte, PIECE));
            spool.append(&mut vec![byte; PIECE]).unwrap();
        }
        assert_eq!(total.load(Relaxed), 2 * PIECE as u64);
        for number in 0..6 {
            let (at, to) = (number * PIECE + 5, (number + 1) * PIECE);
            assert!(read(&spool, at as u64, to as u64) == expected[at..to]);
        }
        spool.release(2 * PIECE as u64);
        assert_eq!(total.load(Relaxed), 0);
        spool.append(&mut vec![b'g'; PIECE]).unwrap();
        assert_eq!(total.load(Relaxed), PIECE as u64, "there is room again");
        let end = 7 * PIECE as u64;
        assert!(matches!(spool.find(end), Found::Later));
        spool.finish(Ended::Whole);
        assert!(matches!(spool.find(end), Found::End(Ended::Whole)));
        drop(spool);
        assert_eq!(total.load(Relaxed), 0);
    }
}
