//! Values on disk that a command needs: what it lacks, and how that is fetched.

use isotherm_commands::call::{ColdKey, ColdKeys, rehearse};
use isotherm_commands::spec::{Group, KeyFlags, Need};
use isotherm_commands::{Flags, Outcome};
use isotherm_keyspace::{
    Conditions, Db, ExpiryMode, HeldNode, Missing, NoEffects, NodeNeed, OnCold, Txn, TxnCounts, UnixMs, Walk,
    Want, Whereabouts,
};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::steps;

use super::execute::Exec;
use super::nodes::find_nodes;
use crate::request::eviction::Room;
use isotherm_node::request::caller::Authority;
use isotherm_node::request::entry::{Entry, Handler, Locks};
use isotherm_node::request::next::{Came, Ticket};
use isotherm_node::session::Multi;
use isotherm_node::tier::Tier;
use isotherm_node::tier::fetches::Wanted;
use isotherm_node::tier::target::{Fetched, slot_of};
use isotherm_runtime::time::unix_now;

/// Maximum number of times that a command reads from disk under its locks. Commands that search a long list,
/// or a sorted set among equal scores, do so some 30 times.
const HELD_ROUNDS_MAX: u32 = 1000;

/// Part of `maxmemory`, as a divisor, that may be used beyond it by values which a command changes that takes
/// no memory by itself (LPOP, HDEL): where nothing leaves memory these are what makes room.
const HOME_RESERVE_DIVISOR: u64 = 64;

/// Verdict on values that are to come to memory for a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    Free,
    /// Wait: the command asks again, in the queue of writers, when some of what is on its way has left.
    Later,
    /// No room: nothing can leave.
    Refused,
}

/// Number of times that a command has read from disk under its locks.
#[derive(Default)]
pub struct Rounds {
    count: u32,
    /// Keys that were asked for in rounds which could not read all of them. The command may not need all of
    /// these. The failures are not kept for the next command.
    failed: Vec<ColdKeys>,
}

/// Returns whether what comes to memory for a command, a key of a record at most, goes at once (DEL, GETDEL).
fn leaves_at_once(command: &Entry) -> bool {
    let is_string = command.spec.group == Group::String;
    let goes = |flags: KeyFlags| flags.has(KeyFlags::RM) || is_string && flags.has(KeyFlags::DELETE);
    !command.spec.key_specs.is_empty() && command.spec.key_specs.iter().all(|keys| goes(keys.flags))
}

/// Returns the same for all that a queue has: the rest of it only reads.
fn all_leave_at_once(multi: &Multi) -> bool {
    let only_reads =
        |command: &Entry| !command.spec.flags.has(Flags::WRITE) && command.locks != Locks::Script;
    multi.queue.iter().all(|queued| only_reads(queued.command) || leaves_at_once(queued.command))
}

/// A value that the command needs cannot be read.
pub struct Unreadable;

impl Exec {
    /// Returns the view that a command gets of values that are not in memory, if there are any, and whether
    /// the command looks at its keys before it runs: so does one that changes values, and all do while keys
    /// are not in memory.
    #[cold]
    pub(super) fn on_cold(&self, command: &Entry) -> (OnCold, bool) {
        match self.held.has_cold() {
            true => (command.on_cold, command.on_cold == OnCold::Read || self.held.has_frozen()),
            false => (OnCold::Show, false),
        }
    }

    /// Returns whether a command waits for values on disk: not if it has done so and they did not come, nor
    /// if the disk has failed. A log that is played back tries even then, and reports the commands that it
    /// could not run.
    #[cold]
    pub fn may_fetch(&self, authority: Authority) -> bool {
        !self.has_waited && (authority == Authority::Log || !self.has_failed())
    }

    /// Returns whether reads from disk fail at present.
    fn has_failed(&self) -> bool {
        self.node.tier().is_some_and(|tier| tier.has_failed())
    }

    #[cold]
    pub(super) fn answer_unreadable(&mut self, command: &'static Entry, reply: &mut Reply) -> Outcome {
        let errors_before = reply.error_count();
        self.refuse_unread(reply);
        self.count_call(command, reply, errors_before);
        Outcome::Done
    }

    /// A command that only reads has met values that are not in memory, and has no reply yet.
    #[cold]
    pub(super) fn missed(
        &mut self,
        command: &'static Entry,
        authority: Authority,
        counts: TxnCounts,
        reply: &mut Reply,
    ) -> Outcome {
        let (keys, has_lost) = self.take_met();
        let keys = Box::new(ColdKeys { keys });
        if has_lost {
            return self.answer_unreadable(command, reply);
        }
        debug_assert!(counts.dirty <= counts.expired + counts.expired_fields, "{} runs again", command.name);
        if !self.may_fetch(authority) {
            return self.answer_unreadable(command, reply);
        }
        Outcome::Cold(keys)
    }

