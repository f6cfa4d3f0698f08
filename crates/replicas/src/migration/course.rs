//! The course of one MIGRATE, on its thread: rounds of what is done under locks and what is done on the
//! network.
//!
//! ```text
//!   of a key      open --load--> sent --exchange--> done --settle--> over: it has left, or stays for good
//!                   ^                                       |
//!                   +------- changed meanwhile -------------+
//! ```

use isotherm_codec::Portions;
use isotherm_commands::call::{ColdKey, HashedKeys};
use isotherm_commands::generic::remove_moved;
use isotherm_keyspace::{Conditions, ExpiryMode, LeaseId, Lookup, Slot, Txn, UnixMs, Watcher};
use isotherm_resp::{ArgsBuf, Reply, errors};
use isotherm_stdx::steps;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::{Asked, Batch, Exchange, Fault, exchange};
use super::reading::{self, Brought, Lack, Reading};
use isotherm_engine::request::blocking;
use isotherm_engine::request::execute;
use isotherm_engine::request::execute::{Exec, Invocation};
use isotherm_engine::request::slots::route;
use isotherm_node::Node;
use isotherm_node::cluster::words::Owner;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::migration::job::Job;
use isotherm_node::migration::sockets::{Patience, Target};
use isotherm_node::migration::state::Carried;
use isotherm_node::observe::holds;
use isotherm_node::tier::target::RECORDS_PER_KEY_MAX;
use isotherm_node::tls;

/// First round in which the keys are leased.
const LEASED_ROUND: u32 = 3;
/// A leased key changes no more, but its time may come.
const ROUNDS_MAX: u32 = 8;
/// Keys that are looked at, or leave, under one hold.
const KEYS_PER_HOLD: usize = 64;
/// Number of reads of what a key lacks at a moment, before it counts as unreadable: a million parts of a
/// collection in all.
const READS_PER_KEY_MAX: u32 = 4096;
/// Time between two looks whether a script or a pause has ended.
const LOOK: Duration = Duration::from_millis(1);

/// Shortest and longest time for which others have the partition between two portions of a large value.
/// Within these bounds it is the time that a portion took. A thread that waits for the lock is woken, and may
/// have to wait for a processor, before it has it.
const BREATH: Duration = Duration::from_micros(50);
const BREATH_MAX: Duration = Duration::from_millis(2);

const ROLE_CHANGED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
const KEEPS_CHANGING: &str = "ERR The keys of MIGRATE do not stop to change";

/// Key of a MIGRATE.
struct Moving {
    name: Arc<[u8]>,
    /// The key is still to be sent, or to be deleted on the target.
    is_open: bool,
    /// The target has said OK to an earlier value of it.
    is_there: bool,
    /// Raised when it changes after it was sent.
    watcher: Option<Arc<Watcher>>,
}

pub struct Course<'j> {
    node: &'static Node,
    job: &'j Job,
    lease: LeaseId,
    keys: Vec<Moving>,
    /// The keys as they were named: one that was named twice is sent twice.
    named: Vec<usize>,
    has_leases: bool,
    has_sent: bool,
    reading: Reading,
    error: Option<Vec<u8>>,
    /// Time spent under locks.
    ticks: u64,
    /// Duration of the last hold.
    hold: Duration,
    carried: Carried<'static>,
}

/// Permission to look at the keys and to let them leave.
enum Standing {
    Fine,
    /// Not now.
    Wait,
    /// No more, for this reason.
    Over(Vec<u8>),
}

/// Result of taking a portion of a value.
enum Portion {
    More,
    /// Records that are to be read before.
    Away(Vec<ColdKey>),
    /// A value that stays here; the target is not to have an older one.
    Unreadable,
    Last {
        ttl_ms: i64,
    },
    /// The value is no longer the one that the portion before was part of.
    Changed,
    Missing,
}

/// Why it goes no further; the reply says it.
struct Stopped;

