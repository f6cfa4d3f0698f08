//! Reads of one thread, many under way at once: it waits for none of them (io_uring).
//!
//! ```text
//!   begin(file, at, bytes)   [room 0 .. file 7][room 1 .. file 7][room 2 free] ...     the device writes into a room until its read ends
//!   submit()                 one call of the system, for all that were begun and all that have ended
//!   event()                  a descriptor that becomes readable when some have ended since
//!   next_ended()             which one, and its bytes in their room: until the next call
//! ```
//! A room begins at a block in memory and takes whole blocks, as direct access wants it. Rooms are used last
//! in, first out, so that a thread that reads one value after the other touches one of them.
//!
//! **Invariants.** Memory that the device may write to is neither moved nor freed nor looked at: a room whose
//! read has not ended has a file, and only [`Ring::next_ended`] takes that away. A ring that is dropped
//! leaves such rooms behind for ever. No more reads are under way than there are places for, in either
//! direction, so that no end is lost.
//!
//! One thread makes and uses a ring: ends are handed over in its own calls (`DEFER_TASKRUN`, Linux 6.1), and
//! not by interrupting it. While it makes such a call the event is switched off, or each end would wake it
//! twice.

use crate::direct::{BLOCK_BYTES, RoomBytes};
use crate::{File, RawFile};
use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Reads under way.
pub const RING_READS_MAX: usize = 64;
/// Longer reads are for threads.
pub const RING_READ_BYTES_MAX: usize = 64 << 10;
/// Maximum size of the buffer that a room keeps for its next read.
const ROOM_KEPT_BYTES_MAX: usize = 4 * BLOCK_BYTES;
/// Threads of the kernel that do what would have to wait before the device has it (places of the file that
/// are not known yet).
const KERNEL_THREADS_MAX: u32 = 4;

pub struct Ring {
    ring: IoUring,
    event: OwnedFd,
    rooms: Box<[Room]>,
    free: Vec<u32>,
    /// Room of the read that [`Ring::next_ended`] has returned last.
    shown: Option<u32>,
    bytes: RoomBytes,
}

/// Buffer of a read.
#[derive(Default)]
struct Room {
    bytes: Vec<u8>,
    /// Place in `bytes` at which a block begins.
    begin: usize,
    /// Number of bytes that are read before the wanted ones because only whole blocks can be read.
    before: usize,
    wanted: usize,
    /// While the read is under way.
    file: Option<Arc<dyn File>>,
}

/// Why a read was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The maximum number of reads are in flight.
    Full,
    /// The read needs `read_at`: it is long, or the file has no descriptor.
    NotHere,
}

/// A read that has ended.
pub struct Ended<'r> {
    /// Number of the room that [`Ring::begin`] has returned.
    pub room: usize,
    /// All of them, or an error.
    pub bytes: io::Result<&'r [u8]>,
}

