//! Space on the file system of `swap-dir`: what is left to the append-only file, its next base and RDB files.
//!
//! ```text
//!   start      swap-max-disk 0: a third of what is free (with swap-checkpoint half of it), where others keep
//!              the data there too; else nine tenths
//!   each second, and when a file went:
//!     free     ------------------------|----------------|---------->
//!                   short            room        room + a quarter
//!                   no segment is begun with values from memory; what is dead is cleaned
//!                                    what is dead is cleaned, though swap itself has room
//! ```
//! `room` is what others need to write the data once more: as much as the data, but no more than half of the
//! sum of swap's files and the free bytes, as otherwise nothing could leave memory next to large files of
//! others. Where nothing else writes it is a twentieth.
//!
//! A file system can refuse what it claims to have (a quota, blocks that are reserved). Then it is short
//! until as much as a group of values was written in addition to the segments, which is tried each second.

use isotherm_tier::{GROUP_BYTES, GROUPS_WAITING_MAX};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::sinker::Sinker;
use isotherm_config::{Config, id};
use isotherm_node::tier::health::Event;
use isotherm_runtime::log;
use isotherm_runtime::time::{elapsed, instant};

/// Tenths of what is free, where nothing else needs any.
const FREE_TENTHS: u64 = 9;
/// Part of the free bytes, next to files that have all values: twice as much is left, for one of them and the
/// next.
const SHARE_DIVISOR: u64 = 3;
/// A base that refers has none of the values that are in segments.
const SHARE_DIVISOR_CHECKPOINT: u64 = 2;
const ROOM_DIVISOR: u64 = 2;
const ROOM_ALONE_DIVISOR: u64 = 20;
/// Cleaning begins before it is short.
const TIGHT_DIVISOR: u64 = 4;
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes free beyond what others need at which it is no longer short: else each file that goes would say so.
const RELIEF_BYTES: u64 = isotherm_tier::SEGMENT_BYTES;

/// Returns whether files with all data are written.
fn writes_files(config: &Config) -> bool {
    config.flag(const { id("appendonly") }) || !config.save_points().is_empty()
}

/// Returns what the log may take of a file system without a limit of its own. `is_shared`: other files are
/// there.
pub fn share_of(config: &Config, free_bytes: u64, is_shared: bool) -> u64 {
    match (writes_files(config) && is_shared, config.swap_checkpoints()) {
        (false, _) => free_bytes / 10 * FREE_TENTHS,
        (true, false) => free_bytes / SHARE_DIVISOR,
        (true, true) => free_bytes / SHARE_DIVISOR_CHECKPOINT,
    }
}

/// A folder, or the one that it will be made in.
pub fn existing(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
    absolute.ancestors().find(|folder| folder.exists()).unwrap_or(folder).into()
}

