//! The descriptors of the process: how many the system grants, and whose they are. One place counts them all.
//!
//! ```text
//!   limit  =  others     32, more with many workers: listeners, event loops, the log, files of a save
//!                        and of the append-only file; and what the port for metrics may have open
//!          +  segments   open files of swap-dir, and those that are opened beside them (`tier::open_files`)
//!          +  clients    maxclients, made less if these are too few
//! ```
//! Segments get what clients leave; where that is little, a share, and files of segments are closed and
//! opened again as they are read.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::observe::metrics;
use isotherm_config::{Config, id};
use isotherm_runtime::log::{self, os_text};

/// Descriptors of neither clients nor segments, as Valkey counts them: 16 for workers, as many for all else.
const RESERVED_FILES: u64 = 32;
const WORKERS_RESERVED: u64 = 16;
/// An event loop, what wakes it, and a set of sockets that others ask.
const FILES_PER_WORKER: u64 = 3;
/// A ring and what it wakes.
const FILES_PER_RING: u64 = 2;
/// Threads that each may read a segment whose file is not kept open.
const READS_BESIDE_MAX: u64 = 16;
/// Maximum of segments that have a file open without end: 512 GB, if saves read them too.
const SEGMENT_FILES_MAX: u64 = 16 << 10;
/// Descriptors of segments that are worth more than clients that may never come, up to a part of all.
const SEGMENT_FILES_MIN: u64 = 64;
const SEGMENT_SHARE_DIVISOR: u64 = 3;

/// Descriptors that are neither clients' nor segments'.
fn others(config: &Config) -> u64 {
    let of_ring = if config.swaps() && config.swaps_by_rings() { FILES_PER_RING } else { 0 };
    let workers = config.workers() as u64 * (FILES_PER_WORKER + of_ring);
    let of_metrics = config.metrics_address().map_or(0, |_| metrics::FILES_MAX);
    RESERVED_FILES + workers.saturating_sub(WORKERS_RESERVED) + of_metrics
}

/// Returns how many segments can use.
fn segments_wanted(config: &Config) -> u64 {
    match (config.swaps(), config.swap_disk_bytes()) {
        (false, _) => 0,
        (true, 0) => SEGMENT_FILES_MAX,
        // Each has a second one while saves read.
        (true, bytes) => {
            let segments = bytes / isotherm_tier::SEGMENT_BYTES + 1;
            (2 * segments + READS_BESIDE_MAX).min(SEGMENT_FILES_MAX)
        }
    }
}

/// Returns what clients and segments get of what is left for both.
fn share(left: u64, clients: u64, segments_wanted: u64) -> (u64, u64) {
    let segments_min = segments_wanted.min(SEGMENT_FILES_MIN).min(left / SEGMENT_SHARE_DIVISOR);
    let segments = left.saturating_sub(clients).clamp(segments_min, segments_wanted.max(segments_min));
    (clients.min(left - segments), segments)
}

/// Files of segments that are kept open at most: the rest of their share is for reads of others.
pub fn segment_files_kept(config: &Config) -> usize {
    let wanted = segments_wanted(config);
    let granted = getrlimit(Resource::Nofile).current;
    let segments = granted
        .map_or(wanted, |limit| share(limit.saturating_sub(others(config)), config.max_clients(), wanted).1);
    kept_of(segments)
}

fn kept_of(segments: u64) -> usize {
    (segments - READS_BESIDE_MAX.min(segments / 2)) as usize
}

