//! One machine, and bytes that stand for all that can happen to it: ticks, links, messages of other nodes
//! that are cut and turned over on their way, requests, disks that are late, a restart.
//!
//! ```text
//!   [settings] [what][its fields] [what][its fields] ...          fields that are missing are 0
//! ```
//! After each step the machine's invariants hold, what it sends and saves can be read, and a vote is on disk
//! before it leaves.

use isotherm_cluster::conf::{self, Conf};
use isotherm_cluster::machine::{
    CommitNumber, Input, LinkId, Machine, Ms, Now, Output, Request, RequestId, Settings, SlotAction,
};
use isotherm_cluster::wire::{self, Body, Caps, Extensions, Gossip, Header, Message, PingKind};
use isotherm_cluster::{Flags, NodeId, Slot, SlotSet};
use std::collections::VecDeque;
use std::sync::Arc;

const CAPS: Caps = Caps { payload_bytes: 1 << 20 };
const UNIX_START_MS: u64 = 1_800_000_000_000;
/// A run of more would say little that two shorter ones do not.
const EVENTS_MAX: usize = 200;

struct Bytes<'b>(&'b [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// Small, or at the end of what 64 bits can hold.
    fn epoch(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..240 => u64::from(byte % 16),
            byte => u64::MAX - u64::from(byte % 3),
        }
    }

    fn slot(&mut self) -> Slot {
        // Few slots, so that claims meet.
        Slot::new(u16::from(self.byte() % 8) * 2340)
    }

    fn slots(&mut self) -> SlotSet {
        let mut slots = SlotSet::new();
        match self.byte() % 4 {
            0 => {}
            few @ 1..3 => (0..few * few).for_each(|_| {
                slots.insert(self.slot());
            }),
            _ => {
                let (first, last) = (self.slot(), self.slot());
                (first.get()..=last.get()).for_each(|slot| {
                    slots.insert(Slot::new(slot));
                });
            }
        }
        slots
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 8] = ["", "a", "host-1.example", "zone a", "x,y=z", "\u{e9}", "#@", "127.0.0.1"];
        TEXTS[self.below(TEXTS.len())].to_string()
    }

    fn ip(&mut self) -> String {
        const IPS: [&str; 8] = ["", "10.0.0.2", "10.0.0.3", "::1", "127.0.0.1", "no ip", "a,b=c", "x\"y"];
        IPS[self.below(IPS.len())].to_string()
    }

    fn port(&mut self) -> u16 {
        [0, 7000, 7001, 17_000, u16::MAX][self.below(5)]
    }
}

struct Node {
    machine: Machine,
    settings: Settings,
    now_ms: u64,
    /// Counts starts, since two may not give the same names.
    lives: u64,
    /// Those that may be open; the machine has closed some of them.
    links: Vec<LinkId>,
    accepted: u64,
    /// Nodes of the newest topology.
    known: Vec<NodeId>,
    saves: VecDeque<(Option<CommitNumber>, Conf)>,
    applies: VecDeque<CommitNumber>,
    deletions: VecDeque<Vec<Slot>>,
    /// The contents of nodes.conf, and the last vote that is in it for good.
    file: Option<String>,
    vote_on_disk: u64,
}

/// Does what the bytes say to a new machine.
pub fn play(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let settings = Settings {
        node_timeout_ms: 1000,
        requires_full_coverage: bytes.flag(),
        allows_replica_migration: bytes.flag(),
        ..Settings::default()
    };
    let now = Now { ms: Ms(0), unix_ms: UNIX_START_MS };
    let mut node = Node {
        machine: Machine::new(settings.clone(), 1, now),
        settings,
        now_ms: 0,
        lives: 1,
        links: Vec::new(),
        accepted: 1,
        known: Vec::new(),
        saves: VecDeque::new(),
        applies: VecDeque::new(),
        deletions: VecDeque::new(),
        file: None,
        vote_on_disk: 0,
    };
    for _ in 0..EVENTS_MAX {
        if bytes.0.is_empty() {
            return;
        }
        node.event(&mut bytes);
    }
}

impl Node {
    fn event(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 32 {
            0..4 => {
                self.now_ms += 100 * (1 + u64::from(bytes.byte() % 32));
                self.step(Input::Tick { offset: 7 });
            }
            4 | 5 => self.accept(),
            6 | 7 => {
                let Some(link) = self.link(bytes) else { return };
                match bytes.flag() {
                    true => self.step(Input::Connected { link, local_ip: "10.0.0.1" }),
                    false => {
                        self.links.retain(|open| *open != link);
                        self.step(Input::Closed { link });
                    }
                }
            }
            8..12 => self.disk(),
            12 | 13 => {
                if let Some(number) = self.applies.pop_front() {
                    self.step(Input::Applied(number));
                }
                if let Some(slots) = self.deletions.pop_front() {
                    self.step(Input::Deleted(slots));
                }
            }
            14..18 => {
                let request = self.request(bytes);
                if matches!(request, Request::Reset { is_hard: true, .. }) {
                    // It is another node from then on, which has not voted.
                    self.vote_on_disk = u64::MAX;
                }
                self.step(Input::Request { id: RequestId(1), request });
            }
            18 => self.restart(),
            19 => self.step(Input::Populated(Box::new(bytes.slots()))),
            20 => self.step(Input::Publish { channel: b"c", message: b"m", is_sharded: bytes.flag() }),
            _ => self.message(bytes),
        }
    }

