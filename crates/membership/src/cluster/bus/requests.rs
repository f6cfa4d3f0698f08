//! CLUSTER MEET, ADDSLOTS, SETSLOT and their like: words of a client to a request of the machine, its answer
//! to a reply.
//!
//! Conditions on the keys of this node are looked at before, by the thread that may take the locks of
//! partitions.

use isotherm_cluster::machine::{Answer, Input, Request, RequestId, SlotAction};
use isotherm_cluster::{NodeId, Slot};
use isotherm_keyspace::{Held, SlotKeys, Want};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::parse_i64;
use std::collections::VecDeque;
use std::time::Duration;

use super::settings::BUS_PORT_OFFSET;
use super::{BusThread, hands, links_reply, replicas_first};
use crate::cluster::changes;
use isotherm_node::Node;
use isotherm_node::cluster::requests::{BusMessage, ClusterRequest, Looked};

/// Looks, under the locks. A slot that is found empty and is to be given away takes no more keys from now on.
pub fn look(mut looked: Looked, node: &'static Node) -> Looked {
    match &mut looked.request {
        Request::SetSlot { slot, action: SlotAction::Node { holds_keys, .. }, .. } => {
            *holds_keys = close_if_empty(node, *slot);
        }
        Request::Replicate { has_keys, .. }
        | Request::Reset { has_keys, .. }
        | Request::FlushSlots { has_keys } => {
            *has_keys = node.keyspace.has_keys();
        }
        _ => {}
    }
    looked
}

/// Returns whether a request depends on all keys of this node: on those too that are about to be deleted.
pub fn is_about_all_keys(request: &Request) -> bool {
    matches!(request, Request::Replicate { .. } | Request::Reset { .. } | Request::FlushSlots { .. })
}

/// Closes a slot that has no keys, and returns whether it has keys, or may get one from a transaction that
/// stands in the middle of its script: the rest of its queue is not judged again. A closed slot of this node
/// takes no keys from now on: clients that ask for a key in it are redirected, so none is added after the
/// look. Whatever comes of the request, the word is as the topology has it afterwards.
fn close_if_empty(node: &'static Node, slot: Slot) -> bool {
    let mut held = Held::new(&node.keyspace);
    held.acquire(Want::One(node.keyspace.partition_of(slot)));
    let has_keys = !SlotKeys::of(&held, slot).is_empty() || node.runs.is_exclusive();
    if !has_keys {
        changes::close_held(node, slot);
    }
    has_keys
}

type Parsed = Result<Request, Vec<u8>>;

/// Requests that are to give one slot away, one after the other.
#[derive(Default)]
pub struct Closing {
    /// A look may have closed the slot's word for the one in progress.
    is_looked: bool,
    waiting: VecDeque<Looked>,
}

impl BusThread {
    /// Begins a request. Of those that give away one slot each waits for the one before: the end of a refused
    /// one would open the slot that the next has closed.
    pub(super) fn request(&mut self, request: ClusterRequest) {
        let ClusterRequest { args, asker } = request;
        match parse(args.args()) {
            Err(text) => asker.refuse(text),
            Ok(request) => {
                let looked = Looked { request, args, asker };
                let closing = closed_for(&looked.request).and_then(|slot| self.closing.get_mut(&slot));
                match closing {
                    Some(closing) => closing.waiting.push_back(looked),
                    None => self.begin(looked),
                }
            }
        }
    }

    pub(super) fn begin(&mut self, looked: Looked) {
        let is_looked = self.depends_on_keys(&looked.request);
        if let Some(slot) = closed_for(&looked.request) {
            self.closing.entry(slot).or_default().is_looked = is_looked;
        }
        match is_looked {
            true => self.hand(hands::Work::Look(looked)),
            false => self.looked(looked),
        }
    }

    /// Ends a request that was to give a slot away. The next one's look comes after this.
    fn reopen(&mut self, slot: Slot) {
        let Some(closing) = self.closing.get_mut(&slot) else { return };
        let (is_looked, next) = (closing.is_looked, closing.waiting.pop_front());
        if is_looked {
            self.hand(hands::Work::Restore(slot));
        }
        match next {
            // In a turn of its own: this one obeys what the machine has decided.
            Some(next) => self.bus().post(BusMessage::Next(next)),
            None => _ = self.closing.remove(&slot),
        }
    }

    /// Goes on with a request once it is known which keys there are. Replicas get a SETSLOT first, but only
    /// one that will be obeyed.
    pub(super) fn looked(&mut self, looked: Looked) {
        let is_for_replicas =
            matches!(looked.request, Request::SetSlot { .. }) && replicas_first::are_wanted(self.node);
        match self.machine.check(&looked.request) {
            Ok(()) if is_for_replicas => self.replicas_first.send(looked).expect("the thread lives as long"),
            _ => self.ask(looked),
        }
    }

