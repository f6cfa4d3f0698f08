//! Slots that move to another node of a cluster while their data is on disk: frozen keys, values, parts of
//! large collections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::cluster_nodes::{Node, are_ok, join, meet};
use crate::common::{Client, OnDrop, Server, encode, wait_until};
use crate::migrate::{begin, migrate};
use crate::migrate_races::{Proxy, empty_slot, follow};
use crate::swap::{Folder, swap};
use crate::swap_checkpoint::rewrite;

const OK: &str = "+OK\r\n";
/// Slots of the first node.
const TAGS: [&str; 2] = ["{06S}", "{b}"];
const STRINGS: usize = 300;
const LARGE: [&str; 5] = ["hash", "set", "zset", "list", "stream"];
const ELEMENTS: usize = 1600;

fn start(folder: &Folder, more: &[&str]) -> Node {
    let dir = folder.0.to_str().expect("a plain path");
    let own = ["--dir", dir, "--swap-mode", "yes", "--swap-freeze", "yes", "--maxmemory", "16mb"];
    Node::start(&[&own[..], &["--log-memory-limit", "1mb"], more].concat())
}

/// Two nodes, and a server without swap-mode that gets the same commands: what it answers is right.
struct World {
    nodes: Vec<Node>,
    clients: [Client; 2],
    model: Server,
    /// The difference between the digest of a node that has keys and that of its keys.
    base: u128,
    /// Of what writers add to streams.
    last_id: Arc<AtomicUsize>,
    _folders: [Folder; 2],
}

impl World {
    fn new(name: &str, more: &[&str]) -> World {
        let folders = [0, 1].map(|number| Folder::new(&format!("slots-{name}-{number}")));
        let nodes = folders.each_ref().map(|folder| start(folder, more)).into_iter().collect::<Vec<_>>();
        nodes.iter().for_each(|node| wait_until_loaded(&mut node.client()));
        join(&nodes);
        let clients = [0, 1].map(|at: usize| nodes[at].client());
        let model = Server::with_workers(1, &["--enable-debug-command", "yes"]);
        let mut world = World { nodes, clients, model, base: 0, last_id: Arc::default(), _folders: folders };
        // Long enough to stay in memory.
        let (mut caller, name) = (world.caller(), "n".repeat(200));
        ["{a}", "{c}"].iter().for_each(|tag| _ = caller.line(&format!("SET {tag}{name} x")));
        world.base = world.digests();
        world
    }

    /// One of the first node.
    fn replica(&self) -> (Folder, Node) {
        let folder = Folder::new("slots-replica");
        let replica = start(&folder, &["--repl-diskless-sync-delay", "0"]);
        meet(&self.nodes[0], &replica);
        let words = format!("CLUSTER REPLICATE {}", self.nodes[0].id);
        wait_until("it follows", || replica.client().ask(&words) == OK);
        (folder, replica)
    }

    fn caller(&self) -> Caller {
        let ports = [0, 1].map(|at: usize| self.nodes[at].server.port);
        let clients = [0, 1].map(|at: usize| self.nodes[at].client());
        Caller { clients, ports, model: self.model.client(), last_id: Arc::clone(&self.last_id) }
    }

    fn owner(&mut self, tag: &str) -> usize {
        usize::from(self.clients[0].ask(&format!("EXISTS {tag}")).starts_with("-MOVED"))
    }

    fn slots(&mut self) -> Vec<u16> {
        TAGS.iter().map(|tag| self.clients[0].ask_number(&format!("CLUSTER KEYSLOT {tag}")) as u16).collect()
    }

