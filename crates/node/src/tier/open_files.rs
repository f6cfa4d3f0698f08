//! Open files of segments: a bounded number at once, whatever the number of segments. The others are opened
//! when a thread reads them.
//!
//! ```text
//!   a read      its file is open:  no more than a lock of that one handle
//!               it is closed:      one that is not in use is closed first, then it is opened, without a lock
//!   the clock   [h1][h2][h3]...    open handles; one that was used since the hand came by has one more round
//! ```
//! A file that is being read is not closed: its reader has it. If all are, the next one is opened in addition
//! and forgotten after its read: so there are never more than the bound and one for each thread that reads.
//! Rings read open files, and leave the rest to threads, so no worker ever waits for a name to be looked up.
//!
//! A file with bytes that the page cache may still have to write is closed last: the error of a late write is
//! kept by the kernel as long as the file is in its memory.

use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_disk::File;

/// Handles that the hand passes for one that may be closed, in each of its rounds.
const LOOKS_MAX: usize = 64;

/// A file of a segment that is open, or can be opened again.
#[derive(Default)]
pub struct Handle {
    state: Mutex<HandleState>,
    was_used: AtomicBool,
    /// Mark of bytes that may be in the page cache alone.
    pub is_unsynced: AtomicBool,
}

#[derive(Default)]
struct HandleState {
    file: Option<Arc<dyn File>>,
    /// The file's name is gone, or another file's: it is not kept open.
    is_gone: bool,
}

impl Handle {
    /// The file, if it is open.
    pub fn get(&self) -> Option<Arc<dyn File>> {
        let file = self.state().file.clone()?;
        if !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
        Some(file)
    }

    fn state(&self) -> MutexGuard<'_, HandleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the file out if no reader has it.
    fn take_unused(&self) -> Option<Arc<dyn File>> {
        self.state().file.take_if(|file| Arc::strong_count(file) == 1)
    }
}

pub struct OpenFiles {
    files_max: usize,
    clock: Mutex<Clock>,
}

#[derive(Default)]
struct Clock {
    /// Handles with a file.
    handles: VecDeque<Arc<Handle>>,
    /// Places taken for files that are being opened.
    opening: usize,
}

impl OpenFiles {
    /// At least one is kept open.
    pub fn new(files_max: usize) -> OpenFiles {
        OpenFiles { files_max: files_max.max(1), clock: Mutex::default() }
    }

    pub fn files_max(&self) -> usize {
        self.files_max
    }

    /// Number of files that are open, or about to be.
    pub fn count(&self) -> usize {
        let clock = self.clock();
        clock.handles.len() + clock.opening
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a handle, opened if it is not. May wait for the disk: nothing is held.
    pub fn open(
        &self,
        handle: &Arc<Handle>,
        open: impl Fn() -> io::Result<Arc<dyn File>>,
    ) -> io::Result<Arc<dyn File>> {
        if let Some(file) = handle.get() {
            return Ok(file);
        }
        let has_place = self.take_place();
        let opened = match open() {
            Err(error) if is_out_of_files(&error) && self.close_one() => open(),
            opened => opened,
        };
        match (opened, has_place) {
            (Ok(file), true) => Ok(self.keep(handle, file)),
            (Ok(file), false) => Ok(file),
            (Err(error), has_place) => {
                self.clock().opening -= usize::from(has_place);
                Err(error)
            }
        }
    }

    /// Takes a place for one more file. False: all are in use.
    fn take_place(&self) -> bool {
        let mut clock = self.clock();
        if clock.handles.len() + clock.opening < self.files_max {
            clock.opening += 1;
            return true;
        }
        let closed = clock.take_unused();
        clock.opening += usize::from(closed.is_some());
        // A file is closed without the lock.
        drop(clock);
        closed.is_some()
    }

    /// The system has no more: one is closed before its time.
    fn close_one(&self) -> bool {
        let closed = self.clock().take_unused();
        closed.is_some()
    }

    /// Keeps a file that was opened for a place. A later thread takes the file that the first one has opened.
    fn keep(&self, handle: &Arc<Handle>, file: Arc<dyn File>) -> Arc<dyn File> {
        let mut clock = self.clock();
        clock.opening -= 1;
        let mut state = handle.state();
        match &state.file {
            Some(first) => Arc::clone(first),
            None if state.is_gone => file,
            None => {
                state.file = Some(Arc::clone(&file));
                drop(state);
                handle.was_used.store(true, Relaxed);
                clock.handles.push_back(Arc::clone(handle));
                file
            }
        }
    }

    /// The file's name is about to go: a reader has it as long as its read takes, and no longer.
    pub fn forget(&self, handle: &Arc<Handle>) {
        let mut clock = self.clock();
        let mut state = handle.state();
        state.is_gone = true;
        let closed = state.file.take();
        drop(state);
        if closed.is_some() {
            clock.handles.retain(|other| !Arc::ptr_eq(other, handle));
        }
        drop(clock);
    }
}

impl Clock {
    /// The file of a handle that is in no use, which has none then: of those that were not used lately, else
    /// of any.
    fn take_unused(&mut self) -> Option<Arc<dyn File>> {
        let is_synced = |handle: &Handle| !handle.is_unsynced.load(Relaxed);
        let is_idle = |handle: &Handle| !handle.was_used.swap(false, Relaxed) && is_synced(handle);
        self.pass(is_idle).or_else(|| self.pass(is_synced)).or_else(|| self.pass(|_| true))
    }

