//! A member of a cluster whose topology and slots are set by hand, as the bus thread does.

use isotherm_cluster::topology::replies::Asker;
use isotherm_cluster::topology::{Address, Node, NodeIndex, State, Topology};
use isotherm_cluster::{Flags, NodeId, Slot, SlotRanges};
use isotherm_disk::{Plan, SimDisk};
use isotherm_keyspace::Db;
use isotherm_resp::{Protocol, SharedBytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::sim::process::Process;
use isotherm_engine::request::blocking;
use isotherm_membership::cluster::changes::{flip, publish};
use isotherm_node::cluster::shown::{Kind, Published};
use isotherm_node::cluster::state::alone;
use isotherm_node::cluster::words::{Owner, SlotState, Word};
use isotherm_node::mail::message::{Without, WorkerMessage};
use isotherm_node::observe::holds;

const ME: [u8; 20] = [1; 20];
const OTHER: [u8; 20] = [2; 20];

pub struct Member {
    pub process: Process,
    topology: Topology,
}

fn address(port: u16) -> Address {
    Address { ip: "10.0.0.2".into(), tcp_port: port, ..Address::default() }
}

impl Member {
    /// With a second node, and no slots.
    pub fn start(parameters: &[&str]) -> Member {
        let all = ["--cluster-enabled", "yes"].iter().chain(parameters).map(|word| word.to_string());
        let disk = SimDisk::new(1, Plan::default());
        let process = Process::start(&disk, &all.collect::<Vec<_>>(), 1).expect("it starts");
        let mut topology = alone(NodeId::new(ME), NodeId::new(ME), address(7001));
        let mut other = Node { id: NodeId::new(OTHER), ..topology.nodes[0].clone() };
        (other.flags, other.address, other.shard) =
            (Flags::PRIMARY, Arc::new(address(7002)), NodeId::new(OTHER));
        topology.nodes.push(other);
        topology.state = State::Ok;
        let mut member = Member { process, topology };
        member.publish();
        member
    }

    fn publish(&mut self) {
        publish(self.process.node, Arc::new(self.topology.clone()));
    }

    /// The slot of a key becomes this.
    pub fn set(&mut self, key: &str, state: SlotState) {
        let slot = Slot::of_key(key.as_bytes());
        let index = match state.owner {
            Owner::Unassigned => None,
            Owner::Myself => Some(NodeIndex(0)),
            Owner::MyPrimary | Owner::Other => Some(NodeIndex(1)),
        };
        Arc::make_mut(&mut self.topology.owners)[slot.index()] = index;
        for (at, node) in self.topology.nodes.iter_mut().enumerate() {
            let mut slots = node.slots.to_set();
            slots.remove(slot);
            index.is_some_and(|index| usize::from(index.0) == at).then(|| slots.insert(slot));
            node.slots = SlotRanges::from(&slots);
        }
        let other = NodeId::new(OTHER);
        self.topology.migrating.retain(|(migrating, _)| *migrating != slot);
        self.topology.importing.retain(|(importing, _)| *importing != slot);
        state.migrating.then(|| self.topology.migrating.push((slot, other)));
        state.importing.then(|| self.topology.importing.push((slot, other)));
        self.publish();
        flip(self.process.node, &[(slot, state)]);
    }

    pub fn give(&mut self, keys: &[&str]) {
        keys.iter().for_each(|key| self.set(key, SlotState::MINE));
    }

    pub fn lose(&mut self, key: &str) {
        self.set(key, SlotState::of(Owner::Other));
    }

    fn run_as(&mut self, session: usize, line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.replace('_', " ").into_bytes()).collect();
        let answer = self.process.run(session, &words);
        match answer.is_parked {
            true => "parked".into(),
            false => String::from_utf8_lossy(&answer.reply).trim_end().replace("\r\n", " "),
        }
    }

    #[track_caller]
    pub fn check(&mut self, line: &str, expected: &str) {
        assert_eq!(self.run_as(0, line), expected, "{line}");
    }
}

