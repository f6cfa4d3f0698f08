//! Several nodes: they meet, agree on slots, send clients to each other, and know which of them are alive.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{self, Client, Server, encode, field, free_port, wait_until};

const SLOTS: u16 = 16384;
const NODE_TIMEOUT: &str = "2000";

pub struct Node {
    pub server: Server,
    pub bus_port: u16,
    pub id: String,
    arguments: Vec<String>,
}

impl Node {
    pub fn start(more: &[&str]) -> Node {
        let bus_port = free_port();
        let bus_text = bus_port.to_string();
        let common =
            ["--cluster-enabled", "yes", "--cluster-port", &bus_text, "--cluster-node-timeout", NODE_TIMEOUT];
        let debug = ["--enable-debug-command", "yes"];
        let arguments = [&common[..], &debug, more].concat();
        let server = Server::with_workers(2, &arguments);
        let id = server.client().ask("CLUSTER MYID").lines().nth(1).unwrap_or_default().to_string();
        let arguments = arguments.iter().map(|text| text.to_string()).collect();
        Node { server, bus_port, id, arguments }
    }

    pub fn client(&self) -> Client {
        self.server.client()
    }

    fn is_ok(&self) -> bool {
        self.client().ask("CLUSTER INFO").contains("cluster_state:ok")
    }

    /// Another process with the same ports, on a copy of what the first one knew of the cluster.
    fn start_again(&mut self) {
        let folder =
            std::env::temp_dir().join(format!("isotherm-again-{}-{}", std::process::id(), self.server.port));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(self.server.folder.join("nodes.conf"), folder.join("nodes.conf")).unwrap();
        self.arguments.extend(["--dir".to_string(), folder.to_str().unwrap().to_string()]);
        self.kill();
        self.revive();
    }

    pub fn kill(&mut self) {
        self.server.signal("KILL");
        self.server.wait();
    }

    /// Starts another process with the same ports and arguments (`--dir` is one of them).
    pub fn revive(&mut self) {
        let port = self.server.port.to_string();
        let mut command = Command::new(common::binary());
        command.args(["--port", &port, "--bind", "127.0.0.1"]).args(&self.arguments);
        self.server = Server::spawn(self.server.port, command);
        wait_until("it listens again", || TcpStream::connect(("127.0.0.1", self.server.port)).is_ok());
    }
}

/// Nodes that know each other and share all slots, in their order.
pub fn cluster(count: usize, more: &[&str]) -> Vec<Node> {
    let nodes: Vec<Node> = (0..count).map(|_| Node::start(more)).collect();
    join(&nodes);
    nodes
}

pub fn join(nodes: &[Node]) {
    let count = nodes.len();
    for (at, node) in nodes.iter().enumerate() {
        let (from, to) = (share(at, count), share(at + 1, count) - 1);
        node.client().check(&format!("CLUSTER ADDSLOTSRANGE {from} {to}"), "+OK\r\n");
        node.client().check(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1), "+OK\r\n");
    }
    for node in &nodes[1..] {
        meet(&nodes[0], node);
    }
    wait_until("all nodes are ok", || are_ok(nodes));
}

pub fn are_ok(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| node.is_ok() && known(node) == nodes.len())
}

fn share(at: usize, count: usize) -> usize {
    at * usize::from(SLOTS) / count
}

pub fn meet(node: &Node, other: &Node) {
    let request = format!("CLUSTER MEET 127.0.0.1 {} {}", other.server.port, other.bus_port);
    node.client().check(&request, "+OK\r\n");
}

fn known(node: &Node) -> usize {
    node.client()
        .ask("CLUSTER NODES")
        .lines()
        .filter(|line| line.contains('@') && !line.contains("handshake"))
        .count()
}

fn flags_of(node: &Node, id: &str) -> String {
    let nodes = node.client().ask("CLUSTER NODES");
    let line = nodes.lines().find(|line| line.starts_with(id)).unwrap_or_default().to_string();
    line.split(' ').nth(2).unwrap_or_default().to_string()
}

