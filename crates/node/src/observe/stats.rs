//! Counters. Each worker has its own, written by no other thread, so counting is a load and a store; a reader
//! (INFO) adds them up. CONFIG RESETSTAT cannot clear another thread's counters without losing counts, so it
//! remembers what they were, and readers subtract that.

use isotherm_cluster::SlotSet;
use isotherm_keyspace::TxnCounts;
use isotherm_stdx::Slot;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::observe::counter::Counter;
use crate::observe::error_counts::ErrorCounts;
use crate::observe::hold_table::{HoldTable, Holds};
use crate::observe::hot_keys::HotKeys;
use crate::observe::latency::{Histogram, Recorder};
use crate::observe::slot_stats::{SlotTable, SlotUse};

/// Counters of one command.
#[derive(Default)]
pub struct CommandCounters {
    pub calls: Counter,
    pub ticks: Counter,
    pub rejected: Counter,
    pub failed: Counter,
    pub latency: Recorder,
}

/// The counts of the same, added up; time in microseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CommandTotals {
    pub calls: u64,
    pub ticks: u64,
    /// Time of `ticks` in microseconds; set once all ticks are added up.
    pub usec: u64,
    pub rejected: u64,
    pub failed: u64,
}

/// The most that one turn of an event loop has been since the start, and the one under way.
#[derive(Default)]
pub struct CycleCounters {
    /// Begin of the turn under way, in ticks; 0 while events are waited for.
    pub began: Counter,
    pub ticks_max: Counter,
    pub commands_max: Counter,
    /// Bytes read and written, what small requests bring apart.
    pub bytes_max: Counter,
}

const MOVED: &[u8] = b"MOVED";

/// The counters of one thread: the workers come first, then the control thread, then the link to a primary.
pub struct ThreadStats {
    /// Counters by `Entry::index`.
    pub commands: Box<[CommandCounters]>,
    pub values: Values<Counter>,
    pub cycles: CycleCounters,
    pub slots: SlotTable,
    pub hot_keys: HotKeys,
    pub holds: HoldTable,
    /// Shared by all threads.
    errors: Arc<ErrorCounts>,
    /// Errors that may be the answer to each request: not among the others.
    moved: Counter,
}

/// Values that each thread counts; `T` is a counter or a sum.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Values<T> {
    pub commands_processed: T,
    pub connections_received: T,
    pub connections_rejected: T,
    pub net_input_bytes: T,
    pub net_output_bytes: T,
    pub keyspace_hits: T,
    pub keyspace_misses: T,
    pub expired_keys: T,
    pub expired_fields: T,
    pub evicted_keys: T,
    pub evicted_clients: T,
    pub error_replies: T,
    pub dirty: T,
    pub reads_processed: T,
    pub writes_processed: T,
    pub query_buffer_limit_disconnections: T,
    pub output_buffer_limit_disconnections: T,
    /// Turns of event loops, and how long they took without the waiting.
    pub eventloop_cycles: T,
    pub eventloop_ticks: T,
    /// Rounds of the housekeeping in which expiry ran out of time; below, the time that its kinds of work
    /// took.
    pub expire_time_caps: T,
    pub expire_cycle_us: T,
    pub compaction_us: T,
    pub collapse_us: T,
    /// Time with something to move, including the rests.
    pub compaction_run_us: T,
    pub compaction_moved: T,
    pub compaction_stayed: T,
    pub compaction_keys: T,
    /// Time with more memory used than the limit allows.
    pub eviction_exceeded_ms: T,
}

/// Everything, added up.
#[derive(Clone, Default, Debug)]
pub struct Totals {
    pub commands: Vec<CommandTotals>,
    pub values: Values<u64>,
    pub errors: BTreeMap<Box<[u8]>, u64>,
    /// Histograms by command, in a baseline only (`Stats::latency` adds up those that are asked for).
    latency: BTreeMap<u16, Histogram>,
}

