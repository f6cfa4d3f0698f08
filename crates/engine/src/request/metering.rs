//! Metering: how long commands took, how long they held locks, and in builds that count it how much they
//! looked at.

use isotherm_commands::Flags;
use isotherm_keyspace::{Db, HOLD_LOOKS_MAX, Held};
use isotherm_resp::Args;
use isotherm_stdx::{Prng, parse_i64, steps};
use std::time::Duration;

use crate::request::cached_config::Hot;
use crate::request::clock::CommandClock;
use crate::request::sample::Sampler;
use isotherm_node::Node;
use isotherm_node::observe::command_log::{Kind, Ran};
use isotherm_node::observe::holds;
use isotherm_node::observe::latency::Noted;
use isotherm_node::observe::latency::monitor::Event;
use isotherm_node::observe::slot_stats::SlotsMet;
use isotherm_node::observe::stats::ThreadStats;
use isotherm_node::request::entry::{Entry, Locks};
use isotherm_node::session::ClientShared;
use isotherm_runtime::time::unix_now;

/// Maximum of the bytes that precede and follow an argument on the wire: `$536870912\r\n` and `\r\n`.
const HEADER_BYTES_MAX: usize = 14;

/// The measurements of one worker.
pub struct Metering {
    node: &'static Node,
    stats: &'static ThreadStats,
    /// Number of the worker.
    thread: usize,
    noted_times: Noted,
    sampler: Sampler,
    /// Since when the command under way holds what it needs, if that was looked at; and the processor time
    /// then.
    hold_from: u64,
    hold_cpu_from: u64,
}

/// Part of a command that counts for its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it.
    Whole,
    /// All of it, and the ticks that it took before it waited.
    Waited(u64),
    /// The request: it is one of a transaction, whose time and reply count.
    Queued,
    /// No part of it: it is a command of a script.
    Called,
}

/// A command that has run.
#[derive(Clone, Copy)]
pub struct Timed<'t> {
    pub client: &'t ClientShared,
    pub db: Db,
    pub command: &'static Entry,
    pub args: Args<'t>,
    pub ticks: u64,
    pub reply_bytes: usize,
    pub part: Part,
}

impl Metering {
    pub fn new(node: &'static Node, stats: &'static ThreadStats, thread: usize) -> Metering {
        let (noted_times, sampler) = (Noted::default(), Sampler::default());
        Metering { node, stats, thread, noted_times, sampler, hold_from: 0, hold_cpu_from: 0 }
    }

    /// The configuration has changed.
    pub fn restart(&mut self) {
        self.sampler.restart();
    }

    /// A script is over, whose commands have met these slots; it is counted next.
    pub fn note_slots_met(&mut self, met: SlotsMet) {
        self.sampler.note_slots_met(met);
    }

    // ---- holds ----

    /// A command has what it needs.
    pub fn begin_hold(&mut self, clock: &CommandClock) {
        self.hold_from = clock.raw();
        self.hold_cpu_from = holds::cpu_ns();
    }

    /// Notes that the work before the locks of the command under way took its time: the hold begins now.
    pub fn note_delay(&mut self, clock: &CommandClock) {
        self.hold_from = clock.raw();
    }

    pub fn thread(&self) -> usize {
        self.thread
    }

    pub fn hold_from(&self) -> u64 {
        self.hold_from
    }

    /// A hold is over, or what comes next in it is another command's.
    pub fn note_hold(&self, held: &Held<'_>, hot: &Hot, command: &'static Entry, from: u64, to: u64) {
        if !held.holds_any() {
            return;
        }
        let ticks = to.saturating_sub(from);
        let several = self.node.keyspace.partition_count() > 1;
        let is_gate = held.holds_all() && (several || command.locks == Locks::All);
        if command.is_measured || ticks >= hot.long_hold_ticks {
            self.node.hold_sinks().note(self.thread, command.index, is_gate, ticks);
        }
        if cfg!(debug_assertions) {
            let ns = holds::cpu_ns().saturating_sub(self.hold_cpu_from);
            self.node.hold_sinks().note_cpu(self.thread, command.index, is_gate, ns);
        }
    }

    // ---- commands ----