const CROSS: &str = "-CROSSSLOT Keys in request don't hash to the same slot";
const TRY_AGAIN: &str = "-TRYAGAIN Multiple keys request during rehashing of slot";
const UNBOUND: &str = "-CLUSTERDOWN Hash slot not served";
const MOVED_A: &str = "-MOVED 15495 10.0.0.2:7002";
const ASK_A: &str = "-ASK 15495 10.0.0.2:7002";
pub const MIGRATING: SlotState = SlotState { owner: Owner::Myself, migrating: true, importing: false };
pub const IMPORTING: SlotState = SlotState { owner: Owner::Other, migrating: false, importing: true };

#[test]
fn one_key_and_several() {
    let mut member = Member::start(&[]);
    member.check("GET a", UNBOUND);
    member.check("PING", "+PONG");
    member.lose("a");
    member.check("GET a", MOVED_A);
    member.check("SET a 1", MOVED_A);
    member.check("MGET a{a} b{a}", MOVED_A);
    member.check("XREAD STREAMS a 0", MOVED_A);
    member.check("GET", "-ERR wrong number of arguments for 'get' command");
    member.give(&["a", "b"]);
    member.check("SET a 1", "+OK");
    member.check("GET a", "$1 1");
    member.check("MSET {a}1 x {a}2 y", "+OK");
    member.check("MGET {a}1 {a}2", "*2 $1 x $1 y");
    member.check("MGET a b", CROSS);
    member.check("MSET a 1 b 2", CROSS);
    member.check("DEL a b", CROSS);
    member.check("RENAME a b", CROSS);
    member.check("SINTERSTORE a b a", CROSS);
    member.check("EVAL return_1 2 a b", CROSS);
    member.check("SWAPDB 0 1", "-ERR SWAPDB is not allowed in cluster mode");
    member.check(
        "SORT a BY w*",
        "-ERR BY option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots.",
    );
    let totals = member.process.node.stats.totals();
    assert_eq!(totals.errors[&b"MOVED"[..]], 4);
}

#[test]
fn transactions_have_one_slot() {
    let mut member = Member::start(&[]);
    member.give(&["a", "b"]);
    member.lose("c");
    member.check("MULTI", "+OK");
    member.check("GET c", "-MOVED 7365 10.0.0.2:7002");
    member.check("EXEC", "-EXECABORT Transaction discarded because of previous errors.");
    member.check("MULTI", "+OK");
    member.check("SET a 1", "+QUEUED");
    member.check("SET b 1", "+QUEUED");
    member.check("EXEC", CROSS);
    member.check("EXEC", "-ERR EXEC without MULTI");
    member.check("MULTI", "+OK");
    member.check("SET a 1", "+QUEUED");
    member.check("PING", "+QUEUED");
    member.check("SPUBLISH a x", "+QUEUED");
    member.check("EXEC", "*3 +OK +PONG :0");
    member.check("MULTI", "+OK");
    member.check("SET a 1", "+QUEUED");
    member.lose("a");
    member.check("EXEC", MOVED_A);
    member.check("EXEC", "-ERR EXEC without MULTI");
}

#[test]
fn keys_of_a_slot_that_leaves() {
    let mut member = Member::start(&["--cluster-databases", "2"]);
    member.give(&["a"]);
    member.check("MSET {a}1 x {a}2 y", "+OK");
    member.set("a", MIGRATING);
    member.check("GET {a}1", "$1 x");
    member.check("GET a", ASK_A);
    member.check("SET a 1", ASK_A);
    member.check("MGET {a}1 {a}2", "*2 $1 x $1 y");
    member.check("MGET {a}1 a", TRY_AGAIN);
    member.check("MGET a {a}3", ASK_A);
    member.check("MOVE {a}1 1", TRY_AGAIN);
    member.check("COPY {a}1 {a}2 DB 1", TRY_AGAIN);
    member.check("COPY {a}1 {a}2 DB 0", ":0");
    member.check("SPUBLISH a x", ":0");
    member.check("BLPOP {a}3 {a}4 0", ASK_A);
    member.check("MULTI", "+OK");
    member.check("GET a", "+QUEUED");
    member.check("EXEC", ASK_A);
    member.check("MULTI", "+OK");
    member.check("GET {a}1", "+QUEUED");
    member.check("EXEC", "*1 $1 x");
}