pub struct Stats {
    threads: Box<[ThreadStats]>,
    errors: Arc<ErrorCounts>,
    baseline: Mutex<Totals>,
    /// Counters of the slots at their last reset; empty until then.
    slots_baseline: Mutex<Vec<SlotUse>>,
    /// Moment of HOTKEYS RESET, as a `SteadyMs`; 0 for never.
    pub hot_keys_reset_ms: AtomicI64,
    rates: Mutex<Rates>,
    pub holds: Holds,
    clock: quanta::Clock,
}

impl Stats {
    pub fn new(threads: usize, commands: usize) -> Stats {
        let errors = Arc::<ErrorCounts>::default();
        let thread = |_| ThreadStats {
            commands: (0..commands).map(|_| CommandCounters::default()).collect(),
            values: Values::default(),
            cycles: CycleCounters::default(),
            slots: SlotTable::default(),
            hot_keys: HotKeys::default(),
            holds: HoldTable::new(commands),
            errors: Arc::clone(&errors),
            moved: Counter::default(),
        };
        Stats {
            threads: (0..threads).map(thread).collect(),
            errors,
            baseline: Mutex::default(),
            slots_baseline: Mutex::default(),
            hot_keys_reset_ms: AtomicI64::new(0),
            rates: Mutex::default(),
            holds: Holds::default(),
            clock: quanta::Clock::new(),
        }
    }

    pub fn thread(&self, number: usize) -> &ThreadStats {
        &self.threads[number]
    }

    /// Returns the counts since the start or the last reset.
    pub fn totals(&self) -> Totals {
        let mut totals = self.raw_totals();
        totals.subtract(&self.baseline.lock().unwrap_or_else(PoisonError::into_inner));
        totals.commands.iter_mut().for_each(|command| command.usec = self.micros(command.ticks));
        totals
    }

    /// Histograms, which come with the first command that needs them.
    pub fn memory_bytes(&self) -> usize {
        let commands = self.threads.iter().flat_map(|thread| thread.commands.iter());
        let latencies: usize = commands.map(|command| command.latency.memory_bytes()).sum();
        let of_keys = |thread: &ThreadStats| {
            thread.slots.memory_bytes() + thread.hot_keys.memory_bytes() + thread.holds.memory_bytes()
        };
        let baseline = self.slots_baseline.lock().unwrap_or_else(PoisonError::into_inner);
        let baseline_bytes = baseline.capacity() * size_of::<SlotUse>();
        latencies + self.threads.iter().map(of_keys).sum::<usize>() + baseline_bytes
    }

    /// The times of a command, since the start or the last reset.
    pub fn latency(&self, command: u16) -> Histogram {
        let mut sum = self.raw_latency(usize::from(command));
        let baseline = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = baseline.latency.get(&command) {
            sum.subtract(before);
        }
        sum
    }

    fn raw_latency(&self, command: usize) -> Histogram {
        let mut sum = Histogram::default();
        let nanos = |ticks| self.clock.delta_as_nanos(0, ticks);
        self.threads.iter().for_each(|thread| thread.commands[command].latency.add_to(&mut sum, nanos));
        sum
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        self.errors.clear();
        let mut totals = self.raw_totals();
        // The others have just begun anew.
        totals.errors.retain(|word, _| **word == *MOVED);
        let measured = (0..totals.commands.len()).map(|command| (command as u16, self.raw_latency(command)));
        totals.latency = measured.filter(|(_, times)| times.calls() > 0).collect();
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = totals;
        *self.rates.lock().unwrap_or_else(PoisonError::into_inner) = Rates::default();
        self.reset_holds();
        if self.threads.iter().any(|thread| thread.slots.memory_bytes() > 0) {
            *self.slots_baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.raw_slots();
        }
    }

    /// Returns the cost of the commands of each slot, since the start or the last reset.
    pub fn slots(&self) -> Vec<SlotUse> {
        let mut sums = self.raw_slots();
        let baseline = self.slots_baseline.lock().unwrap_or_else(PoisonError::into_inner);
        sums.iter_mut().zip(baseline.iter()).for_each(|(sum, before)| *sum = sum.since(before));
        sums
    }

