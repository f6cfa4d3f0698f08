//! Periodic work of the control thread, a little at a time.
//!
//! | work      | how often                  | how much                                                                |
//! |-----------|----------------------------|-------------------------------------------------------------------------|
//! | expiry    | every tick                 | a quarter of the thread's time; due pages only, found by their bounds    |
//! | eviction  | every tick, above the limit| as long as one command would                                            |
//! | save points| every tick                | begins a save in the background                                          |
//! | lazy free | every tick                 | a tenth of the time: what removed collections had                        |
//! | compaction| between ticks              | its share of the time, some objects at a time (see `compaction`)          |
//! | huge pages| every tick                 | some ranges of 2 MB that are full; seldom while slabs are emptied         |
//! | giving back| at most once a second    | what the allocator holds of freed values, where it does not see to it itself|
//! | ageing    | a hand that goes round     | some slots at a time                                                     |
//! | holds     | once a second              | the longest that locks were held, by whom (see `holds`)                   |
//! | TLS       | once a second              | whether certificates are to be looked at, with `tls-auto-reload-interval`  |
//! | rates     | ten times a second         | what INFO calls instantaneous; what slabs hold in excess (see `memory`)   |
//!
//! A partition is locked for some tens of microseconds at a time, so that a command that waits for the lock
//! hardly notices. The thread does not wait for a command that holds a partition for long: it skips that
//! partition, and the others get the work that is due.

use isotherm_keyspace::{AccessMode, AgeHand, Held, LRU_ROUND_SECONDS, Slot, Survey};
use isotherm_stdx::Prng;
use std::time::{Duration, Instant};

use crate::observe::memory_map;
use crate::upkeep::compaction::Compaction;
use isotherm_allocator as allocator;
use isotherm_durability::aof;
use isotherm_durability::persistence::background as persistence;
use isotherm_durability::persistence::watch::Watch;
use isotherm_engine::request::eviction;
use isotherm_engine::request::eviction::{FREED_PER_STEP_MAX, Room};
use isotherm_engine::request::own_expiry;
use isotherm_node::Node;
use isotherm_node::effects::events::Events;
use isotherm_node::effects::pump::Pump;
use isotherm_node::mail::message::WorkerMessage;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::holds;
use isotherm_node::observe::holds::Work;
use isotherm_node::observe::latency::monitor::Event;
use isotherm_node::session::client_memory;
use isotherm_runtime::time::unix_now;

/// Entries, pages and hashes that the expiry cycle looks at under one lock: some 50 us.
const EXPIRY_STEPS_MAX: u64 = 250;
/// Slots that age under one lock, and pages of them: some 50 us. One slot may hold all keys.
const AGED_SLOTS_MAX: usize = 4;
const AGED_PAGES_MAX: u64 = 500;
/// Steps of ageing in one tick: 50,000 pages, some 0.85 M keys, in 5 ms. The rest is for the next tick.
const AGE_STEPS_MAX: usize = 100;
/// While slabs are emptied, full ranges are not sought in every round but once in `ROUNDS_PER_COLLAPSE`: most
/// would be given back again, and copying 2 MB takes as long as moving thousands of objects.
const ROUNDS_PER_COLLAPSE: u32 = 16;
/// An allocator that does not give back freed memory is asked to when at least these bytes were freed, and a
/// sixteenth of what there was.
const FREED_BYTES_MIN: u64 = 16 << 20;
const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two samples of the rates.
const RATE_INTERVAL: Duration = Duration::from_millis(100);
/// Time that one kind of work waits in a round for commands that have partitions. Most have one for some
/// microseconds.
const PATIENCE: Duration = Duration::from_millis(5);
/// Time between two attempts.
const PATIENCE_STEP: Duration = Duration::from_micros(50);

/// Workers take their buffers within some milliseconds.
const SETTLING: Duration = Duration::from_millis(100);

pub struct Cron {
    node: &'static Node,
    pump: Pump,
    prng: Prng,
    /// The partition where the expiry cycle continues.
    expire_at: u16,
    hand: AgeHand,
    /// Slots that should have aged since the start; the fraction is what is not due yet.
    age_due: f64,
    aged_at: Instant,
    sampled_at: Instant,
    holds_sampled_at: Instant,
    compaction: Compaction,
    /// Time of the next round of all work but compaction.
    round_due: Instant,
    rounds: u32,
    /// The most that the allocator had given out since it last gave back, and when that was.
    malloc_high_bytes: u64,
    given_back_at: Instant,
    /// Memory is above its limit, and was counted so up to here.
    exceeded_at: Option<Instant>,
    /// Time at which all threads of the process will have started.
    settled_at: Option<Instant>,
    watch: Watch,
    /// Work that is due waits for the end of scripts.
    awaits_scripts: bool,
}

/// Waits a little for a command that has a partition; false if that was done for long enough.
fn rests() -> impl Fn() -> bool {
    let until = Instant::now() + PATIENCE;
    move || {
        let is_early = Instant::now() < until;
        if is_early {
            std::thread::sleep(PATIENCE_STEP);
        }
        is_early
    }
}