fn slot_of(client: &mut Client, key: &str) -> u16 {
    client.ask_number(&format!("CLUSTER KEYSLOT {key}")) as u16
}

#[test]
fn a_request_for_another_nodes_slot_is_sent_there() {
    let nodes = cluster(3, &[]);
    for key in ["a", "b", "c", "foo", "bar"] {
        let slot = slot_of(&mut nodes[0].client(), key);
        let owner = (0..3).rfind(|at| share(*at, 3) <= usize::from(slot)).unwrap();
        for (at, node) in nodes.iter().enumerate() {
            let reply = match at == owner {
                true => "+OK\r\n".to_string(),
                false => format!("-MOVED {slot} 127.0.0.1:{}\r\n", nodes[owner].server.port),
            };
            node.client().check(&format!("SET {key} v"), &reply);
        }
    }
}

#[test]
fn a_slot_moves_with_its_keys() {
    let nodes = cluster(2, &[]);
    let (mut from, mut to) = (nodes[0].client(), nodes[1].client());
    let slot = slot_of(&mut from, "{b}");
    assert!(slot < SLOTS / 2, "it is the first node's");
    from.check("MSET {b}1 x {b}2 y", "+OK\r\n");
    let ports = [nodes[0].server.port, nodes[1].server.port];
    to.check(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", nodes[0].id), "+OK\r\n");
    from.check(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", nodes[1].id), "+OK\r\n");
    // Keys that are there are served; a key that is not may be at the other node.
    from.check("GET {b}1", "$1\r\nx\r\n");
    from.check("GET {b}3", &format!("-ASK {slot} 127.0.0.1:{}\r\n", ports[1]));
    from.check("MGET {b}1 {b}3", "-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
    to.check("GET {b}3", &format!("-MOVED {slot} 127.0.0.1:{}\r\n", ports[0]));
    to.check("ASKING", "+OK\r\n");
    to.check("SET {b}3 z", "+OK\r\n");
    to.check("GET {b}3", &format!("-MOVED {slot} 127.0.0.1:{}\r\n", ports[0]));
    // It is not given away while it has keys.
    let refused = format!(
        "-ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot.\r\n"
    );
    from.check(&format!("CLUSTER SETSLOT {slot} NODE {}", nodes[1].id), &refused);
    for (key, value) in [("{b}1", "x"), ("{b}2", "y")] {
        to.check("ASKING", "+OK\r\n");
        to.check(&format!("SET {key} {value}"), "+OK\r\n");
        from.check(&format!("DEL {key}"), ":1\r\n");
    }
    to.check(&format!("CLUSTER SETSLOT {slot} NODE {}", nodes[1].id), "+OK\r\n");
    to.check("MGET {b}1 {b}2 {b}3", "*3\r\n$1\r\nx\r\n$1\r\ny\r\n$1\r\nz\r\n");
    from.check(&format!("CLUSTER SETSLOT {slot} NODE {}", nodes[1].id), "+OK\r\n");
    from.check("GET {b}1", &format!("-MOVED {slot} 127.0.0.1:{}\r\n", ports[1]));
    wait_until("both agree", || nodes.iter().all(|node| node.is_ok()));
}

/// Another node says that the slot is its own.
fn take(node: &Node, from: &Node, slot: u16) {
    node.client().check(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id), "+OK\r\n");
    node.client().check(&format!("CLUSTER SETSLOT {slot} NODE {}", node.id), "+OK\r\n");
}

/// A script that runs for ever has a key of a slot that is lost: what waits for its end, and what does not.
#[test]
fn a_deletion_that_waits_holds_up_nothing_but_the_return_of_its_slot() {
    let nodes = cluster(2, &[]);
    let (mut client, mut other) = (nodes[0].client(), nodes[0].client());
    // Both are the first node's.
    let slots = ["{b}", "{06S}"].map(|key| slot_of(&mut client, key));
    (0..300).for_each(|at| client.check(&format!("SET {{b}}{at} old"), "+OK\r\n"));
    let text = "redis.call('GET', KEYS[1]) while true do end";
    client.send(encode(&["EVAL", text, "1", "{b}7"]));
    wait_until("the script takes long", || field(&other.ask("INFO stats"), "long_scripts") == 1);
    take(&nodes[1], &nodes[0], slots[0]);
    let count = format!("CLUSTER COUNTKEYSINSLOT {}", slots[0]);
    wait_until("all others are deleted", || other.ask(&count) == ":1\r\n");
    // Another one that is lost meanwhile.
    take(&nodes[1], &nodes[0], slots[1]);
    wait_until("it is lost", || other.ask("SET {06S} x").starts_with("-MOVED"));
    // The first one comes back, but not with what it had.
    let mut admin = nodes[0].client();
    let slot = slots[0].to_string();
    admin.send(encode(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &nodes[1].id]));
    wait_until("that is saved", || {
        let file = std::fs::read_to_string(nodes[0].server.folder.join("nodes.conf")).unwrap_or_default();
        file.contains(&format!("[{slot}-<-"))
    });
    other.check("ASKING", "+OK\r\n");
    assert!(other.ask("GET {b}7").starts_with("-MOVED"), "it has an old key");
    other.check("SCRIPT KILL", "+OK\r\n");
    assert_eq!(admin.read_reply(), b"+OK\r\n");
    admin.check(&format!("CLUSTER SETSLOT {slot} NODE {}", nodes[0].id), "+OK\r\n");
    other.check("GET {b}7", "$-1\r\n");
    other.check(&count, ":0\r\n");
}

/// A transaction that stands in its script writes the first key of a slot that is being given away: the slot
/// stays until it has, and then has a key.
#[test]
fn a_slot_is_not_given_away_under_a_suspended_transaction() {
    let nodes = cluster(2, &[]);
    let (mut client, mut other) = (nodes[0].client(), nodes[0].client());
    let slot = slot_of(&mut client, "{b}");
    client.check("MULTI", "+OK\r\n");
    client.send(encode(&["EVAL", "redis.call('GET', KEYS[1]) while true do end", "1", "{b}"]));
    client.expect("+QUEUED\r\n");
    client.check("SET {b} new", "+QUEUED\r\n");
    client.send(encode(&["EXEC"]));
    wait_until("the script takes long", || field(&other.ask("INFO stats"), "long_scripts") == 1);
    other.check(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", nodes[1].id), "+OK\r\n");
    let give = format!("CLUSTER SETSLOT {slot} NODE {}", nodes[1].id);
    let still_has = format!(
        "-ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot.\r\n"
    );
    other.check(&give, &still_has);
    other.check("SCRIPT KILL", "+OK\r\n");
    let replies = String::from_utf8_lossy(&client.read_reply()).into_owned();
    assert!(replies.starts_with("*2\r\n-") && replies.ends_with("+OK\r\n"), "{replies}");
    other.check(&give, &still_has);
    other.check("GET {b}", "$3\r\nnew\r\n");
}

#[test]
fn a_node_that_was_killed_comes_back_as_itself() {
    let mut nodes = cluster(3, &[]);
    nodes[1].start_again();
    assert_eq!(nodes[1].client().ask("CLUSTER MYID").lines().nth(1), Some(&*nodes[1].id));
    wait_until("all nodes are ok again", || nodes.iter().all(|node| node.is_ok() && known(node) == 3));
    let slots = |node: &Node| {
        let text = node.client().ask("CLUSTER NODES");
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| line.contains('@'))
            .map(|line| format!("{} {}", &line[..40], line.rsplit(' ').next().unwrap()))
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(slots(&nodes[0]), slots(&nodes[1]));
    assert_eq!(slots(&nodes[0]), slots(&nodes[2]));
}

#[test]
fn a_slow_command_is_no_death_and_sleep_is() {
    let nodes = cluster(3, &[]);
    let slow = &nodes[0];
    let begun = Instant::now();
    let mut client = slow.client();
    // All partitions are held meanwhile.
    while begun.elapsed() < Duration::from_secs(5) {
        client.check("DEBUG POPULATE 200000", "+OK\r\n");
        client.check("FLUSHALL", "+OK\r\n");
        for other in &nodes[1..] {
            // The machine may stand still for a node timeout, so one of the others may suspect it.
            assert_ne!(flags_of(other, &slow.id), "master,fail", "{:?}", begun.elapsed());
        }
    }
    let sleeper = thread::spawn({
        let mut client = slow.client();
        move || client.check("DEBUG SLEEP 8", "+OK\r\n")
    });
    wait_until("it counts as failed", || {
        nodes[1..].iter().all(|other| flags_of(other, &slow.id) == "master,fail")
    });
    sleeper.join().unwrap();
    wait_until("it is back", || nodes.iter().all(|node| node.is_ok()));
}

#[test]
fn a_worker_that_stands_still_silences_its_node() {
    let nodes = cluster(3, &["--cluster-stall-timeout", "300"]);
    let stuck = &nodes[0];
    let id = stuck.id.clone();
    let mut client = stuck.client();
    // It takes as many as keep it busy for some node timeouts.
    let busy = thread::spawn(move || client.check("DEBUG POPULATE 4000000", "+OK\r\n"));
    wait_until("it counts as failed", || {
        nodes[1..].iter().all(|other| flags_of(other, &id).contains("fail"))
    });
    busy.join().unwrap();
    wait_until("it is back", || nodes.iter().all(|node| node.is_ok()));
    assert!(stuck.server.log().contains("This node serves clients again"));
}

#[test]
fn messages_reach_subscribers_of_all_nodes() {
    let nodes = cluster(3, &[]);
    let mut subscriber = nodes[2].client();
    subscriber.send(common::encode(&["SUBSCRIBE", "news"]));
    subscriber.expect("*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    nodes[0].client().check("PUBLISH news hello", ":0\r\n");
    subscriber.expect("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$5\r\nhello\r\n");
    let big = "x".repeat(3 << 20);
    nodes[1].client().check(&format!("PUBLISH news {big}"), ":0\r\n");
    subscriber.expect(&format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n${}\r\n{big}\r\n", big.len()));
}

#[test]
fn what_was_published_is_counted_in_the_answer_behind_it() {
    let nodes = cluster(2, &[]);
    let mut client = nodes[0].client();
    for count in 1..=50 {
        let words: [&[&str]; 2] = [&["PUBLISH", "news", "hello"], &["CLUSTER", "INFO"]];
        client.send(words.map(common::encode).concat());
        client.expect(":0\r\n");
        let info = String::from_utf8(client.read_reply()).unwrap();
        assert!(
            info.contains(&format!("cluster_stats_messages_publish_sent:{count}\r\n")),
            "{count}: {info}"
        );
    }
}

#[test]
fn a_message_is_counted_behind_a_reset_that_was_asked_for_before() {
    let nodes = cluster(2, &[]);
    // On one worker each. The bus is silent meanwhile, and finds both at once.
    let (mut sleeper, mut other) = (nodes[1].client(), nodes[1].client());
    sleeper.send(common::encode(&["DEBUG", "SLEEP", "1"]));
    thread::sleep(Duration::from_millis(200));
    other.check("CONFIG RESETSTAT", "+OK\r\n");
    nodes[0].client().check("PUBLISH news hello", ":0\r\n");
    sleeper.expect("+OK\r\n");
    wait_until("it is counted", || {
        nodes[1].client().ask("CLUSTER INFO").contains("cluster_stats_messages_publish_received:1\r\n")
    });
}

#[test]
fn bytes_that_are_no_message_close_their_link_and_nothing_else() {
    let nodes = cluster(2, &[]);
    let mut node = nodes[0].client();
    let long = [&b"RCmb\xff\xff\xff\xff\0\x01\0\0\0\0"[..], &[0; 100]].concat();
    let short = b"RCmb\0\0\0\x10\0\x01\0\0\0\0\0\0".to_vec();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), long, short, vec![0; 5000]] {
        let mut stream = TcpStream::connect(("127.0.0.1", nodes[0].bus_port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The other side may have closed it already.
        let _ = stream.write_all(&bytes);
        let mut rest = [0; 16];
        assert!(matches!(std::io::Read::read(&mut stream, &mut rest), Ok(0) | Err(_)), "the link is closed");
    }
    let info = node.ask("CLUSTER INFO");
    assert_eq!(common::field(&info, "cluster_bus_invalid_packets"), 4);
    assert!(common::field(&info, "cluster_bus_cpu_usec") > 0);
    assert!(nodes.iter().all(|node| node.is_ok()));
}

#[test]
fn two_processes_do_not_share_one_file() {
    let node = Node::start(&[]);
    let folder: PathBuf = node.server.folder.clone();
    // Its file was renamed over since it was locked.
    node.client().check("CLUSTER ADDSLOTSRANGE 0 100", "+OK\r\n");
    let (port, bus_port) = (free_port().to_string(), free_port().to_string());
    let output = common::command(&["--port", &port, "--cluster-enabled", "yes", "--cluster-port", &bus_port])
        .current_dir(&folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        !output.status.success() && text.contains("is already used by a different Cluster node"),
        "{text}"
    );
}

/// A file system has lost the bytes of nodes.conf: another node must not take the slots of the keys that are
/// found.
#[test]
fn a_node_does_not_start_as_another_beside_its_data() {
    let mut node = Node::start(&[]);
    let folder: PathBuf = node.server.folder.clone();
    node.client().check("SAVE", "+OK\r\n");
    node.kill();
    drop(std::fs::File::create(folder.join("nodes.conf")).unwrap());
    let (port, bus_port) = (free_port().to_string(), free_port().to_string());
    let output = common::command(&["--port", &port, "--cluster-enabled", "yes", "--cluster-port", &bus_port])
        .current_dir(&folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && text.contains("nodes.conf is empty, but there is"), "{text}");
    assert_eq!(std::fs::metadata(folder.join("nodes.conf")).unwrap().len(), 0, "it is left as it was");
}

#[test]
fn a_replica_follows_its_primary_and_hears_of_an_open_slot_first() {
    let nodes = cluster(2, &["--repl-diskless-sync-delay", "0", "--enable-protected-configs", "yes"]);
    let replica = Node::start(&["--repl-diskless-sync-delay", "0"]);
    meet(&nodes[0], &replica);
    wait_until("it knows all slots", || nodes.iter().all(|node| known(node) == 3) && replica.is_ok());
    let mut primary = nodes[0].client();
    primary.check("SET {b}1 x", "+OK\r\n");
    replica.client().check(&format!("CLUSTER REPLICATE {}", nodes[0].id), "+OK\r\n");
    wait_until("it has the data", || replica.client().ask("DBSIZE") == ":1\r\n");
    assert_eq!(flags_of(&replica, &replica.id), "myself,slave,nofailover");
    wait_until("others see it", || flags_of(&nodes[1], &replica.id) == "slave,nofailover");
    // It sends clients on, unless they read, and have said that an older answer will do.
    let slot = slot_of(&mut primary, "{b}");
    let mut reader = replica.client();
    reader.check("GET {b}1", &format!("-MOVED {slot} 127.0.0.1:{}\r\n", nodes[0].server.port));
    reader.check("READONLY", "+OK\r\n");
    reader.check("GET {b}1", "$1\r\nx\r\n");
    reader.check("SET {b}1 y", &format!("-MOVED {slot} 127.0.0.1:{}\r\n", nodes[0].server.port));
    primary.check(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", nodes[1].id), "+OK\r\n");
    let mark = format!("[{slot}->-{}]", nodes[1].id);
    assert!(
        replica.client().ask("CLUSTER NODES").contains(&mark),
        "it acknowledged that before the answer came"
    );
    // Its nodes.conf stays where it is.
    let refused = primary.ask("CONFIG SET dir /tmp");
    assert!(refused.starts_with("-ERR CONFIG SET failed") && refused.contains("nodes.conf"), "{refused}");
    // The replica does not hear of changes that the primary refuses.
    let refused = primary.ask(&format!("CLUSTER SETSLOT {slot} NODE {}", nodes[1].id));
    assert!(refused.contains("while I still hold keys"), "{refused}");
    let line = |node: &Node| {
        let text = node.client().ask("CLUSTER NODES");
        text.lines()
            .find(|line| line.starts_with(&*nodes[0].id))
            .unwrap_or_default()
            .rsplit(' ')
            .next()
            .unwrap()
            .to_string()
    };
    assert_eq!(line(&replica), "0-8191");
    // Without the replica the answer does not come.
    crate::failover::suspend(&replica.server);
    let refused = "-NOREPLICAS Not enough good replicas to write.\r\n";
    primary.check(&format!("CLUSTER SETSLOT {slot} STABLE TIMEOUT 300"), refused);
    assert!(primary.ask("CLUSTER NODES").contains(&mark));
    replica.server.signal("CONT");
    primary.check(&format!("CLUSTER SETSLOT {slot} STABLE"), "+OK\r\n");
    assert!(!primary.ask("CLUSTER NODES").contains(&mark));
}

/// The end of a refused request does not open a slot that the next one has found empty.
#[test]
fn a_slot_is_given_away_by_one_request_at_a_time() {
    let nodes = cluster(2, &["--repl-diskless-sync-delay", "0"]);
    let replica = Node::start(&["--repl-diskless-sync-delay", "0"]);
    meet(&nodes[0], &replica);
    wait_until("it knows all slots", || nodes.iter().all(|node| known(node) == 3) && replica.is_ok());
    let mut primary = nodes[0].client();
    primary.check("SET {06S}1 x", "+OK\r\n");
    replica.client().check(&format!("CLUSTER REPLICATE {}", nodes[0].id), "+OK\r\n");
    wait_until("it has the data", || replica.client().ask("DBSIZE") == ":1\r\n");
    let slot = slot_of(&mut primary, "{b}").to_string();
    crate::failover::suspend(&replica.server);
    let [mut first, mut second] = ["300", "100000"].map(|timeout| {
        let mut client = nodes[0].client();
        client.send(encode(&["CLUSTER", "SETSLOT", &slot, "NODE", &nodes[1].id, "TIMEOUT", timeout]));
        wait_until("the slot is closed", || primary.ask("GET {b}1").starts_with('-'));
        client
    });
    first.expect("-NOREPLICAS Not enough good replicas to write.\r\n");
    let is_written = primary.ask("SET {b}1 x") == "+OK\r\n";
    replica.server.signal("CONT");
    let is_given = second.read_reply() == b"+OK\r\n";
    assert!(!(is_written && is_given), "the key of an acknowledged write is gone");
}

#[test]
fn a_replica_that_restarts_has_one_link_which_begins_behind_its_load() {
    const KEYS: usize = 300;
    let nodes = cluster(1, &["--repl-diskless-sync-delay", "0"]);
    // The load takes about a second, and within a tenth of it the bus names the primary.
    let replica = Node::start(&["--key-load-delay", "3000"]);
    meet(&nodes[0], &replica);
    wait_until("they know each other", || known(&nodes[0]) == 2 && replica.is_ok());
    nodes[0].client().check(&format!("DEBUG POPULATE {KEYS}"), "+OK\r\n");
    replica.client().check(&format!("CLUSTER REPLICATE {}", nodes[0].id), "+OK\r\n");
    let has_all = || replica.client().ask("DBSIZE") == format!(":{KEYS}\r\n");
    wait_until("it has the data", has_all);
    replica.client().check("SAVE", "+OK\r\n");
    let before = replica.server.log().len();
    replica.client().send(common::encode(&["DEBUG", "RESTART"]));
    let log = || replica.server.log()[before..].to_string();
    wait_until("it follows again", || {
        let is_loaded = log().contains("DB loaded from disk");
        is_loaded && replica.client().ask("INFO replication").contains("master_link_status:up")
    });
    wait_until("it has the data again", has_all);
    let log = log();
    let begun: Vec<usize> = log.match_indices("Connecting to PRIMARY").map(|(at, _)| at).collect();
    assert_eq!(begun.len(), 1, "{log}");
    assert!(log.find("DB loaded from disk") < Some(begun[0]), "{log}");
}

/// A history that a file states is gone on in only by a node that is a replica when it is loaded.
#[test]
fn a_replica_that_restarts_again_and_again_goes_on_in_its_history() {
    let nodes = cluster(1, &["--repl-diskless-sync-delay", "0"]);
    let replica = Node::start(&["--appendonly", "no"]);
    meet(&nodes[0], &replica);
    wait_until("they know each other", || known(&nodes[0]) == 2 && replica.is_ok());
    let mut primary = nodes[0].client();
    replica.client().check(&format!("CLUSTER REPLICATE {}", nodes[0].id), "+OK\r\n");
    for round in 0..4 {
        primary.check(&format!("SET key:{round} x"), "+OK\r\n");
        let has_all = || replica.client().ask("DBSIZE") == format!(":{}\r\n", round + 1);
        wait_until("it has the data", has_all);
        replica.client().check("SAVE", "+OK\r\n");
        let loaded = replica.server.log().matches("DB loaded from disk").count();
        replica.client().send(common::encode(&["DEBUG", "RESTART"]));
        wait_until("it has started again", || {
            replica.server.log().matches("DB loaded from disk").count() > loaded
        });
        // It knows from its file that the cluster is whole.
        let first = replica.client().ask("GET key:0");
        assert!(first.starts_with("-MOVED") || first.starts_with("-LOADING"), "{first}");
        wait_until("it follows again", || {
            replica.client().ask("INFO replication").contains("master_link_status:up") && has_all()
        });
    }
    let stats = primary.ask("INFO stats");
    assert!(stats.contains("sync_full:1\r\n") && stats.contains("sync_partial_ok:4\r\n"), "{stats}");
}

/// The slots of the primary become another node's while its snapshot is loaded: that load ends, and goes,
/// before the next begins.
#[test]
fn the_primary_changes_in_the_middle_of_a_load() {
    const KEYS: usize = 500;
    let common = ["--repl-diskless-sync-delay", "0", "--rdbcompression", "no"];
    let nodes = cluster(1, &common);
    let next = Node::start(&common);
    // The first load would take more than ten seconds, and the second one takes two.
    let replica = Node::start(&["--key-load-delay", "4000"]);
    for other in [&next, &replica] {
        meet(&nodes[0], other);
    }
    wait_until("they know each other", || {
        [&nodes[0], &next, &replica].iter().all(|node| known(node) == 3 && node.is_ok())
    });
    nodes[0].client().check("DEBUG POPULATE 2500 former 2000", "+OK\r\n");
    replica.client().check(&format!("CLUSTER REPLICATE {}", nodes[0].id), "+OK\r\n");
    replica.server.wait_for_log("Loading DB in memory");
    let mut client = next.client();
    client.check(&format!("DEBUG POPULATE {KEYS} next"), "+OK\r\n");
    // Its statement about slots is newer than their owner's.
    client.ask("CLUSTER BUMPEPOCH");
    let last = SLOTS - 1;
    wait_until("the other node has the slots", || {
        // A statement of their owner between these two gives them back.
        client.ask(&format!("CLUSTER DELSLOTSRANGE 0 {last}"));
        client.ask(&format!("CLUSTER ADDSLOTSRANGE 0 {last}")) == "+OK\r\n"
    });
    let mut served = replica.client();
    let mut counts = Vec::new();
    wait_until("it has the data of the other node", || {
        counts.push(served.ask("DBSIZE"));
        counts.last().is_some_and(|count| *count == format!(":{KEYS}\r\n"))
    });
    counts.dedup();
    let begun: Vec<usize> =
        replica.server.log().match_indices("Loading DB in memory").map(|(at, _)| at).collect();
    assert!(begun.len() >= 2, "{begun:?}");
    // Between the loads there is nothing, and no part of a load is served.
    let is_fine = |count: &String| count.starts_with("-LOADING ") || count == ":0\r\n";
    assert!(counts.iter().rev().skip(1).all(is_fine), "{counts:?}");
    assert_eq!(served.ask("DEBUG DIGEST"), client.ask("DEBUG DIGEST"));
}

#[test]
fn a_transaction_gives_a_slot_to_another_node() {
    let nodes = cluster(2, &[]);
    let mut client = nodes[1].client();
    // As `valkey-cli --cluster fix` does it.
    client.check("MULTI", "+OK\r\n");
    for line in ["CLUSTER DELSLOTS 5", "CLUSTER ADDSLOTS 5", "CLUSTER SETSLOT 5 STABLE", "CLUSTER BUMPEPOCH"]
    {
        client.check(line, "+QUEUED\r\n");
    }
    client.check("EXEC", "*4\r\n+OK\r\n+OK\r\n+OK\r\n+STILL 2\r\n");
    let mark = " 5 8192-16383";
    wait_until("the other node has heard of it", || {
        let text = nodes[0].client().ask("CLUSTER NODES");
        text.lines().any(|line| line.starts_with(&*nodes[1].id) && line.ends_with(mark))
    });
}

/// No message of another node comes between two changes of a transaction: here the owner, whose epoch is the
/// higher one, takes the slot back as soon as it may.
#[test]
fn a_transaction_is_not_interrupted_by_other_nodes() {
    const QUESTIONS: usize = 1000;
    let nodes = cluster(2, &["--cluster-node-timeout", "400"]);
    let mut client = nodes[0].client();
    let question = format!("CLUSTER COUNT-FAILURE-REPORTS {}", nodes[1].id);
    client.check("MULTI", "+OK\r\n");
    client.check("CLUSTER DELSLOTS 9000", "+QUEUED\r\n");
    (0..QUESTIONS).for_each(|_| client.check(&question, "+QUEUED\r\n"));
    client.check("CLUSTER ADDSLOTS 9000", "+QUEUED\r\n");
    let replies = format!("*{}\r\n+OK\r\n{}+OK\r\n", QUESTIONS + 2, ":0\r\n".repeat(QUESTIONS));
    client.check("EXEC", &replies);
    wait_until("the owner has it again", || {
        let text = client.ask("CLUSTER NODES");
        text.lines().any(|line| line.starts_with(&*nodes[1].id) && line.ends_with(" 8192-16383"))
    });
}

/// Nodes that come back at other addresses, all of them, so that each knows the others by their names alone.
#[test]
fn nodes_that_all_moved_find_each_other_by_their_names() {
    let folders = [crate::aof::Data::new(), crate::aof::Data::new()];
    let names = ["--cluster-announce-hostname", "localhost", "--cluster-node-timeout", "1000"];
    let start = |data: &crate::aof::Data| {
        let folder = ["--dir", data.0.to_str().unwrap(), "--save", ""];
        Node::start(&[&names[..], &folder].concat())
    };
    let mut nodes: Vec<Node> = folders.iter().map(start).collect();
    join(&nodes);
    let file = |at: usize| folders[at].0.join("nodes.conf");
    let text = |at: usize| std::fs::read_to_string(file(at)).unwrap();
    wait_until("they have saved what they are called", || {
        (0..2).all(|at| text(at).matches(",localhost,").count() == 2)
    });
    nodes.iter_mut().for_each(Node::kill);
    for at in 0..2 {
        // Nothing listens there.
        std::fs::write(file(at), text(at).replace("127.0.0.1:", "127.0.0.9:")).unwrap();
    }
    nodes.iter_mut().for_each(Node::revive);
    wait_until("all nodes are ok again", || are_ok(&nodes));
    wait_until("they know where the others are", || {
        nodes.iter().all(|node| {
            let shown = node.client().ask("CLUSTER NODES");
            shown
                .lines()
                .filter(|line| line.contains('@') && !line.contains("myself"))
                .all(|line| line.contains("127.0.0.1:"))
        })
    });
}
