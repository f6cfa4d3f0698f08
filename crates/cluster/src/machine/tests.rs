//! Changes that must be on disk before others hear of them, effects that stop at once, and a slow disk, which
//! stops no PONG.

use super::*;
use crate::SlotSet;
use crate::wire::{Body, Gossip, Header, PingKind};

mod demotion;
mod forgetting;
mod names;
mod start;

fn settings() -> Settings {
    Settings {
        node_timeout_ms: 1000,
        requires_full_coverage: false,
        allows_replica_migration: false,
        tcp_port: 7000,
        bus_port: 17000,
        no_reconnection: true,
        no_random_ping: true,
        ..Settings::default()
    }
}

const LINK: LinkId = LinkId(3);

/// A machine, its clock, and what it has said that is not obeyed yet.
struct Bench {
    machine: Machine,
    now_ms: u64,
    said: Vec<Output>,
}

impl Bench {
    /// Builds a machine that has started and has written its first file.
    fn new() -> Bench {
        let now = Now { ms: Ms(0), unix_ms: 1_000_000 };
        let mut bench = Bench { machine: Machine::new(settings(), 1, now), now_ms: 0, said: Vec::new() };
        bench.step(Input::Tick { offset: 0 });
        bench.obey_all();
        bench
    }

    fn step(&mut self, input: Input<'_>) {
        let now = Now { ms: Ms(self.now_ms), unix_ms: 1_000_000 + self.now_ms };
        let outputs = self.machine.step(input, now);
        self.said.extend(outputs);
    }

    fn ask(&mut self, request: Request) {
        self.step(Input::Request { id: RequestId(1), request });
    }

    /// Writes and applies all that is asked for.
    fn obey_all(&mut self) {
        while self.save() | self.apply() | self.delete() {}
    }

    /// Deletes the keys of slots, those that came first.
    fn delete(&mut self) -> bool {
        let Some(at) = self.said.iter().position(|output| matches!(output, Output::DeleteKeys(_))) else {
            return false;
        };
        let Output::DeleteKeys(slots) = self.said.remove(at) else { unreachable!() };
        self.step(Input::Deleted(slots));
        true
    }

    fn save(&mut self) -> bool {
        let number = self.said.iter().find_map(|output| match output {
            Output::Save { number, .. } => *number,
            _ => None,
        });
        self.said.retain(|output| !matches!(output, Output::Save { .. }));
        number.map(|number| self.step(Input::Saved(number))).is_some()
    }

    /// Applies what came first.
    fn apply(&mut self) -> bool {
        let Some(at) = self.said.iter().position(|output| matches!(output, Output::Apply { .. })) else {
            return false;
        };
        let Output::Apply { number, .. } = self.said.remove(at) else { unreachable!() };
        self.step(Input::Applied(number));
        true
    }

    fn answer(&mut self) -> Option<Answer> {
        let at = self.said.iter().position(|output| matches!(output, Output::Answer { .. }))?;
        let Output::Answer { answer, .. } = self.said.remove(at) else { unreachable!() };
        Some(answer)
    }

    fn claims(&mut self) -> usize {
        self.machine.header().slots.len()
    }

    /// Another node meets it and is known from then on, over `LINK` and a link to it.
    fn meet(&mut self, other: &Header) {
        self.meet_over(LINK, other);
    }

    fn meet_over(&mut self, link: LinkId, other: &Header) {
        self.step(Input::Accepted { link, peer_ip: "10.0.0.2", local_ip: "10.0.0.1" });
        self.send(link, other, Body::Ping { kind: PingKind::Meet, gossip: Vec::new(), extensions: None });
        self.machine.settings.no_reconnection = false;
        self.step(Input::Tick { offset: 0 });
        self.machine.settings.no_reconnection = true;
        let link = self.said.iter().find_map(|output| match output {
            Output::Connect { link, .. } => Some(*link),
            _ => None,
        });
        let link = link.expect("it connects to a node that has met it");
        self.step(Input::Connected { link, local_ip: "10.0.0.1" });
        self.send(link, other, Body::Ping { kind: PingKind::Pong, gossip: Vec::new(), extensions: None });
        self.obey_all();
        self.said.clear();
    }

