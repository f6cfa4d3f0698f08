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

use isotherm_config::Defrag;
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
        let percent = share_percent(node);
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

/// The share that compaction may take now.
pub fn share_percent(node: &Node) -> u32 {
    let always = node.config.compaction_cpu_percent();
    let Some(defrag) = node.config.defrag() else { return always };
    let stats = node.keyspace.arenas().iter().map(|arena| arena.stats());
    let (live, free) = stats.fold((0, 0), |(live, free), stats| {
        (live + stats.live_bytes, free + stats.partial_free_bytes + stats.tail_bytes)
    });
    always.max(percent_of(&defrag, live, free))
}

/// Returns the share of a CPU that Valkey would spend; 0 below its thresholds.
fn percent_of(defrag: &Defrag, live: u64, free: u64) -> u32 {
    let fragmented = free as f64 * 100.0 / live.max(1) as f64;
    if fragmented < f64::from(defrag.threshold_lower) || free < defrag.ignore_bytes {
        return 0;
    }
    let (low, high) = (f64::from(defrag.cycle_min), f64::from(defrag.cycle_max));
    // Thresholds in the wrong order are a step.
    let width = f64::from(defrag.threshold_upper) - f64::from(defrag.threshold_lower);
    let part = if width > 0.0 { (fragmented - f64::from(defrag.threshold_lower)) / width } else { 1.0 };
    (low + part * (high - low)).clamp(low.min(high), low.max(high)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_is_valkeys() {
        let defrag = Defrag {
            cycle_min: 1,
            cycle_max: 25,
            threshold_lower: 10,
            threshold_upper: 100,
            ignore_bytes: 100 << 20,
        };
        let check = |live_mb: u64, free_mb: u64, expected: u32| {
            assert_eq!(percent_of(&defrag, live_mb << 20, free_mb << 20), expected, "{free_mb} of {live_mb}");
        };
        check(1000, 99, 0);
        check(100, 99, 0);
        check(1000, 100, 1);
        check(1000, 550, 13);
        check(1000, 1000, 25);
        check(1000, 9000, 25);
        check(0, 0, 0);
        let step = Defrag { threshold_upper: 10, ..defrag };
        assert_eq!(percent_of(&step, 1000 << 20, 100 << 20), 25);
        let backwards = Defrag { cycle_min: 50, cycle_max: 20, ..defrag };
        assert_eq!(percent_of(&backwards, 1000 << 20, 1000 << 20), 20);
    }

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