    /// Takes what a command has met that is not in memory. Returns also whether some of it could not be read.
    fn take_met(&mut self) -> (Vec<ColdKey>, bool) {
        let missing = self.held.take_missing();
        let has_lost = missing.iter().any(|missing| !missing.is_readable);
        let keys = missing.into_iter().map(|Missing { db, key, node, is_readable }| {
            let cold = node.map_or_else(|| ColdKey::of(db, &key, Need::All, false), ColdKey::of_node);
            if !is_readable {
                self.forget_failure(&cold);
            }
            cold
        });
        let mut keys: Vec<ColdKey> = keys.collect();
        keys.extend(self.held.walk.take_wanted().into_iter().map(ColdKey::of_bundle));
        (keys, has_lost)
    }

    /// Fetches for a command of the server that looks at values: these, and what it has met. Its reply is not
    /// written.
    #[cold]
    pub fn fetch_for_look(&mut self, mut keys: Vec<ColdKey>, reply: &mut Reply) -> Outcome {
        let (met, has_lost) = self.take_met();
        keys.extend(met);
        if !has_lost && self.may_fetch(Authority::Server) {
            return Outcome::Cold(Box::new(ColdKeys { keys }));
        }
        self.refuse_unread(reply);
        Outcome::Done
    }

    /// Gives up a look for which nothing may be read any more.
    #[cold]
    pub fn refuse_look(&mut self, reply: &mut Reply) {
        self.take_met();
        self.held.walk.give_up();
        reply.error(errors::NOT_READ_HERE);
    }

    /// Finds what is not in memory of keys that a command of the server looks at, and changes nothing of. An
    /// error: some of it could not be read.
    #[cold]
    pub fn find_looked_at<'n>(
        &mut self,
        db: Db,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Result<Vec<ColdKey>, Unreadable> {
        let (node, mut keys, mut has_lost) = (self.node, Vec::new(), false);
        if node.tier().is_none() || !self.held.has_cold() {
            return Ok(keys);
        }
        for name in names {
            let key = node.keyspace.key(name);
            match self.held.whereabouts(db, &key, false) {
                Whereabouts::Here => {
                    for at in NodeNeed::All.away(&mut self.held, db, &key, usize::MAX) {
                        let mut node = HeldNode::of(&mut self.held, at);
                        if node.is_unreadable() {
                            node.forget_failure();
                            has_lost = true;
                        }
                        keys.push(ColdKey::of_node(at));
                    }
                }
                Whereabouts::Away(_) | Whereabouts::Frozen(..) => {
                    keys.push(ColdKey::of(db, name, Need::All, false))
                }
                Whereabouts::Unreadable => {
                    self.held.forget_failure(db, &key);
                    has_lost = true;
                }
            }
        }
        if has_lost { Err(Unreadable) } else { Ok(keys) }
    }

    /// Fetches for a command of the server that walks over keys. Its reply is not written.
    #[cold]
    pub fn fetch_for_walk(&mut self, reply: &mut Reply) -> Outcome {
        let keys = self.held.walk.take_wanted().into_iter().map(ColdKey::of_bundle).collect();
        if self.may_fetch(Authority::Server) {
            return Outcome::Cold(Box::new(ColdKeys { keys }));
        }
        self.refuse_unread(reply);
        Outcome::Done
    }

    /// Finds what a command of a queue will lack that walks over keys: it runs as if on its own, without
    /// effect.
    #[cold]
    pub fn records_for(&mut self, command: &Entry, args: Args<'_>, (db, now): (Db, UnixMs)) -> Vec<ColdKey> {
        let names_none = command.locks == Locks::All && command.need == Need::Nothing;
        let walks = command.on_cold == OnCold::Collect && names_none;
        let Some(Handler::Data(handler)) = command.handler.filter(|_| walks && self.held.has_frozen()) else {
            return Vec::new();
        };
        if !self.may_fetch(Authority::Server) || !self.held.walk.make_whole() {
            return Vec::new();
        }
        let looked_before = steps::looked();
        let conditions = Conditions { now, expiry_mode: ExpiryMode::Hide, no_touch: true };
        let (mut effects, mut prng) = (NoEffects, self.prng.clone());
        let mut txn = Txn::new(&mut self.held, conditions, &mut effects);
        txn.on_cold = OnCold::Collect;
        rehearse(handler, &mut txn, (db, args), &mut prng, &self.hot.settings);
        txn.finish();
        self.held.take_missing();
        // As much as its client asks for.
        self.held.exempt(steps::looked().wrapping_sub(looked_before));
        self.held.walk.take_wanted().into_iter().map(ColdKey::of_bundle).collect()
    }