#[test]
fn keys_of_a_slot_that_comes() {
    let mut member = Member::start(&[]);
    member.set("a", IMPORTING);
    member.check("SET a 1", MOVED_A);
    member.check("ASKING", "+OK");
    member.check("SET a 1", "+OK");
    member.check("GET a", MOVED_A);
    member.check("ASKING", "+OK");
    member.check("ASKING", "+OK");
    member.check("GET a", "$1 1");
    member.check("ASKING", "+OK");
    member.check("PING", "+PONG");
    member.check("GET a", MOVED_A);
    member.check("ASKING", "+OK");
    member.check("MGET a {a}2", TRY_AGAIN);
    member.check("ASKING", "+OK");
    member.check("MGET a a", "*2 $1 1 $1 1");
    member.check("ASKING", "+OK");
    member.check("MULTI", "+OK");
    member.check("GET a", "+QUEUED");
    member.check("EXEC", "*1 $1 1");
    member.check("GET a", MOVED_A);
}

#[test]
fn a_replica_reads_its_primarys_slots() {
    let mut member = Member::start(&[]);
    member.topology.nodes[0].flags = Flags::MYSELF | Flags::REPLICA;
    member.topology.nodes[0].primary = Some(NodeIndex(1));
    member.set("a", SlotState::of(Owner::MyPrimary));
    member.lose("b");
    member.check("GET a", MOVED_A);
    member.check("SPUBLISH a x", ":0");
    member.check("READONLY", "+OK");
    member.check("GET a", "$-1");
    member.check("SET a 1", MOVED_A);
    member.check("GET b", "-MOVED 3300 10.0.0.2:7002");
    member.check("MULTI", "+OK");
    member.check("GET a", "+QUEUED");
    member.check("EXEC", "*1 $-1");
    member.check("EVAL_RO return_1 1 a".replace("EVAL_RO", "EVAL").as_str(), ":1");
    member.check("READWRITE", "+OK");
    member.check("GET a", MOVED_A);
}

#[test]
fn a_cluster_that_is_down() {
    let mut member = Member::start(&["--cluster-allow-reads-when-down", "yes"]);
    member.give(&["a"]);
    member.topology.state = State::Minority;
    member.publish();
    member.check("GET a", "$-1");
    member.check("SET a 1", "-CLUSTERDOWN The cluster is down and only accepts read commands");
    member.check("SPUBLISH a x", ":0");
    member.check("CONFIG SET cluster-allow-reads-when-down no", "+OK");
    member.check("CONFIG SET cluster-allow-pubsubshard-when-down no", "+OK");
    member.check("GET a", "-CLUSTERDOWN The cluster is down");
    member.check("SPUBLISH a x", "-CLUSTERDOWN The cluster is down");
    member.check("PING", "+PONG");
    member.topology.state = State::Ok;
    member.publish();
    member.check("SET a 1", "+OK");
}

fn answers(member: &Member, worker: usize) -> Vec<Without> {
    let messages = member.process.messages(worker).into_iter();
    let how = messages.filter_map(|message| match message {
        WorkerMessage::Unblocked { how, .. } => Some(how),
        _ => None,
    });
    how.collect()
}