    fn open(&mut self, slot: u16, from: usize) {
        let to = 1 - from;
        self.clients[to].check(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.nodes[from].id), OK);
        self.clients[from].check(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.nodes[to].id), OK);
    }

    fn close(&mut self, slot: u16, from: usize) {
        let to = 1 - from;
        let words = format!("CLUSTER SETSLOT {slot} NODE {}", self.nodes[to].id);
        self.clients[to].check(&words, OK);
        self.clients[from].check(&words, OK);
        self.clients[from].check(&format!("CLUSTER COUNTKEYSINSLOT {slot}"), ":0\r\n");
    }

    fn move_slot(&mut self, slot: u16, from: usize) {
        self.open(slot, from);
        let port = self.nodes[1 - from].server.port;
        empty_slot(&mut self.clients[from], port, slot, 20);
        self.close(slot, from);
    }

    fn chaos(&mut self, level: u8) {
        self.clients.iter_mut().for_each(|client| client.check(&format!("DEBUG SWAP-CHAOS {level}"), OK));
    }

    /// All that may leave has left.
    fn sink(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.check("DEBUG SWAP-CHAOS 1", OK);
        let mut before = [0; 3];
        wait_until("all leaves memory", || {
            std::thread::sleep(Duration::from_millis(150));
            let now = ["swap_keys", "swap_frozen_keys", "swap_nodes"].map(|name| swap(client, name));
            now.iter().all(|count| *count > 0) && std::mem::replace(&mut before, now) == now
        });
        client.check("DEBUG SWAP-CHAOS 0", OK);
    }

    /// A digest that stays equal as long as both nodes together have the data of the model.
    fn digests(&mut self) -> u128 {
        let nodes = self.clients.iter_mut().map(digest).fold(0, |sum, one| sum ^ one);
        nodes ^ digest(&mut self.model.client())
    }

    /// Both nodes together have what the model has, and the slot's keys are where they should be.
    fn check(&mut self) {
        assert_eq!(self.digests(), self.base, "the data of both nodes is the model's");
        let mut model = self.model.client();
        let sizes = [0, 1].map(|at: usize| self.clients[at].ask_number("DBSIZE"));
        assert_eq!(sizes[0] + sizes[1], model.ask_number("DBSIZE"));
        self.clients.iter_mut().for_each(|client| client.check("DEBUG CHECK-INVARIANTS", OK));
    }

    /// This node has nothing any more.
    fn check_empty(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.check("DBSIZE", ":1\r\n");
        for name in ["swap_keys", "swap_bytes", "swap_frozen_keys", "swap_bundles", "swap_nodes"] {
            wait_until(name, || swap(client, name) == 0);
        }
        wait_until("nothing lives on disk", || swap(client, "swap_live_bytes") == 0);
    }
}

fn wait_until_loaded(client: &mut Client) {
    wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
}

/// Of a whole node; what two nodes have apart is the sum of both.
fn digest(client: &mut Client) -> u128 {
    let reply = client.ask("DEBUG DIGEST");
    let text = reply.trim_start_matches('+').trim();
    u128::from_str_radix(&text[..32], 16).unwrap_or_else(|_| panic!("{reply}"))
}

/// A client that follows the slots, and asks the model the same.
struct Caller {
    clients: [Client; 2],
    ports: [u16; 2],
    model: Client,
    last_id: Arc<AtomicUsize>,
}

impl Caller {
    fn next_id(&self) -> usize {
        ELEMENTS + self.last_id.fetch_add(1, Ordering::SeqCst)
    }

    fn same(&mut self, words: &[&str]) -> String {
        let reply = follow(&mut self.clients, self.ports, 0, words);
        self.model.send(encode(words));
        let expected = String::from_utf8_lossy(&self.model.read_reply()).into_owned();
        assert!(reply == expected, "{words:?}: {reply:.300} and not {expected:.300}");
        reply
    }

    fn line(&mut self, line: &str) -> String {
        self.same(&line.split(' ').collect::<Vec<_>>())
    }

    /// The first node has the slot.
    fn fill(&mut self, tag: &str) {
        let string = |n: usize| match n % 5 {
            0 => format!("SET {tag}s{n} {n}"),
            1 => format!("SET {tag}s{n} v-{n} EX 500000"),
            2 => format!("SET {tag}s{n} {}", format!("long{n}.").repeat(200)),
            3 => format!("HSET {tag}s{n} a {n} b 2"),
            _ => format!("SET {tag}s{n} value-{n}"),
        };
        let words = |line: String| line.split(' ').map(String::from).collect::<Vec<_>>();
        let mut requests: Vec<Vec<String>> = (0..STRINGS).map(|n| words(string(n))).collect();
        for (kind, half) in LARGE.iter().flat_map(|kind| [(kind, 0), (kind, 1)]) {
            let at_once = if *kind == "stream" { 1 } else { 100 };
            let key = format!("{tag}{kind}{half}");
            requests.extend((0..ELEMENTS).step_by(at_once).map(|n| add(kind, &key, n)));
        }
        for some in requests.chunks(100) {
            let bytes: Vec<u8> = some.iter().flat_map(|words| encode(words)).collect();
            [&mut self.clients[0], &mut self.model].iter_mut().for_each(|client| client.send(&bytes));
            some.iter().for_each(|_| assert_eq!(self.clients[0].read_reply(), self.model.read_reply()));
        }
    }
}

