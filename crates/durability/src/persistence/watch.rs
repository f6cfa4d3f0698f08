//! Progress of a load or a save, in the log, once a second while it lasts.
//!
//! ```text
//!   Loading: 42.0 % of 812.3 MB, 2650000 keys, 1200000 keys/s, 180.2 MB/s, 3 s left
//!   Saving: 42.0 % of 6320000 keys, 2100000 keys/s, 74.1 MB/s, 2 s left
//! ```
//! The rates are those of the last second. The rest is assumed to take as long as the part that was done,
//! from the beginning on. Work that is over within a second leaves no line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::report::is_loading;
use super::room::Room;
use isotherm_node::persistence::Store;
use isotherm_node::persistence::state::Job;
use isotherm_runtime::log;
use isotherm_runtime::time::{elapsed, instant};

const EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Load,
    Save,
    Rewrite,
    /// To replicas.
    Stream,
}

/// Counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Done {
    keys: u64,
    bytes: u64,
}

/// Work that is under way, its beginning, and the contents of the last line about it.
struct Seen {
    work: Work,
    began: Instant,
    at: Instant,
    done: Done,
    room: Room,
}

#[derive(Default)]
pub struct Watch {
    seen: Option<Seen>,
}

impl Watch {
    /// Called often.
    pub fn tick(&mut self, store: Store<'_>, used_memory_bytes: u64) {
        let running = store.state.saving().running.map(|running| running.job);
        let work = match running {
            _ if is_loading(store) => Work::Load,
            Some(Job::Rewrite) => Work::Rewrite,
            Some(Job::Stream) => Work::Stream,
            Some(Job::Save(_) | Job::BackgroundSave) => Work::Save,
            None => return self.seen = None,
        };
        let Some(seen) = self.seen.as_mut().filter(|seen| seen.work == work) else {
            let now = instant();
            self.seen =
                Some(Seen { work, began: now, at: now, done: Done::default(), room: Room::default() });
            return;
        };
        let passed = elapsed(seen.at);
        if passed < EVERY {
            return;
        }
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let (loading, progress) = (&store.state.loading, &store.state.progress);
        let (done, total) = match work {
            Work::Load => {
                let done = Done { keys: of(&loading.keys_loaded), bytes: of(&loading.loaded_bytes) };
                (done, of(&loading.total_bytes))
            }
            Work::Save | Work::Rewrite | Work::Stream => {
                let done = Done { keys: of(&progress.keys), bytes: of(&progress.bytes) };
                (done, of(&progress.keys_total))
            }
        };
        log::notice(line(work, done, seen.done, total, passed, elapsed(seen.began)));
        if work == Work::Load {
            seen.room.note(store, used_memory_bytes, done.bytes, total);
        }
        (seen.at, seen.done) = (instant(), done);
    }
}

fn line(work: Work, done: Done, before: Done, total: u64, passed: Duration, since: Duration) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / passed.as_secs_f64();
    let (name, part) = match work {
        Work::Load => ("Loading", done.bytes),
        Work::Save => ("Saving", done.keys),
        Work::Rewrite => ("Rewriting the append-only file", done.keys),
        Work::Stream => ("Sending the data to replicas", done.keys),
    };
    let mut words = Vec::new();
    // Of what comes from a primary the size may not be known.
    if total > 0 {
        let percent = (part as f64 * 100.0 / total as f64).min(100.0);
        words.push(match work {
            Work::Load => format!("{percent:.1} % of {:.1} MB", mb(total)),
            Work::Save | Work::Rewrite | Work::Stream => format!("{percent:.1} % of {total} keys"),
        });
    } else {
        words.push(format!("{:.1} MB", mb(done.bytes)));
    }
    // Commands are not counted by keys.
    if work == Work::Load && done.keys > 0 {
        words.push(format!("{} keys", done.keys));
    }
    if done.keys > 0 {
        words.push(format!("{:.0} keys/s", rate(done.keys, before.keys)));
    }
    words.push(format!("{:.1} MB/s", rate(done.bytes, before.bytes) / 1e6));
    if part > 0 && total > 0 {
        let left = since.as_secs_f64() * total.saturating_sub(part) as f64 / part as f64;
        words.push(format!("{left:.0} s left"));
    }
    format!("{name}: {}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_and_how_fast() {
        let done = |keys, bytes| Done { keys, bytes };
        let (second, four) = (Duration::from_secs(1), Duration::from_secs(4));
        let check = |work, now, before, total, expected: &str| {
            assert_eq!(line(work, now, before, total, second, four), expected);
        };
        let (half, quarter) = (done(500, 50_000_000), done(250, 25_000_000));
        check(
            Work::Load,
            half,
            quarter,
            100_000_000,
            "Loading: 50.0 % of 100.0 MB, 500 keys, 250 keys/s, 25.0 MB/s, 4 s left",
        );
        check(
            Work::Save,
            half,
            quarter,
            2000,
            "Saving: 25.0 % of 2000 keys, 250 keys/s, 25.0 MB/s, 12 s left",
        );
        // An append-only file, a primary that does not say how much comes, and what has just begun.
        check(
            Work::Load,
            done(0, 1_000_000),
            done(0, 0),
            4_000_000,
            "Loading: 25.0 % of 4.0 MB, 1.0 MB/s, 12 s left",
        );
        check(Work::Load, half, half, 0, "Loading: 50.0 MB, 500 keys, 0 keys/s, 0.0 MB/s");
        check(
            Work::Rewrite,
            done(0, 0),
            done(0, 0),
            10,
            "Rewriting the append-only file: 0.0 % of 10 keys, 0.0 MB/s",
        );
    }
}
