//! Large lists and streams with blocks on disk: they answer as a server does that has all of it in memory,
//! whatever asks.

use crate::common::{Client, Server, field, wait_until};
use crate::swap::{Folder, swap};
use crate::swap_pair::Pair;

const ELEMENTS: usize = 30_000;
/// Blocks of the two lists and the stream, about.
const NODES_MIN: u64 = 200;
const ALL: [&str; 4] =
    ["LRANGE list 0 -1", "LRANGE other 0 -1", "XRANGE stream - +", "XINFO STREAM stream FULL COUNT 0"];

fn element(number: usize) -> String {
    match number % 50 {
        0 => format!("long:{number}:{}", "x".repeat(500)),
        1..10 => number.to_string(),
        _ => format!("element:{number:06}"),
    }
}

fn filled(folder: &Folder) -> Pair {
    let mut pair = Pair::new(folder);
    for from in (0..ELEMENTS).step_by(100) {
        let texts: String = (from..from + 100).map(|n| format!(" {}", element(n))).collect();
        pair.same(&format!("RPUSH list{texts}"));
        pair.same(&format!("LPUSH other{texts}"));
    }
    for n in 1..=ELEMENTS / 3 {
        pair.same(&format!("XADD stream {n}-1 field {} name value:{n}", element(n)));
    }
    for group in ["first", "second"] {
        pair.same(&format!("XGROUP CREATE stream {group} 0"));
    }
    pair
}

