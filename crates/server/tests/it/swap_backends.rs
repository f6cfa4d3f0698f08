//! The readers of values on disk: workers by rings of their own, or threads where the system refuses those.
//! Both give equal answers.

use crate::common::{encode, text_field, wait_until};
use crate::swap::{Folder, check, name, set, swap};
use crate::swap_faults::{UNREADABLE, fault, with_cold};

const KEYS: usize = 2000;
/// Too long for a ring, and one that is read in several blocks.
const LONG: [usize; 2] = [150_000, 20_000];

fn backend(folder: &Folder, rings: &str) -> String {
    let server = folder.start(&["--swap-io-uring", rings]);
    let info = server.client().ask("INFO swap");
    text_field(&info, "swap_backend").to_string()
}

#[test]
fn threads_read_where_rings_are_not_wanted() {
    let folder = Folder::new("backend-word");
    assert_eq!(backend(&folder, "no"), "threads");
    match backend(&folder, "yes").as_str() {
        "io_uring" => {}
        "threads" => println!("this system has no io_uring: rings are not tried"),
        other => panic!("{other}"),
    }
}

fn all_is_read(rings: &str) {
    let folder = Folder::new(&format!("backend-{rings}"));
    let server = with_cold(&folder, KEYS, &["--swap-io-uring", rings, "--maxmemory", "64mb"]);
    let mut client = server.client();
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    for len in LONG {
        client.check(&format!("SET long:{len} {}", "x".repeat(len)), "+OK\r\n");
    }
    client.check("RPUSH list a b c", ":3\r\n");
    client.check(&format!("RPUSH list {}", "y".repeat(200)), ":4\r\n");
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") >= (KEYS + 3) as u64);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    // In pipelines, each value once; and by many connections of both workers at once.
    let reads = swap(&mut client, "swap_reads");
    check(&mut client, (0..KEYS).step_by(31), 0);
    assert_eq!(swap(&mut client, "swap_reads") - reads, KEYS.div_ceil(31) as u64);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let mut client = server.client();
            scope.spawn(move || check(&mut client, (thread..KEYS).step_by(8), 0));
        }
    });
    // Several values of one command, some of them for threads.
    client.send(encode(&["MGET", &name(1), "long:150000", "none", "long:20000", &name(2)]));
    let reply = String::from_utf8_lossy(&client.read_reply()).into_owned();
    assert!(reply.starts_with("*5\r\n$1000\r\n1/0.1/0.") && reply.contains("$-1\r\n"), "{}", &reply[..80]);
    assert_eq!(reply.matches('x').count(), LONG.iter().sum::<usize>());
    client.check("LLEN list", ":4\r\n");
    client.check(&format!("APPEND {} x", name(3)), ":1001\r\n");
    // Reads fail while others are under way.
    std::thread::scope(|scope| {
        let mut client = server.client();
        scope.spawn(|| {
            let mut other = server.client();
            for _ in 0..20 {
                fault(&mut other, "read io 2");
                fault(&mut other, "read none");
            }
        });
        check(&mut client, 4..KEYS, 0);
    });
    fault(&mut client, "read io");
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    set(&mut client, [5].into_iter(), 1);
    wait_until("it leaves memory", || client.ask(&format!("GET {}", name(5))) == UNREADABLE);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    fault(&mut client, "read none");
    wait_until("it comes back by itself", || client.ask(&format!("GET {}", name(5))) != UNREADABLE);
    check(&mut client, [5].into_iter(), 1);
    assert_eq!(swap(&mut client, "swap_reads_waiting"), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn all_is_read_by_rings() {
    all_is_read("yes");
}

#[test]
fn all_is_read_by_threads() {
    all_is_read("no");
}
