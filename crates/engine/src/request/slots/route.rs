//! Choice of the node that runs a request: this one, or another to which an error sends the client.
//!
//! ```text
//! gate      behind authentication, before maxmemory     its keys lie in one slot? the word of that: a hint, which is enough for MOVED
//! locks     its partition is held                       the word again, which holds now: else the gates are asked anew
//! ```
//! A word that is `MINE` lets any command run. For the others it is judged in Valkey's order: a slot without
//! an owner, keys that are missing while a slot is on its way (counted under the lock of its partition), a
//! cluster that is down, ASKING, READONLY.
//!
//! A worker keeps the topology, and compares it once a batch. When it is to name another node it takes the
//! newest.

use isotherm_cluster::topology::State;
use isotherm_cluster::{Flags as NodeFlags, Slot};
use isotherm_commands::Flags;
use isotherm_commands::call::{ColdKey, ColdKeys};
use isotherm_commands::spec::{Databases, Need, Reach, slot_positions};
use isotherm_keyspace::{Conditions, Db, ExpiryMode, Held, Lookup, Txn, Want, Whereabouts};
use isotherm_resp::Args;
use std::sync::Arc;

use crate::request::clock::CommandClock;
use crate::request::lock_set::LockSet;
use crate::request::slots::endpoint::{self, asker_of};
use crate::request::slots::refusal::Refusal;
use isotherm_config::{Id, id};
use isotherm_node::Node;
use isotherm_node::cluster::shown::Published;
use isotherm_node::cluster::state::Member;
use isotherm_node::cluster::words::{Owner, SlotState, Word};
use isotherm_node::effects::pump::Pump;
use isotherm_node::request::entry::Entry;
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::session::{ClientShared, Queued, Session};

/// View of the cluster of a thread that runs commands. In a lone server it is empty, and costs a test.
pub struct Route {
    pub member: Option<&'static Member>,
    /// Generation of `topology`.
    generation: u64,
    topology: Option<Arc<Published>>,
    /// The gates that matter for its commands.
    pub gates: Gates,
    /// Slot of the request that the gate has looked at last, if that request has one.
    pub slot: Option<Slot>,
    /// Keys that a refusal as `Unread` has to know of: each may be in a record on disk.
    unread: Vec<ColdKey>,
    /// Kept for its memory.
    pub text: Vec<u8>,
}

/// Hint from the word of a request's one key, before the key is locked.
pub enum Hint {
    Here,
    /// The slot is another node's, and nothing else is to be asked.
    Moved(Slot),
    Ask,
}

impl Route {
    pub fn new(node: &'static Node) -> Route {
        let mut route = Route {
            member: node.cluster.get(),
            generation: 0,
            topology: None,
            gates: Gates::NONE,
            slot: None,
            unread: Vec::new(),
            text: Vec::new(),
        };
        route.refresh();
        route
    }

    /// Takes over the newest topology.
    #[inline]
    pub fn refresh(&mut self) {
        if let Some(member) = self.member
            && member.topologies.generation() != self.generation
        {
            self.take_newest(member);
        }
    }

    #[cold]
    fn take_newest(&mut self, member: &'static Member) {
        let (generation, topology) = member.topologies.newest();
        self.gates = Gates::SLOTS.or(Gates::SLOT.when(topology.state != State::Ok));
        (self.generation, self.topology) = (generation, Some(topology));
    }

    /// Returns the topology as of the last `refresh`. Only a member of a cluster has one.
    pub fn topology(&self) -> &Arc<Published> {
        self.topology.as_ref().expect("a member of a cluster has a topology")
    }

    /// Takes the keys for which the last request was refused as `Unread`.
    pub fn take_unread(&mut self) -> ColdKeys {
        ColdKeys { keys: std::mem::take(&mut self.unread) }
    }

    /// `slot`: that of the one key.
    #[inline]
    pub fn hint(&self, slot: Option<Slot>) -> Hint {
        let (Some(member), Some(slot)) = (self.member, slot) else { return Hint::Here };
        match member.words.get(slot) {
            Word::MINE => Hint::Here,
            word if word == OTHERS => Hint::Moved(slot),
            _ => Hint::Ask,
        }
    }
}

const OTHERS: Word = Word::new(SlotState::of(Owner::Other));