fn text(n: usize) -> String {
    format!("text {n} ").replace(' ', "-").repeat(8)
}

/// Adds elements from this one on: a hundred, or one to a stream.
fn add(kind: &str, key: &str, from: usize) -> Vec<String> {
    let numbers = from..from + 100;
    let (command, elements): (&str, Vec<String>) = match kind {
        "hash" => ("HSET", numbers.flat_map(|n| [format!("f{n}"), text(n)]).collect()),
        "set" => ("SADD", numbers.map(text).collect()),
        "zset" => ("ZADD", numbers.flat_map(|n| [(n * 7 % 1000).to_string(), text(n)]).collect()),
        "list" => ("RPUSH", numbers.map(text).collect()),
        _ => ("XADD", vec![format!("{}-1", from + 1), "f".into(), text(from)]),
    };
    [command.to_string(), key.to_string()].into_iter().chain(elements).collect()
}

#[test]
fn slots_move_forth_and_back() {
    let mut world = World::new("both-ways", &["--repl-diskless-sync-delay", "0"]);
    let (folder, replica) = world.replica();
    let mut caller = world.caller();
    TAGS.iter().for_each(|tag| caller.fill(tag));
    let (slots, all) = (world.slots(), format!(":{}\r\n", STRINGS + 10));
    let mut of_replica = replica.client();
    for round in 0..2 {
        let (from, to) = (round % 2, 1 - round % 2);
        world.sink(from);
        of_replica.check("DEBUG SWAP-CHAOS 1", OK);
        for slot in &slots {
            let words = format!("CLUSTER COUNTKEYSINSLOT {slot}");
            world.clients[from].check(&words, &all);
            world.move_slot(*slot, from);
            world.clients[to].check(&words, &all);
            world.check();
        }
        world.check_empty(from);
        let expected = world.clients[0].ask("DEBUG DIGEST");
        wait_until("the replica has the same", || of_replica.ask("DEBUG DIGEST") == expected);
        of_replica.check("DEBUG SWAP-CHAOS 0", OK);
        of_replica.check("DEBUG CHECK-INVARIANTS", OK);
    }
    drop((replica, folder));
}

/// A key that cannot be read is neither missing nor moved.
#[test]
fn a_disk_that_fails_gives_nothing_away() {
    let mut world = World::new("fails", &[]);
    let (mut caller, slot) = (world.caller(), world.slots()[1]);
    caller.fill("{b}");
    world.sink(0);
    world.open(slot, 0);
    let port = world.nodes[1].server.port;
    let client = &mut world.clients[0];
    client.check("DEBUG SWAP-FAULT READ IO", OK);
    for request in ["GET {b}s4", "SET {b}s4 x", "EXISTS {b}s4", "DEL {b}s4", "GET {b}s2", "MGET {b}s4 {b}s9"]
    {
        let reply = client.ask(request);
        assert!(reply.starts_with("-SWAPERR"), "{request}: {reply}");
    }
    let lists = client.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
    assert!(lists.starts_with("-SWAPERR"), "{lists:.300}");
    for keys in ["{b}s4", "{b}s4 {b}s9", "{b}s2", "{b}hash0"] {
        let reply = migrate(client, port, &format!("'' 0 10000 KEYS {keys}"));
        assert!(reply.starts_with("-SWAPERR"), "{keys}: {reply}");
    }
    client.check(&format!("CLUSTER COUNTKEYSINSLOT {slot}"), &format!(":{}\r\n", STRINGS + 10));
    client.check("DEBUG SWAP-FAULT READ NONE", OK);
    wait_until("the disk is back", || !client.ask("GET {b}s4").starts_with('-'));
    world.clients[1].check(&format!("CLUSTER COUNTKEYSINSLOT {slot}"), ":0\r\n");
    empty_slot(&mut world.clients[0], port, slot, 20);
    world.close(slot, 0);
    world.check();
    world.check_empty(0);
}