impl Ring {
    /// An error where the system refuses it: it is too old, or does not allow it to this process.
    pub fn new() -> io::Result<Ring> {
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .dontfork()
            .build(RING_READS_MAX as u32)?;
        let event = rustix::event::eventfd(
            0,
            rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC,
        )?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        ring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS_MAX; 2])?;
        let rooms = std::iter::repeat_with(Room::default).take(RING_READS_MAX).collect();
        let free = (0..RING_READS_MAX as u32).rev().collect();
        Ok(Ring { ring, event, rooms, free, shown: None, bytes: RoomBytes::default() })
    }

    /// Tries whether a ring works: some systems refuse its creation, some its use.
    pub fn try_out() -> io::Result<()> {
        let mut ring = Ring::new()?;
        #[allow(unsafe_code, reason = "as in `begin`")]
        // SAFETY: the entry names no memory and no descriptor.
        let pushed = unsafe { ring.ring.submission().push(&opcode::Nop::new().build()) };
        assert!(pushed.is_ok(), "it is empty");
        let taken = ring.ring.submit_and_wait(1)?;
        if taken == 1 { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
    }

    /// Becomes readable, edge by edge, when reads have ended that [`Ring::submit`] has not brought yet. It
    /// needs not be read.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub fn under_way(&self) -> usize {
        RING_READS_MAX - self.free.len()
    }

    /// Notes a read of `len` bytes, for the next [`Ring::submit`]. Returns the number of its room, which is
    /// free again when it has ended.
    pub fn begin(&mut self, file: &Arc<dyn File>, at: u64, len: usize) -> Result<usize, Refusal> {
        self.settle();
        let raw = file.raw().filter(|_| len <= RING_READ_BYTES_MAX).ok_or(Refusal::NotHere)?;
        let number = self.free.pop().ok_or(Refusal::Full)?;
        let room = &mut self.rooms[number as usize];
        debug_assert!(room.file.is_none(), "a free room is not written to");
        let before = room.bytes.capacity();
        let (from, asked) = room.prepare(&raw, at, len);
        self.bytes.note(self.bytes.get() + room.bytes.capacity() - before);
        let target = room.bytes[room.begin..room.begin + asked].as_mut_ptr();
        let entry = opcode::Read::new(types::Fd(raw.descriptor.as_raw_fd()), target, asked as u32)
            .offset(from)
            .build()
            .user_data(u64::from(number));
        room.file = Some(Arc::clone(file));
        #[allow(unsafe_code, reason = "the system writes behind the back of the borrow checker")]
        // SAFETY: the entry names `asked` bytes of the room's own vector, which lies on the heap, and a
        // descriptor that `room.file` keeps open. Both stay as they are until the read has ended: a room that
        // has a file is not in `free`, so no `begin` touches it; `settle` touches what has ended; and `drop`
        // leaks it.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "there is a place for each room");
        Ok(number as usize)
    }

    /// Hands what was begun to the system, and takes what has ended. True if it has to be called again before
    /// its thread may sleep.
    pub fn submit(&mut self) -> io::Result<bool> {
        let queue = self.ring.submission();
        let has_work = !queue.is_empty() || queue.taskrun();
        drop(queue);
        if has_work {
            // Reads that end in this call need no event: they are seen after it.
            let ends = self.ring.completion();
            ends.disable_eventfd();
            drop(ends);
            let result = self.ring.submit();
            let ends = self.ring.completion();
            ends.enable_eventfd();
            drop(ends);
            match result {
                Ok(_) => {}
                // Nothing was taken: there is a next time.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // Reads that ended while the event was off are seen here; those that end later find it on.
        fence(Ordering::SeqCst);
        Ok(self.ring.submission().taskrun() || !self.ring.completion().is_empty())
    }

    /// Submits reads for a thread that has nothing else to do: waits until some have ended, or for `at_most`.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        let timeout = types::Timespec::from(at_most);
        let ends = self.ring.completion();
        ends.disable_eventfd();
        drop(ends);
        let result = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&timeout));
        let ends = self.ring.completion();
        ends.enable_eventfd();
        drop(ends);
        match result {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) || error.kind() == io::ErrorKind::TimedOut => Ok(()),
            // ETIME is no kind of the standard library's.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::TIME.raw_os_error()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The next of those that have ended, if [`Ring::submit`] has brought any.
    pub fn next_ended(&mut self) -> Option<Ended<'_>> {
        self.settle();
        let end = self.ring.completion().next()?;
        let number = end.user_data() as u32;
        let room = &mut self.rooms[number as usize];
        assert!(room.file.take().is_some(), "a read ends once");
        self.free.push(number);
        self.shown = Some(number);
        Some(Ended { room: number as usize, bytes: room.shown(end.result()) })
    }

    /// Ends the use of the read that was returned last: a large buffer is freed.
    fn settle(&mut self) {
        if let Some(number) = self.shown.take() {
            let room = &mut self.rooms[number as usize];
            if room.file.is_none() && room.bytes.capacity() > ROOM_KEPT_BYTES_MAX {
                self.bytes.note(self.bytes.get() - room.bytes.capacity());
                room.bytes = Vec::new();
            }
        }
    }
}

/// Returns whether the error says that the system cannot do the call just now.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, ResourceBusy, WouldBlock};
    matches!(error.kind(), Interrupted | ResourceBusy | WouldBlock)
}

impl Room {
    /// Makes place for `len` bytes at `at`. From where in the file, and how many bytes, are to be read.
    fn prepare(&mut self, raw: &RawFile<'_>, at: u64, len: usize) -> (u64, usize) {
        self.before = if raw.is_direct { (at % BLOCK_BYTES as u64) as usize } else { 0 };
        self.wanted = len;
        let asked = match raw.is_direct {
            true => (self.before + len).next_multiple_of(BLOCK_BYTES),
            false => len,
        };
        if self.bytes.len() < asked + BLOCK_BYTES {
            self.bytes = vec![0; asked + BLOCK_BYTES];
        }
        self.begin = self.bytes.as_ptr().align_offset(BLOCK_BYTES);
        (at - self.before as u64, asked)
    }