    /// Slots have changed hands: what their commands have cost begins anew.
    pub fn reset_slots(&self, slots: &SlotSet) {
        if self.threads.iter().all(|thread| thread.slots.memory_bytes() == 0) {
            return;
        }
        let sums = self.raw_slots();
        let mut baseline = self.slots_baseline.lock().unwrap_or_else(PoisonError::into_inner);
        baseline.resize(Slot::COUNT, SlotUse::default());
        Slot::all().filter(|slot| slots.has(*slot)).for_each(|slot| {
            baseline[slot.index()] = sums[slot.index()];
        });
    }

    fn raw_slots(&self) -> Vec<SlotUse> {
        let mut sums = vec![SlotUse::default(); Slot::COUNT];
        self.threads.iter().for_each(|thread| thread.slots.add_to(&mut sums));
        sums
    }

    /// Now, in ticks.
    pub fn now_ticks(&self) -> u64 {
        self.clock.raw()
    }

    /// Returns whether a worker has not looked at its sockets for `least`.
    pub fn is_busy_for(&self, worker: usize, least: Duration) -> bool {
        let began = self.threads[worker].cycles.began.get();
        began != 0 && u128::from(self.clock.delta_as_nanos(began, self.clock.raw())) >= least.as_nanos()
    }

    /// Microseconds of ticks.
    pub fn micros(&self, ticks: u64) -> u64 {
        self.clock.delta_as_nanos(0, ticks) / 1000
    }

    /// Changes of the data since the start; nothing resets this count.
    pub fn changes(&self) -> u64 {
        self.threads.iter().map(|thread| thread.values.dirty.get()).sum()
    }

    /// The threads one by one: workers, the control thread, the link to a primary.
    pub fn threads(&self) -> &[ThreadStats] {
        &self.threads
    }

    /// Returns the recent rates per second.
    pub fn rates(&self) -> PerSecond {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).mean()
    }

    /// Ten times a second: what has happened since the last time.
    pub fn sample_rates(&self, interval: Duration) {
        let calls =
            |thread: &ThreadStats| thread.commands.iter().map(|command| command.calls.get()).sum::<u64>();
        let sum = |of: &dyn Fn(&ThreadStats) -> u64| self.threads.iter().map(of).sum();
        let now = PerSecond {
            commands: sum(&calls),
            input_bytes: sum(&|thread| thread.values.net_input_bytes.get()),
            output_bytes: sum(&|thread| thread.values.net_output_bytes.get()),
            cycles: sum(&|thread| thread.values.eventloop_cycles.get()),
            busy_us: self.micros(sum(&|thread| thread.values.eventloop_ticks.get())),
        };
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).add(now, interval);
    }

    fn raw_totals(&self) -> Totals {
        let mut totals = Totals { errors: self.errors.all(), ..Totals::default() };
        totals.commands.resize(self.threads[0].commands.len(), CommandTotals::default());
        for thread in &self.threads {
            for (total, counters) in totals.commands.iter_mut().zip(&thread.commands) {
                total.calls += counters.calls.get();
                total.ticks += counters.ticks.get();
                total.rejected += counters.rejected.get();
                total.failed += counters.failed.get();
            }
            totals.values.add(&thread.values);
            let moved = thread.moved.get();
            if moved > 0 {
                *totals.errors.entry(MOVED.into()).or_default() += moved;
            }
        }
        totals
    }
}

/// Sums, or what they grow by in a second.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PerSecond {
    pub commands: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Turns of event loops, and what they took.
    pub cycles: u64,
    pub busy_us: u64,
}

/// Number of samples whose mean Valkey shows.
const RATE_SAMPLES: usize = 16;

#[derive(Default)]
struct Rates {
    last: Option<PerSecond>,
    samples: [PerSecond; RATE_SAMPLES],
    next: usize,
}