// ---- during writes ----

fn next(random: &mut u64) -> usize {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*random >> 33) as usize
}

/// One command of a writer, which has every other string and one of two collections of each kind for itself.
fn step(caller: &mut Caller, tag: &str, half: usize, random: &mut u64) {
    let (n, e) = (next(random), next(random) % ELEMENTS);
    let any = format!("{tag}s{}", n % (STRINGS / 2) * 2 + half);
    let of_ten = n % (STRINGS / 10) * 10;
    let [hash, set, zset, list, stream] = LARGE.map(|kind| format!("{tag}{kind}{half}"));
    let line = match next(random) % 30 {
        0 => format!("SET {any} new-{n}"),
        1 => format!("DEL {any}"),
        2 => format!("EXISTS {any}"),
        3 => format!("TYPE {any}"),
        4 => format!("EXPIRE {any} 400000"),
        5 => format!("PERSIST {any}"),
        6 => format!("GET {tag}s{}", of_ten + 4 + 5 * half),
        7 => format!("GET {tag}s{}", of_ten + 2 + 5 * half),
        8 => format!("APPEND {tag}t{half}-{} more", n % 20),
        9 => format!("INCR {tag}i{half}-{}", n % 20),
        10 => format!("HGET {hash} f{e}"),
        11 => format!("HSET {hash} f{e} {n}"),
        12 => format!("HDEL {hash} f{e}"),
        13 => format!("HLEN {hash}"),
        14 => format!("SADD {set} {}", text(e)),
        15 => format!("SREM {set} {}", text(e)),
        16 => format!("SISMEMBER {set} {}", text(e)),
        17 => format!("SCARD {set}"),
        18 => format!("ZADD {zset} {n} {}", text(e)),
        19 => format!("ZREM {zset} {}", text(e)),
        20 => format!("ZRANK {zset} {}", text(e)),
        21 => format!("ZPOPMIN {zset}"),
        22 => format!("RPUSH {list} {n}"),
        23 => format!("LPOP {list}"),
        24 => format!("LINDEX {list} {}", e / 2),
        25 => format!("LLEN {list}"),
        26 => format!("XADD {stream} {}-2 f {n}", caller.next_id()),
        27 => format!("XDEL {stream} {}-1", e + 1),
        28 => format!("XLEN {stream}"),
        _ => format!("XRANGE {stream} {}-0 + COUNT 3", e + 1),
    };
    caller.line(&line);
}

/// Writers change, delete and make anew the keys while all that may leaves memory on both nodes, and the
/// slots go forth and back.
#[test]
fn slots_move_beside_writers_while_all_leaves_memory() {
    let mut world = World::new("writers", &[]);
    let mut caller = world.caller();
    TAGS.iter().for_each(|tag| caller.fill(tag));
    let (slots, over) = (world.slots(), AtomicBool::new(false));
    for round in 0..4 {
        let from = round % 2;
        world.chaos(1 + round as u8 / 2);
        over.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let _ends = OnDrop(|| over.store(true, Ordering::SeqCst));
            for half in 0..2 {
                let (mut caller, over) = (world.caller(), &over);
                scope.spawn(move || {
                    let mut random = (round * 2 + half) as u64 + 1;
                    while !over.load(Ordering::SeqCst) {
                        TAGS.iter().for_each(|tag| step(&mut caller, tag, half, &mut random));
                    }
                });
            }
            slots.iter().for_each(|slot| world.move_slot(*slot, from));
        });
        world.chaos(0);
        world.check();
        world.check_empty(from);
    }
}

// ---- restarts ----

const DURABLE: [&str; 8] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--swap-checkpoint",
    "yes",
    "--auto-aof-rewrite-percentage",
    "0",
];

impl World {
    fn restart(&mut self, at: usize) {
        self.nodes[at].kill();
        self.nodes[at].revive();
        self.clients[at] = self.nodes[at].client();
        let client = &mut self.clients[at];
        wait_until_loaded(client);
        wait_until("all nodes are ok", || are_ok(&self.nodes));
    }