/// Asks for as many descriptors as all need; if they are not granted there are fewer clients.
pub fn adjust(config: &Config) -> Result<(), String> {
    let clients = config.max_clients();
    let (others, segments) = (others(config), segments_wanted(config));
    let needed = clients + others;
    let wanted = needed + segments;
    let limit = getrlimit(Resource::Nofile);
    // No limit at all is enough.
    let Some(old) = limit.current else { return Ok(()) };
    if old >= wanted {
        return Ok(());
    }
    let (best, refused) = raise(limit, old, wanted);
    if best <= others {
        return Err(format!(
            "Your current 'ulimit -n' of {old} is not enough for the server to start. Please increase your open file \
             limit to at least {needed}. Exiting."
        ));
    }
    let (clients_left, segments_left) = share(best - others, clients, segments);
    if segments_left < segments {
        log::notice(format!(
            "swap: {} files of segments are kept open at most, as 'ulimit -n' is {best}: the others are opened when they are read",
            kept_of(segments_left)
        ));
    }
    if clients_left == clients {
        if best > old {
            log::notice(format!(
                "Increased maximum number of open files to {best} (it was originally set to {old})."
            ));
        }
        return Ok(());
    }
    config.set_number(const { id("maxclients") }, clients_left as i64);
    log::warning(format!(
        "You requested maxclients of {clients} requiring at least {needed} max file descriptors."
    ));
    let why = refused.unwrap_or_default();
    log::warning(format!("Server can't set maximum open files to {needed} because of OS error: {why}."));
    log::warning(format!(
        "Current maximum open files is {best}. maxclients has been reduced to {clients_left} to compensate for low \
         ulimit. If you need higher maxclients increase 'ulimit -n'."
    ));
    Ok(())
}

/// The most that the system grants, up to `wanted`, and why it is not that.
fn raise(limit: Rlimit, old: u64, wanted: u64) -> (u64, Option<String>) {
    let mut refused = None;
    let mut best = wanted;
    while best > old {
        match set(limit, best) {
            Ok(()) => return (best, refused),
            Err(error) => refused = Some(os_text(&error)),
        }
        // The limit that is granted in any case is tried before steps of a few.
        best = match limit.maximum {
            Some(maximum) if best > maximum.max(old) => maximum.max(old),
            _ => best.saturating_sub(16),
        };
    }
    (old, refused)
}

fn set(limit: Rlimit, files: u64) -> std::io::Result<()> {
    let maximum = limit.maximum.map(|maximum| maximum.max(files));
    setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).map_err(Into::into)
}

/// Checks CONFIG SET maxclients with `segment_files` files of segments that are kept open. An error is how
/// many clients there could be.
pub fn check_clients(config: &Config, segment_files: u64) -> Result<(), u64> {
    let limit = getrlimit(Resource::Nofile);
    let needed = others(config) + segment_files + segment_files.min(READS_BESIDE_MAX);
    let possible = limit.current.unwrap_or(u64::MAX).saturating_sub(needed);
    let clients = config.max_clients();
    if clients <= possible || set(limit, clients + needed).is_ok() { Ok(()) } else { Err(possible) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_come_first_and_segments_get_the_rest() {
        let check = |left: u64, clients: u64, wanted: u64, expected: (u64, u64)| {
            assert_eq!(share(left, clients, wanted), expected, "{left} for {clients} and {wanted}");
        };
        // Without swap-mode as Valkey has it.
        check(992, 10_000, 0, (992, 0));
        check(20_000, 10_000, 0, (10_000, 0));
        check(50_000, 10_000, 16_384, (10_000, 16_384));
        check(12_000, 10_000, 16_384, (10_000, 2_000));
        check(10_000, 10_000, 16_384, (9_936, 64));
        check(992, 10_000, 16_384, (928, 64));
        check(992, 100, 16_384, (100, 892));
        check(992, 10_000, 20, (972, 20));
        check(32, 10_000, 16_384, (22, 10));
        check(12, 10_000, 16_384, (8, 4));
        check(1, 10_000, 16_384, (1, 0));
        for segments in [0, 1, 4, 10, 64, 16_384] {
            assert!(
                kept_of(segments) as u64 + (kept_of(segments) as u64).min(READS_BESIDE_MAX)
                    >= segments.min(2)
            );
        }
    }
}