#[test]
fn a_loss_lets_go_of_its_followers() {
    let mut member = Member::start(&[]);
    member.give(&["a", "b"]);
    assert_eq!(member.run_as(0, "BLPOP a 0"), "parked");
    assert_eq!(member.run_as(1, "BLPOP b 0"), "parked");
    assert_eq!(member.run_as(2, "WATCH a"), "+OK");
    assert_eq!(member.run_as(3, "WATCH b"), "+OK");
    let _ = (member.process.messages(0), member.process.messages(1));
    member.lose("a");
    assert_eq!(answers(&member, 0), [Without::SlotLost(Slot::of_key(b"a"))]);
    assert_eq!(answers(&member, 1), []);
    for (session, expected) in [(2, "*-1"), (3, "*1 +PONG")] {
        assert_eq!(member.run_as(session, "MULTI"), "+OK");
        assert_eq!(member.run_as(session, "PING"), "+QUEUED");
        assert_eq!(member.run_as(session, "EXEC"), expected);
    }
    let (dispatcher, session) = member.process.session(0);
    let waiter = Arc::clone(&session.blocked.as_ref().expect("it waits").waiter);
    let how = Without::SlotLost(Slot::of_key(b"a"));
    let text = blocking::answer_without(&mut dispatcher.exec, session, &waiter, how);
    assert_eq!(text, format!("{MOVED_A}\r\n").into_bytes());
}

#[test]
fn channels_of_a_slot() {
    let mut member = Member::start(&[]);
    member.give(&["a", "b"]);
    member.lose("c");
    member.check("SSUBSCRIBE c", "-MOVED 7365 10.0.0.2:7002");
    member.check("SSUBSCRIBE a b", CROSS);
    member.check("SSUBSCRIBE a", "*3 $10 ssubscribe $1 a :1");
    holds::enter(member.process.node.hold_sinks(), 1);
    assert_eq!(member.run_as(1, "SPUBLISH a x"), ":1");
    let _ = member.process.messages(0);
    member.lose("a");
    let lost = member.process.messages(0).into_iter().any(|message| match message {
        WorkerMessage::SlotsLost(slots) => slots.iter().eq([Slot::of_key(b"a")]),
        _ => false,
    });
    assert!(lost);
    assert_eq!(member.run_as(1, "SPUBLISH a x"), MOVED_A);
}

#[test]
fn scripts_stay_in_their_slots() {
    let mut member = Member::start(&[]);
    member.give(&["a", "b"]);
    member.lose("c");
    member.check("EVAL return_redis.call('set',KEYS[1],1) 1 a", "+OK");
    member.check("EVAL return_1 1 c", "-MOVED 7365 10.0.0.2:7002");
    member.check("EVAL return_redis.call('set','b',1) 1 a", "+OK");
    let error = member.run_as(0, "EVAL return_redis.call('set','c',1) 1 a");
    assert!(error.starts_with("-ERR Attempted to access a non local key in a cluster node"), "{error}");
    let error = member.run_as(0, "EVAL #!lua\nreturn_redis.call('set','b',1) 1 a");
    assert!(error.starts_with("-ERR Script attempted to access keys that do not hash to"), "{error}");
    member.check("EVAL #!lua_flags=allow-cross-slot-keys\nreturn_redis.call('set','b',1) 1 a", "+OK");
    member.check(
        "EVAL #!lua_flags=no-cluster\nreturn_1 0",
        "-ERR Can not run script on cluster, 'no-cluster' flag is set.",
    );
    member.check("MULTI", "+OK");
    member.check("EVAL return_redis.call('get','a') 1 a", "+QUEUED");
    member.check("EXEC", "*1 $1 1");
}

