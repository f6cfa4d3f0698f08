//! The next log file, prepared before it is needed.
//!
//! ```text
//!   many syncs a second --> aof-prepare: temp-....prepared, filled and synced --> renamed when the next file is created
//!
//!   prepared file    [ head ][ commit    .][ commit .][ unused ][ unused ] ... [ unused ]
//!                     512 B   whole sectors                                             ^ the file is cut to its commits at its end
//! ```
//! A sync after an append commits the file system's journal, because the length has changed; one after an
//! overwrite of blocks that were written before does not, and takes a fraction of the time on many disks. So
//! under `appendfsync always`, when commits are many, the log continues in a file whose blocks are there
//! already. Until then its sectors hold comments, which every loader skips.

use isotherm_disk::{Disk, File, Mode, write_all_at};
use isotherm_persist::aof::commit::{prepared_head, unused_sector};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_runtime::log::{self as report, os_text};
use isotherm_runtime::routines::{self, Routine, Running};
use isotherm_runtime::time::{elapsed, instant};

/// Syncs per second at which a prepared file becomes worth its preparation.
const SYNCS_PER_SECOND_MIN: u32 = 50;

/// Between a preparation that failed and the next.
const RETRY: Duration = Duration::from_secs(60);

/// With shorter files the log would change from one to the next too often.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of the shortest file in a simulation, which changes it often.
const SIMULATED_FILE_BYTES_MIN: u64 = 16 << 10;

const PORTION_BYTES: usize = 1 << 20;

/// The part of a prepared file that is left when the log continues in the next.
const RESERVE: u64 = 16;

enum Next {
    None,
    /// A thread prepares it.
    UnderWay(Running),
    Ready(Arc<dyn File>, u64),
}

/// Preparation of the next log file, as the writing thread knows it.
pub struct Preparation {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    next: Next,
    /// Bytes of the log file that is written, if it was prepared.
    current_bytes: Option<u64>,
    /// The current file was asked to end.
    is_ending: bool,
    second: Instant,
    syncs: u32,
    is_busy: bool,
    failed_at: Option<Instant>,
}

impl Preparation {
    /// `path`: where a file is prepared; one that was left there is removed.
    pub fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Preparation {
        let _ = disk.remove(&path);
        let second = instant();
        Preparation {
            disk,
            path,
            next: Next::None,
            current_bytes: None,
            is_ending: false,
            second,
            syncs: 0,
            is_busy: false,
            failed_at: None,
        }
    }

    pub fn current_bytes(&self) -> Option<u64> {
        self.current_bytes
    }

    /// A sync has ended.
    pub fn count_sync(&mut self) {
        if elapsed(self.second) >= Duration::from_secs(1) {
            self.is_busy = self.syncs >= SYNCS_PER_SECOND_MIN;
            (self.second, self.syncs) = (instant(), 0);
        }
        self.syncs += 1;
    }

    /// Returns whether the current file ends here because the next one is ready. `used_bytes` of it are used.
    pub fn ends_file(&mut self, used_bytes: u64) -> bool {
        let is_used = self.current_bytes.is_none_or(|bytes| used_bytes >= bytes - bytes / RESERVE);
        let ends = is_used && used_bytes > 0 && !self.is_ending && matches!(self.next, Next::Ready(..));
        self.is_ending |= ends;
        ends
    }

