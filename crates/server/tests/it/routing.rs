//! A member of a cluster with one node: slots that leave and come back, and what becomes of the clients that
//! follow them.

use crate::common::{Client, Server, encode, field, free_port, wait_until};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const OK: &str = "+OK\r\n";
/// Of `a`.
const SLOT: &str = "15495";
const UNBOUND: &str = "-CLUSTERDOWN Hash slot not served\r\n";

/// With all slots, and up.
fn start(workers: usize) -> Server {
    let bus = free_port().to_string();
    let server = Server::with_workers(
        workers,
        &["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-require-full-coverage", "no"],
    );
    let mut client = server.client();
    wait_until("the bus is ready", || client.ask("CLUSTER ADDSLOTSRANGE 0 16383") == OK);
    wait_until("the cluster is up", || client.ask("SET a 1") == OK);
    client.check("DEL a", ":1\r\n");
    server
}

fn lose(client: &mut Client) {
    client.check(&format!("CLUSTER DELSLOTS {SLOT}"), OK);
}

fn gain(client: &mut Client) {
    client.check(&format!("CLUSTER ADDSLOTS {SLOT}"), OK);
}

#[test]
fn a_slot_that_leaves_lets_go_of_its_clients() {
    for workers in [1, 3] {
        let server = start(workers);
        let mut admin = server.client();
        let (mut waits, mut waits_too) = (server.client(), server.client());
        waits.send(encode(&["BLPOP", "a", "0"]));
        waits_too.send(encode(&["BLPOP", "b", "0"]));
        wait_until("both wait", || admin.ask("INFO clients").contains("blocked_clients:2"));
        let mut hears = server.client();
        hears.check("SSUBSCRIBE a", "*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n");
        let mut watches = server.client();
        watches.check("WATCH a", OK);
        lose(&mut admin);
        waits.expect(UNBOUND);
        waits.check("GET a", UNBOUND);
        hears.expect("*3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n");
        hears.check("SSUBSCRIBE a", UNBOUND);
        hears.check("PING", "+PONG\r\n");
        watches.check("MULTI", OK);
        watches.check("PING", "+QUEUED\r\n");
        watches.check("EXEC", "*-1\r\n");
        gain(&mut admin);
        waits.check("RPUSH a x", ":1\r\n");
        admin.check("RPUSH b x", ":1\r\n");
        waits_too.expect("*2\r\n$1\r\nb\r\n$1\r\nx\r\n");
        assert!(admin.ask("INFO errorstats").contains("errorstat_CLUSTERDOWN:count="));
        admin.check("CLUSTER COUNTKEYSINSLOT 15495", ":1\r\n");
    }
}

/// A command that is sent once DELSLOTS has answered is refused, and one that was sent before has run or is
/// refused: none runs later.
#[test]
fn no_command_runs_on_a_slot_that_has_left() {
    const ROUNDS: u64 = 60;
    let server = start(3);
    let (is_over, epoch) = (AtomicBool::new(false), AtomicU64::new(0));
    // Of four: it is there, on its way, gone, on its way.
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (server, is_over, epoch) = (&server, &is_over, &epoch);
            scope.spawn(move || {
                let mut client = server.client();
                let requests =
                    ["INCR a", "MGET a {a}b", "EVAL return(redis.call('incr',KEYS[1])) 1 a", "SPUBLISH a x"];
                while !is_over.load(SeqCst) {
                    let before = epoch.load(SeqCst);
                    let reply = client.ask(requests[number]);
                    let after = epoch.load(SeqCst);
                    let is_refused = reply == UNBOUND;
                    assert!(is_refused || !reply.starts_with('-'), "{reply}");
                    if before == after && before % 2 == 0 {
                        assert_eq!(is_refused, before % 4 == 2, "{}: {reply}", requests[number]);
                    }
                }
            });
        }
        let mut admin = server.client();
        for _ in 0..ROUNDS {
            epoch.fetch_add(1, SeqCst);
            lose(&mut admin);
            epoch.fetch_add(1, SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(2));
            epoch.fetch_add(1, SeqCst);
            gain(&mut admin);
            epoch.fetch_add(1, SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        is_over.store(true, SeqCst);
    });
}

/// A transaction stands in its script, and writes the first key of a slot afterwards: who asks for the keys
/// of the slot, as before it is given away, gets that one too.
#[test]
fn keys_of_a_slot_are_listed_behind_a_suspended_transaction() {
    let server = start(2);
    let (mut transacts, mut admin) = (server.client(), server.client());
    transacts.check("MULTI", OK);
    transacts.send(encode(&["EVAL", "while true do redis.call('GET', KEYS[1]) end", "1", "a"]));
    transacts.expect("+QUEUED\r\n");
    transacts.check("SET a 1", "+QUEUED\r\n");
    transacts.send(encode(&["EXEC"]));
    wait_until("the script takes long", || admin.ask("INFO stats").contains("long_scripts:1\r\n"));
    let asked = [("GETKEYSINSLOT", "10"), ("COUNTKEYSINSLOT", "")].map(|(name, count)| {
        let mut asks = server.client();
        asks.send(format!("CLUSTER {name} {SLOT} {count}\r\n"));
        asks
    });
    wait_until("both wait", || {
        let waits = field(&admin.ask("INFO stats"), "total_script_waits");
        waits >= 2
    });
    admin.check("SCRIPT KILL", OK);
    let [mut lists, mut counts] = asked;
    lists.expect("*1\r\n$1\r\na\r\n");
    counts.expect(":1\r\n");
    transacts
        .expect("*2\r\n-ERR Script killed by user with SCRIPT KILL. script: on @user_script:1.\r\n+OK\r\n");
}

/// A role that the bus does not know of would leave a shard without a primary.
#[test]
fn roles_are_not_set_past_the_bus() {
    let server = start(1);
    let mut client = server.client();
    for request in ["REPLICAOF 127.0.0.1 1", "SLAVEOF 127.0.0.1 1", "REPLICAOF NO ONE"] {
        client.check(request, "-ERR REPLICAOF not allowed in cluster mode.\r\n");
    }
    for request in ["FAILOVER", "FAILOVER ABORT"] {
        client.check(
            request,
            "-ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.\r\n",
        );
    }
    client.check("SET a 1", OK);
}