    fn pass(&mut self, may_go: impl Fn(&Handle) -> bool) -> Option<Arc<dyn File>> {
        for _ in 0..self.handles.len().min(LOOKS_MAX) {
            let handle = self.handles.pop_front()?;
            let file = may_go(&handle).then(|| handle.take_unused()).flatten();
            if file.is_some() {
                return file;
            }
            self.handles.push_back(handle);
        }
        None
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    let of = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    of(Errno::MFILE) || of(Errno::NFILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_disk::{Disk, Mode, Plan, SimDisk};
    use isotherm_stdx::Prng;
    use std::path::Path;

    struct World {
        disk: SimDisk,
        files: OpenFiles,
        handles: Vec<Arc<Handle>>,
    }

    impl World {
        fn new(files_max: usize, handles: usize) -> World {
            let handles = (0..handles).map(|_| Arc::default()).collect();
            World { disk: SimDisk::new(3, Plan::default()), files: OpenFiles::new(files_max), handles }
        }

        fn open(&self, number: usize) -> Arc<dyn File> {
            let path = format!("{number}");
            let open = || self.disk.open(Path::new(&path), Mode::Create);
            self.files.open(&self.handles[number], open).expect("it opens")
        }

        fn is_open(&self, number: usize) -> bool {
            self.handles[number].state().file.is_some()
        }

        fn check(&self) {
            let clock = self.files.clock();
            assert!(clock.opening == 0 && clock.handles.len() <= self.files.files_max);
            let open = (0..self.handles.len()).filter(|number| self.is_open(*number)).count();
            assert_eq!(open, clock.handles.len());
        }
    }

    #[test]
    fn the_least_used_is_closed_and_none_in_use() {
        let world = World::new(3, 6);
        let in_use = world.open(0);
        drop((world.open(1), world.open(2)));
        world.check();
        // All were used: the hand comes round, and the one that is in use stays.
        drop(world.open(3));
        assert!(world.is_open(0) && !world.is_open(1) && world.is_open(2) && world.is_open(3));
        assert!(Arc::ptr_eq(&in_use, &world.open(0)), "it is the same");
        drop(world.open(4));
        assert!(!world.is_open(2) && world.is_open(3));
        world.check();
    }

    #[test]
    fn without_a_place_a_file_is_open_for_one_reader_only() {
        let world = World::new(2, 4);
        let in_use = [0, 1].map(|number| world.open(number));
        drop(world.open(2));
        assert!(!world.is_open(2));
        drop(in_use);
        drop(world.open(2));
        assert!(world.is_open(2));
        world.check();
    }

    #[test]
    fn bytes_of_the_page_cache_keep_a_file_open_as_long_as_there_are_others() {
        let world = World::new(2, 4);
        drop((world.open(0), world.open(1)));
        world.handles[0].is_unsynced.store(true, Relaxed);
        drop(world.open(2));
        drop(world.open(3));
        assert!(world.is_open(0));
        world.handles.iter().for_each(|handle| handle.is_unsynced.store(true, Relaxed));
        drop(world.open(1));
        assert!(world.is_open(1));
        world.check();
    }

    /// A file that was opened while its segment was freed is not kept open: it would keep the space.
    #[test]
    fn a_file_that_is_gone_is_not_kept() {
        let world = World::new(2, 2);
        let open = || {
            world.files.forget(&world.handles[0]);
            world.disk.open(Path::new("0"), Mode::Create)
        };
        drop(world.files.open(&world.handles[0], open).expect("it opens"));
        assert!(!world.is_open(0));
        drop(world.open(1));
        world.files.forget(&world.handles[1]);
        assert_eq!(world.files.count(), 0);
        world.check();
    }

    #[test]
    fn a_file_that_does_not_open_takes_no_place() {
        let world = World::new(1, 2);
        let missing = || world.disk.open(Path::new("missing"), Mode::Read);
        assert!(world.files.open(&world.handles[0], missing).is_err());
        assert_eq!(world.files.count(), 0);
        // Without descriptors one is closed, and it is tried again.
        drop(world.open(1));
        let tries = std::cell::Cell::new(0);
        let world = World::new(2, 2);
        drop(world.open(1));
        let opened = world.files.open(&world.handles[0], || {
            tries.set(tries.get() + 1);
            match tries.get() {
                1 => Err(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error())),
                _ => world.disk.open(Path::new("0"), Mode::Create),
            }
        });
        assert!(opened.is_ok() && !world.is_open(1));
        world.check();
    }

    #[test]
    fn the_bound_holds_with_any_readers() {
        let mut random = Prng::new(11);
        let world = World::new(5, 40);
        let mut in_use = Vec::new();
        for _ in 0..10_000 {
            match random.below(10) {
                0..5 => in_use.push(world.open(random.below(40) as usize)),
                5..9 if !in_use.is_empty() => {
                    let number = random.below(in_use.len() as u64) as usize;
                    drop(in_use.swap_remove(number));
                }
                _ => world.files.forget(&world.handles[random.below(2) as usize]),
            }
            world.check();
        }
    }
}