#[test]
fn keys_of_a_slot_are_counted_named_and_deleted() {
    let mut member = Member::start(&["--cluster-databases", "2"]);
    member.give(&["a", "b"]);
    (0..500).for_each(|at| member.check(&format!("SET {{a}}{at} x"), "+OK"));
    member.check("SELECT 1", "+OK");
    member.check("SET a x", "+OK");
    member.check("SET b x", "+OK");
    member.check("CLUSTER COUNTKEYSINSLOT 15495", ":1");
    member.check("CLUSTER GETKEYSINSLOT 15495 10", "*1 $1 a");
    member.check("SELECT 0", "+OK");
    member.check("CLUSTER COUNTKEYSINSLOT 15495", ":500");
    assert!(member.run_as(0, "CLUSTER GETKEYSINSLOT 15495 7").starts_with("*7 $"));
    assert!(member.run_as(0, "CLUSTER GETKEYSINSLOT 15495 1000").starts_with("*500 $"));
    member.check("CLUSTER GETKEYSINSLOT 16384 1", "-ERR Invalid slot or number of keys");
    member.check("CLUSTER COUNTKEYSINSLOT 16384", "-ERR Invalid slot");
    member.check("CLUSTER FLUSHSLOT 15495 NOW", "-ERR syntax error");
    assert_eq!(member.run_as(1, "WATCH {a}1"), "+OK");
    member.check("CLUSTER FLUSHSLOT 15495 SYNC", "+OK");
    member.check("DBSIZE", ":0");
    member.check("SELECT 1", "+OK");
    member.check("DBSIZE", ":1");
    member.check("MULTI", "+OK");
    member.check("CLUSTER FLUSHSLOT 3300", "+QUEUED");
    member.check("CLUSTER COUNTKEYSINSLOT 3300", "+QUEUED");
    member.check("EXEC", "*2 +OK :0");
    assert_eq!(member.run_as(1, "MULTI"), "+OK");
    assert_eq!(member.run_as(1, "EXEC"), "*-1");
    member.process.node.keyspace.check_invariants();
}

#[test]
fn what_a_member_says_of_itself() {
    let mut member = Member::start(&[]);
    member.give(&["a"]);
    let id = NodeId::new(ME);
    member.check("CLUSTER MYID", &format!("$40 {id}"));
    member.check("CLUSTER MYSHARDID", &format!("$40 {id}"));
    member.check("CLUSTER KEYSLOT a", ":15495");
    member.check("CLUSTER MEET 10.0.0.3 7003", "-ERR The cluster bus is not ready yet");
    member.check("CLUSTER MEET 10.0.0.3", "-ERR wrong number of arguments for 'cluster|meet' command");
    member.check("CLUSTER GETSLOTMIGRATIONS", "*0");
    assert!(member.run_as(0, "CLUSTER SLOT-STATS SLOTSRANGE 0 16383").starts_with("*1 *2 :15495 "));
    assert!(member.run_as(0, "CLUSTER SLOT-STATS ORDERBY key-count").starts_with("*1 *2 :15495 "));
    let (me, other) = (NodeId::new(ME), NodeId::new(OTHER));
    let line = format!("{me} 10.0.0.2:7001@0 myself,master - 0 0 0 connected 15495");
    let nodes = member.run_as(0, "CLUSTER NODES");
    assert!(nodes.contains(&line) && nodes.contains(&other.to_string()), "{nodes}");
    let slots = format!("*1 *3 :15495 :15495 *4 $8 10.0.0.2 :7001 $40 {me} *0");
    member.check("CLUSTER SLOTS", &slots);
    member.publish();
    member.check("CLUSTER SLOTS", &slots);
    assert!(member.run_as(0, "CLUSTER SHARDS").starts_with("*2 *"));
    member.check(&format!("CLUSTER REPLICAS {other}"), "*0");
    member.check("CLUSTER REPLICAS x", "-ERR Unknown node x");
    member.check(&format!("CLUSTER SLAVES {me}"), "*0");
    assert!(member.run_as(0, "CLUSTER INFO").contains("cluster_state:ok cluster_slots_assigned:1 "));
    assert!(member.run_as(0, "INFO everything").contains("cluster_known_nodes:2"));
    member.give(&["b"]);
    assert!(member.run_as(0, "CLUSTER SLOTS").starts_with("*2 *3 :3300 :3300 "));
    assert!(member.run_as(0, "CLUSTER HELP").contains("+SETSLOT <slot>"));
    assert!(member.run_as(0, "INFO cluster").contains("cluster_enabled:1"));
    assert!(member.run_as(0, "INFO server").contains("server_mode:cluster"));
    assert!(member.run_as(0, "HELLO").contains("$4 mode $7 cluster"));
}

