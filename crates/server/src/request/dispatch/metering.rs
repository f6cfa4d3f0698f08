//! Metering: how long commands took, how long they held locks, and in builds that count it how much they looked at.

use isotherm_commands::Flags;
use isotherm_keyspace::{Db, HOLD_LOOKS_MAX};
use isotherm_resp::Args;
use isotherm_stdx::{parse_i64, steps};
use std::time::Duration;

use super::{Dispatcher, HEADER_BYTES_MAX};
use crate::node::unix_now;
use crate::observe::command_log::{Kind, Ran};
use crate::observe::holds;
use crate::observe::latency::monitor::Event;
use crate::request::registry::{Entry, Locks};
use crate::session::ClientShared;

impl Dispatcher {
    /// A command has what it needs.
    pub(crate) fn begin_hold(&mut self) {
        self.hold_from = self.clock.raw();
        self.hold_cpu_from = holds::cpu_ns();
    }

    /// A command that took `taken` is over. Those who waited for what it has changed are served, in its hold.
    #[inline(never)]
    pub(super) fn end_hold(&mut self, command: &'static Entry, taken: u64) {
        // What came before it had its locks was no hold: evicting, waiting for them.
        let began = self.clock.began() - taken;
        let from = began.max(self.hold_from).max(self.held.locked_at());
        let mut to = self.clock.began();
        if self.held.has_ready() {
            self.serve_waiters();
            to = self.clock.raw();
        }
        self.note_hold_until(command, from, to);
        if self.held.has_flushed() {
            self.free_flushed();
        }
    }

    /// A hold is over, or what comes next in it is another command's.
    pub(crate) fn note_hold(&mut self, command: &'static Entry, from: u64) {
        self.note_hold_until(command, from, self.clock.raw());
    }

    fn note_hold_until(&mut self, command: &'static Entry, from: u64, to: u64) {
        if !self.held.holds_any() {
            return;
        }
        let ticks = to.saturating_sub(from);
        let several = self.node.keyspace.partition_count() > 1;
        let is_gate = self.held.holds_all() && (several || command.locks == Locks::All);
        if command.is_measured || ticks >= self.hot.long_hold_ticks {
            self.node.note_hold(self.thread, command.index, is_gate, ticks);
        }
        if cfg!(debug_assertions) {
            let ns = holds::cpu_ns().saturating_sub(self.hold_cpu_from);
            self.node.note_hold_cpu(self.thread, command.index, is_gate, ns);
        }
    }

    pub(crate) fn hold_from(&self) -> u64 {
        self.hold_from
    }

    /// Counts how long a command took, and notes it where it is worth a note.
    #[inline]
    pub(crate) fn count_time(
        &mut self,
        client: &ClientShared,
        db: Db,
        command: &'static Entry,
        args: Args<'_>,
        ticks: u64,
        reply_bytes: usize,
    ) {
        let counters = &self.stats.commands[usize::from(command.index)];
        counters.ticks.add(ticks);
        if self.hot.tracks_latency && self.noted_times.add(command.index, ticks) {
            self.record_times();
        }
        if self.sampler.is_due() {
            self.look_closer(db, command, args, ticks, reply_bytes);
        }
        let notable = self.hot.notable;
        // Rather too much than too little: what a queued request needs on the wire is not kept.
        let request_bytes_max = args.end() + HEADER_BYTES_MAX * args.len();
        if ticks >= notable.ticks
            || reply_bytes >= notable.reply_bytes
            || request_bytes_max >= notable.request_bytes
        {
            self.note_command(client, command, args, ticks, reply_bytes);
        }
    }

    #[inline(never)]
    pub(super) fn record_times(&mut self) {
        let commands = &self.stats.commands;
        self.noted_times
            .take()
            .for_each(|(command, ticks)| commands[usize::from(command)].latency.record(ticks));
    }

    #[cold]
    fn note_command(
        &self,
        client: &ClientShared,
        command: &'static Entry,
        args: Args<'_>,
        ticks: u64,
        reply_bytes: usize,
    ) {
        let node = self.node;
        let taken = Duration::from_nanos(self.clock.nanos(ticks));
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

    /// In builds that count it: what a command has looked at since is its client's own work, not that of its hold. Where
    /// the command's documentation says that its time does not grow with the data, what it looks at does not either, what
    /// its session has named before (`named`) apart: UNWATCH forgets all of that.
    #[inline(always)]
    pub(crate) fn note_own_work(
        &mut self,
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
            let bound = STEPS_PER_ARGUMENT_MAX * args.len() + self.node.clients.len() + named;
            let bound = bound as u64 + asked as u64;
            // Some lock by themselves, a little at a time.
            let locks_all = !matches!(command.locks, Locks::None | Locks::Each);
            let is_linear = command.spec.complexity.to_ascii_lowercase().contains("o(n");
            let is_bounded = locks_all && command.spec.is_constant_time() && !is_linear;
            assert!(own <= HOLD_LOOKS_MAX + bound || !is_bounded, "{} has looked {own} times", command.name);
            self.held.exempt(own);
        }
    }
}
