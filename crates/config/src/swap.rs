//! Parameters of values that are not in memory, and limits in addition to `maxmemory`.

use super::{Config, Id, id, special};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A share of little memory would let writers wait at once. It is no more than [`BESIDE_DIVISOR`] leaves.
const SNAPSHOT_MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Part of `maxmemory`, as a divisor, that each limit outside it has if it is not set.
const BESIDE_DIVISOR: u64 = 8;
const LOG_MEMORY_BYTES_MAX: u64 = 256 << 20;
/// A smaller limit would let writers wait for each other.
const LOG_MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Most bytes that are lent if `swap-cache` is not set.
const CACHE_BYTES_MAX: u64 = 64 << 20;

/// Part of the machine's memory from which values leave it without `maxmemory`: the rest is for buffers, for
/// slabs that are not full (up to a quarter of small datasets, a tenth of large ones), and for the system.
const MACHINE_PERCENT: u64 = 80;

/// The parameter `swap-freeze`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreezeRule {
    No,
    Yes,
    Auto,
}

impl FreezeRule {
    fn of(number: i64) -> FreezeRule {
        match number {
            0 => FreezeRule::No,
            1 => FreezeRule::Yes,
            _ => FreezeRule::Auto,
        }
    }
}

impl Config {
    pub fn swaps(&self) -> bool {
        const MODE: Id = id("swap-mode");
        self.flag(MODE)
    }

    /// Bytes above which memory is short: `maxmemory`, or with `swap-mode` alone a share of the machine's
    /// memory. 0: never. Nothing is evicted and no command refused for the share: values leave, and writers
    /// wait for that.
    #[inline]
    pub fn memory_target_bytes(&self) -> u64 {
        match self.maxmemory_bytes() {
            0 => self.machine_share_bytes.load(Ordering::Relaxed),
            limit => limit,
        }
    }

    /// Notes the memory of the machine, or what a control group leaves of it, at the start of `swap-mode`.
    pub fn note_machine_memory(&self, bytes: u64) {
        self.machine_share_bytes.store(bytes / 100 * MACHINE_PERCENT, Ordering::Relaxed);
    }

    /// A base of the append-only file refers to values on disk.
    pub fn swap_checkpoints(&self) -> bool {
        const CHECKPOINT: Id = id("swap-checkpoint");
        self.flag(CHECKPOINT)
    }

    /// Returns when small keys leave memory with their values.
    pub fn swap_freeze_rule(&self) -> FreezeRule {
        const FREEZE: Id = id("swap-freeze");
        FreezeRule::of(self.number(FREEZE))
    }

    /// Files are read and written past the page cache, where that is possible.
    pub fn swaps_directly(&self) -> bool {
        const DIRECT: Id = id("swap-direct-io");
        self.flag(DIRECT)
    }

    /// Workers read what their commands wait for, where the system lets them.
    pub fn swaps_by_rings(&self) -> bool {
        const RING: Id = id("swap-io-uring");
        self.flag(RING)
    }

    pub fn swap_folder(&self) -> PathBuf {
        const FOLDER: Id = id("swap-dir");
        self.path(FOLDER).unwrap_or_else(|| PathBuf::from("swap"))
    }

    /// 0: as the file system permits.
    pub fn swap_disk_bytes(&self) -> u64 {
        const DISK: Id = id("swap-max-disk");
        self.number(DISK) as u64
    }

    pub fn swap_cache_bytes(&self) -> u64 {
        const CACHE: Id = id("swap-cache");
        match self.number(CACHE) {
            bytes @ 0.. => bytes as u64,
            _ => self.beside_maxmemory(CACHE_BYTES_MAX),
        }
    }

    pub fn swap_min_value_bytes(&self) -> usize {
        const VALUE: Id = id("swap-min-value");
        self.number(VALUE) as usize
    }