/// Fills one server with that data, without swap.
fn filled_alone() -> (Server, Client) {
    let server = Server::with_workers(1, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    for from in (0..ELEMENTS).step_by(100) {
        let texts: String = (from..from + 100).map(|n| format!(" {}", element(n))).collect();
        client.ask(&format!("RPUSH list{texts}"));
    }
    for n in 1..=ELEMENTS / 3 {
        client.ask(&format!("XADD stream {n}-1 field {} name value:{n}", element(n)));
    }
    client.check("XGROUP CREATE stream first 0", "+OK\r\n");
    (server, client)
}

#[test]
fn readers_read_what_they_meet() {
    let folder = Folder::new("blocks-readers");
    let mut pair = filled(&folder);
    let hot = field(&pair.client.ask("INFO memory"), "used_memory");
    pair.sink(NODES_MIN);
    let cold = field(&pair.client.ask("INFO memory"), "used_memory");
    assert!(cold < hot * 2 / 3, "{hot} to {cold}");
    for request in ["LLEN list", "TYPE other", "OBJECT ENCODING list", "XLEN stream", "XINFO GROUPS stream"] {
        pair.same(request);
    }
    assert_eq!(swap(&mut pair.client, "swap_nodes_came_home"), 0, "these need no block");
    for (request, most) in [
        ("LINDEX list 15000", 1),
        ("LRANGE list 1000 1099", 2),
        ("LRANGE other -10 -1", 1),
        ("XRANGE stream 5000 5000", 1),
        ("XREVRANGE stream + - COUNT 10", 2),
    ] {
        let reads = swap(&mut pair.client, "swap_reads");
        pair.same(request);
        let reads = swap(&mut pair.client, "swap_reads") - reads;
        assert!((1..=most).contains(&reads), "{request}: {reads} reads");
    }
    for n in (0..ELEMENTS).step_by(2999) {
        for request in [
            format!("LINDEX list -{n}"),
            format!("LRANGE other {n} {}", n + 700),
            format!("LPOS list {}", element(n)),
            format!("LPOS other {} RANK -1 COUNT 2", element(n)),
            format!("LPOS list none MAXLEN {n}"),
            format!("XRANGE stream {} + COUNT 120", n / 3),
            format!("XREVRANGE stream {} - COUNT 7", n / 3),
            format!("XREAD COUNT 30 STREAMS stream {}", n / 3),
        ] {
            pair.same(&request);
        }
    }
    assert_eq!(swap(&mut pair.client, "swap_reads_in_commands"), 0);
    for request in [
        "DEBUG DIGEST-VALUE list stream",
        "XINFO STREAM stream",
        "SORT list ALPHA LIMIT 100 20",
        "DUMP other",
    ] {
        pair.sink(NODES_MIN);
        pair.same(request);
    }
    pair.check(&ALL);
    pair.empty();
}

#[test]
fn changes_of_lists_have_what_they_need_read_before() {
    let folder = Folder::new("blocks-lists");
    let mut pair = filled(&folder);
    pair.sink(NODES_MIN);
    let reads = swap(&mut pair.client, "swap_reads");
    for request in ["RPUSH list a b c", "LPUSH list d e", "RPUSHX other 1 2", "LPUSHX other 3"] {
        pair.same(request);
    }
    assert_eq!(swap(&mut pair.client, "swap_reads"), reads, "a push reads nothing");
    for n in (100..ELEMENTS / 2).step_by(1111) {
        for request in [
            format!("LSET list {n} set:{n}"),
            format!("LSET other -{n} {n}"),
            format!("LINSERT list BEFORE {} before:{n}", element(n)),
            format!("LINSERT other AFTER {} after:{n}", element(n + 5)),
            format!("LINSERT list AFTER none{n} never"),
            format!("LREM list 1 {}", element(n + 7)),
            format!("LREM other -2 {}", element(n + 9)),
            "LPOP list".to_string(),
            format!("RPOP list {}", n / 20),
            "LMOVE list other LEFT RIGHT".to_string(),
            "RPOPLPUSH other list".to_string(),
            "LMOVE list list RIGHT LEFT".to_string(),
            "LMPOP 2 none other RIGHT COUNT 3".to_string(),
            "BLPOP none list 1".to_string(),
            "BLMOVE other list LEFT LEFT 1".to_string(),
        ] {
            pair.same(&request);
        }
        if n % 3 == 0 {
            pair.sink(0);
        }
    }
    assert_eq!(swap(&mut pair.client, "swap_reads_in_commands"), 0, "what they need was read before");
    pair.sink(0);
    for request in [
        "LTRIM list 700 20000",
        "LTRIM other 5 -500",
        "COPY list copy",
        "RENAME copy {copy}2",
        "SORT other BY nosort LIMIT 0 40 STORE sorted",
        "LREM {copy}2 0 0",
        "LPOS {copy}2 0",
        "LLEN {copy}2",
    ] {
        pair.same(request);
        pair.sink(0);
    }
    pair.check(&ALL);
    pair.check(&["LRANGE {copy}2 0 -1", "LRANGE sorted 0 -1"]);
    pair.empty();
}

#[test]
fn changes_of_streams_have_what_they_need_read_before() {
    let folder = Folder::new("blocks-streams");
    let mut pair = filled(&folder);
    pair.sink(NODES_MIN);
    for n in (1..ELEMENTS / 3).step_by(977) {
        for request in [
            format!("XADD stream {}-{n} field {}", ELEMENTS, element(n)),
            format!("XDEL stream {n}-1 {}-1 {n}-7", n + 1),
            format!("XREADGROUP GROUP first ann COUNT {} STREAMS stream >", n % 130),
            format!("XREADGROUP GROUP first bob COUNT 15 STREAMS stream {n}"),
            "XREADGROUP GROUP second cid COUNT 40 STREAMS stream >".to_string(),
            format!("XCLAIM stream first bob 0 {n}-1 {}-1 FORCE JUSTID", n + 5),
            format!("XCLAIM stream first ann 0 {}-1", n + 5),
            format!("XAUTOCLAIM stream second dan 0 {} COUNT 30", n / 20),
            format!("XACK stream first {n}-1"),
            format!("XADD stream MAXLEN {} {}-{} f v", ELEMENTS / 3 - n / 4, ELEMENTS, n + 1),
            format!("XADD stream MINID ~ {} {}-{} f v", n / 3, ELEMENTS, n + 2),
            format!("XTRIM stream MAXLEN ~ {}", ELEMENTS / 3 - n / 4 - 100),
            format!("XTRIM stream MINID {}", n / 2),
            "XINFO STREAM stream".to_string(),
        ] {
            pair.same(&request);
        }
        if n % 2 == 0 {
            pair.sink(0);
        }
    }
    assert_eq!(swap(&mut pair.client, "swap_reads_in_commands"), 0, "what they need was read before");
    pair.sink(0);
    for request in [
        format!("XSETID stream {}-9", ELEMENTS - 1),
        format!("XSETID stream {}-9", ELEMENTS + 1),
        "COPY stream copy".to_string(),
        "RENAME copy {copy}2".to_string(),
        "XLEN {copy}2".to_string(),
        "XTRIM {copy}2 MAXLEN 3".to_string(),
    ] {
        pair.same(&request);
        pair.sink(0);
    }
    pair.check(&ALL[..3]);
    pair.check(&["XRANGE {copy}2 - +"]);
    pair.empty();
}

/// Of the streams of one command nothing is given before all of it can be.
#[test]
fn a_group_reads_several_streams_once() {
    let folder = Folder::new("blocks-groups");
    let mut pair = filled(&folder);
    for n in 1..=4000 {
        pair.same(&format!("XADD {{s}}2 {n}-1 field {}", element(n)));
        pair.same(&format!("XADD {{s}}1 {n}-1 field {}", element(n)));
    }
    for key in ["{s}1", "{s}2"] {
        pair.same(&format!("XGROUP CREATE {key} g 0"));
    }
    for _ in 0..5 {
        pair.sink(0);
        pair.same("XREADGROUP GROUP g ann COUNT 300 STREAMS {s}1 {s}2 > >");
        pair.sink(0);
        pair.same("XREADGROUP GROUP g ann COUNT 250 STREAMS {s}2 {s}1 0 100");
    }
    for key in ["{s}1", "{s}2"] {
        pair.same(&format!("XPENDING {key} g"));
        pair.same(&format!("XACK {key} g 1-1 700-1 3000-1"));
    }
    for options in ["COUNT 130", "COUNT 100 NOACK"] {
        pair.sink(0);
        pair.same(&format!("XREADGROUP GROUP g ann {options} STREAMS {{s}}1 {{s}}1 > >"));
    }
    pair.same("XPENDING {s}1 g");
}

/// Blocks end where a command does, and where there is no entry.
#[test]
fn edges_of_blocks_are_looked_at_before_the_first_change() {
    let folder = Folder::new("blocks-edges");
    let mut pair = filled(&folder);
    for key in ["gaps", "long", "single"] {
        for n in 1..=3000 {
            // Blocks of 100, and between them nothing for a while; of some, one entry a block.
            let ms = n + n / 100 * 1000;
            let value = if key == "long" { "v".repeat(4500) } else { element(n) };
            if key == "gaps" || n <= 300 {
                pair.same(&format!("XADD {key} {ms}-1 field {value}"));
            }
        }
        pair.same(&format!("XGROUP CREATE {key} g 0"));
        pair.same(&format!("XREADGROUP GROUP g ann STREAMS {key} >"));
    }
    for n in (1..20).step_by(3) {
        let bound = n * 1100 - 500;
        for request in [
            format!("XCLAIM gaps g bob 0 {}-1", 500 + n * 1100 - 1),
            format!("XAUTOCLAIM gaps g cid 0 {}-1 COUNT 100", 4000 + n),
            format!("XAUTOCLAIM long g cid 0 {} COUNT 3", 10 + n),
            format!("XADD gaps MINID ~ {bound} 9999999-{n} field value"),
            "XINFO STREAM gaps".to_string(),
            format!("XDEL long {n}-1 {n}-1 {}-1", n + 1),
            format!("XDEL single {}-1 {}-1", 100 - n, 100 - n),
            format!("XTRIM gaps MINID {}", bound + 300),
            "XINFO STREAM gaps".to_string(),
            "XINFO STREAM long".to_string(),
        ] {
            pair.sink(0);
            pair.same(&request);
        }
    }
    pair.check(&["XRANGE gaps - +", "XRANGE long - +", "XPENDING gaps g", "XPENDING long g"]);
}

/// Of what is pending some was trimmed away, in front of a first block that is away.
#[test]
fn what_is_pending_may_be_gone() {
    let folder = Folder::new("blocks-gone");
    let mut pair = filled(&folder);
    for n in 1..=4000 {
        pair.same(&format!("XADD {{s}}other {n}-1 field {}", element(n)));
        pair.same(&format!("XADD {{s}}stream {n}-1 field {}", element(n)));
    }
    for key in ["{s}stream", "{s}other"] {
        pair.same(&format!("XGROUP CREATE {key} g 0"));
    }
    pair.same("XREADGROUP GROUP g ann STREAMS {s}stream >");
    pair.same("XTRIM {s}stream MAXLEN 3000");
    // Two servers are compared: neither waits until an entry is idle.
    for request in [
        "XCLAIM {s}stream g bob 0 3500-1 999-1 2000-1",
        "XREADGROUP GROUP g ann COUNT 20 STREAMS {s}other {s}stream > 0",
        "XREADGROUP GROUP g ann COUNT 30 NOACK STREAMS {s}other {s}stream > 500",
        "XAUTOCLAIM {s}stream g cid 0 990 COUNT 30",
        "XAUTOCLAIM {s}stream g cid 0 960 COUNT 60",
        "XPENDING {s}stream g",
        "XPENDING {s}other g",
        "XRANGE {s}stream 5 6",
        "XREVRANGE {s}stream 6 5",
    ] {
        pair.sink(0);
        pair.same(request);
    }
    pair.check(&["XRANGE {s}stream - +", "XINFO STREAM {s}stream"]);
}

/// To run again is no failure of what is played back, and no command is applied twice.
#[test]
fn a_replica_applies_what_its_blocks_are_read_for_once() {
    let folder = Folder::new("blocks-replica");
    let mut primary = filled_alone();
    let replica = folder.start(&["--maxmemory", "64mb"]);
    let mut client = replica.client();
    wait_until("it has loaded", || replica.client().ask("PING") == "+PONG\r\n");
    client.check(&format!("REPLICAOF 127.0.0.1 {}", primary.0.port), "+OK\r\n");
    let is_up = |client: &mut Client| client.ask("INFO replication").contains("master_link_status:up");
    wait_until("it follows", || is_up(&mut client));
    for round in 0..12 {
        client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
        wait_until("blocks leave memory", || swap(&mut client, "swap_nodes") > 100);
        client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
        let n = 1000 + round * 50;
        for request in [
            "LPOP list".to_string(),
            "RPOP list 700".to_string(),
            format!("LSET list {} x", n * 5),
            format!("LREM list 1 {}", element(n * 9)),
            "LMOVE list list LEFT RIGHT".to_string(),
            "LTRIM list 200 -3".to_string(),
            format!("XDEL stream {n}-1"),
            format!("XTRIM stream MINID {}", n - 100),
            "XREADGROUP GROUP first ann COUNT 30 STREAMS stream >".to_string(),
            format!("XCLAIM stream first bob 0 {}-1", n - 20),
            format!("XADD stream {}-{round} f v", ELEMENTS),
        ] {
            let reply = primary.1.ask(&request);
            assert!(!reply.starts_with('-'), "{request}: {reply}");
        }
        let digest = primary.1.ask("DEBUG DIGEST");
        wait_until("it has all", || client.ask("DEBUG DIGEST") == digest);
    }
    let info = primary.1.ask("INFO stats");
    assert_eq!((field(&info, "sync_full"), field(&info, "sync_partial_ok")), (1, 0));
    assert!(is_up(&mut client));
}

#[test]
fn transactions_scripts_and_files_have_them() {
    let folder = Folder::new("blocks-scripts");
    let mut pair = filled(&folder);
    pair.sink(NODES_MIN);
    for request in [
        "MULTI",
        "LRANGE list 100 200",
        "LPOP list 40",
        "LSET other 9000 new",
        "LMOVE other list LEFT RIGHT",
        "LREM list 1 element:000777",
        "XADD stream MAXLEN 9000 99999-1 f v",
        "XREADGROUP GROUP first ann COUNT 200 STREAMS stream >",
        "XDEL stream 2000-1 2001-1",
        "EXEC",
    ] {
        pair.same(request);
    }
    for body in [
        "redis.call('LPUSH',KEYS[1],'x');return(redis.call('RPOP',KEYS[1],70))",
        "redis.call('LSET',KEYS[1],5000,'y');return(redis.call('LRANGE',KEYS[1],4990,5010))",
        "redis.call('LTRIM',KEYS[1],500,12000);return(redis.call('LINDEX',KEYS[1],-1))",
    ] {
        pair.sink(0);
        pair.same(&format!("EVAL {body} 1 list"));
    }
    pair.sink(0);
    pair.client.check("SAVE", "+OK\r\n");
    assert!(swap(&mut pair.client, "swap_nodes") > NODES_MIN / 2, "to write a file brings nothing home");
    let digest = pair.same("DEBUG DIGEST");
    pair.client.check("DEBUG RELOAD NOSAVE", "+OK\r\n");
    assert_eq!(pair.client.ask("DEBUG DIGEST"), digest);
    pair.sink(0);
    pair.client.check("CONFIG SET swap-mode no", "+OK\r\n");
    wait_until("all is home", || swap(&mut pair.client, "swap_nodes") == 0);
    pair.check(&ALL[..3]);
}

#[test]
fn what_cannot_be_read_is_an_error_and_nothing_changes() {
    let folder = Folder::new("blocks-faults");
    let mut pair = filled(&folder);
    pair.same("RPUSH target kept");
    pair.same("XREADGROUP GROUP second cid COUNT 40 STREAMS stream >");
    pair.sink(NODES_MIN);
    let requests = [
        "LINDEX list 100",
        "LRANGE other 0 10",
        "LPOS list element:000777",
        "LPOP list",
        "RPOP other 100",
        "LSET list 100 x",
        "LINSERT list BEFORE element:000777 x",
        "LREM list 0 element:000777",
        "LTRIM list 10 -10",
        "LMOVE list target LEFT LEFT",
        "RPOPLPUSH list list",
        "COPY list copy",
        "SORT list ALPHA STORE target",
        "XRANGE stream - + COUNT 3",
        "XADD stream * f v",
        "XTRIM stream MAXLEN 550",
        "XDEL stream 100-1",
        "XREADGROUP GROUP first ann COUNT 2 STREAMS stream >",
        "XREADGROUP GROUP second cid COUNT 2 STREAMS stream 0",
        "XCLAIM stream second ann 0 5-1",
        "XAUTOCLAIM stream second ann 0 -",
        "XSETID stream 99999-1",
    ];
    pair.fails(&requests.map(String::from), "LRANGE list 0 10");
    for request in ["LRANGE target 0 -1", "EXISTS copy", "LLEN list", "XLEN stream", "XPENDING stream second"]
    {
        pair.same(request);
    }
    pair.check(&ALL[..3]);
}