impl<'j> Course<'j> {
    pub fn new(node: &'static Node, job: &'j Job, lease: LeaseId) -> Course<'j> {
        let (mut keys, mut numbers) = (Vec::new(), HashMap::new());
        let mut named = Vec::with_capacity(job.order.names.len());
        for name in &job.order.names {
            named.push(*numbers.entry(name).or_insert_with(|| {
                keys.push(Moving { name: Arc::clone(name), is_open: true, is_there: false, watcher: None });
                keys.len() - 1
            }));
        }
        let (has_leases, has_sent, error, ticks) = (false, false, None, 0);
        let (hold, carried) = (Duration::ZERO, node.migrations.carry());
        let reading = Reading::new(node);
        Course { node, job, lease, keys, named, has_leases, has_sent, reading, error, ticks, hold, carried }
    }

    pub fn run(mut self, exec: &mut Exec) {
        let (node, job) = (self.node, self.job);
        let flights = &node.migrations.flights;
        flights.begin(job.db, self.keys.iter().map(|key| &key.name));
        if self.go(exec).is_err() && self.error.is_none() {
            self.error = Some(KEEPS_CHANGING.into());
        }
        self.free_leases(exec);
        self.forget_watches(exec);
        if flights.end(job.db, self.keys.iter().map(|key| &key.name)) {
            node.runs.wake(&node.mail, blocking::look_again);
        }
        let mut reply = Reply::new(job.proto);
        match &self.error {
            Some(text) => reply.error(text),
            None if self.has_sent => reply.ok(),
            None => reply.simple("NOKEY"),
        }
        let _turn = node.migrations.turn();
        blocking::answer_migration(exec, &job.waiter, reply, self.ticks);
    }

    fn go(&mut self, exec: &mut Exec) -> Result<(), Stopped> {
        let mut may_retry = true;
        let mut round = 1;
        while round <= ROUNDS_MAX {
            let mut until = None;
            if round >= LEASED_ROUND {
                self.lease_keys(exec)?;
                until = Instant::now().checked_add(self.job.order.request.timeout);
            }
            let batch = self.load(exec, round == 1)?;
            if self.keys.iter().all(|key| !key.is_open) {
                return Ok(());
            }
            round += 1;
            if batch.asked.is_empty() {
                continue;
            }
            self.has_sent = true;
            let exchange = self.exchange(&batch, until);
            let may_be_retried = exchange.fault.is_some_and(Fault::may_be_retried);
            if may_retry && may_be_retried && exchange.answered == 0 {
                may_retry = false;
                round -= 1;
                self.forget_watches(exec);
                continue;
            }
            self.settle(exec, &batch.asked, &exchange.done)?;
            drop(batch);
            self.carried.set(0);
            let text =
                exchange.error.map(|line| [b"ERR Target instance replied with error: ", &*line].concat());
            let fault = exchange.fault.map(|fault| fault.text().as_bytes().to_vec());
            self.error = self.error.take().or(text).or(fault);
            if exchange.fault.is_some() {
                return Err(Stopped);
            }
        }
        Err(Stopped)
    }

    // ---- the network ----

    fn exchange(&self, batch: &Batch, until: Option<Instant>) -> Exchange {
        let (migrations, request) = (&self.node.migrations, &self.job.order.request);
        let is_over = || self.node.runs.is_ending();
        let patience = Patience { step: request.timeout, until, is_over: &is_over };
        let kept = migrations.take_socket(request);
        let tls = tls::is_for_cluster(&self.node.config).then_some(&self.node.tls);
        let connect = || Target::connect(&request.host, &request.port, tls, patience);
        let target = kept.map_or_else(connect, Ok);
        let mut target = match target {
            Ok(target) => target,
            Err(lost) => {
                // Valkey notices with its first write that it was refused.
                let fault = if lost.is_timeout { Fault::Connecting } else { Fault::Writing(lost) };
                return Exchange { fault: Some(fault), ..Exchange::default() };
            }
        };
        let exchange = exchange(&mut target, (&request.auth, request.db), batch, patience);
        if exchange.fault.is_none() {
            migrations.keep_socket(target);
        }
        exchange
    }

    // ---- under locks ----

    /// Decides whether this node may still give away keys of these slots. Their partitions are held.
    fn standing(&self, exec: &Exec, slots: impl Iterator<Item = Slot>) -> Standing {
        let tasks = self.node.mail.tasks();
        if tasks.has(Tasks::REPLICA) != self.job.order.is_replica || !exec.knows_role() {
            return Standing::Over(ROLE_CHANGED.into());
        }
        if let Some(member) = self.node.cluster.get() {
            for slot in slots {
                let state = member.words.get(slot).state();
                if !(matches!(state.owner, Owner::Myself | Owner::MyPrimary) || state.importing) {
                    return Standing::Over(route::redirection_of(self.node, slot, &self.job.client));
                }
            }
        }
        // A MIGRATE from before the pause was not done before it.
        if tasks.has(Tasks::PAUSES) { Standing::Wait } else { Standing::Fine }
    }

    /// Does something with these keys once their partitions are held, no script has leased one of them and no
    /// pause holds them up. Nothing is held afterwards.
    fn held<T>(
        &mut self,
        exec: &mut Exec,
        numbers: &[usize],
        work: impl FnOnce(&mut Course<'j>, &mut Exec) -> T,
    ) -> Result<T, Stopped> {
        loop {
            let turn = self.node.migrations.turn();
            exec.refresh();
            exec.clock.begin();
            let began = exec.clock.raw();
            exec.locks.clear();
            let slots = || numbers.iter().map(|number| Slot::of_key(&self.keys[*number].name));
            slots().for_each(|slot| exec.locks.add(self.node.keyspace.partition_of(slot)));
            exec.acquire();
            let (from, cpu_from) = (exec.clock.raw(), holds::cpu_ns());
            let keyspace = &self.node.keyspace;
            let is_leased = |number: &usize| {
                exec.held.is_leased(&keyspace.key(&self.keys[*number].name), Some(self.lease))
            };
            match self.standing(exec, slots()) {
                Standing::Fine if !numbers.iter().any(is_leased) => {
                    let before = steps::looked();
                    let done = work(self, exec);
                    exec.held.exempt(steps::looked().wrapping_sub(before));
                    exec.release();
                    let now = exec.clock.raw();
                    self.ticks += now.saturating_sub(began);
                    self.note_hold(now.saturating_sub(from), holds::cpu_ns().saturating_sub(cpu_from));
                    return Ok(done);
                }
                Standing::Fine => exec.release(),
                Standing::Wait => {
                    exec.release();
                    drop(turn);
                    // The pause may be that of a handover, which waits for leases; and keys do not change
                    // while it lasts.
                    self.free_leases(exec);
                    std::thread::sleep(LOOK);
                    continue;
                }
                Standing::Over(text) => {
                    exec.release();
                    self.error.get_or_insert(text);
                    return Err(Stopped);
                }
            }
            drop(turn);
            std::thread::sleep(LOOK);
        }
    }

    /// Counts a hold under the number that the threads of MIGRATE share. The caller has the turn.
    fn note_hold(&mut self, ticks: u64, cpu_ns: u64) {
        let (sinks, thread) = (self.node.hold_sinks(), self.node.migrations_number());
        let cause = self.node.commands.find(b"migrate").expect("it is a command").index;
        sinks.note(thread, cause, false, ticks);
        if cfg!(debug_assertions) {
            sinks.note_cpu(thread, cause, false, cpu_ns);
        }
        self.hold = Duration::from_micros(self.node.stats.micros(ticks));
    }

    fn open_keys(&self) -> Vec<usize> {
        (0..self.keys.len()).filter(|number| self.keys[*number].is_open).collect()
    }

    /// Leases the keys that are not over from here on, all of them at one moment: a job that has leases waits
    /// for no other one that has some.
    fn lease_keys(&mut self, exec: &mut Exec) -> Result<(), Stopped> {
        if self.has_leases {
            return Ok(());
        }
        let numbers = self.open_keys();
        self.held(exec, &numbers, |course, exec| {
            let node = course.node;
            node.runs.begin_leases(&node.keyspace, &node.mail);
            for number in &numbers {
                let place = node.keyspace.lease_place(&node.keyspace.key(&course.keys[*number].name));
                exec.held.lease(place, course.lease);
            }
            course.has_leases = true;
        })
    }

    fn free_leases(&mut self, exec: &mut Exec) {
        if !std::mem::take(&mut self.has_leases) {
            return;
        }
        let node = self.node;
        let turn = node.migrations.turn();
        exec.locks.clear();
        let names = self.keys.iter().map(|key| &key.name);
        names.for_each(|name| exec.locks.add(node.keyspace.partition_of(Slot::of_key(name))));
        exec.acquire();
        exec.held.free_leases(self.lease);
        exec.release();
        node.runs.end_leases(&node.keyspace, &node.mail);
        drop(turn);
    }

    /// Returns the commands for the keys that are not over. The keys are watched from here on.
    fn load(&mut self, exec: &mut Exec, is_first: bool) -> Result<Batch, Stopped> {
        let mut batch = Batch::default();
        let settings = &exec.hot.settings;
        let mut portions = Portions::new(&settings.limits, settings.transfer.compress);
        let numbers = if is_first { self.named.clone() } else { self.open_keys() };
        for number in numbers {
            self.load_key(exec, number, &mut portions, &mut batch)?;
        }
        self.carried.set(batch.memory_bytes());
        Ok(batch)
    }

    /// A large value is written a portion at a time, and given up for this round if it changes in between.
    /// The disk is read between two holds; a value that came is given to its key in the hold that writes it,
    /// so that it cannot leave before.
    fn load_key(
        &mut self,
        exec: &mut Exec,
        number: usize,
        portions: &mut Portions,
        batch: &mut Batch,
    ) -> Result<(), Stopped> {
        let (mut began, before) = (None, batch.memory_bytes());
        let (mut brought, mut reads) = (Brought::new(), 0);
        let last = loop {
            let taken = std::mem::take(&mut brought);
            let load = |course: &mut Course<'j>, exec: &mut Exec| {
                reading::hand_over(course.node, &mut exec.held, taken);
                course.load_portion(exec, number, portions, &mut began)
            };
            match self.held(exec, &[number], load)? {
                Portion::Away(keys) if reads < READS_PER_KEY_MAX => {
                    reads += 1;
                    match self.reading.read(keys) {
                        Some(read) => brought = read,
                        None => break Portion::Unreadable,
                    }
                }
                Portion::More => {
                    self.carried.set(before + portions.memory_bytes());
                    std::thread::sleep(self.hold.clamp(BREATH, BREATH_MAX));
                }
                last => break last,
            }
        };
        if let Portion::Away(_) | Portion::Unreadable = last {
            portions.abandon();
            self.error.get_or_insert(errors::UNREADABLE.into());
        }
        let (node, moving) = (self.node, &mut self.keys[number]);
        let in_cluster = node.cluster.is_enabled();
        match last {
            Portion::Last { ttl_ms } if let Some(payload) = portions.take() => {
                let command: &[u8] = if in_cluster { b"RESTORE-ASKING" } else { b"RESTORE" };
                let replace = self.job.order.request.replace || moving.is_there;
                batch.value(number, [command, &moving.name], ttl_ms, payload, replace);
            }
            Portion::Changed => {
                // One that was sent already, as it was named twice, is looked at when it is settled.
                if !batch.asked.contains(&Asked::Value(number)) {
                    moving.watcher = None;
                }
            }
            _ if moving.is_there => batch.removal(number, &moving.name, in_cluster),
            _ => moving.is_open = false,
        }
        Ok(())
    }

    /// `began`: when the first portion was written; what expires by the field is shown as it was then.
    fn load_portion(
        &mut self,
        exec: &mut Exec,
        number: usize,
        portions: &mut Portions,
        began: &mut Option<UnixMs>,
    ) -> Portion {
        let (node, db) = (self.node, self.job.db);
        let moving = &mut self.keys[number];
        if moving.watcher.as_ref().is_some_and(|watcher| watcher.is_dirty()) {
            portions.abandon();
            return Portion::Changed;
        }
        let now = exec.clock.now();
        let conditions =
            Conditions { now: *began.get_or_insert(now), expiry_mode: ExpiryMode::Hide, no_touch: true };
        // Before the value is looked for: where it cannot be read, the one at the target is removed, and
        // whether the key has changed since is asked then too.
        if moving.watcher.is_none() {
            let watcher = Arc::new(Watcher::default());
            Txn::new(&mut exec.held, conditions, &mut exec.pump).watch(db, &moving.name, &watcher);
            moving.watcher = Some(watcher);
        }
        match reading::lack(node, &mut exec.held, db, &moving.name) {
            Lack::Nothing => {}
            Lack::Away(keys) => return Portion::Away(keys),
            Lack::Unreadable => return Portion::Unreadable,
        }
        let key = node.keyspace.key(&moving.name);
        let mut txn = Txn::new(&mut exec.held, conditions, &mut exec.pump);
        match txn.find(db, &key, Lookup::Silent) {
            None => Portion::Missing,
            Some(entry) if portions.write(&entry.value) => {
                Portion::Last { ttl_ms: entry.expiry.map_or(0, |at| (at.0 - now.0).max(1)) }
            }
            Some(_) => Portion::More,
        }
    }

    /// Checks what the target has done: it is what it should be, or is to be done once more. A key for which
    /// the target has done nothing stays as it is.
    fn settle(&mut self, exec: &mut Exec, asked: &[Asked], done: &[Asked]) -> Result<(), Stopped> {
        let mut sent = Vec::new();
        for asked in asked {
            if let Asked::Value(number) | Asked::Removal(number) = *asked
                && std::mem::take(&mut self.keys[number].is_open)
            {
                sent.push(number);
            }
        }
        if self.job.order.request.copy {
            return Ok(());
        }
        // A key that was named twice may have been refused once.
        let (mut values, mut removals) = (vec![false; self.keys.len()], vec![false; self.keys.len()]);
        for asked in done {
            match *asked {
                Asked::Value(number) => values[number] = true,
                Asked::Removal(number) => removals[number] = true,
                Asked::Leave => {}
            }
        }
        let answered: Vec<usize> =
            sent.into_iter().filter(|number| values[*number] || removals[*number]).collect();
        for numbers in answered.chunks(KEYS_PER_HOLD) {
            let (mut brought, mut reads, mut has_all) = (Brought::new(), 0, true);
            loop {
                let taken = std::mem::take(&mut brought);
                let is_last = !has_all || reads == RECORDS_PER_KEY_MAX;
                let away = self.held(exec, numbers, |course, exec| {
                    reading::hand_over(course.node, &mut exec.held, taken);
                    let away = if is_last { Vec::new() } else { course.frozen_keys(exec, numbers) };
                    if away.is_empty() {
                        course.settle_some(exec, numbers, &values);
                    }
                    away
                })?;
                if away.is_empty() {
                    break;
                }
                reads += 1;
                for cold in away {
                    let read = self.reading.read(vec![cold]);
                    has_all &= read.is_some();
                    brought.extend(read.unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    /// Returns keys that have left memory again since they were sent, with all that they have.
    fn frozen_keys(&self, exec: &mut Exec, numbers: &[usize]) -> Vec<ColdKey> {
        let names = numbers.iter().map(|number| &*self.keys[*number].name);
        names.filter_map(|name| reading::frozen(&mut exec.held, self.job.db, name)).collect()
    }

    fn settle_some(&mut self, exec: &mut Exec, numbers: &[usize], values: &[bool]) {
        let (node, db) = (self.node, self.job.db);
        let now = exec.clock.now();
        let conditions = Conditions { now, expiry_mode: ExpiryMode::Hide, no_touch: true };
        let mut leaving = ArgsBuf::from_slices(&[b"DEL"]);
        for &number in numbers {
            let moving = &mut self.keys[number];
            let key = node.keyspace.key(&moving.name);
            let is_frozen = exec.held.may_be_frozen(db, &key);
            let mut txn = Txn::new(&mut exec.held, conditions, &mut exec.pump);
            let watcher = moving.watcher.take().expect("what was sent is watched");
            if watcher.is_dirty() {
                (moving.is_open, moving.is_there) = (true, values[number]);
                continue;
            }
            txn.unwatch(db, &key, &watcher);
            if values[number] && is_frozen {
                // It is there and here.
                exec.held.forget_failure(db, &key);
                self.error.get_or_insert(errors::UNREADABLE.into());
                continue;
            }
            // A time that is over here will be over there in a moment.
            if values[number] && txn.find(db, &key, Lookup::Silent).is_some() {
                leaving.push(&moving.name);
            }
        }
        if leaving.args().len() > 1 {
            self.remove(exec, &leaving);
        }
    }

    fn remove(&self, exec: &mut Exec, words: &ArgsBuf) {
        let command = self.node.commands.find_original(b"del").expect("it is a command");
        let (now, caller, db) = (exec.clock.now(), self.job.caller, self.job.db);
        let (args, keys, handler) = (words.args(), HashedKeys::NONE, remove_moved);
        let mut reply = Reply::default();
        let invocation = Invocation { command, handler, args, db, keys, now, caller, reply: &mut reply };
        execute::run(exec, invocation);
        if exec.held.has_ready() {
            blocking::serve_waiters(exec);
        }
    }

    fn forget_watches(&mut self, exec: &mut Exec) {
        let (node, db) = (self.node, self.job.db);
        for moving in self.keys.iter_mut() {
            let Some(watcher) = moving.watcher.take() else { continue };
            let key = node.keyspace.key(&moving.name);
            let turn = node.migrations.turn();
            exec.held.acquire_one(node.keyspace.partition_of(key.slot));
            let now = exec.clock.now();
            let conditions = Conditions { now, expiry_mode: ExpiryMode::Hide, no_touch: true };
            Txn::new(&mut exec.held, conditions, &mut exec.pump).unwatch(db, &key, &watcher);
            exec.release();
            drop(turn);
        }
    }
}