    /// Returns the longest time for which a command waits for a value from disk; `None`: commands wait as
    /// long as it takes.
    pub fn swap_read_timeout(&self) -> Option<Duration> {
        const TIMEOUT: Id = id("swap-read-timeout");
        let ms = self.number(TIMEOUT) as u64;
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// Returns an error unless `swap-transfer-lower-limit` is below `swap-load-upper-limit`, or one of them
    /// is off. Values leave until memory is back at the lower limit, where it stays: with the upper one
    /// there, or below, none that is only read would come home again, however often that is. Between the
    /// two, what is read changes places with what is not.
    pub fn check_swap_limits(&self) -> Result<(), String> {
        let (lower, upper) = (self.swap_lower_percent(), self.swap_upper_percent());
        // 100 and 0 are none. At 100 values leave where a write needs their room, and one that came home
        // would take it again; at 0 all may come.
        match lower >= upper && lower < 100 && upper > 0 {
            true => Err(format!(
                "swap-transfer-lower-limit ({lower}) has to be below swap-load-upper-limit ({upper}), or 100"
            )),
            false => Ok(()),
        }
    }

    /// 0..=100
    pub fn swap_lower_percent(&self) -> u64 {
        const LOWER: Id = id("swap-transfer-lower-limit");
        self.number(LOWER) as u64
    }

    /// Seconds, and uses of values on disk within them.
    pub fn swap_load_rule(&self) -> Vec<(u64, u64)> {
        const RULE: Id = id("swap-load-rule");
        let pairs = special::save_points(&self.text(RULE));
        pairs.iter().map(|(seconds, uses)| (*seconds as u64, *uses as u64)).collect()
    }

    /// 0..=100; 0: there is no limit.
    pub fn swap_upper_percent(&self) -> u64 {
        const UPPER: Id = id("swap-load-upper-limit");
        self.number(UPPER) as u64
    }

    // ---- outside maxmemory ----

    /// Returns the bytes that may be kept for a snapshot that begins at `used_memory_bytes`.
    pub fn snapshot_memory_bytes(&self, used_memory_bytes: u64) -> u64 {
        const LIMIT: Id = id("snapshot-memory-limit");
        match self.number(LIMIT) {
            bytes @ 0.. => bytes as u64,
            percent => {
                let share = u128::from(used_memory_bytes) * u128::from(percent.unsigned_abs()) / 100;
                (share as u64).max(self.beside_maxmemory(SNAPSHOT_MEMORY_BYTES_MIN))
            }
        }
    }

    /// Returns the bytes of the log of changes that may wait to be written.
    pub fn log_memory_bytes(&self) -> u64 {
        const LIMIT: Id = id("log-memory-limit");
        match self.number(LIMIT) {
            bytes @ 0.. => bytes as u64,
            _ => self.beside_maxmemory(LOG_MEMORY_BYTES_MAX).max(LOG_MEMORY_BYTES_MIN),
        }
    }

    /// The default of a limit that fits `maxmemory`, as that is now.
    fn beside_maxmemory(&self, bytes_max: u64) -> u64 {
        match self.maxmemory_bytes() {
            0 => bytes_max,
            limit => bytes_max.min(limit / BESIDE_DIVISOR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_beside_maxmemory_follow_it_unless_they_are_set() {
        let config = Config::default();
        let set = |name: &str, value: &str| {
            let pairs = [(name.as_bytes(), value.as_bytes())];
            config
                .set(&config.begin_writing(Duration::ZERO).unwrap(), &pairs, false, &mut |_| Ok(()))
                .unwrap();
        };
        let check = |log_kb: u64, cache_kb: u64, snapshot_kb: u64| {
            let limits =
                [config.log_memory_bytes(), config.swap_cache_bytes(), config.snapshot_memory_bytes(0)];
            assert_eq!(limits.map(|bytes| bytes >> 10), [log_kb, cache_kb, snapshot_kb]);
        };
        check(256 << 10, 64 << 10, 64 << 10);
        set("maxmemory", "8gb");
        check(256 << 10, 64 << 10, 64 << 10);
        set("maxmemory", "80mb");
        check(10 << 10, 10 << 10, 10 << 10);
        assert_eq!(config.snapshot_memory_bytes(1 << 30), (1 << 30) / 20, "five percent");
        set("maxmemory", "1mb");
        check(1 << 10, 128, 128);
        set("log-memory-limit", "3mb");
        set("swap-cache", "0");
        set("snapshot-memory-limit", "1mb");
        set("maxmemory", "80mb");
        check(3 << 10, 0, 1 << 10);
        set("log-memory-limit", "-1");
        set("swap-cache", "-1");
        check(10 << 10, 10 << 10, 1 << 10);
    }
}