    /// Answers that what the command lacks does not come.
    fn refuse_unread(&mut self, reply: &mut Reply) {
        self.held.walk.give_up();
        let is_refused = std::mem::take(&mut self.refuses_walk);
        reply.error(match (is_refused, self.was_late) {
            (true, _) => errors::NOT_READ_HERE,
            (false, true) => errors::READ_TOO_SLOW,
            (false, false) => errors::UNREADABLE,
        });
    }

    /// Forgets the values that were noted as unreadable, so that the next command tries again. Returns
    /// whether there were any.
    pub fn forget_missing(&mut self) -> bool {
        let missing = self.held.take_missing();
        for Missing { db, key, node, .. } in &missing {
            self.forget_failure(
                &node.map_or_else(|| ColdKey::of(*db, key, Need::All, false), ColdKey::of_node),
            );
        }
        !missing.is_empty()
    }

    /// The keys of a command, as far as they are held, whose values it needs and that are not in memory: all
    /// of them, so that they are fetched together.
    #[inline]
    pub fn cold_keys(&mut self, command: &Entry, args: Args<'_>, db: Db) -> Option<Box<ColdKeys>> {
        if self.node.tier().is_none()
            || command.need == Need::Nothing && !self.held.has_frozen()
            || !self.may_fetch(Authority::Server)
        {
            return None;
        }
        let looked_before = steps::looked();
        // What cannot be read is for its command to say.
        let found = self.find_cold_keys(command, args, db, true);
        // As many as its client has named.
        self.held.exempt(steps::looked().wrapping_sub(looked_before));
        found.ok().flatten()
    }

    #[cold]
    pub(super) fn find_cold_keys(
        &mut self,
        command: &Entry,
        args: Args<'_>,
        db: Db,
        with_nodes: bool,
    ) -> Result<Option<Box<ColdKeys>>, Unreadable> {
        let has_waited = self.has_waited;
        let Exec { node, held, locks, .. } = self;
        let positions = locks.find_keys(command, args).unwrap_or_default();
        let variable = command.spec.variable_key_flags.map(|flags| flags(args));
        let (mut keys, mut has_lost) = (Vec::new(), false);
        for (at, flags) in positions {
            let (name, flags) = (args.get(*at), variable.unwrap_or(*flags));
            let need = command.spec.need_of(flags, args);
            let key = node.keyspace.key(name);
            // A string that leaves as a whole (GETDEL) is only looked at, unless its key leaves a record.
            let is_taken = command.spec.group == Group::String && flags.has(KeyFlags::DELETE);
            let home = !(flags.has(KeyFlags::RO) || is_taken && held.cold(db, &key).is_some());
            if !held.holds(&key) || need == Need::Nothing && !held.may_be_frozen(db, &key) {
                continue;
            }
            match held.whereabouts(db, &key, home) {
                Whereabouts::Here if need == Need::All || need == Need::Elements => {
                    // A script says later what it needs of a collection.
                    if with_nodes && command.locks != Locks::Script {
                        // Without those that would be split or merged it continues, if they could not be
                        // read.
                        let reshapes = command.on_cold != OnCold::Collect && !has_waited;
                        has_lost |= !find_nodes(held, (db, &key), need, (args, *at), reshapes, &mut keys);
                    }
                }
                Whereabouts::Here => {}
                Whereabouts::Away(_) | Whereabouts::Frozen(..) => {
                    keys.push(ColdKey::of(db, name, need, home))
                }
                Whereabouts::Unreadable => {
                    held.forget_failure(db, &key);
                    has_lost = true;
                }
            }
        }
        if has_lost {
            return Err(Unreadable);
        }
        Ok((!keys.is_empty()).then(|| Box::new(ColdKeys { keys })))
    }

    /// Fetches values for a command that then runs again, and keeps its locks. Everything that was fetched
    /// stays in memory meanwhile, so each round brings some more; after too many rounds the command answers
    /// that it cannot read.
    #[cold]
    pub fn fetch_round(&mut self, rounds: &mut Rounds, keys: Box<ColdKeys>) {
        // Of what a walk lacks nothing is read while others are held up.
        if keys.keys.iter().any(|cold| cold.bundle.is_some()) {
            (self.has_waited, self.refuses_walk) = (true, true);
            rounds.count += 1;
            return;
        }
        self.has_waited |= rounds.count == HELD_ROUNDS_MAX;
        let looked_before = steps::looked();
        let is_first = rounds.count == 0;
        let tier = self.node.tier();
        let has_all = tier.is_some_and(|tier| tier.fetch_held(&mut self.held, &keys, is_first));
        // As many as its client has named.
        self.held.exempt(steps::looked().wrapping_sub(looked_before));
        rounds.count += 1;
        if !has_all {
            rounds.failed.push(*keys);
        }
    }