    fn accept(&mut self) {
        self.accepted += 2;
        let link = LinkId(self.accepted);
        self.links.push(link);
        self.step(Input::Accepted { link, peer_ip: "10.0.0.2", local_ip: "10.0.0.1" });
    }

    fn link(&mut self, bytes: &mut Bytes<'_>) -> Option<LinkId> {
        let at = bytes.below(self.links.len());
        self.links.get(at).copied()
    }

    /// The oldest file that waits is written.
    fn disk(&mut self) {
        let Some((number, conf)) = self.saves.pop_front() else { return };
        let text = conf::write(&conf);
        let read = conf::read(text.as_bytes(), false).expect("what is saved can be read");
        assert_eq!(read.nodes.len(), conf.nodes.len());
        self.file = Some(text);
        if let Some(number) = number {
            self.vote_on_disk = conf.last_vote_epoch;
            self.step(Input::Saved(number));
        }
    }

    /// The process has died, and begins with the file that there is.
    fn restart(&mut self) {
        let Some(text) = &self.file else { return };
        let conf = conf::read(text.as_bytes(), false).expect("it was read when it was written");
        let now = Now { ms: Ms(self.now_ms), unix_ms: UNIX_START_MS + self.now_ms };
        self.lives += 1;
        self.machine = Machine::from_conf(self.settings.clone(), self.lives, &conf, now);
        assert_eq!(self.machine.check_invariants(), Ok(()));
        self.saves.clear();
        self.applies.clear();
        self.deletions.clear();
        self.links.clear();
        self.vote_on_disk = conf.last_vote_epoch;
        self.step(Input::Tick { offset: 7 });
    }

    fn step(&mut self, input: Input<'_>) {
        let now = Now { ms: Ms(self.now_ms), unix_ms: UNIX_START_MS + self.now_ms };
        let outputs = self.machine.step(input, now);
        // With debug assertions, the step has done so itself.
        if !cfg!(debug_assertions) {
            assert_eq!(self.machine.check_invariants(), Ok(()));
        }
        outputs.into_iter().for_each(|output| self.obey(output));
    }

    fn obey(&mut self, output: Output) {
        match output {
            Output::Connect { link, .. } => self.links.push(link),
            Output::Close { link } => self.links.retain(|open| *open != link),
            Output::Send { bytes, .. } => self.check_sent(&bytes),
            Output::Save { number, conf } => self.saves.push_back((number, *conf)),
            Output::Apply { number, topology, .. } => {
                self.applies.push_back(number);
                self.known = topology.nodes.iter().map(|node| node.id).collect();
            }
            Output::DeleteKeys(slots) => self.deletions.push_back(slots),
            Output::Publish(topology) => self.known = topology.nodes.iter().map(|node| node.id).collect(),
            _ => {}
        }
    }

    fn check_sent(&self, bytes: &Arc<[u8]>) {
        assert_eq!(wire::frame(bytes, CAPS), Ok(Some(bytes.len())));
        let message = wire::decode(bytes).expect("what is sent can be read");
        if let (Body::Vote, Some(header)) = (&message.body, &message.header) {
            assert!(
                header.current_epoch <= self.vote_on_disk,
                "a vote for {} left early",
                header.current_epoch
            );
        }
    }

    // ---- messages ----

    fn message(&mut self, bytes: &mut Bytes<'_>) {
        let Some(link) = self.link(bytes) else { return self.accept() };
        let header = (!bytes.byte().is_multiple_of(16)).then(|| Box::new(self.header(bytes)));
        let (channel, text) = (bytes.text(), bytes.text());
        let publish =
            Body::Publish { channel: channel.as_bytes(), message: text.as_bytes(), is_sharded: bytes.flag() };
        let body = if header.is_some() { self.body(bytes).unwrap_or(publish) } else { publish };
        let mut written = Vec::new();
        wire::encode(&Message { header, body }, &mut written);
        for _ in 0..bytes.byte() % 4 {
            let at = usize::from(bytes.short()) % written.len();
            written[at] ^= bytes.byte();
        }
        if wire::frame(&written, CAPS).is_ok_and(|total| total == Some(written.len()))
            && let Ok(message) = wire::decode(&written)
        {
            self.step(Input::Packet { link, message: &message });
        }
    }

    fn id(&self, bytes: &mut Bytes<'_>) -> NodeId {
        match bytes.byte() {
            byte @ 0..160 => NodeId::new([byte % 8; 20]),
            160..200 => self.machine.my_id(),
            byte => self.known.get(usize::from(byte - 200)).copied().unwrap_or(NodeId::new([byte; 20])),
        }
    }