impl Rates {
    fn add(&mut self, now: PerSecond, interval: Duration) {
        let rate = |now: u64, last: u64| ((now - last) as f64 / interval.as_secs_f64().max(1e-3)) as u64;
        if let Some(last) = self.last.replace(now) {
            self.samples[self.next] = PerSecond {
                commands: rate(now.commands, last.commands),
                input_bytes: rate(now.input_bytes, last.input_bytes),
                output_bytes: rate(now.output_bytes, last.output_bytes),
                cycles: rate(now.cycles, last.cycles),
                busy_us: rate(now.busy_us, last.busy_us),
            };
            self.next = (self.next + 1) % RATE_SAMPLES;
        }
    }

    fn mean(&self) -> PerSecond {
        let mean = |of: fn(&PerSecond) -> u64| self.samples.iter().map(of).sum::<u64>() / RATE_SAMPLES as u64;
        PerSecond {
            commands: mean(|sample| sample.commands),
            input_bytes: mean(|sample| sample.input_bytes),
            output_bytes: mean(|sample| sample.output_bytes),
            cycles: mean(|sample| sample.cycles),
            busy_us: mean(|sample| sample.busy_us),
        }
    }
}

impl ThreadStats {
    /// Counts the keys that one transaction of the keyspace has met. Most counts are zero and cost only a
    /// test.
    #[inline]
    pub fn count_txn(&self, counts: TxnCounts) {
        let values = &self.values;
        for (counter, n) in [
            (&values.keyspace_hits, counts.hits),
            (&values.keyspace_misses, counts.misses),
            (&values.expired_keys, counts.expired),
            (&values.expired_fields, counts.expired_fields),
            (&values.dirty, counts.dirty),
        ] {
            if n > 0 {
                counter.add(n);
            }
        }
    }

    /// Counts the expired keys and fields of a command that runs again: they have left nevertheless.
    pub fn count_expired(&self, counts: TxnCounts) {
        let TxnCounts { expired, expired_fields, .. } = counts;
        self.count_txn(TxnCounts { expired, expired_fields, ..TxnCounts::default() });
    }

    /// An error reply, by its first word.
    pub fn count_error(&self, code: &[u8]) {
        self.values.error_replies.add(1);
        if code == MOVED {
            return self.moved.add(1);
        }
        self.errors.add(code);
    }
}

impl Totals {
    fn subtract(&mut self, baseline: &Totals) {
        for (total, before) in self.commands.iter_mut().zip(&baseline.commands) {
            total.calls -= before.calls;
            total.ticks -= before.ticks;
            total.rejected -= before.rejected;
            total.failed -= before.failed;
        }
        self.values.subtract(&baseline.values);
        for (code, count) in &mut self.errors {
            *count -= baseline.errors.get(code).copied().unwrap_or_default();
        }
        self.errors.retain(|_, count| *count > 0);
    }
}

macro_rules! each_value {
    ($($name:ident),* $(,)?) => {
        impl Values<u64> {
            fn add(&mut self, counters: &Values<Counter>) {
                $(self.$name += counters.$name.get();)*
            }
            fn subtract(&mut self, baseline: &Values<u64>) {
                $(self.$name -= baseline.$name;)*
            }
        }
    };
}

each_value!(
    commands_processed,
    connections_received,
    connections_rejected,
    net_input_bytes,
    net_output_bytes,
    keyspace_hits,
    keyspace_misses,
    expired_keys,
    expired_fields,
    evicted_keys,
    evicted_clients,
    error_replies,
    dirty,
    reads_processed,
    writes_processed,
    query_buffer_limit_disconnections,
    output_buffer_limit_disconnections,
    eventloop_cycles,
    eventloop_ticks,
    expire_time_caps,
    expire_cycle_us,
    compaction_us,
    collapse_us,
    compaction_run_us,
    compaction_moved,
    compaction_stayed,
    compaction_keys,
    eviction_exceeded_ms,
);