impl Cron {
    pub fn new(node: &'static Node) -> Cron {
        let now = Instant::now();
        Cron {
            node,
            pump: Pump::new(node, None),
            prng: Prng::new(node.process.seed),
            expire_at: 0,
            hand: AgeHand::default(),
            age_due: 0.0,
            aged_at: now,
            sampled_at: now,
            holds_sampled_at: now,
            compaction: Compaction::default(),
            round_due: now,
            rounds: 0,
            malloc_high_bytes: 0,
            given_back_at: now,
            exceeded_at: None,
            settled_at: Some(now + SETTLING),
            watch: Watch::default(),
            awaits_scripts: false,
        }
    }

    /// Does what is due. Returns when the next tick should be.
    pub fn tick(&mut self) -> Duration {
        let period = Duration::from_secs(1) / self.node.config.hz().max(1);
        if self.node.debug.cron_paused.is_on() {
            return period;
        }
        if Instant::now() >= self.round_due {
            let rest = self.round(period);
            self.round_due = Instant::now() + rest;
        }
        let due = match self.compaction.turn(self.node) {
            Some(turn) => turn.min(self.round_due),
            None => self.round_due,
        };
        due.saturating_duration_since(Instant::now())
    }

    /// No script begins while something waits for the end of scripts: here, or in the rest of the thread.
    pub fn ask_for_gate(&self, is_wanted_too: bool) {
        self.node.keyspace.ask_for_gate(self.awaits_scripts || is_wanted_too);
    }

    /// Everything but compaction. Returns when the next round should be: sooner if something was left undone.
    fn round(&mut self, period: Duration) -> Duration {
        self.pump.listen(Events::chosen(&self.node.config));
        self.node.pause.end_if_over(&self.node.mail, unix_now());
        self.node.memory.note(self.node.used_memory_bytes());
        if self.node.config.take_awaited() {
            self.node.mail.post_all(None, || WorkerMessage::ScriptsChanged);
        }
        if self.sampled_at.elapsed() >= RATE_INTERVAL {
            self.node.stats.sample_rates(self.sampled_at.elapsed());
            self.node.memory.note_excess(&self.node.keyspace, &self.node.config);
            self.sampled_at = Instant::now();
        }
        if self.holds_sampled_at.elapsed() >= holds::SAMPLE_INTERVAL {
            self.node.stats.sample_holds();
            self.node.tls.tick(&self.node.config);
            self.holds_sampled_at = Instant::now();
        }
        let woken = self.node.stats.now_ticks();
        self.note_process();
        self.note_memory();
        // Data that is being loaded is left alone too.
        let paused = self.node.mail.tasks().has(Tasks::PAUSES.or(Tasks::LOADING));
        let follows = self.node.mail.tasks().has(Tasks::REPLICA);
        let begun = Instant::now();
        let mut undone = false;
        if self.node.expires_keys() {
            let out_of_time = self.expire(begun + period * self.expire_percent() / 100);
            undone |= out_of_time;
            let values = &self.node.control_stats().values;
            values.expire_time_caps.add(u64::from(out_of_time));
            values.expire_cycle_us.add(begun.elapsed().as_micros() as u64);
            self.node.note_latency(Event::ExpireCycle, begun.elapsed());
        }
        if !paused && follows && !self.node.debug.no_active_expire.is_on() {
            let expired = own_expiry::expire(self.node, &mut self.pump, unix_now());
            self.node.control_stats().values.expired_keys.add(expired);
        }
        client_memory::evict_clients(self.node, self.node.control_stats());
        if !paused {
            let stats = self.node.control_stats();
            undone |= eviction::make_room(self.node, &mut self.prng, &mut self.pump, stats) == Room::Soon;
        }
        self.watch.tick(self.node.store(), self.node.used_memory_bytes());
        let mut awaits_scripts = false;
        if !paused {
            awaits_scripts = persistence::tick(self.node.store(), self.node.used_memory_bytes());
            awaits_scripts |= aof::rewrite::tick(self.node);
        }
        self.awaits_scripts = awaits_scripts;
        undone |= self.free_removed(Instant::now() + period / 10);
        let collapse = Instant::now();
        self.collapse(collapse + period / 10);
        self.node.control_stats().values.collapse_us.add(collapse.elapsed().as_micros() as u64);
        self.give_back();
        self.node.trackers.forget_some(&self.node.mail, &self.node.config);
        self.node.trackers.forget_gone(&|id| self.node.clients.has(id));
        self.pump.flush();
        self.age();
        let values = &self.node.control_stats().values;
        values.eventloop_cycles.add(1);
        values.eventloop_ticks.add(self.node.stats.now_ticks().saturating_sub(woken));
        // Undone work continues after a rest three times as long as the work that was done.
        if undone { period.min(begun.elapsed() * 3).max(Duration::from_millis(1)) } else { period }
    }