    pub(super) fn replicated(&mut self, looked: Looked, done: Result<(), Vec<u8>>) {
        match done {
            Ok(()) => self.ask(looked),
            Err(text) => {
                looked.asker.refuse(text);
                if let Some(slot) = closed_for(&looked.request) {
                    self.reopen(slot);
                }
            }
        }
    }

    /// A slot that this node has no part in goes from one other to the next whatever it has here. Where
    /// replicas hear of that first it may have a part in it by then.
    fn depends_on_keys(&self, request: &Request) -> bool {
        match request {
            Request::SetSlot { slot, action: SlotAction::Node { .. }, .. } => {
                self.machine.is_involved(*slot) || replicas_first::are_wanted(self.node)
            }
            request => is_about_all_keys(request),
        }
    }

    fn ask(&mut self, looked: Looked) {
        self.asked += 1;
        let id = RequestId(self.asked);
        let closed = closed_for(&looked.request);
        self.askers.insert(id, (looked.asker, closed));
        self.step(Input::Request { id, request: looked.request });
    }

    pub(super) fn answer(&mut self, id: RequestId, answer: Answer) {
        let Some((asker, closed)) = self.askers.remove(&id) else { return };
        let mut reply: Reply = asker.reply();
        match answer {
            Answer::Ok => reply.ok(),
            Answer::Status(text) => reply.simple(&text),
            Answer::Integer(number) => reply.integer(number),
            Answer::Links(links) => links_reply::write(&mut reply, &links, &self.connections),
            Answer::Error(text) => reply.error(format!("ERR {text}")),
        }
        asker.answer(reply);
        if let Some(slot) = closed {
            self.reopen(slot);
        }
    }
}

/// The slot whose word a look may have closed.
fn closed_for(request: &Request) -> Option<Slot> {
    match request {
        Request::SetSlot { slot, action: SlotAction::Node { .. }, .. } => Some(*slot),
        _ => None,
    }
}

/// `CLUSTER` stands at 0. The arity was checked.
fn parse(args: Args<'_>) -> Parsed {
    let word = args.get(1).to_ascii_lowercase();
    match (word.as_slice(), args.len()) {
        (b"meet", 4 | 5) => parse_meet(args),
        (b"addslots", 3..) => Ok(Request::AddSlots(parse_slots(args)?)),
        (b"delslots", 3..) => Ok(Request::DelSlots(parse_slots(args)?)),
        (b"addslotsrange", 4..) => Ok(Request::AddSlots(parse_ranges(args)?)),
        (b"delslotsrange", 4..) => Ok(Request::DelSlots(parse_ranges(args)?)),
        (b"flushslots", 2) => Ok(Request::FlushSlots { has_keys: false }),
        (b"setslot", 4..) => parse_set_slot(args),
        (b"bumpepoch", 2) => Ok(Request::BumpEpoch),
        (b"saveconfig", 2) => Ok(Request::SaveConfig),
        (b"forget", 3) => Ok(Request::Forget(known_id(args.get(2))?)),
        (b"replicate", 3) => Ok(Request::Replicate { node: known_id(args.get(2))?, has_keys: false }),
        (b"replicate", 4) => {
            let is_no_one =
                args.get(2).eq_ignore_ascii_case(b"no") && args.get(3).eq_ignore_ascii_case(b"one");
            if is_no_one { Ok(Request::ReplicateNoOne) } else { Err(errors::subcommand_syntax(args)) }
        }
        (b"set-config-epoch", 3) => parse_epoch(args.get(2)),
        (b"reset", 2) => Ok(Request::Reset { is_hard: false, has_keys: false }),
        (b"reset", 3) => match args.get(2).to_ascii_lowercase().as_slice() {
            b"hard" => Ok(Request::Reset { is_hard: true, has_keys: false }),
            b"soft" => Ok(Request::Reset { is_hard: false, has_keys: false }),
            _ => Err(errors::SYNTAX.into()),
        },
        (b"count-failure-reports", 3) => Ok(Request::CountFailureReports(known_id(args.get(2))?)),
        (b"links", 2) => Ok(Request::Links),
        _ => Err(errors::subcommand_syntax(args)),
    }
}