/// State of the thread that runs a request, with which the request is judged.
pub struct Desk<'d> {
    pub node: &'static Node,
    pub route: &'d mut Route,
    pub held: &'d mut Held<'static>,
    pub clock: &'d mut CommandClock,
    pub pump: &'d mut Pump,
    pub locks: &'d mut LockSet,
    /// Keys that may be in a record on disk are looked up there under the lock, as a script looks up all that
    /// it needs. Else they count as there: the command reads them before it runs, and is judged again.
    pub reads_now: bool,
}

// ---- the gate ----

/// Returns the slot of a request; none if the request names no key.
pub fn slot_of(desk: &mut Desk<'_>, command: &Entry, args: Args<'_>) -> Result<Option<Slot>, Refusal> {
    let positions = desk.locks.find_slot_keys(command, args);
    let mut slots = positions.iter().map(|(at, _)| Slot::of_key(args.get(*at)));
    let Some(first) = slots.next() else { return Ok(None) };
    if slots.all(|slot| slot == first) { Ok(Some(first)) } else { Err(Refusal::CrossSlot) }
}

/// Returns the slot of a transaction. The slots of its commands were found when they were queued.
fn slot_of_queue(session: &Session) -> Result<Option<Slot>, Refusal> {
    let queue = session.multi.as_ref().map_or(&[][..], |multi| &multi.queue);
    let mut slots = queue.iter().filter_map(|queued| queued.slot);
    let Some(first) = slots.next() else { return Ok(None) };
    if slots.all(|slot| slot == first) { Ok(Some(first)) } else { Err(Refusal::CrossSlot) }
}

/// Decides whether a request is refused, before it has its locks. `flags`: those of the command, of its
/// queue, or of its script.
pub fn ask(
    desk: &mut Desk<'_>,
    session: &Session,
    command: &Entry,
    args: Args<'_>,
    flags: Flags,
) -> Result<(), Refusal> {
    let Some(member) = desk.route.member else { return Ok(()) };
    desk.route.refresh();
    desk.route.slot = None;
    let slot = match command.spec.reach {
        // Its conditions have keys too.
        Reach::Queue => match (slot_of_queue(session)?, slot_of(desk, command, args)?) {
            (Some(queue), Some(own)) if queue != own => return Err(Refusal::CrossSlot),
            (queue, own) => queue.or(own),
        },
        _ => slot_of(desk, command, args)?,
    };
    desk.route.slot = slot;
    let Some(slot) = slot else { return Ok(()) };
    let is_usual = member.words.get(slot) == Word::MINE && desk.route.topology().state == State::Ok;
    if is_usual {
        return Ok(());
    }
    judge(desk, Asked { command, args, flags, slot, who: Who::of(session, command) })
}

// ---- under the locks ----

/// Returns whether a command may still run whose slot is not simply this node's. Its partition is held.
#[cold]
pub fn judges(desk: &mut Desk<'_>, session: &Session, command: &Entry, args: Args<'_>, slot: Slot) -> bool {
    desk.route.refresh();
    let queue = session.multi.as_ref().filter(|_| command.spec.reach == Reach::Queue);
    let flags = command.spec.flags.or(queue.map_or(Flags(0), |multi| multi.flags));
    judge(desk, Asked { command, args, flags, slot, who: Who::of(session, command) }).is_ok()
}

/// A request with keys.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub command: &'a Entry,
    pub args: Args<'a>,
    /// With those of its queue.
    pub flags: Flags,
    pub slot: Slot,
    pub who: Who<'a>,
}

/// Sender of a request, as far as it matters.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    pub db: Db,
    /// READONLY
    pub reads_of_replica: bool,
    /// ASKING
    pub asking: bool,
    /// The request is queued, and its keys are counted at EXEC.
    pub is_queued: bool,
    /// Commands that EXEC is to run.
    pub queue: Option<&'a [Queued]>,
}

