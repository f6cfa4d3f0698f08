//! A file that is read and written past the system's page cache (O_DIRECT): what is read is not kept in
//! memory a second time.
//!
//! ```text
//!   the caller    |        [ at .. at + len )            any bytes
//!   the device    |    [ 4 KB ][ 4 KB ][ 4 KB ]          whole blocks, into memory that begins at one
//! ```
//! Reads go through a room of the thread, from which the wanted bytes are copied. Writes have to begin and
//! end at blocks: writers of such files write blocks anyway.

use crate::{File, RawFile};
use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Block size: a range that begins and ends at multiples of this can be read and written, whatever the
/// device.
pub const BLOCK_BYTES: usize = 4096;
/// Maximum number of bytes that one call reads or writes.
const CALL_BYTES_MAX: usize = 1 << 20;
/// Maximum size of the buffer that a thread keeps for the next call.
const ROOM_KEPT_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(CALL_BYTES_MAX.is_multiple_of(BLOCK_BYTES));

thread_local! {
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of the buffers of all threads and rings.
static ROOMS_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Share of one buffer or ring in that sum.
#[derive(Default)]
pub(crate) struct RoomBytes(usize);

impl RoomBytes {
    pub fn get(&self) -> usize {
        self.0
    }

    /// Sets the bytes of this share.
    #[inline]
    pub fn note(&mut self, bytes: usize) {
        if bytes != self.0 {
            ROOMS_BYTES.fetch_add(bytes, Relaxed);
            ROOMS_BYTES.fetch_sub(std::mem::replace(&mut self.0, bytes), Relaxed);
        }
    }
}

impl Drop for RoomBytes {
    fn drop(&mut self) {
        self.note(0);
    }
}

pub fn direct_rooms_bytes() -> usize {
    ROOMS_BYTES.load(Relaxed)
}

/// Hands over `len` bytes that begin at a block in memory; what they are is not said.
fn with_room<R>(len: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
    ROOM.with_borrow_mut(|room| {
        let before = room.capacity();
        if room.len() < len + BLOCK_BYTES {
            *room = vec![0; len + BLOCK_BYTES];
        }
        let begin = room.as_ptr().align_offset(BLOCK_BYTES);
        let result = work(&mut room[begin..begin + len]);
        if room.capacity() > ROOM_KEPT_BYTES_MAX {
            *room = Vec::new();
        }
        if room.capacity() != before {
            ROOMS_BYTES.fetch_add(room.capacity(), Relaxed);
            ROOMS_BYTES.fetch_sub(before, Relaxed);
        }
        result
    })
}

/// Opened for direct access.
pub(crate) struct DirectFile(pub fs::File);

impl File for DirectFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let begin = at - at % BLOCK_BYTES as u64;
        let before = (at - begin) as usize;
        let asked = (before + bytes.len()).next_multiple_of(BLOCK_BYTES).min(CALL_BYTES_MAX);
        with_room(asked, |room| {
            let read = self.0.read_at(room, begin)?;
            let count = read.saturating_sub(before).min(bytes.len());
            bytes[..count].copy_from_slice(&room[before..before + count]);
            Ok(count)
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let is_whole = at.is_multiple_of(BLOCK_BYTES as u64) && bytes.len().is_multiple_of(BLOCK_BYTES);
        if !is_whole {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a direct write is of whole blocks"));
        }
        let count = bytes.len().min(CALL_BYTES_MAX);
        with_room(count, |room| {
            room.copy_from_slice(&bytes[..count]);
            self.0.write_at(room, at)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), at, len)?)
    }

    fn raw(&self) -> Option<RawFile<'_>> {
        Some(RawFile { descriptor: self.0.as_fd(), is_direct: true })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, Mode, OsDisk, read_exact_at, write_all_at};
    use isotherm_stdx::Prng;
    use std::path::PathBuf;

    /// A file in the folder of this crate's build, which is on a disk; folders for temporary files often are
    /// not.
    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn any_bytes_are_read_that_were_written_as_blocks() {
        let folder = std::env::current_exe().expect("this test");
        let path = Scratch(folder.with_extension(format!("direct-{}", std::process::id())));
        let Ok(file) = OsDisk.open_direct(&path.0, Mode::Truncate) else {
            println!("skipped: this file system has no direct access");
            return;
        };
        let mut prng = Prng::new(5);
        let blocks: Vec<u8> = (0..3 * CALL_BYTES_MAX).map(|_| prng.below(256) as u8).collect();
        write_all_at(&*file, &blocks, 0).expect("it is written");
        for _ in 0..300 {
            let at = prng.below(blocks.len() as u64) as usize;
            let len = prng.below((blocks.len() - at) as u64 + 1) as usize;
            let len = if prng.one_in(2) { len.min(500) } else { len };
            let mut read = vec![0; len];
            read_exact_at(&*file, &mut read, at as u64).expect("it is there");
            assert!(read == blocks[at..at + len], "{at} {len}");
        }
        let mut end = [0; 100];
        assert_eq!(file.read_at(&mut end, blocks.len() as u64 - 7).expect("it is there"), 7);
        assert_eq!(file.read_at(&mut end, blocks.len() as u64).expect("it is there"), 0);
        assert!(file.write_at(&[0; 100], 0).is_err(), "no part of a block is written");
    }
}