    fn send(&mut self, link: LinkId, header: &Header, body: Body<'_>) {
        let message = Message { header: Some(Box::new(header.clone())), body };
        self.step(Input::Packet { link, message: &message });
    }

    fn sent(&self, wanted: impl Fn(&Body<'_>) -> bool) -> usize {
        let is_wanted =
            |bytes: &[u8]| wanted(&crate::wire::decode(bytes).expect("what is sent can be read").body);
        self.said
            .iter()
            .filter(|output| matches!(output, Output::Send { bytes, .. } if is_wanted(bytes)))
            .count()
    }
}

fn other(flags: Flags) -> Header {
    Header {
        sender: NodeId::new([2; 20]),
        primary: None,
        current_epoch: 0,
        config_epoch: 0,
        offset: 0,
        slots: Box::new(SlotSet::new()),
        ip: String::new(),
        port: 7001,
        other_port: 0,
        bus_port: 17001,
        flags,
        is_ok: true,
        is_paused: false,
        forces_vote: false,
    }
}

/// Builds the gossip entry that a third node would send about `node`.
fn about(node: &Header, ip: &str) -> Gossip {
    Gossip {
        id: node.sender,
        ping_sent_s: 0,
        pong_received_s: 0,
        ip: ip.to_string(),
        port: node.port,
        other_port: node.other_port,
        bus_port: node.bus_port,
        flags: node.flags,
    }
}

fn range(first: u16, last: u16) -> Vec<(Slot, Slot)> {
    vec![(Slot::new(first), Slot::new(last))]
}

#[test]
fn a_slot_is_claimed_and_answered_when_it_is_saved_and_applied() {
    let mut bench = Bench::new();
    bench.ask(Request::AddSlots(range(0, 99)));
    assert_eq!((bench.claims(), bench.answer()), (0, None));
    assert!(!bench.apply(), "the file comes first");
    assert!(bench.save());
    assert_eq!((bench.claims(), bench.answer()), (0, None));
    assert!(bench.apply());
    assert_eq!((bench.claims(), bench.answer()), (100, Some(Answer::Ok)));
}

#[test]
fn a_slot_that_is_lost_is_claimed_no_longer_at_once() {
    let mut bench = Bench::new();
    bench.ask(Request::AddSlots(range(0, 99)));
    bench.obey_all();
    bench.answer();
    bench.ask(Request::DelSlots(range(10, 19)));
    assert_eq!((bench.claims(), bench.answer()), (90, None));
    assert!(bench.apply(), "commands stop before anything is written");
    assert_eq!(bench.answer(), Some(Answer::Ok));
}

#[test]
fn a_slot_that_is_lost_beside_a_disk_that_hangs_is_served_no_longer() {
    let mut bench = Bench::new();
    bench.ask(Request::AddSlots(range(0, 99)));
    bench.obey_all();
    bench.answer();
    // It is being saved, for ever.
    bench.ask(Request::BumpEpoch);
    bench.ask(Request::DelSlots(range(10, 19)));
    let lost = |output: &Output| matches!(output, Output::Apply { others, .. } if others.len() == 10);
    assert_eq!(bench.said.iter().filter(|output| lost(output)).count(), 1);
    assert!(bench.apply());
    assert_eq!(bench.answer(), None, "neither is on disk");
    bench.step(Input::Tick { offset: 0 });
    assert!(!bench.said.iter().any(lost), "it is applied once");
    bench.obey_all();
    assert_eq!(bench.answer(), Some(Answer::Status("BUMPED 1".into())));
    assert_eq!((bench.answer(), bench.claims()), (Some(Answer::Ok), 90));
}

#[test]
fn a_replica_takes_no_slots() {
    let mut bench = Bench::new();
    let peer = other(Flags::PRIMARY);
    bench.meet(&peer);
    bench.ask(Request::Replicate { node: peer.sender, has_keys: false });
    bench.obey_all();
    assert_eq!(bench.answer(), Some(Answer::Ok));
    bench.ask(Request::AddSlots(range(7, 7)));
    let refused = "Please use ADDSLOTS only with primaries.".to_string();
    assert_eq!(bench.answer(), Some(Answer::Error(refused)));
}

/// A slot that this node gains is not published before its routing word is written: a client that followed
/// the topology earlier would be redirected with no target.
#[test]
fn a_slot_that_is_gained_is_shown_when_its_word_says_so() {
    let mut bench = Bench::new();
    bench.said.clear();
    bench.ask(Request::AddSlots(range(5, 5)));
    let shows = |bench: &Bench| {
        let is_shown = |topology: &Topology| topology.owners[5] == Some(topology.myself);
        bench.said.iter().any(|output| matches!(output, Output::Publish(topology) if is_shown(topology)))
    };
    bench.step(Input::Tick { offset: 0 });
    assert!(!shows(&bench), "it is not on disk");
    assert!(bench.save() && !shows(&bench), "its word is not written");
    assert!(
        bench.said.iter().any(|output| matches!(output, Output::Apply { gained, .. } if gained.len() == 1))
    );
    bench.obey_all();
    assert_eq!(bench.answer(), Some(Answer::Ok));
}

/// A tool that moves slots names each of them to every node: most have no part in it.
#[test]
fn a_slot_that_goes_between_others_is_answered_without_the_disk() {
    let mut bench = Bench::new();
    let peer = other(Flags::PRIMARY);
    bench.meet(&peer);
    let set = |slot, action| Request::SetSlot { slot: Slot::new(slot), action, is_replicated: false };
    let theirs = SlotAction::Node { node: peer.sender, holds_keys: false };
    bench.ask(set(1, theirs.clone()));
    assert!(bench.apply() && !bench.save());
    assert_eq!(bench.answer(), Some(Answer::Ok));
    // One of this node's, one that it takes, and one that is on its way here.
    bench.ask(Request::AddSlots(range(2, 2)));
    bench.obey_all();
    bench.answer();
    let me = bench.machine.my_id();
    let mine = SlotAction::Node { node: me, holds_keys: false };
    let importing = SlotAction::Importing(peer.sender);
    for (slot, action) in [(2, theirs.clone()), (3, mine), (1, importing), (1, theirs)] {
        bench.ask(set(slot, action.clone()));
        bench.apply();
        assert_eq!(bench.answer(), None, "{action:?}");
        assert!(bench.save(), "{action:?}");
        bench.obey_all();
        assert_eq!(bench.answer(), Some(Answer::Ok), "{action:?}");
    }
}

#[test]
fn a_slow_disk_stops_no_pong() {
    let mut bench = Bench::new();
    let peer = other(Flags::PRIMARY);
    bench.meet(&peer);
    bench.ask(Request::BumpEpoch);
    for _ in 0..10 {
        bench.now_ms += 100;
        bench.step(Input::Tick { offset: 0 });
        bench.send(LINK, &peer, Body::Ping { kind: PingKind::Ping, gossip: Vec::new(), extensions: None });
    }
    assert_eq!(bench.sent(|body| matches!(body, Body::Ping { kind: PingKind::Pong, .. })), 10);
    assert_eq!((bench.machine.header().config_epoch, bench.answer()), (0, None), "the epoch is not on disk");
    bench.obey_all();
    assert_eq!(bench.machine.header().config_epoch, 1);
    assert_eq!(bench.answer(), Some(Answer::Status("BUMPED 1".to_string())));
}

#[test]
fn a_vote_leaves_when_it_is_saved_and_there_is_one_an_epoch() {
    let mut bench = Bench::new();
    bench.ask(Request::AddSlots(range(0, 99)));
    bench.obey_all();
    let primary = other(Flags::PRIMARY);
    bench.meet(&primary);
    // It says that it follows the primary, whose place it wants.
    let mut replica = other(Flags::REPLICA);
    replica.sender = NodeId::new([3; 20]);
    replica.primary = Some(primary.sender);
    replica.port = 7002;
    replica.bus_port = 17002;
    replica.forces_vote = true;
    replica.current_epoch = 5;
    let link = LinkId(5);
    bench.step(Input::Accepted { link, peer_ip: "10.0.0.3", local_ip: "10.0.0.1" });
    let gossip = about(&replica, "10.0.0.3");
    bench.send(LINK, &primary, Body::Ping { kind: PingKind::Ping, gossip: vec![gossip], extensions: None });
    bench.send(link, &replica, Body::Ping { kind: PingKind::Ping, gossip: Vec::new(), extensions: None });
    // A primary that has just started does not vote.
    bench.now_ms += 5000;
    bench.machine.settings.no_reconnection = false;
    bench.step(Input::Tick { offset: 0 });
    let found = bench.machine.nodes.find(&replica.sender).expect("it was gossiped about");
    let outbound = bench.machine.nodes[found].outbound.expect("it was connected to");
    bench.step(Input::Connected { link: outbound, local_ip: "10.0.0.1" });
    bench.obey_all();
    bench.said.clear();
    let is_vote = |body: &Body<'_>| matches!(body, Body::Vote);
    bench.send(link, &replica, Body::VoteRequest);
    assert_eq!(bench.sent(is_vote), 0, "{:?}", bench.said);
    assert!(bench.save());
    assert_eq!(bench.sent(is_vote), 1, "{:?}", bench.said);
    bench.send(link, &replica, Body::VoteRequest);
    bench.obey_all();
    assert_eq!(bench.sent(is_vote), 1, "one vote an epoch");
    replica.current_epoch = 6;
    bench.send(link, &replica, Body::VoteRequest);
    bench.obey_all();
    assert_eq!(bench.sent(is_vote), 2);
}

/// A sender that its own gossip makes known during its handshake does not become a second node.
#[test]
fn a_node_that_gossips_about_itself_in_its_handshake_is_one_node() {
    let mut bench = Bench::new();
    bench.machine.settings.no_reconnection = false;
    bench.ask(Request::Meet { ip: "10.0.0.2".to_string(), port: 7001, bus_port: 17001 });
    bench.step(Input::Tick { offset: 0 });
    let link = bench.said.iter().find_map(|output| match output {
        Output::Connect { link, .. } => Some(*link),
        _ => None,
    });
    let link = link.expect("it connects to what it is to meet");
    bench.step(Input::Connected { link, local_ip: "10.0.0.1" });
    let peer = other(Flags::PRIMARY);
    let gossip = vec![about(&peer, "10.0.0.2")];
    bench.send(link, &peer, Body::Ping { kind: PingKind::Meet, gossip, extensions: None });
    assert_eq!(bench.machine.known_nodes(), 2);
    assert!(bench.machine.nodes.find(&peer.sender).is_some());
}

/// The links that were closed, and that are forgotten then.
fn closed(bench: &mut Bench) -> Vec<LinkId> {
    let closed = bench.said.iter().filter_map(|output| match output {
        Output::Close { link } => Some(*link),
        _ => None,
    });
    let closed = closed.collect();
    bench.said.clear();
    closed
}

#[test]
fn links_of_no_node_have_a_number_and_a_time() {
    let mut bench = Bench::new();
    bench.meet(&other(Flags::PRIMARY));
    let ids = |from: u64, count: u64| (from..from + count).map(|at| LinkId(101 + 2 * at));
    let accept = |bench: &mut Bench, ids: &mut dyn Iterator<Item = LinkId>| {
        ids.for_each(|link| bench.step(Input::Accepted { link, peer_ip: "10.0.0.3", local_ip: "10.0.0.1" }));
    };
    let most = super::links::UNNAMED_MAX as u64;
    accept(&mut bench, &mut ids(0, most));
    assert_eq!(closed(&mut bench), []);
    bench.now_ms += 2500;
    accept(&mut bench, &mut ids(most, 3));
    assert_eq!(closed(&mut bench), ids(0, 3).collect::<Vec<_>>(), "the oldest");
    bench.step(Input::Tick { offset: 0 });
    assert_eq!(closed(&mut bench), ids(3, most - 3).collect::<Vec<_>>(), "two node timeouts");
    bench.now_ms += 2500;
    bench.step(Input::Tick { offset: 0 });
    // The link to the node that is known has got no answer; the one from it stays.
    let accepted: Vec<LinkId> = closed(&mut bench).into_iter().filter(|link| link.0 % 2 == 1).collect();
    assert_eq!(accepted, ids(most, 3).collect::<Vec<_>>());
    assert!(bench.machine.links.get(LINK).is_some());
}

#[test]
fn of_a_hundred_thousand_invented_nodes_as_many_are_known_as_a_message_can_count() {
    const NODES_MAX: usize = crate::conf::NODES_MAX;
    let mut bench = Bench::new();
    let peer = other(Flags::PRIMARY);
    bench.meet(&peer);
    for message in 0..10 {
        let gossip = (0..10_000).map(|entry| {
            let mut id = [7; 20];
            id[..4].copy_from_slice(&(message * 10_000 + entry as u32).to_be_bytes());
            Gossip { id: NodeId::new(id), ..about(&peer, "10.0.0.9") }
        });
        let gossip = gossip.collect();
        bench.send(LINK, &peer, Body::Ping { kind: PingKind::Pong, gossip, extensions: None });
        bench.said.clear();
    }
    assert_eq!(bench.machine.known_nodes(), NODES_MAX);
    // Nor is the file refused that it begins with next time.
    bench.now_ms += 2000;
    bench.step(Input::Tick { offset: 0 });
    let conf = bench.said.iter().find_map(|output| match output {
        Output::Save { conf, .. } => Some(conf),
        _ => None,
    });
    let text = crate::conf::write(conf.expect("what was learned is saved within a second"));
    let read = crate::conf::read(text.as_bytes(), false).expect("what was saved can be read");
    assert_eq!(read.nodes.len(), NODES_MAX);
}

#[test]
fn what_administrators_ask_wrongly() {
    let mut bench = Bench::new();
    let me = bench.machine.my_id();
    let unknown = NodeId::new([9; 20]);
    let slot = Slot::new(1);
    let set = |action| Request::SetSlot { slot, action, is_replicated: false };
    bench.ask(Request::AddSlots(range(5, 6)));
    bench.obey_all();
    bench.answer();
    let cases = [
        (Request::AddSlots(range(4, 6)), "Slot 5 is already busy".to_string()),
        (
            Request::AddSlots([range(1, 2), range(2, 2)].concat()),
            "Slot 2 specified multiple times".to_string(),
        ),
        (Request::DelSlots(range(5, 7)), "Slot 7 is already unassigned".to_string()),
        (set(SlotAction::Migrating(me)), "I'm not the owner of hash slot 1".to_string()),
        (set(SlotAction::Importing(unknown)), format!("I don't know about node {unknown}")),
        (set(SlotAction::Importing(me)), "Target node is myself".to_string()),
        (Request::Forget(me), "I tried hard but I can't forget myself...".to_string()),
        (Request::Forget(unknown), format!("Unknown node {unknown}")),
        (Request::Replicate { node: me, has_keys: false }, "Can't replicate myself".to_string()),
        (
            Request::Reset { is_hard: true, has_keys: true },
            "CLUSTER RESET can't be called with master nodes containing keys".to_string(),
        ),
        (
            Request::Meet { ip: "x".into(), port: 1, bus_port: 2 },
            "Invalid node address specified: x:1".to_string(),
        ),
    ];
    for (request, text) in cases {
        bench.ask(request.clone());
        bench.obey_all();
        assert_eq!(bench.answer(), Some(Answer::Error(text)), "{request:?}");
    }
    assert_eq!(bench.claims(), 2, "nothing was done");
}