    /// Counts how long a command took, and notes it where it is worth a note.
    #[inline(always)]
    pub fn count_time(&mut self, clock: &CommandClock, hot: &Hot, prng: &mut Prng, timed: &Timed<'_>) {
        let &Timed { command, args, ticks, reply_bytes, .. } = timed;
        self.count_ticks(command, ticks);
        if hot.tracks_latency && self.noted_times.add(command.index, ticks) {
            self.record_times();
        }
        if self.sampler.is_due() {
            self.sampler.look_closer(self.node, self.stats, hot, prng, timed);
        }
        let notable = hot.notable;
        // Rather too much than too little: what a queued request needs on the wire is not kept.
        let request_bytes_max = args.end() + HEADER_BYTES_MAX * args.len();
        if ticks >= notable.ticks
            || reply_bytes >= notable.reply_bytes
            || request_bytes_max >= notable.request_bytes
        {
            self.note_command(clock, timed);
        }
    }

    /// Counts ticks of a command that is not over. A command is measured by how long it takes when its key
    /// exists.
    #[inline]
    pub fn count_ticks(&self, command: &Entry, ticks: u64) {
        self.stats.commands[usize::from(command.index)].ticks.add(ticks);
    }

    /// A batch is over.
    #[inline]
    pub fn settle(&mut self) {
        if !self.noted_times.is_empty() {
            self.record_times();
        }
    }

    #[inline(never)]
    pub fn record_times(&mut self) {
        let commands = &self.stats.commands;
        self.noted_times
            .take()
            .for_each(|(command, ticks)| commands[usize::from(command)].latency.record(ticks));
    }

    #[cold]
    fn note_command(&self, clock: &CommandClock, timed: &Timed<'_>) {
        let Timed { client, command, args, ticks, reply_bytes, .. } = *timed;
        let node = self.node;
        let taken = Duration::from_nanos(clock.nanos(ticks));
        let is_fast = command.spec.flags.has(Flags::FAST);
        node.note_latency(if is_fast { Event::FastCommand } else { Event::Command }, taken);
        if command.spec.flags.has(Flags::SKIP_SLOWLOG) {
            return;
        }
        let name = client.names().name.clone();
        let unix_seconds = unix_now().0.div_euclid(1000);
        let ran = Ran { command, args, addr: &client.addr, name: &name, unix_seconds };
        let note = |kind, value| node.command_log.note(&node.config, kind, value, &ran);
        note(Kind::Slow, taken.as_micros() as u64);
        note(Kind::LargeRequest, args.wire_bytes() as u64);
        note(Kind::LargeReply, reply_bytes as u64);
    }

    /// Notes the steps since `looked_before` as the client's own work and not as that of the hold, in builds
    /// that count them. A command whose documentation says that its time does not grow with the data has
    /// steps that do not grow either, apart from the names that its session has given before (`named`):
    /// UNWATCH forgets all of those.
    #[inline(always)]
    pub fn note_own_work(
        &self,
        held: &mut Held<'_>,
        command: &Entry,
        args: Args<'_>,
        looked_before: u64,
        named: usize,
    ) {
        /// A small collection is looked through; the watchers and waiters of a key are clients.
        const STEPS_PER_ARGUMENT_MAX: usize = 1024;
        if cfg!(debug_assertions) {
            let own = steps::looked().wrapping_sub(looked_before);
            // A COUNT is the client's wish.
            let asked: i64 = args.iter().filter_map(parse_i64).map(|number| number.clamp(0, 1 << 32)).sum();
            let bound = STEPS_PER_ARGUMENT_MAX * args.len() + self.node.clients.count() + named;
            let bound = bound as u64 + asked as u64;
            // Some lock by themselves, a little at a time.
            let locks_all = !matches!(command.locks, Locks::None | Locks::Each);
            let is_linear = command.spec.complexity.to_ascii_lowercase().contains("o(n");
            let is_bounded = locks_all && command.spec.is_constant_time() && !is_linear;
            assert!(own <= HOLD_LOOKS_MAX + bound || !is_bounded, "{} has looked {own} times", command.name);
            held.exempt(own);
        }
    }
}
