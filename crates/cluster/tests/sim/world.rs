//! The nodes, the network between them, their disks and the clock.

use isotherm_cluster::conf;
use isotherm_cluster::machine::{
    Answer, Input, LinkId, Machine, Ms, Now, Output, Request, RequestId, Settings, SlotAction,
};
use isotherm_cluster::topology::{State, Topology};
use isotherm_cluster::wire::{self, Caps};
use isotherm_cluster::{NodeId, Slot};
use isotherm_stdx::prng::Prng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NODE_TIMEOUT_MS: u64 = 2000;
const BLACKLIST_TTL_S: u64 = 5;
const BUS_PORT: u16 = 16379;
const UNIX_START_MS: u64 = 1_800_000_000_000;

enum Event {
    Tick(usize),
    Connect { from: usize, link: LinkId, to: Option<usize> },
    Arrive { to: usize, link: LinkId, bytes: Arc<[u8]> },
    Break { node: usize, link: LinkId },
    Saved { node: usize, life: u64, output: Output },
    Applied { node: usize, life: u64, output: Output },
    Deleted { node: usize, life: u64, slots: Vec<Slot> },
    Restart(usize),
    Heal(usize, usize),
}

struct Host {
    machine: Option<Machine>,
    /// Counts starts: what belongs to an earlier life is void.
    life: u64,
    /// The text of nodes.conf.
    disk: Option<String>,
    topology: Option<Arc<Topology>>,
    /// How far its wall clock is ahead.
    skew_ms: u64,
    answers: BTreeMap<u64, Answer>,
    id: Option<NodeId>,
}

/// The two ends of a connection.
struct Wire {
    ends: [(usize, LinkId); 2],
    /// When the last bytes each way arrive: later ones come later.
    busy: [u64; 2],
}

pub struct World {
    random: Prng,
    now_ms: u64,
    order: u64,
    events: BTreeMap<(u64, u64), Event>,
    hosts: Vec<Host>,
    wires: Vec<Wire>,
    by_end: BTreeMap<(usize, LinkId), usize>,
    cuts: BTreeSet<(usize, usize)>,
    accepted: u64,
    requests: u64,
    /// Slots that the tool has moved, or begun to, and which host has their keys.
    moved: BTreeMap<Slot, usize>,
    hash: u64,
    log: Vec<String>,
}

fn settings() -> Settings {
    Settings {
        node_timeout_ms: NODE_TIMEOUT_MS,
        blacklist_ttl_s: BLACKLIST_TTL_S,
        allows_replica_migration: false,
        bus_port: BUS_PORT,
        ..Settings::default()
    }
}

/// From 5 to 50 nodes. Their messages grow with the square of it, so most clusters are small.
fn size(random: &mut Prng) -> usize {
    let sizes = [5..=12, 5..=12, 13..=24, 25..=50];
    let sizes = &sizes[random.below(4) as usize];
    (sizes.start() + random.below(1 + sizes.end() - sizes.start())) as usize
}

fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let rest = rest.iter().map(|byte| u64::from(*byte));
    words.chain(rest).fold(seed, |sum, word| (sum.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn ip(host: usize) -> String {
    format!("10.0.0.{}", host + 1)
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Prng::new(seed ^ 0x51_6d);
        let count = size(&mut random);
        World::of(random, count)
    }

    pub fn of_size(seed: u64, count: usize) -> World {
        World::of(Prng::new(seed), count)
    }

    fn of(random: Prng, count: usize) -> World {
        let mut world = World {
            random,
            now_ms: 1000,
            order: 0,
            events: BTreeMap::new(),
            hosts: Vec::new(),
            wires: Vec::new(),
            by_end: BTreeMap::new(),
            cuts: BTreeSet::new(),
            accepted: 1,
            requests: 0,
            moved: BTreeMap::new(),
            hash: 0,
            log: Vec::new(),
        };
        for host in 0..count {
            let skew_ms =
                if world.random.one_in(4) { world.random.below(3_600_000) } else { world.random.below(50) };
            world.hosts.push(Host {
                machine: None,
                life: 0,
                disk: None,
                topology: None,
                skew_ms,
                answers: BTreeMap::new(),
                id: None,
            });
            world.start(host);
        }
        world
    }

    fn now(&self, host: usize) -> Now {
        Now { ms: Ms(self.now_ms), unix_ms: UNIX_START_MS + self.now_ms + self.hosts[host].skew_ms }
    }

    fn at(&mut self, delay_ms: u64, event: Event) {
        self.order += 1;
        self.events.insert((self.now_ms + delay_ms, self.order), event);
    }

    fn start(&mut self, host: usize) {
        let (now, seed) = (self.now(host), self.random.next_u64());
        let machine = match &self.hosts[host].disk {
            None => Machine::new(settings(), seed, now),
            Some(text) => {
                let read = conf::read(text.as_bytes(), false).expect("what was written can be read");
                Machine::from_conf(settings(), seed, &read, now)
            }
        };
        self.hosts[host].id = Some(machine.my_id());
        self.hosts[host].machine = Some(machine);
        self.hosts[host].life += 1;
        let delay_ms = self.random.below(100);
        self.at(delay_ms, Event::Tick(host));
    }

    fn crash(&mut self, host: usize) {
        self.log.push(format!("{} crash {host}", self.now_ms));
        self.hosts[host].machine = None;
        let lost: Vec<(usize, LinkId)> =
            self.by_end.keys().filter(|(node, _)| *node == host).copied().collect();
        lost.into_iter().for_each(|end| self.break_wire(end));
        let delay_ms = 100 + self.random.below(4 * NODE_TIMEOUT_MS);
        self.at(delay_ms, Event::Restart(host));
    }

    /// One end has closed it, or is gone; the other one learns of it.
    fn break_wire(&mut self, end: (usize, LinkId)) {
        let Some(wire) = self.by_end.remove(&end) else { return };
        let other = self.wires[wire].ends[usize::from(self.wires[wire].ends[0] == end)];
        if self.by_end.remove(&other).is_some() {
            let delay_ms = 1 + self.random.below(20);
            self.at(delay_ms, Event::Break { node: other.0, link: other.1 });
        }
    }

    fn step(&mut self, host: usize, input: Input<'_>) {
        let now = self.now(host);
        let Some(machine) = &mut self.hosts[host].machine else { return };
        let outputs = machine.step(input, now);
        outputs.into_iter().for_each(|output| self.obey(host, output));
    }

    fn obey(&mut self, host: usize, output: Output) {
        match output {
            Output::Connect { link, ip: to, port } => {
                let to = (0..self.hosts.len()).find(|other| ip(*other) == to && port == BUS_PORT);
                let delay_ms = 1 + self.random.below(5);
                self.at(delay_ms, Event::Connect { from: host, link, to });
            }
            Output::Send { link, bytes } => self.send(host, link, bytes),
            Output::Close { link } => self.break_wire((host, link)),
            Output::Save { .. } => {
                let delay_ms = if self.random.one_in(10) { self.random.below(300) } else { 1 };
                let life = self.hosts[host].life;
                self.at(delay_ms, Event::Saved { node: host, life, output });
            }
            Output::Apply { .. } => {
                let (delay_ms, life) = (self.random.below(3), self.hosts[host].life);
                self.at(delay_ms, Event::Applied { node: host, life, output });
            }
            Output::Publish(topology) => self.hosts[host].topology = Some(topology),
            Output::Answer { id, answer } => {
                self.log.push(format!("{} answer {host} {id:?} {answer:?}", self.now_ms));
                self.hosts[host].answers.insert(id.0, answer);
            }
            Output::Say(_, text) => self.log.push(format!("{} {host} {text}", self.now_ms)),
            Output::Resolve { .. } => {}
            Output::DeleteKeys(slots) => {
                let delay_ms = if self.random.one_in(10) { self.random.below(300) } else { 1 };
                let life = self.hosts[host].life;
                self.at(delay_ms, Event::Deleted { node: host, life, slots });
            }
            Output::Deliver { .. } | Output::Follow { .. } | Output::Lead => {}
        }
    }

    fn send(&mut self, host: usize, link: LinkId, bytes: Arc<[u8]>) {
        let Some(&wire) = self.by_end.get(&(host, link)) else { return };
        let side = usize::from(self.wires[wire].ends[1] == (host, link));
        let (to, to_link) = self.wires[wire].ends[1 - side];
        if self.is_cut(host, to) {
            return;
        }
        let delay_ms =
            1 + self.random.below(3) + if self.random.one_in(50) { self.random.below(400) } else { 0 };
        let arrives = (self.now_ms + delay_ms).max(self.wires[wire].busy[side]);
        self.wires[wire].busy[side] = arrives;
        self.at(arrives - self.now_ms, Event::Arrive { to, link: to_link, bytes });
    }

    fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cuts.contains(&(one.min(other), one.max(other)))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(host) => {
                if self.hosts[host].machine.is_some() {
                    self.step(host, Input::Tick { offset: 0 });
                    self.at(100, Event::Tick(host));
                }
            }
            Event::Connect { from, link, to } => self.connect(from, link, to),
            Event::Arrive { to, link, bytes } => {
                if self.by_end.contains_key(&(to, link)) {
                    self.hash = self.hash.rotate_left(5) ^ digest(self.now_ms, &bytes);
                    let length = wire::frame(&bytes, Caps { payload_bytes: 1 << 20 })
                        .expect("what a machine sends has a frame");
                    assert_eq!(length, Some(bytes.len()));
                    let message = wire::decode(&bytes).expect("what a machine sends can be read");
                    self.step(to, Input::Packet { link, message: &message });
                }
            }
            Event::Break { node, link } => self.step(node, Input::Closed { link }),
            Event::Saved { node, life, output } => {
                let Output::Save { number, conf } = output else { unreachable!() };
                if self.hosts[node].life == life && self.hosts[node].machine.is_some() {
                    self.hosts[node].disk = Some(conf::write(&conf));
                    if let Some(number) = number {
                        self.step(node, Input::Saved(number));
                    }
                }
            }
            Event::Applied { node, life, output } => {
                let Output::Apply { number, topology, .. } = output else { unreachable!() };
                if self.hosts[node].life == life && self.hosts[node].machine.is_some() {
                    self.hosts[node].topology = Some(topology);
                    self.step(node, Input::Applied(number));
                }
            }
            Event::Deleted { node, life, slots } => {
                if self.hosts[node].life == life && self.hosts[node].machine.is_some() {
                    self.step(node, Input::Deleted(slots));
                }
            }
            Event::Restart(host) => {
                if self.hosts[host].machine.is_none() {
                    self.start(host);
                }
            }
            Event::Heal(one, other) => {
                self.cuts.remove(&(one, other));
            }
        }
    }

    fn connect(&mut self, from: usize, link: LinkId, to: Option<usize>) {
        let up = to.filter(|to| self.hosts[*to].machine.is_some() && !self.is_cut(from, *to));
        let Some(to) = up.filter(|_| self.hosts[from].machine.is_some()) else {
            return self.step(from, Input::Closed { link });
        };
        self.accepted += 2;
        let accepted = LinkId(self.accepted);
        self.wires.push(Wire { ends: [(from, link), (to, accepted)], busy: [0; 2] });
        let wire = self.wires.len() - 1;
        self.by_end.insert((from, link), wire);
        self.by_end.insert((to, accepted), wire);
        let (peer, local) = (ip(from), ip(to));
        self.step(to, Input::Accepted { link: accepted, peer_ip: &peer, local_ip: &local });
        self.step(from, Input::Connected { link, local_ip: &peer });
    }

    pub fn run(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), event) = entry.remove_entry();
            self.now_ms = at;
            self.happen(event);
        }
        self.now_ms = end;
    }

    pub fn ask(&mut self, host: usize, request: Request) -> u64 {
        self.requests += 1;
        let id = self.requests;
        self.log.push(format!("{} ask {host} {id} {request:?}", self.now_ms));
        self.step(host, Input::Request { id: RequestId(id), request });
        id
    }

    /// Slots for all but perhaps one, then all are met by the first.
    pub fn create(&mut self) {
        let count = self.hosts.len();
        let owners = if self.random.one_in(2) { count } else { count - 1 };
        let numbered = self.random.one_in(2);
        for host in 0..count {
            if host < owners {
                let from = host * Slot::COUNT / owners;
                let to = (host + 1) * Slot::COUNT / owners - 1;
                self.ask(host, Request::AddSlots(vec![(Slot::new(from as u16), Slot::new(to as u16))]));
            }
            if numbered {
                self.ask(host, Request::SetConfigEpoch(host as u64 + 1));
            }
        }
        self.run(500);
        for host in 1..count {
            self.ask(0, Request::Meet { ip: ip(host), port: 6379, bus_port: BUS_PORT });
        }
        self.run(10_000);
        if let Err(why) = self.check_agreement() {
            panic!("after create: {why}\n{}", self.report());
        }
    }

    pub fn trouble(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while self.now_ms < end {
            let pause_ms = self.random.below(3000);
            self.run(pause_ms);
            match self.random.below(10) {
                0 => {
                    let host = self.any();
                    if self.hosts[host].machine.is_some() {
                        self.crash(host);
                    }
                }
                1..=3 => {
                    let (one, other) = (self.any(), self.any());
                    if one != other {
                        let pair = (one.min(other), one.max(other));
                        self.log.push(format!("{} cut {pair:?}", self.now_ms));
                        self.cuts.insert(pair);
                        let heals_ms = self.random.below(4 * NODE_TIMEOUT_MS);
                        self.at(heals_ms, Event::Heal(pair.0, pair.1));
                    }
                }
                4 => {
                    let host = self.any();
                    self.ask(host, Request::BumpEpoch);
                }
                _ => self.move_slot(),
            }
        }
    }

    fn any(&mut self) -> usize {
        self.random.below(self.hosts.len() as u64) as usize
    }

    /// As a resharding does it, though it may stop anywhere.
    fn move_slot(&mut self) {
        let slot = Slot::new(self.random.below(Slot::COUNT as u64) as u16);
        let Some(from) = (0..self.hosts.len()).find(|host| self.owns(*host, slot)) else { return };
        let to = self.any();
        let (Some(from_id), Some(to_id)) = (self.hosts[from].id, self.hosts[to].id) else { return };
        if from == to || self.hosts[to].machine.is_none() {
            return;
        }
        self.moved.insert(slot, from);
        let set = |action| Request::SetSlot { slot, action, is_replicated: false };
        let steps = [
            (to, set(SlotAction::Importing(from_id))),
            (from, set(SlotAction::Migrating(to_id))),
            (to, set(SlotAction::Node { node: to_id, holds_keys: true })),
            (from, set(SlotAction::Node { node: to_id, holds_keys: false })),
        ];
        for (at, (host, request)) in steps.into_iter().enumerate() {
            if at == 2 {
                self.moved.insert(slot, to);
            }
            if self.random.one_in(20) {
                return;
            }
            let id = self.ask(host, request);
            // The tool continues when it has the answer, and gives up where there is none.
            for _ in 0..50 {
                self.run(20);
                if self.hosts[host].answers.contains_key(&id) {
                    break;
                }
            }
            if self.hosts[host].answers.get(&id) != Some(&Answer::Ok) {
                return;
            }
        }
    }

    /// An administrator takes a node out everywhere else, and leaves it running.
    pub fn forget(&mut self, host: usize) {
        let id = self.hosts[host].id.expect("it has started");
        for other in (0..self.hosts.len()).filter(|other| *other != host) {
            self.ask(other, Request::Forget(id));
        }
        self.run(1000);
    }

    pub fn meet(&mut self, host: usize, other: usize) {
        self.ask(host, Request::Meet { ip: ip(other), port: 6379, bus_port: BUS_PORT });
    }

    /// Counts the others that know a node, its handshakes aside.
    pub fn knowers(&self, host: usize) -> usize {
        let id = self.hosts[host].id.expect("it has started");
        let others = self.hosts.iter().enumerate().filter(|(other, _)| *other != host);
        let topologies = others.filter_map(|(_, other)| other.topology.as_ref());
        topologies.filter(|topology| topology.find(&id).is_some()).count()
    }

    fn owns(&self, host: usize, slot: Slot) -> bool {
        let Some(topology) =
            self.hosts[host].topology.as_ref().filter(|_| self.hosts[host].machine.is_some())
        else {
            return false;
        };
        topology.owners[slot.index()] == Some(topology.myself)
    }

    /// Nothing goes wrong any more.
    pub fn quiet(&mut self) {
        self.cuts.clear();
        self.run(4 * NODE_TIMEOUT_MS + 5000);
        self.cuts.clear();
        self.run(4 * NODE_TIMEOUT_MS);
        if self.fix() {
            self.run(4 * NODE_TIMEOUT_MS);
        }
    }

    /// Repairs a move that was cut, as `--cluster fix` does: the node that has the keys takes the slot. Two
    /// nodes that did not see each other can both believe that the other one has it, in Valkey too. Returns
    /// whether there was such a slot.
    fn fix(&mut self) -> bool {
        let is_cut = |world: &World, slot: Slot| {
            let owners: BTreeSet<_> = world.hosts.iter().map(|host| owner_in(host, slot)).collect();
            let claims = (0..world.hosts.len()).filter(|host| world.owns(*host, slot)).count();
            owners.len() != 1 || claims != 1
        };
        let cut: Vec<(Slot, usize)> = self
            .moved
            .iter()
            .map(|(slot, host)| (*slot, *host))
            .filter(|(slot, _)| is_cut(self, *slot))
            .collect();
        for (slot, host) in &cut {
            self.ask(*host, Request::DelSlots(vec![(*slot, *slot)]));
            self.run(100);
            self.ask(*host, Request::AddSlots(vec![(*slot, *slot)]));
            self.run(100);
            self.ask(*host, Request::BumpEpoch);
            self.run(1000);
        }
        !cut.is_empty()
    }

    pub fn check_agreement(&self) -> Result<(), String> {
        let mut first: Option<&Topology> = None;
        for (host, state) in self.hosts.iter().enumerate() {
            let topology = state.topology.as_deref().ok_or_else(|| format!("{host} has no topology"))?;
            if topology.nodes.len() != self.hosts.len() {
                return Err(format!("{host} knows {} nodes", topology.nodes.len()));
            }
            if topology.state != State::Ok {
                return Err(format!("{host} is {:?}", topology.state));
            }
            let Some(first) = first else {
                check_epochs(topology)?;
                first = Some(topology);
                continue;
            };
            for slot in Slot::all() {
                let (one, other) =
                    (first.owner(slot).map(|node| node.id), topology.owner(slot).map(|node| node.id));
                if one != other {
                    return Err(format!("slot {}: the first has {one:?}, {host} has {other:?}", slot.get()));
                }
            }
        }
        Ok(())
    }

    pub fn size(&self) -> usize {
        self.hosts.len()
    }

    pub fn fingerprint(&self) -> u64 {
        self.hash
    }

    pub fn report(&self) -> String {
        // All that was said of a slot, or the last of all.
        if let Ok(wanted) = std::env::var("SHOW") {
            return self
                .log
                .iter()
                .filter(|line| line.contains(&wanted))
                .cloned()
                .collect::<Vec<_>>()
                .join("\n");
        }
        let from = self.log.len().saturating_sub(150);
        self.log[from..].join("\n")
    }
}

fn owner_in(host: &Host, slot: Slot) -> Option<NodeId> {
    host.topology.as_ref().and_then(|topology| topology.owner(slot)).map(|owner| owner.id)
}

fn check_epochs(topology: &Topology) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for node in topology.nodes.iter().filter(|node| !node.slots.is_empty()) {
        if let Some(other) = seen.insert(node.config_epoch, node.id) {
            return Err(format!("{other} and {} have epoch {}", node.id, node.config_epoch));
        }
    }
    Ok(())
}