    /// The command is over.
    #[inline]
    pub fn end_rounds(&mut self, rounds: &Rounds) {
        // One that has waited without its locks has no rounds.
        self.has_waited &= rounds.count == 0;
        self.refuses_walk = false;
        let looked_before = steps::looked();
        rounds.failed.iter().flat_map(|keys| &keys.keys).for_each(|cold| self.forget_failure(cold));
        self.held.exempt(steps::looked().wrapping_sub(looked_before));
    }

    /// The next command that needs it tries to read it again.
    #[cold]
    fn forget_failure(&mut self, cold: &ColdKey) {
        match cold.node {
            Some(node) => HeldNode::of(&mut self.held, node).forget_failure(),
            None if cold.bundle.is_some() => {}
            None => {
                let key = self.node.keyspace.key(&cold.key);
                // A walk over keys names none, and something else may have met it under other locks.
                if self.held.holds(&key) {
                    self.held.forget_failure(cold.db, &key);
                }
            }
        }
    }

    // COMPAT(memory): Commands that change a value but take no memory in Valkey (LPOP, SPOP, HDEL, EXPIRE)
    // get the OOM error while memory exceeds `maxmemory` by more than a 64th part, nothing can leave it, and
    // the value is on disk. Why: the value has to come to memory.
    /// Asks whether the values that a command waits for may come to memory. Values that are only shown to it
    /// take none that stays. `multi`: the transaction that EXEC runs. Nothing is held afterwards, as far as
    /// there is a question.
    #[cold]
    pub fn ask_passage(&mut self, command: &Entry, multi: Option<&Multi>, keys: &ColdKeys) -> Passage {
        let (node, limit) = (self.node, self.node.config.maxmemory_bytes());
        let comes_home = keys.keys.iter().any(|cold| cold.home);
        let leaves = match multi.filter(|_| command.locks == Locks::Queue) {
            Some(multi) => all_leave_at_once(multi),
            None => leaves_at_once(command),
        };
        // Clients that wait for what was changed are served under its locks.
        if limit == 0 || !comes_home || leaves || node.has_room() || self.held.has_ready() {
            return Passage::Free;
        }
        match self.make_room() {
            Room::Enough => Passage::Free,
            // A walk would begin anew, and might so for ever. What it reads leaves without being written.
            Room::Soon if node.mail.is_sinker_behind() && self.held.walk.is_empty() => Passage::Later,
            Room::Soon => Passage::Free,
            // Parts of collections that are only read leave again without being written.
            Room::None if command.spec.flags.has(Flags::READONLY) => Passage::Free,
            Room::None if command.spec.flags.has(Flags::ADMIN) => Passage::Free,
            Room::None if node.used_memory_bytes() <= limit + limit / HOME_RESERVE_DIVISOR => Passage::Free,
            Room::None => Passage::Refused,
        }
    }

    /// Begins to fetch values. Nothing of the command was done; it runs again when the worker gets this
    /// ticket.
    #[cold]
    pub fn fetch(&mut self, keys: ColdKeys) -> Ticket {
        let ticket = self.next_ticket();
        self.wanted.push((ticket, Wanted::of(keys)));
        let walk = std::mem::take(&mut self.held.walk);
        if !walk.is_empty() {
            self.walks.insert(ticket, walk);
        }
        ticket
    }

    /// The current command is over, or waits with what it has.
    #[inline]
    pub fn end_walk(&mut self) {
        if !self.held.walk.is_empty() {
            self.held.walk = Walk::default();
        }
    }

    /// Gives values to their keys, and records to the walk that waits for them with this ticket: if no client
    /// does any more they go with it. A value that cannot be read is noted against its key if `notes` says
    /// so.
    pub fn hand_over(
        &mut self,
        tier: &Tier,
        ticket: Ticket,
        values: Vec<(ColdKey, Fetched)>,
        notes: bool,
    ) -> Came {
        let (now, mut came, keyspace) = (unix_now(), Came::All, &self.node.keyspace);
        for (cold, fetched) in values {
            match (cold.bundle, fetched.record()) {
                (Some(_), Some(record)) => {
                    self.walks.entry(ticket).or_default().add(fetched.from, record);
                }
                (None, _) if fetched.is_there() || notes => {
                    self.held.acquire(Want::One(keyspace.partition_of(slot_of(keyspace, &cold))));
                    tier.hand_over(&mut self.held, &cold, &fetched, now);
                    self.held.release();
                }
                _ => came = Came::Not,
            }
        }
        came
    }
}