fn parse_meet(args: Args<'_>) -> Parsed {
    let host = args.get(2);
    let number = |at: usize, what: &str| {
        parse_i64(args.get(at)).ok_or_else(|| {
            errors::with_bytes(&format!("ERR Invalid {what} port specified: "), args.get(at), "")
        })
    };
    let port = number(3, "base")?;
    if !(1..=65_535).contains(&port) {
        return Err(b"ERR Port number is out of range".to_vec());
    }
    let bus_port = if args.len() == 5 { number(4, "bus")? } else { port + i64::from(BUS_PORT_OFFSET) };
    if !(1..=65_535).contains(&bus_port) {
        return Err(b"ERR Cluster bus port number is out of range".to_vec());
    }
    let ip = String::from_utf8_lossy(host).into_owned();
    Ok(Request::Meet { ip, port: port as u16, bus_port: bus_port as u16 })
}

pub fn parse_slot(text: &[u8]) -> Result<Slot, Vec<u8>> {
    match parse_i64(text) {
        Some(number) if (0..Slot::COUNT as i64).contains(&number) => Ok(Slot::new(number as u16)),
        _ => Err(b"ERR Invalid or out of range slot".to_vec()),
    }
}

fn parse_slots(args: Args<'_>) -> Result<Vec<(Slot, Slot)>, Vec<u8>> {
    (2..args.len()).map(|at| parse_slot(args.get(at)).map(|slot| (slot, slot))).collect()
}

fn parse_ranges(args: Args<'_>) -> Result<Vec<(Slot, Slot)>, Vec<u8>> {
    if !args.len().is_multiple_of(2) {
        let name = format!("cluster|{}", String::from_utf8_lossy(args.get(1)).to_ascii_lowercase());
        return Err(errors::wrong_arity(&name).into());
    }
    let range = |at: usize| {
        let (first, last) = (parse_slot(args.get(at))?, parse_slot(args.get(at + 1))?);
        if first > last {
            let text = format!(
                "ERR start slot number {} is greater than end slot number {}",
                first.get(),
                last.get()
            );
            return Err(text.into_bytes());
        }
        Ok((first, last))
    };
    (2..args.len()).step_by(2).map(range).collect()
}

/// Parses the name of a node. Text that cannot be a name gets the error for an unknown node.
fn known_id(text: &[u8]) -> Result<NodeId, Vec<u8>> {
    NodeId::parse(text).ok_or_else(|| errors::with_bytes("ERR Unknown node ", text, ""))
}

fn parse_set_slot(args: Args<'_>) -> Parsed {
    let slot = parse_slot(args.get(2))?;
    let about = |at: usize| {
        NodeId::parse(args.get(at))
            .ok_or_else(|| errors::with_bytes("ERR I don't know about node ", args.get(at), ""))
    };
    let (action, rest) = match (args.get(3).to_ascii_lowercase().as_slice(), args.len()) {
        (b"migrating", 5..) => (SlotAction::Migrating(about(4)?), 5),
        (b"importing", 5..) => (SlotAction::Importing(about(4)?), 5),
        (b"stable", _) => (SlotAction::Stable, 4),
        (b"node", 5..) => (SlotAction::Node { node: known_id(args.get(4))?, holds_keys: false }, 5),
        _ => {
            return Err(
                b"ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP".to_vec()
            );
        }
    };
    for at in rest..args.len() {
        if args.get(at).eq_ignore_ascii_case(b"timeout") && at + 1 >= args.len() {
            return Err(b"ERR Missing timeout value".to_vec());
        }
    }
    parse_timeout(args)?;
    Ok(Request::SetSlot { slot, action, is_replicated: false })
}

/// Returns how long SETSLOT waits for replicas at most; `None`: without end.
pub fn parse_timeout(args: Args<'_>) -> Result<Option<Duration>, Vec<u8>> {
    const USUAL: Duration = Duration::from_millis(2000);
    let Some(at) = (4..args.len()).find(|at| args.get(*at).eq_ignore_ascii_case(b"timeout")) else {
        return Ok(Some(USUAL));
    };
    match parse_i64(args.try_get(at + 1).unwrap_or_default()) {
        None => Err(b"ERR timeout is not an integer or out of range".to_vec()),
        Some(ms) if ms < 0 => Err(b"ERR timeout is negative".to_vec()),
        Some(0) => Ok(None),
        Some(ms) => Ok(Some(Duration::from_millis(ms as u64))),
    }
}

fn parse_epoch(text: &[u8]) -> Parsed {
    match parse_i64(text) {
        None => Err(errors::NOT_AN_INTEGER.into()),
        Some(epoch) if epoch < 0 => Err(format!("ERR Invalid config epoch specified: {epoch}").into_bytes()),
        Some(epoch) => Ok(Request::SetConfigEpoch(epoch as u64)),
    }
}