    /// Some keys of the slot go to the other node.
    fn move_some(&mut self, slot: u16, from: usize, count: usize) {
        let port = self.nodes[1 - from].server.port;
        let words = keys_of(&mut self.clients[from], slot, count);
        assert_eq!(migrate(&mut self.clients[from], port, &words), OK);
    }
}

/// The words of a MIGRATE.
fn keys_of(client: &mut Client, slot: u16, count: usize) -> String {
    let names = client.ask(&format!("CLUSTER GETKEYSINSLOT {slot} {count}"));
    let names: Vec<&str> = names.lines().filter(|line| line.starts_with('{')).collect();
    format!("'' 0 10000 REPLACE KEYS {}", names.join(" "))
}

#[test]
fn nodes_are_killed_between_the_keys_of_a_slot() {
    let mut world = World::new("killed", &DURABLE);
    let mut caller = world.caller();
    TAGS.iter().for_each(|tag| caller.fill(tag));
    let slots = world.slots();
    world.sink(0);
    rewrite(&mut world.clients[0]);
    for (slot, killed) in [(slots[0], 0), (slots[1], 1)] {
        world.open(slot, 0);
        world.move_some(slot, 0, 150);
        if killed == 1 {
            world.sink(1);
            rewrite(&mut world.clients[1]);
        }
        world.move_some(slot, 0, 50);
        world.restart(killed);
        world.check();
        // The place of each key is known again, and clients find it.
        let mut caller = world.caller();
        (0..STRINGS)
            .filter(|n| n % 5 != 3)
            .for_each(|n| _ = caller.line(&format!("GET {}s{n}", TAGS[killed])));
        world.move_some(slot, 0, 1000);
        world.close(slot, 0);
        world.check();
    }
    world.check_empty(0);
    world.sink(1);
    [0, 1].iter().for_each(|at| rewrite(&mut world.clients[*at]));
    for at in [0, 1] {
        world.restart(at);
        world.check();
    }
    world.check_empty(0);
    slots.iter().for_each(|slot| world.move_slot(*slot, 1));
    world.check();
    world.check_empty(1);
}