impl<'a> Who<'a> {
    pub fn of(session: &'a Session, command: &Entry) -> Who<'a> {
        let is_exec = command.spec.reach == Reach::Queue;
        let multi = session.multi.as_ref();
        Who {
            db: session.db,
            reads_of_replica: session.reads_of_replica,
            asking: session.asking > 0,
            is_queued: multi.is_some() && !is_exec,
            queue: multi.filter(|_| is_exec).map(|multi| &multi.queue[..]),
        }
    }
}

/// Counts of the keys of a request.
#[derive(Default)]
struct Counts {
    missing: usize,
    existing: usize,
    /// Among the existing, those that may be in a record on disk, and were not looked up there.
    presumed: usize,
    /// Two of the keys differ.
    are_several: bool,
    /// A missing key is on its way to another node.
    are_under_way: bool,
}

/// The whole of Valkey's rules, in its order. Where a slot is on its way the lock of its partition is taken,
/// unless it is held.
pub fn judge(desk: &mut Desk<'_>, asked: Asked<'_>) -> Result<(), Refusal> {
    let Some(member) = desk.route.member else { return Ok(()) };
    let (slot, flags, who) = (asked.slot, asked.flags, asked.who);
    let topology = Arc::clone(desk.route.topology());
    let is_primary = topology.me().flags.has(NodeFlags::PRIMARY);
    let mut state = member.words.get(slot).state();
    let is_open =
        |state: SlotState| (is_primary || who.reads_of_replica) && (is_migrating(state) || state.importing);
    // The keys of what names channels are not counted.
    if is_open(state) && !flags.has(Flags::PUBSUB) {
        hold(desk, slot);
        state = member.words.get(slot).state();
    }
    if state.owner == Owner::Unassigned {
        return Err(Refusal::Unbound);
    }
    let (migrating, importing) = match is_open(state) {
        true => (is_migrating(state), !is_migrating(state)),
        false => (false, false),
    };
    let counts = if migrating || importing { count_keys(desk, asked)? } else { Counts::default() };
    if topology.state != State::Ok {
        check_down(desk.node, flags)?;
    }
    if (migrating || importing) && flags.has(Flags::MOVES_SLOTS) && is_primary {
        return Ok(());
    }
    if migrating && counts.are_under_way {
        return Err(Refusal::UnderWay);
    }
    if migrating && counts.missing > 0 {
        return Err(match counts.existing {
            0 => Refusal::Ask(slot),
            _ if counts.existing > counts.presumed => Refusal::TryAgain,
            _ => Refusal::Unread,
        });
    }
    if importing && (who.asking || flags.has(Flags::ASKING)) {
        let may_be_split = counts.are_several && counts.missing > 0;
        return if may_be_split { Err(Refusal::TryAgain) } else { Ok(()) };
    }
    let only_reads = (who.reads_of_replica || flags.has(Flags::PUBSUB)) && !flags.has(Flags::WRITE);
    match state.owner {
        Owner::Myself => Ok(()),
        Owner::MyPrimary if only_reads => Ok(()),
        _ => Err(Refusal::Moved(slot)),
    }
}

/// The keys of another one's slot do not leave from here.
fn is_migrating(state: SlotState) -> bool {
    state.migrating && matches!(state.owner, Owner::Myself | Owner::MyPrimary)
}

fn hold(desk: &mut Desk<'_>, slot: Slot) {
    let partition = desk.node.keyspace.partition_of(slot);
    if desk.held.acquire(Want::One(partition)) {
        desk.clock.outdate();
    }
}

fn check_down(node: &Node, flags: Flags) -> Result<(), Refusal> {
    const READS: Id = id("cluster-allow-reads-when-down");
    const CHANNELS: Id = id("cluster-allow-pubsubshard-when-down");
    match flags.has(Flags::PUBSUB) {
        true if node.config.flag(CHANNELS) => Ok(()),
        true => Err(Refusal::Down),
        false if !node.config.flag(READS) => Err(Refusal::Down),
        false if flags.has(Flags::WRITE) => Err(Refusal::DownReadOnly),
        false => Ok(()),
    }
}

// ---- the keys of a slot that is on its way ----

/// Counts the keys of a request. Their partition is held. Queued commands are counted at EXEC; a command that
/// names two databases is refused at once.
fn count_keys(desk: &mut Desk<'_>, asked: Asked<'_>) -> Result<Counts, Refusal> {
    let (mut counts, mut first, mut db) = (Counts::default(), None, asked.who.db);
    let counts_keys = !asked.who.is_queued && !asked.flags.has(Flags::PUBSUB);
    desk.route.unread.clear();
    // EXEC has keys of its own: those of its conditions.
    let one = [(asked.command, asked.args)];
    let queue = asked.who.queue.unwrap_or_default();
    let queued = queue.iter().map(|queued| (queued.command, queued.args.args()));
    for (command, args) in one.into_iter().chain(queued) {
        let mut positions = Vec::new();
        let _ = slot_positions(command.spec, args, &mut positions);
        match command.spec.databases.map(|databases| databases(args, db.0)) {
            Some(Databases::Two) if !positions.is_empty() => return Err(Refusal::TryAgain),
            Some(Databases::Selects(number)) => db = existing(desk.node, number).unwrap_or(db),
            _ => {}
        }
        for name in positions.iter().map(|(at, _)| args.get(*at)) {
            counts.are_several |= *first.get_or_insert(name) != name;
            match counts_keys.then(|| desk.look_up(db, name)) {
                None => {}
                Some(Presence::Presumed) => {
                    (counts.existing, counts.presumed) = (counts.existing + 1, counts.presumed + 1)
                }
                Some(Presence::There) => counts.existing += 1,
                Some(Presence::Missing) => {
                    counts.missing += 1;
                    counts.are_under_way |= desk.node.migrations.flights.await_end(db, name);
                }
            }
        }
    }
    Ok(counts)
}

fn existing(node: &Node, number: i64) -> Option<Db> {
    u16::try_from(number).ok().filter(|number| *number < node.config.databases()).map(Db)
}

enum Presence {
    There,
    Missing,
    /// A record on disk says whether the key is there.
    Presumed,
}

impl Desk<'_> {
    fn look_up(&mut self, db: Db, name: &[u8]) -> Presence {
        let key = self.node.keyspace.key(name);
        if !self.reads_now {
            match self.held.whereabouts(db, &key, false) {
                Whereabouts::Frozen(..) => {
                    self.route.unread.push(ColdKey::of(db, name, Need::Nothing, false));
                    return Presence::Presumed;
                }
                // The key may be there, and the next command tries to read it again.
                Whereabouts::Unreadable => {
                    self.held.forget_failure(db, &key);
                    return Presence::There;
                }
                Whereabouts::Here | Whereabouts::Away(_) => {}
            }
        }
        self.clock.begin();
        let conditions = Conditions { now: self.clock.now(), expiry_mode: ExpiryMode::Hide, no_touch: true };
        let is_found = Txn::new(self.held, conditions, self.pump).find(db, &key, Lookup::Silent).is_some();
        match is_found || self.reads_now && self.held.may_be_frozen(db, &key) {
            true => Presence::There,
            false => Presence::Missing,
        }
    }
}