    fn some_id(&self, bytes: &mut Bytes<'_>) -> Option<NodeId> {
        bytes.flag().then(|| self.id(bytes))
    }

    fn header(&self, bytes: &mut Bytes<'_>) -> Header {
        let (sender, primary) = (self.id(bytes), self.some_id(bytes));
        let role = if primary.is_some() { Flags::REPLICA } else { Flags::PRIMARY };
        let odd = if bytes.byte().is_multiple_of(16) { Flags(bytes.short()) } else { Flags::NONE };
        Header {
            sender,
            primary,
            current_epoch: bytes.epoch(),
            config_epoch: bytes.epoch(),
            offset: u64::from(bytes.byte()),
            slots: Box::new(bytes.slots()),
            ip: bytes.ip(),
            port: bytes.port(),
            other_port: bytes.port(),
            bus_port: bytes.port(),
            flags: role | odd | (Flags::EXTENSIONS & Flags(bytes.short())),
            is_ok: bytes.flag(),
            is_paused: bytes.flag(),
            forces_vote: bytes.flag(),
        }
    }

    /// `None`: PUBLISH, whose texts stand elsewhere.
    fn body(&self, bytes: &mut Bytes<'_>) -> Option<Body<'static>> {
        Some(match bytes.byte() % 16 {
            kind @ 0..9 => {
                let kinds = [PingKind::Ping, PingKind::Pong, PingKind::Meet];
                let gossip = (0..bytes.byte() % 4).map(|_| self.gossip(bytes)).collect();
                let extensions = bytes.flag().then(|| Box::new(self.extensions(bytes)));
                Body::Ping { kind: kinds[usize::from(kind) % 3], gossip, extensions }
            }
            9 => Body::Fail(self.id(bytes)),
            10 => Body::VoteRequest,
            11 => Body::Vote,
            12 => Body::Update {
                node: self.id(bytes),
                config_epoch: bytes.epoch(),
                slots: Box::new(bytes.slots()),
            },
            13 => Body::ManualFailover,
            14 => Body::Module,
            _ => return None,
        })
    }

    fn gossip(&self, bytes: &mut Bytes<'_>) -> Gossip {
        let second = |bytes: &mut Bytes<'_>| match bytes.byte() {
            0..64 => 0,
            byte => (UNIX_START_MS / 1000) as u32 + u32::from(byte) - 128,
        };
        Gossip {
            id: self.id(bytes),
            ping_sent_s: second(bytes),
            pong_received_s: second(bytes),
            ip: bytes.ip(),
            port: bytes.port(),
            other_port: bytes.port(),
            bus_port: bytes.port(),
            flags: Flags(bytes.short()),
        }
    }

    fn extensions(&self, bytes: &mut Bytes<'_>) -> Extensions {
        Extensions {
            hostname: bytes.text(),
            human_name: bytes.text(),
            availability_zone: bytes.text(),
            client_ipv4: bytes.ip(),
            client_ipv6: bytes.ip(),
            client_port: bytes.port(),
            client_tls_port: bytes.port(),
            shard: self.some_id(bytes),
            forgotten: (0..bytes.byte() % 3).map(|_| (self.id(bytes), bytes.epoch())).collect(),
        }
    }

    // ---- requests ----

    fn request(&self, bytes: &mut Bytes<'_>) -> Request {
        let range = |bytes: &mut Bytes<'_>| {
            let (one, other) = (bytes.slot(), bytes.slot());
            vec![(one.min(other), one.max(other))]
        };
        match bytes.byte() % 16 {
            0 => Request::Meet { ip: bytes.ip(), port: bytes.port(), bus_port: bytes.port() },
            1 => Request::AddSlots(range(bytes)),
            2 => Request::DelSlots(range(bytes)),
            3 => Request::FlushSlots { has_keys: bytes.flag() },
            4..8 => {
                let slot = bytes.slot();
                let action = match bytes.byte() % 5 {
                    0 => SlotAction::Migrating(self.id(bytes)),
                    1 => SlotAction::Importing(self.id(bytes)),
                    2 => SlotAction::Stable,
                    _ => SlotAction::Node { node: self.id(bytes), holds_keys: bytes.flag() },
                };
                Request::SetSlot { slot, action, is_replicated: bytes.flag() }
            }
            8 => Request::BumpEpoch,
            9 => Request::Forget(self.id(bytes)),
            10 => Request::Replicate { node: self.id(bytes), has_keys: bytes.flag() },
            11 => Request::ReplicateNoOne,
            12 => Request::SetConfigEpoch(bytes.epoch()),
            13 => Request::Reset { is_hard: bytes.flag(), has_keys: bytes.flag() },
            14 => Request::KillLinks { node: self.id(bytes), to: bytes.flag(), from: bytes.flag() },
            _ => match bytes.flag() {
                true => Request::CountFailureReports(self.id(bytes)),
                false => Request::Links,
            },
        }
    }
}