/// A client that misses a key waits while a MIGRATE has the key: it was deleted meanwhile, and the target may
/// not have heard of that.
#[test]
fn who_misses_a_key_that_is_on_its_way_waits() {
    let mut member = Member::start(&[]);
    let flights = &member.process.node.migrations.flights;
    let name: [Arc<[u8]>; 1] = [Arc::from(&b"a"[..])];
    member.set("a", MIGRATING);
    member.check("GET a", ASK_A);
    flights.begin(Db(0), name.iter());
    member.check("GET a", "parked");
    member.check("GET {a}b", ASK_A);
    assert_eq!(member.run_as(1, "MULTI"), "+OK");
    assert_eq!(member.run_as(1, "GET a"), "+QUEUED");
    assert_eq!(member.run_as(1, "EXEC"), "parked");
    assert!(flights.end(Db(0), name.iter()), "someone waits");
    member.check("GET a", ASK_A);
    assert_eq!(member.run_as(1, "EXEC"), ASK_A);
    // It moves keys whichever there are.
    member.check("MIGRATE 10.0.0.2 1 a 0 1", "+NOKEY");
    member.check("MIGRATE 10.0.0.2 1 b 0 1", UNBOUND);
}

#[test]
fn who_waits_for_a_key_that_leaves_is_sent_on() {
    let mut member = Member::start(&[]);
    member.give(&["a"]);
    member.check("XGROUP CREATE a g $ MKSTREAM", "+OK");
    assert_eq!(member.run_as(1, "XREADGROUP GROUP g c BLOCK 0 STREAMS a >"), "parked");
    member.set("a", MIGRATING);
    let (node, name) = (member.process.node, [Arc::from(&b"a"[..])]);
    node.migrations.flights.begin(Db(0), name.iter());
    member.check("DEL a", ":1");
    assert_eq!(look(&mut member, 1), [] as [String; 0], "the MIGRATE is not over");
    assert!(node.migrations.flights.end(Db(0), name.iter()), "someone waits");
    node.runs.wake(&node.mail, blocking::look_again);
    assert_eq!(look(&mut member, 1), [format!("{ASK_A}\r\n")]);
}

/// Has a session's worker look after clients that wait for keys. Returns what was sent to these.
fn look(member: &mut Member, session: usize) -> Vec<String> {
    let mut replies = Vec::new();
    for message in member.process.messages(session % 2) {
        if let WorkerMessage::Look { waiter } = message {
            let (dispatcher, _) = member.process.session(session);
            assert_eq!(blocking::look_for(&mut dispatcher.exec, &waiter), None);
            replies.extend(look(member, session));
        } else if let WorkerMessage::Served { reply, .. } = message {
            replies.push(String::from_utf8_lossy(&reply).into_owned());
        }
    }
    replies
}

#[test]
fn a_key_comes_without_asking() {
    let mut member = Member::start(&[]);
    member.set("a", IMPORTING);
    member.check("SET a 1", MOVED_A);
    member.give(&["b"]);
    member.check("SET b bar", "+OK");
    let dump = member.process.run(0, &[b"DUMP".to_vec(), b"b".to_vec()]).reply;
    let payload = &dump[dump.iter().position(|byte| *byte == b'\n').unwrap() + 1..dump.len() - 2];
    let words = [&b"RESTORE-ASKING"[..], b"a", b"0", payload].map(Vec::from);
    assert_eq!(member.process.run(0, &words).reply, b"+OK\r\n");
    let words = [&b"RESTORE"[..], &words[1], &words[2], &words[3]].map(Vec::from);
    let reply = member.process.run(0, &words).reply;
    assert_eq!(String::from_utf8_lossy(&reply).trim_end(), MOVED_A);
    member.check("ASKING", "+OK");
    member.check("GET a", "$3 bar");
}