    /// Begins to prepare a file of `file_bytes` if it is worth it. `ended` gets the result, on another
    /// thread.
    pub fn begin(
        &mut self,
        file_bytes: u64,
        used_bytes: u64,
        ended: impl FnOnce(io::Result<(Arc<dyn File>, u64)>) + Send + 'static,
    ) {
        let is_off = file_bytes == 0;
        let min_bytes = if routines::is_simulated() { SIMULATED_FILE_BYTES_MIN } else { FILE_BYTES_MIN };
        let file_bytes = (file_bytes - file_bytes % unused_sector().len() as u64).max(min_bytes);
        let is_near = self.current_bytes.is_none_or(|bytes| used_bytes >= bytes / 2);
        let is_wanted = self.is_busy && is_near && !is_off;
        if !is_wanted
            || !matches!(self.next, Next::None)
            || self.failed_at.is_some_and(|at| elapsed(at) < RETRY)
        {
            return;
        }
        let (disk, path) = (Arc::clone(&self.disk), self.path.clone());
        let filling = Filling { disk, path, file_bytes, file: None, filled_bytes: 0, ended: Some(ended) };
        match routines::start("aof-prepare", filling) {
            Ok(thread) => self.next = Next::UnderWay(thread),
            Err(error) => self.end(Err(error)),
        }
    }

    pub fn end(&mut self, prepared: io::Result<(Arc<dyn File>, u64)>) {
        match prepared {
            Ok((file, file_bytes)) => {
                self.failed_at = None;
                self.next = Next::Ready(file, file_bytes);
            }
            Err(error) => {
                report::warning(format!(
                    "Can't prepare the next append-only file, which is written without: {}",
                    os_text(&error)
                ));
                let _ = self.disk.remove(&self.path);
                self.failed_at = Some(instant());
                self.next = Next::None;
            }
        }
    }

    /// A log file is created at `path`. Returns one that was prepared, if there is one.
    pub fn take(&mut self, path: &Path) -> Option<Arc<dyn File>> {
        self.is_ending = false;
        self.current_bytes = None;
        if matches!(self.next, Next::UnderWay(_)) {
            return None;
        }
        let Next::Ready(file, file_bytes) = std::mem::replace(&mut self.next, Next::None) else {
            return None;
        };
        if let Err(error) = self.disk.rename(&self.path, path) {
            self.end(Err(error));
            return None;
        }
        self.current_bytes = Some(file_bytes);
        Some(file)
    }

    /// The writer ends.
    pub fn finish(&mut self) {
        if let Next::UnderWay(thread) = std::mem::replace(&mut self.next, Next::None) {
            thread.join();
        }
        let _ = self.disk.remove(&self.path);
    }

    /// Removes the prepared file, which is of no use any more.
    pub fn discard(&mut self) {
        if matches!(self.next, Next::Ready(..)) {
            self.next = Next::None;
            let _ = self.disk.remove(&self.path);
        }
    }
}

/// Fills a file. A step writes one portion.
struct Filling<E> {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file_bytes: u64,
    file: Option<Arc<dyn File>>,
    filled_bytes: u64,
    ended: Option<E>,
}

impl<E: FnOnce(io::Result<(Arc<dyn File>, u64)>) + Send> Routine for Filling<E> {
    fn step(&mut self) -> bool {
        let ended = match self.fill() {
            Ok(None) => return true,
            Ok(Some(file)) => Ok((file, self.file_bytes)),
            Err(error) => Err(error),
        };
        if let Some(end) = self.ended.take() {
            end(ended);
        }
        false
    }
}

impl<E> Filling<E> {
    /// The file when it is complete.
    fn fill(&mut self) -> io::Result<Option<Arc<dyn File>>> {
        let Some(file) = &self.file else {
            self.file = Some(self.disk.open(&self.path, Mode::Truncate)?);
            return Ok(None);
        };
        let left_bytes = self.file_bytes - self.filled_bytes;
        if left_bytes > 0 {
            let mut portion = unused_sector().repeat(PORTION_BYTES / unused_sector().len());
            portion.truncate(usize::try_from(left_bytes).unwrap_or(usize::MAX).min(portion.len()));
            write_all_at(&**file, &portion, self.filled_bytes).map_err(|error| error.error)?;
            self.filled_bytes += portion.len() as u64;
            return Ok(None);
        }
        write_all_at(&**file, &prepared_head(self.file_bytes), 0).map_err(|error| error.error)?;
        file.sync_all()?;
        Ok(self.file.take())
    }
}