/// Returns whether two folders are on one file system, as far as is known.
pub fn is_shared(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |folder| std::fs::metadata(existing(folder)).ok().map(|found| found.dev());
    match (device(one), device(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// State of the file system for threads that take space of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Space {
    #[default]
    Ample,
    /// Dead bytes are given back.
    Tight,
    /// No more is taken.
    Short,
}

/// Figures that it is judged by.
#[derive(Clone, Copy, Debug)]
struct Seen {
    free_bytes: u64,
    file_bytes: u64,
    /// Size of a file of the others. `None`: there is none.
    data_bytes: Option<u64>,
}

impl Seen {
    /// To be left to others.
    fn room_bytes(self) -> u64 {
        let both = self.free_bytes + self.file_bytes;
        match self.data_bytes {
            Some(bytes) => bytes.min(both / ROOM_DIVISOR),
            None => both / ROOM_ALONE_DIVISOR,
        }
    }

    fn judge(self, before: Space) -> Space {
        let room = self.room_bytes();
        let short_below = if before == Space::Short { room + RELIEF_BYTES.min(room / 2) } else { room };
        match self.free_bytes {
            free if free < short_below => Space::Short,
            free if free < room + room / TIGHT_DIVISOR => Space::Tight,
            _ => Space::Ample,
        }
    }
}

/// Knowledge that the thread that writes has of it.
#[derive(Default)]
pub struct SpaceWatch {
    pub space: Space,
    /// The last write was refused for want of room, whatever the file system says it has.
    is_refused: bool,
    /// Time of the last look; `None`: something has changed since.
    looked: Option<Instant>,
}

impl Sinker {
    /// Asks the file system, if it is time.
    pub(super) fn look_at_space(&mut self) {
        if self.space.looked.is_some_and(|looked| elapsed(looked) < LOOK_INTERVAL) {
            return;
        }
        self.space.looked = Some(instant());
        if self.space.is_refused && self.tier.call_disk(|files| files.has_room(GROUP_BYTES)) {
            self.note_room(true);
        }
        // An unknown number limits nothing: a write that fails does.
        let Ok(free_bytes) = self.tier.call_disk(|files| files.free_bytes()) else { return };
        self.tier.counters.disk_free_bytes.store(free_bytes, Relaxed);
        let config = &self.node.config;
        let on_disk = if config.swap_checkpoints() { 0 } else { self.tier.live_bytes() };
        let data_bytes = writes_files(config).then(|| on_disk + self.node.counted_memory_bytes());
        let data_bytes = data_bytes.filter(|_| self.tier.files.is_shared());
        let seen = Seen { free_bytes, file_bytes: self.log.file_bytes(), data_bytes };
        let space = seen.judge(self.space.space);
        if (space == Space::Short) != (self.space.space == Space::Short) {
            log::warning(format!(
                "swap: the file system of swap-dir has {} MB left, of which {} MB are for other files: {}",
                free_bytes >> 20,
                seen.room_bytes() >> 20,
                match space {
                    Space::Short => "no more values go there",
                    Space::Tight | Space::Ample => "values go there again",
                }
            ));
        }
        self.space.space = space;
        self.let_grow();
    }

    /// Notes how a write of values has ended.
    pub(super) fn note_write(&mut self, written: &io::Result<()>) {
        let Err(error) = written else {
            return self.tier.note(Event::Written);
        };
        self.tier.counters.write_errors.fetch_add(1, Relaxed);
        log::warning(format!("A write to swap-dir failed: {error}; its values stay in memory"));
        let no_room = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        self.tier.note(Event::WriteFailed { no_room });
        if no_room {
            self.note_room(false);
        }
    }

    fn note_room(&mut self, has_room: bool) {
        if self.space.is_refused == has_room {
            self.space.is_refused = !has_room;
            self.let_grow();
        }
    }

    fn let_grow(&mut self) {
        self.log.set_may_grow(self.space.space != Space::Short && !self.space.is_refused);
    }

    /// Bounds what waits for the disk by the limit of memory, as it is at present.
    pub(super) fn bound_groups(&mut self) {
        self.log.set_groups_waiting_max(groups_waiting_max(self.node.config.memory_target_bytes()));
    }

    /// A file went.
    pub(super) fn look_again(&mut self) {
        self.space.looked = None;
    }
}

/// Returns how many groups may wait for the disk: a 64th part of the limit, and at least one beside that
/// which is written. 1 GB permits 16 MB; 20 MB permit 2 MB.
fn groups_waiting_max(limit_bytes: u64) -> usize {
    const DIVISOR: u64 = 64;
    match limit_bytes {
        0 => GROUPS_WAITING_MAX,
        limit => (limit / DIVISOR / GROUP_BYTES as u64).clamp(2, GROUPS_WAITING_MAX as u64) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_wait_follow_the_limit() {
        let limits = [0, 1, 20 << 20, 192 << 20, GB, 64 * GB];
        assert_eq!(limits.map(groups_waiting_max), [16, 2, 2, 3, 16, 16]);
    }

    const GB: u64 = 1 << 30;

    fn seen(free_bytes: u64, file_bytes: u64, data_bytes: Option<u64>) -> Seen {
        Seen { free_bytes, file_bytes, data_bytes }
    }

    #[test]
    fn others_have_room_for_the_data_once_more() {
        let check = |free: u64, files: u64, data: Option<u64>, expected: Space| {
            assert_eq!(seen(free, files, data).judge(Space::Ample), expected, "{free} {files} {data:?}");
        };
        check(100 * GB, 10 * GB, Some(10 * GB), Space::Ample);
        check(12 * GB, 10 * GB, Some(10 * GB), Space::Tight);
        check(9 * GB, 10 * GB, Some(9 * GB), Space::Tight);
        check(8 * GB, 10 * GB, Some(9 * GB), Space::Short);
        // Next to large files of others half of the rest may be taken.
        check(9 * GB, 8 * GB, Some(50 * GB), Space::Tight);
        check(8 * GB, 9 * GB, Some(50 * GB), Space::Short);
        check(0, 0, Some(0), Space::Ample);
        // Alone.
        check(6 * GB, 90 * GB, None, Space::Ample);
        check(5 * GB, 94 * GB, None, Space::Tight);
        check(4 * GB, 96 * GB, None, Space::Short);
    }

    #[test]
    fn a_file_that_goes_does_not_end_it_at_once() {
        let mut space = seen(10 * GB - 1, 90 * GB, Some(10 * GB)).judge(Space::Ample);
        assert_eq!(space, Space::Short);
        for (more, expected) in [(RELIEF_BYTES - 1, Space::Short), (RELIEF_BYTES, Space::Tight)] {
            space = seen(10 * GB + more, 90 * GB, Some(10 * GB)).judge(space);
            assert_eq!(space, expected);
        }
    }
}