#[test]
fn a_scan_goes_from_slot_to_slot() {
    let mut member = Member::start(&[]);
    let tag = |slot: u16| String::from_utf8_lossy(Slot::new(slot).tag()).into_owned();
    let cursor = |slot: u16| format!("0-{{{}}}-0", tag(slot));
    // A cursor of "0" has a slot of its own, as any key has.
    member.give(&["0", "{06S}", "{Qi}", "{4ZG}"]);
    member.check("CLUSTERSCAN 0", &format!("*2 $9 {} *0", cursor(0)));
    member.check("CLUSTERSCAN 0 SLOT 50", &format!("*2 $9 {} *0", cursor(50)));
    member.check("CLUSTERSCAN 0 MATCH {Qi}*", &format!("*2 $8 {} *0", cursor(1)));
    member.check("CLUSTERSCAN 0 MATCH {Qi}* SLOT 0", "*2 $1 0 *0");
    member.check("CLUSTERSCAN 0-{06S}-0", &format!("*2 $9 {} *0", cursor(2)));
    member.check("SET {06S}a 1", "+OK");
    member.check("SET {Qi}b 1", "+OK");
    member.check("SET {4ZG}c 1", "+OK");
    member.check("CLUSTERSCAN 0-{06S}-0", &format!("*2 $9 {} *2 $6 {{06S}}a $5 {{Qi}}b", cursor(2)));
    member.check("CLUSTERSCAN 0-{06S}-0 SLOT 0", "*2 $1 0 *1 $6 {06S}a");
    member.check("CLUSTERSCAN 0-{06S}-0 TYPE hash", &format!("*2 $9 {} *0", cursor(2)));
    // The next slot that has keys, and who has given the cursor.
    let reply = member.run_as(0, "CLUSTERSCAN 0-{06S}-0 COUNT 1");
    let words: Vec<&str> = reply.split(' ').collect();
    assert_eq!((words[0], words[3], words[5]), ("*2", "*1", "{06S}a"), "{reply}");
    assert!(words[2].ends_with("-{Qi}-1") && words[2].len() == 13, "{reply}");
    let next = format!("CLUSTERSCAN {}", words[2]);
    member.check(&next, &format!("*2 $9 {} *1 $5 {{Qi}}b", cursor(2)));
    // Within a slot.
    (0..300).for_each(|at| member.check(&format!("SET {{4ZG}}{at} x"), "+OK"));
    let (mut from, mut seen, mut calls) = (cursor(50), 0, 0);
    while from != "0" {
        let reply = member.run_as(0, &format!("CLUSTERSCAN {from} COUNT 20 SLOT 50"));
        let words: Vec<&str> = reply.split(' ').collect();
        from = words[2].to_string();
        seen += words[3][1..].parse::<usize>().unwrap();
        calls += 1;
    }
    assert_eq!(seen, 301);
    assert!(calls > 5, "{calls}");
    for wrong in ["abc", "0-", "0-{06S}", "0-{06S}-x", "0-{06S}-", "0-{06S}-18446744073709551616"] {
        let slot = Slot::of_key(wrong.as_bytes());
        member.give(&[wrong]);
        member.check(&format!("CLUSTERSCAN {wrong}"), "-ERR Invalid cursor");
        assert_ne!(slot, Slot::new(50));
    }
    member.check("CLUSTERSCAN 0-{06S}-0 SLOT 1", "-ERR Cursor slot mismatch with SLOT argument");
    member.check("CLUSTERSCAN 0 SLOT 16384", "-ERR Invalid or out of range slot");
    member.check("CLUSTERSCAN 0 SLOT 0 SLOT 0", "-ERR SLOT option can only be specified once");
    member.check("CLUSTERSCAN 0-{5L5}-0", UNBOUND);
    let mut alone = Process::start(&SimDisk::new(1, Plan::default()), &[], 1).expect("it starts");
    let words = [&b"CLUSTERSCAN"[..], b"0"].map(Vec::from);
    assert_eq!(alone.run(0, &words).reply, b"-ERR This instance has cluster support disabled\r\n");
}