    /// Once, a moment after the start: what the process itself takes.
    fn note_process(&mut self) {
        if self.settled_at.take_if(|at| *at <= Instant::now()).is_none() {
            return;
        }
        let mut held = Held::new(&self.node.keyspace);
        held.acquire_beside_leases();
        let from = self.node.stats.now_ticks();
        memory_map::note_process(self.node, &mut Survey::new(&mut held));
        holds::note_gate(from);
    }

    /// Since when more memory is used than there should be.
    fn note_memory(&mut self) {
        let limit = self.node.config.maxmemory_bytes();
        if limit == 0 || self.node.counted_memory_bytes() <= limit {
            self.exceeded_at = None;
            return;
        }
        let since = *self.exceeded_at.get_or_insert_with(Instant::now);
        self.node.control_stats().values.eviction_exceeded_ms.add(since.elapsed().as_millis() as u64);
        self.exceeded_at = Some(Instant::now());
    }

    fn expire_percent(&self) -> u32 {
        25 + 2 * (self.node.config.active_expire_effort() - 1)
    }

    /// Removes what is due. True if time was over before all of it had left. Each partition has its turn,
    /// whatever there is to do in the one before it.
    fn expire(&mut self, deadline: Instant) -> bool {
        let _working = holds::working(Work::Expiry);
        let rests = rests();
        let keyspace = &self.node.keyspace;
        let partitions = keyspace.partition_count() as u16;
        let values = &self.node.control_stats().values;
        let mut left = partitions;
        while left > 0 {
            let (now, sink) = (unix_now(), &mut self.pump);
            let step = keyspace.expire_or_pass(self.expire_at, &rests, now, EXPIRY_STEPS_MAX, sink);
            // A partition that a command has is due in the next round again.
            let step = step.unwrap_or_default();
            values.expired_keys.add(step.expired);
            values.expired_fields.add(step.fields);
            let is_over = Instant::now() >= deadline;
            if !step.more {
                left -= 1;
            }
            // Where time ends, the next tick begins with another partition, whether this one has more or not.
            if !step.more || is_over {
                self.expire_at = (self.expire_at + 1) % partitions;
            }
            if is_over {
                break;
            }
        }
        left > 0
    }

    /// Gives back what large collections that were removed had. True if time was over before.
    fn free_removed(&self, deadline: Instant) -> bool {
        let _working = holds::working(Work::LazyFree);
        let rests = rests();
        for partition in 0..self.node.keyspace.partition_count() as u16 {
            while self.node.keyspace.free_or_pass(partition, &rests, FREED_PER_STEP_MAX) == Some(true) {
                if Instant::now() >= deadline {
                    return true;
                }
            }
        }
        false
    }

    /// Puts memory that is full on huge pages.
    fn collapse(&mut self, deadline: Instant) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.compaction.is_running() && !self.rounds.is_multiple_of(ROUNDS_PER_COLLAPSE) {
            return;
        }
        for arena in self.node.keyspace.arenas() {
            arena.collapse();
            if Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Large values lie in the allocator, and not every one gives back what they had.
    fn give_back(&mut self) {
        if allocator::GIVES_BACK {
            return;
        }
        let now_bytes = allocator::allocated_bytes();
        self.malloc_high_bytes = self.malloc_high_bytes.max(now_bytes);
        let is_much = self.malloc_high_bytes - now_bytes >= FREED_BYTES_MIN.max(self.malloc_high_bytes / 16);
        if is_much && self.given_back_at.elapsed() >= GIVE_BACK_INTERVAL {
            allocator::purge();
            (self.malloc_high_bytes, self.given_back_at) = (now_bytes, Instant::now());
        }
    }

    /// Moves the hand as far as time has moved.
    fn age(&mut self) {
        let round_seconds = match self.node.keyspace.access() {
            AccessMode::Page | AccessMode::Lru => LRU_ROUND_SECONDS as f64,
            AccessMode::Lfu => match self.node.config.lfu_decay_minutes() {
                // Counters never fall.
                0 => f64::INFINITY,
                minutes => f64::from(minutes) * 60.0,
            },
        };
        let now = unix_now();
        self.age_due += self.aged_at.elapsed().as_secs_f64() / round_seconds * Slot::COUNT as f64;
        self.aged_at = Instant::now();
        // After a long rest (a suspended machine) one round is enough.
        self.age_due = self.age_due.min(Slot::COUNT as f64);
        let _working = holds::working(Work::Ageing);
        let rests = rests();
        for _ in 0..AGE_STEPS_MAX {
            if self.age_due < 1.0 {
                return;
            }
            let slots_max = AGED_SLOTS_MAX.min(self.age_due as usize);
            let most = (slots_max, AGED_PAGES_MAX);
            let step = self.node.keyspace.age_or_pass(&mut self.hand, &rests, most, now);
            // The hand waits at a partition that a command has, for the next round.
            let Some(step) = step else { return };
            self.age_due -= step.slots as f64;
        }
    }
}