    /// Returns the wanted bytes, or an error if fewer were read.
    fn shown(&self, read: i32) -> io::Result<&[u8]> {
        if read < 0 {
            return Err(io::Error::from_raw_os_error(-read));
        }
        if (read as usize) < self.before + self.wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from = self.begin + self.before;
        Ok(&self.bytes[from..from + self.wanted])
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The device may still write there.
        for room in self.rooms.iter_mut().filter(|room| room.file.is_some()) {
            std::mem::forget(std::mem::take(&mut room.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, Mode, OsDisk, write_all_at};
    use isotherm_stdx::Prng;
    use std::path::{Path, PathBuf};

    /// A file in the folder of this crate's build, which is on a disk; folders for temporary files often are
    /// not.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let folder = std::env::current_exe().expect("this test");
            Scratch(folder.with_extension(format!("{name}-{}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn ring() -> Option<Ring> {
        let ring = Ring::new();
        if let Err(why) = &ring {
            println!("skipped: this system has no such ring: {why}");
        }
        ring.ok()
    }

    /// Waits for the next event.
    fn sleep(ring: &Ring) {
        let event = rustix::event::PollFd::new(&ring.event, rustix::event::PollFlags::IN);
        let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        let woken = rustix::event::poll(&mut [event], Some(&patience)).expect("it waits");
        assert_eq!(woken, 1, "an end wakes");
        // The reactor sees edges; this sees levels.
        rustix::io::read(&ring.event, &mut [0; 8]).expect("it counts");
    }

    /// Waits until one read has ended. [`Ring::submit`] is also true of work that waits for its next call.
    fn await_end(ring: &mut Ring) {
        while ring.ring.completion().is_empty() {
            if !ring.submit().expect("it takes it") {
                sleep(ring);
            }
        }
    }

    fn read_all(file: &Arc<dyn File>, blocks: &[u8]) {
        let Some(mut ring) = ring() else { return };
        let mut prng = Prng::new(5);
        let mut wanted = vec![(0, 0); RING_READS_MAX];
        let (mut begun, mut ended) = (0, 0);
        while ended < 3000 {
            while begun < 3000 && !ring.is_full() && !prng.one_in(40) {
                let at = prng.below(blocks.len() as u64) as usize;
                let len = (prng.below((blocks.len() - at) as u64 + 1) as usize).min(RING_READ_BYTES_MAX);
                let len = if prng.one_in(2) { len.min(500) } else { len };
                let room = ring.begin(file, at as u64, len).expect("there is room");
                wanted[room] = (at, len);
                begun += 1;
            }
            if prng.one_in(2) && ring.under_way() > 0 {
                ring.wait(Duration::from_secs(10)).expect("it takes them");
            }
            // An event may be of what was seen already.
            while !ring.submit().expect("it takes them") && ring.under_way() > 0 {
                sleep(&ring);
            }
            while let Some(Ended { room, bytes }) = ring.next_ended() {
                let (at, len) = wanted[room];
                assert!(bytes.expect("it is there") == &blocks[at..at + len], "{at} {len}");
                ended += 1;
            }
        }
        assert_eq!(ring.under_way(), 0);
    }

    fn written(path: &Path, is_direct: bool) -> Option<(Arc<dyn File>, Vec<u8>)> {
        let open = if is_direct {
            OsDisk.open_direct(path, Mode::Truncate)
        } else {
            OsDisk.open(path, Mode::Truncate)
        };
        let Ok(file) = open else {
            println!("skipped: this file system has no direct access");
            return None;
        };
        let mut prng = Prng::new(3);
        let blocks: Vec<u8> = (0..1 << 20).map(|_| prng.below(256) as u8).collect();
        write_all_at(&*file, &blocks, 0).expect("it is written");
        Some((file, blocks))
    }

    #[test]
    fn many_reads_at_once_bring_what_is_there() {
        for (name, is_direct) in [("ring-direct", true), ("ring-cached", false)] {
            let path = Scratch::new(name);
            let Some((file, blocks)) = written(&path.0, is_direct) else { continue };
            read_all(&file, &blocks);
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_and_what_does_not_fit_is_refused() {
        let path = Scratch::new("ring-refused");
        let (Some((file, blocks)), Some(mut ring)) = (written(&path.0, true), ring()) else { return };
        assert_eq!(ring.begin(&file, 0, RING_READ_BYTES_MAX + 1), Err(Refusal::NotHere));
        let simulated = crate::SimDisk::new(1, crate::Plan::default());
        let other = simulated.open(Path::new("file"), Mode::Create).expect("it is made");
        assert_eq!(ring.begin(&other, 0, 1), Err(Refusal::NotHere));
        for _ in 0..RING_READS_MAX {
            ring.begin(&file, blocks.len() as u64 - 5, 10).expect("there is room");
        }
        assert!(ring.is_full());
        assert_eq!(ring.begin(&file, 0, 1), Err(Refusal::Full));
        let mut ended = 0;
        while ended < RING_READS_MAX {
            if !ring.submit().expect("it takes them") {
                sleep(&ring);
            }
            while let Some(end) = ring.next_ended() {
                assert_eq!(end.bytes.expect_err("the file ends").kind(), io::ErrorKind::UnexpectedEof);
                ended += 1;
            }
        }
        // A file that is closed and removed meanwhile is read to the end.
        ring.begin(&file, 100, 5).expect("there is room");
        drop((file, path));
        await_end(&mut ring);
        assert_eq!(ring.next_ended().expect("it has ended").bytes.expect("it is there"), &blocks[100..105]);
    }

    #[test]
    fn rooms_are_counted_and_large_ones_are_not_kept() {
        let path = Scratch::new("ring-rooms");
        let (Some((file, _)), Some(mut ring)) = (written(&path.0, true), ring()) else { return };
        for len in [RING_READ_BYTES_MAX, 100, 100] {
            ring.begin(&file, 0, len).expect("there is room");
            assert!(ring.bytes.get() >= len);
            await_end(&mut ring);
            assert!(ring.next_ended().expect("it has ended").bytes.is_ok());
        }
        assert!(ring.bytes.get() <= 2 * BLOCK_BYTES, "{}", ring.bytes.get());
    }
}