// ---- what is answered ----

/// The error of a request that is refused. None if its slot has come to this node meanwhile: it is to be
/// judged anew.
pub fn text_of(desk: &mut Desk<'_>, refusal: Refusal, client: &ClientShared) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    match refusal {
        Refusal::Moved(slot) => write_redirection(desk, ("MOVED", slot), client, &mut text).then_some(text),
        Refusal::Ask(slot) => {
            // It may be another node's by now.
            let is_named =
                ["ASK", "MOVED"].iter().any(|word| write_redirection(desk, (word, slot), client, &mut text));
            // Else the slot is being given away, and the topology does not say yet to which node.
            Some(if is_named { text } else { Refusal::TryAgain.text().into() })
        }
        // A client that may wait does.
        Refusal::UnderWay => None,
        other => Some(other.text().into()),
    }
}

/// Writes a redirection. Returns whether there is another node that is to be asked.
pub fn write_redirection(
    desk: &mut Desk<'_>,
    (word, slot): (&str, Slot),
    client: &ClientShared,
    out: &mut Vec<u8>,
) -> bool {
    desk.route.refresh();
    let topology = desk.route.topology();
    let target = match word {
        "ASK" => {
            let migrating = topology.migrating.iter().find(|(migrating, _)| *migrating == slot);
            migrating.and_then(|(_, id)| topology.find(id)).map(|index| topology.node(index))
        }
        _ => topology.owner(slot),
    };
    let Some(target) = target.filter(|target| !std::ptr::eq(*target, topology.me())) else { return false };
    endpoint::write_redirection(out, word, slot, target, asker_of(client, &desk.node.config));
    true
}

/// The error of a client that has waited for a key of a slot that is another node's.
pub fn redirection_of(node: &Node, slot: Slot, client: &ClientShared) -> Vec<u8> {
    let topology = node.cluster.get().map(|member| member.topologies.newest().1);
    match topology.as_ref().and_then(|topology| topology.owner(slot)) {
        None => Refusal::Unbound.text().into(),
        Some(owner) => {
            let mut text = Vec::new();
            endpoint::write_redirection(&mut text, "MOVED", slot, owner, asker_of(client, &node.config));
            text
        }
    }
}