/// A node is killed while keys are on their way: they are here or there, and at last there, once.
#[test]
fn nodes_are_killed_in_the_middle_of_a_migration() {
    let mut world = World::new("cut", &DURABLE);
    let (mut caller, slot) = (world.caller(), world.slots()[1]);
    caller.fill("{b}");
    for round in 0..6 {
        let (from, killed) = (round / 2 % 2, round % 2);
        if world.owner(TAGS[1]) != from {
            world.move_slot(slot, 1 - from);
        }
        world.sink(from);
        rewrite(&mut world.clients[from]);
        world.open(slot, from);
        let words = keys_of(&mut world.clients[from], slot, 1000);
        let (port, mut mover) = (world.nodes[1 - from].server.port, world.nodes[from].client());
        // The rest takes seconds.
        let proxy = Proxy::late(port);
        proxy.delay_us.store(20_000, Ordering::SeqCst);
        begin(&mut mover, proxy.port, &words);
        let mut looks = world.nodes[1 - from].client();
        wait_until("some have arrived", || looks.ask_number("DBSIZE") > 1 + 40 * round as i64);
        world.restart(killed);
        // Of the model each key is somewhere; it may be in both.
        let count = |client: &mut Client| client.ask_number(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
        assert!(world.clients.iter_mut().map(count).sum::<i64>() >= STRINGS as i64 + 10);
        if count(&mut world.clients[from]) > 0 {
            world.move_some(slot, from, 1000);
        }
        world.close(slot, from);
        world.check();
        world.check_empty(from);
    }
}

// ---- slots that are deleted ----

impl World {
    /// The model deletes the keys that both nodes have not.
    fn forget(&self, tag: &str) {
        let mut model = self.model.client();
        let names = model.ask(&format!("KEYS {tag}*"));
        let names: Vec<&str> =
            names.lines().filter(|line| line.starts_with(tag) && line.len() < 100).collect();
        model.check(&format!("DEL {}", names.join(" ")), &format!(":{}\r\n", names.len()));
    }
}

#[test]
fn slots_are_deleted_with_what_is_on_disk() {
    let mut world = World::new("deleted", &DURABLE);
    let slots = world.slots();
    for (is_lost, is_readable) in [(false, true), (false, false), (true, true), (true, false)] {
        if world.owner(TAGS[1]) == 1 {
            world.move_slot(slots[1], 1);
        }
        let mut caller = world.caller();
        TAGS.iter().for_each(|tag| caller.fill(tag));
        world.sink(0);
        rewrite(&mut world.clients[0]);
        let counts = |world: &mut World| {
            ["swap_frozen_keys", "swap_nodes"].map(|name| swap(&mut world.clients[0], name))
        };
        let before = counts(&mut world);
        if !is_readable {
            world.clients[0].check("DEBUG SWAP-FAULT READ IO", OK);
        }
        let (slot, id) = (slots[1], world.nodes[usize::from(is_lost)].id.clone());
        match is_lost {
            false => world.clients[0].check(&format!("CLUSTER FLUSHSLOT {slot}"), OK),
            // The other node says that it is its own.
            true => {
                world.clients[1]
                    .check(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", world.nodes[0].id), OK);
                world.clients[1].check(&format!("CLUSTER SETSLOT {slot} NODE {id}"), OK);
            }
        }
        let client = &mut world.clients[0];
        wait_until("its keys are gone", || {
            client.ask(&format!("CLUSTER COUNTKEYSINSLOT {slot}")) == ":0\r\n"
        });
        client.check("DEBUG SWAP-FAULT READ NONE", OK);
        wait_until("the disk is back", || !client.ask(&format!("GET {}s4", TAGS[0])).starts_with('-'));
        world.forget(TAGS[1]);
        world.check();
        let after = counts(&mut world);
        assert!(
            after.iter().zip(before).all(|(after, before)| *after <= before / 2 + 1),
            "{before:?} {after:?}"
        );
        world.restart(0);
        world.check();
        world.clients[0].check(&format!("CLUSTER FLUSHSLOT {}", slots[0]), OK);
        world.forget(TAGS[0]);
        world.check();
        world.check_empty(0);
    }
}

/// A slot is on its way, one key of a command is missing and another may be in a record of a disk that hangs:
/// the command waits without its locks, and is sent where it belongs when the disk is back.
#[test]
fn a_command_of_a_migrating_slot_waits_for_the_disk_without_locks() {
    let mut world = World::new("waits", &["--io-threads", "1", "--swap-read-timeout", "600000"]);
    let (mut caller, slot) = (world.caller(), world.slots()[1]);
    caller.fill("{b}");
    world.sink(0);
    world.open(slot, 0);
    let (node, client) = (&world.nodes[0], &mut world.clients[0]);
    client.check("DEBUG SWAP-FAULT READ HANG", OK);
    let mut waiting: Vec<Client> = Vec::new();
    for words in ["MGET {b}s4 {b}gone", "SINTERSTORE {b}gone {b}s9 {b}none"] {
        waiting.push(node.client());
        waiting.last_mut().expect("one").send(encode(&words.split(' ').collect::<Vec<_>>()));
    }
    let mut transaction = node.client();
    for line in ["MULTI", "GET {b}s14", "GET {b}gone"] {
        transaction.ask(line);
    }
    transaction.send(encode(&["EXEC"]));
    waiting.push(transaction);
    let waits = |line: &&str| {
        line.split(' ').any(|word| word.strip_prefix("flags=").is_some_and(|flags| flags.contains('b')))
    };
    wait_until("all three wait", || client.ask("CLIENT LIST").lines().filter(waits).count() == 3);
    // Its partition is that of the others.
    client.check("GET {b}new", &format!("-ASK {slot} 127.0.0.1:{}\r\n", world.nodes[1].server.port));
    client.check("DEBUG SWAP-FAULT READ NONE", OK);
    for mut waiting in waiting {
        waiting.expect("-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
    }
    client.check("MGET {b}no {b}gone", &format!("-ASK {slot} 127.0.0.1:{}\r\n", world.nodes[1].server.port));
}
