//! Compaction, by the control thread: how much of a CPU it may take, and what it has done.
//!
//! ```text
//!   share of a CPU
//!   cycle-max |              .------   `activedefrag yes`: a ramp over what is free inside slabs, in percent of
//!             |            .'          what lives in them; it can only raise the share
//!             |          .'
//!   ----------|--------.'-----------   `compaction-cpu-percent`: always, as soon as a slab less would do
//!   cycle-min |     |.'
//!             +-----|---------|-----   free inside slabs
//!                 lower     upper
//! ```
//! The work - moving objects, and giving back what is free then - goes in turns of `active-defrag-cycle-us`;
//! a turn that took W is followed by a rest of `W (100 - p) / p`. There is no list of what is to be done: the
//! arena names the next objects that are worth moving, or none, and then compaction rests until the next
//! round of the housekeeping.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use isotherm_node::Node;
use isotherm_node::observe::holds;
use isotherm_node::observe::holds::Work;
use isotherm_node::observe::latency::monitor::Event;

/// Objects that are moved in one step; each has a lock of its own.
const MOVED_PER_STEP_MAX: usize = 64;

/// Free slabs that are kept in addition to those for a sixty-fourth of the live bytes.
const KEPT_CHUNKS_MIN: usize = 4;
const CHUNK_BYTES: u64 = 16 << 10;

#[derive(Default)]
pub struct Compaction {
    run: Option<Run>,
}

struct Run {
    /// Up to here it is counted.
    counted_at: Instant,
    /// The next turn.
    due: Instant,
}

impl Compaction {
    /// Returns whether there is more to do.
    pub fn is_running(&self) -> bool {
        self.run.is_some()
    }

    /// Works if it is time to. The moment of the next turn, or `None`: nothing is to be gained now.
    pub fn turn(&mut self, node: &Node) -> Option<Instant> {
        let begun = Instant::now();
        if let Some(run) = self.run.as_ref().filter(|run| begun < run.due) {
            return Some(run.due);
        }
        let more = work(node, begun + node.config.compaction_turn());
        let (done, counters) = (Instant::now(), &node.control_stats().values);
        counters.compaction_us.add((done - begun).as_micros() as u64);
        node.note_latency(Event::ActiveDefragCycle, done - begun);
        let counted_at = self.run.as_ref().map_or(begun, |run| run.counted_at);
        counters.compaction_run_us.add((done - counted_at).as_micros() as u64);
        let progress = &node.memory.compaction;
        if !more {
            self.run = None;
            progress.percent.store(0, Ordering::Relaxed);
            progress.run_us.store(0, Ordering::Relaxed);
            return None;
        }
        let percent = node.compaction_share_percent();
        progress.percent.store(percent, Ordering::Relaxed);
        progress.run_us.fetch_add((done - counted_at).as_micros() as u64, Ordering::Relaxed);
        let due = done + rest(done - begun, percent);
        self.run = Some(Run { counted_at: done, due });
        Some(due)
    }
}

/// Moves objects and gives back what that frees, until the deadline. Whether there is more to do.
fn work(node: &Node, deadline: Instant) -> bool {
    let _working = holds::working(Work::Compaction);
    let counters = &node.control_stats().values;
    for arena in 0..node.keyspace.arenas().len() {
        loop {
            let step = node.keyspace.compact_step(arena, MOVED_PER_STEP_MAX);
            counters.compaction_moved.add(step.moved);
            counters.compaction_stayed.add(step.stayed);
            counters.compaction_keys.add(step.keys);
            let given = trim(node, arena);
            // Whose partition is busy is met again in the next round.
            if step.moved == 0 && given == 0 {
                break;
            }
            if Instant::now() >= deadline {
                return true;
            }
        }
    }
    false
}

/// Gives free slabs beyond a reserve back to the system, some at a time. The bytes.
fn trim(node: &Node, arena: usize) -> usize {
    let arena = &node.keyspace.arenas()[arena];
    arena.trim((arena.live_bytes() / 64 / CHUNK_BYTES) as usize + KEPT_CHUNKS_MIN)
}

/// Returns the rest after which work is `percent` of work and rest.
fn rest(work: Duration, percent: u32) -> Duration {
    work * (100 - percent) / percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_its_share_of_time() {
        let check = |work_us: u64, percent: u32, expected_us: u64| {
            assert_eq!(rest(Duration::from_micros(work_us), percent), Duration::from_micros(expected_us));
        };
        check(500, 10, 4500);
        check(500, 50, 500);
        check(990, 99, 10);
        check(10, 1, 990);
    }
}