/// The port of the node that CLUSTER SLOTS names as the owner of a slot.
fn port_in_slots(shown: &Published, slot: Slot) -> Option<u16> {
    let parts = shown.reply(Kind::Slots, Asker::default(), Protocol::Resp2);
    let text: String = parts.iter().map(|part| String::from_utf8_lossy(part)).collect();
    text.split("*3\r\n:").skip(1).find_map(|run| {
        let mut numbers = run.split("\r\n:").map(|text| text.split("\r\n").next()?.parse().ok());
        let (first, last, port): (u16, u16, u16) = (numbers.next()??, numbers.next()??, numbers.next()??);
        (first..=last).contains(&slot.get()).then_some(port)
    })
}

/// A client that reads from a word that a slot is another node's finds that node in CLUSTER SLOTS.
#[test]
fn slots_are_shown_before_clients_are_sent_on() {
    let mut member = Member::start(&[]);
    let (node, slot) = (member.process.node, Slot::of_key(b"a"));
    let others = Word::new(SlotState::of(Owner::Other));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let state = node.cluster.get().unwrap();
            let mut seen = 0;
            while !is_over.load(Relaxed) {
                let generation = state.topologies.generation();
                if state.words.get(slot) != others {
                    continue;
                }
                let shown = state.topologies.newest().1;
                // Unless the slot has come back meanwhile.
                if state.words.get(slot) == others && state.topologies.generation() == generation {
                    assert_eq!(port_in_slots(&shown, slot), Some(7002));
                    seen += 1;
                }
            }
            seen
        });
        for _ in 0..300 {
            member.lose("a");
            std::thread::yield_now();
            flip(node, &[(slot, SlotState::MINE)]);
            member.give(&["a"]);
        }
        member.lose("a");
        std::thread::sleep(std::time::Duration::from_millis(50));
        is_over.store(true, Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn replies_are_made_when_they_show_something_else() {
    let mut member = Member::start(&[]);
    member.give(&["a"]);
    let state = member.process.node.cluster.get().unwrap();
    let parts = |kind| {
        let shown = state.topologies.newest().1;
        shown.reply(kind, Asker::default(), Protocol::Resp3).to_vec()
    };
    let bytes = || state.topologies.newest().1.account.bytes();
    let same = |a: &[Arc<SharedBytes>], b: &[Arc<SharedBytes>]| {
        a.iter().zip(b).filter(|(a, b)| !Arc::ptr_eq(a, b)).count()
    };
    assert_eq!(bytes(), 0, "no client has asked");
    let (slots, shards, nodes) = (parts(Kind::Slots), parts(Kind::Shards), parts(Kind::Nodes));
    assert!(bytes() > 0);
    member.topology.nodes[1].pong_received_ms = 7;
    member.publish();
    assert_eq!(same(&slots, &parts(Kind::Slots)), 0);
    assert_eq!(same(&shards, &parts(Kind::Shards)), 0);
    assert_eq!(same(&nodes, &parts(Kind::Nodes)), 2);
    member.give(&["b"]);
    let anew = parts(Kind::Slots);
    assert_eq!(same(&slots, &anew), 2, "the header and one block");
    assert_eq!(same(&shards, &parts(Kind::Shards)), 2, "ranges have changed");
    member.topology.nodes[1].offset = 7;
    member.publish();
    assert_eq!(same(&anew, &parts(Kind::Slots)), 65, "a node is shown in another way");
    let before = bytes();
    drop((slots, shards, nodes));
    assert!(bytes() < before, "what no client reads any more is gone");
}
