//! `swap-mode yes` and nothing else set: keys freeze when values alone are not enough, and without
//! `maxmemory` the machine's memory is the limit.

use crate::common::{Client, Server, encode, field};
use crate::swap::{self, Folder, swap};
use crate::swap_frozen;

const KEYS: usize = 300_000;

fn used(client: &mut Client) -> u64 {
    field(&client.ask("INFO memory"), "used_memory")
}

/// A key in one of few slots: fewer than four keys of a slot do not freeze, and little memory holds few of
/// each.
fn tagged(number: usize) -> String {
    format!("{{{}}}:{number}", number % 64)
}

/// Values of 400 bytes leave alone at first; what their keys leave in memory, 35 B each, would soon be all of
/// it.
#[test]
fn keys_freeze_when_their_entries_take_too_much() {
    let folder = Folder::new("alone-entries");
    let server = folder.start(&["--maxmemory", "9mb", "--log-memory-limit", "1mb", "--swap-cache", "0"]);
    let mut client = server.client();
    let long = "v".repeat(400);
    for some in (0..KEYS).collect::<Vec<_>>().chunks(200) {
        let requests = some.iter().flat_map(|n| encode(&["SET", &tagged(*n), &format!("{n}:{long}")]));
        client.send(requests.collect::<Vec<u8>>());
        some.iter().for_each(|_| client.expect("+OK\r\n"));
    }
    let (frozen, cold) = (swap(&mut client, "swap_frozen_keys"), swap(&mut client, "swap_keys"));
    assert!(frozen > KEYS as u64 / 2 && cold > 10_000, "{frozen} frozen, {cold} cold");
    assert!(used(&mut client) < 11 << 20);
    client.check("DBSIZE", &format!(":{KEYS}\r\n"));
    for n in (0..KEYS).step_by(997) {
        let value = format!("{n}:{long}");
        client.check(&format!("GET {}", tagged(n)), &format!("${}\r\n{value}\r\n", value.len()));
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Values below `swap-min-value` cannot leave alone at all.
#[test]
fn keys_freeze_when_nothing_else_can_leave() {
    let folder = Folder::new("alone-small");
    let server = folder.start(&["--maxmemory", "12mb", "--log-memory-limit", "1mb"]);
    let mut client = server.client();
    swap_frozen::set(&mut client, 0..2 * KEYS);
    assert!(swap(&mut client, "swap_frozen_keys") > KEYS as u64 / 2);
    client.check("DBSIZE", &format!(":{}\r\n", 2 * KEYS));
    swap_frozen::check(&mut client, (0..2 * KEYS).step_by(997));
    client.check("CONFIG SET swap-freeze no", "+OK\r\n");
    client.check("CONFIG GET swap-freeze", "*2\r\n$11\r\nswap-freeze\r\n$2\r\nno\r\n");
}

/// Four fifths of what the machine has are used, writers wait for the disk, nothing is refused or evicted.
#[test]
fn without_maxmemory_the_machine_is_the_limit() {
    let folder = Folder::new("alone-machine");
    let dir = folder.0.to_str().expect("a plain path").to_string();
    let own = ["--dir", &dir, "--swap-mode", "yes", "--enable-debug-command", "yes", "--save", ""];
    let server = Server::with_workers(2, &own);
    let mut client = server.client();
    let machine = swap(&mut client, "swap_memory_target");
    assert!(machine > 64 << 20, "{machine}");
    client.check("DEBUG SWAP-MACHINE 30000000", "+OK\r\n");
    assert_eq!(swap(&mut client, "swap_memory_target"), 24_000_000);
    client.check("CONFIG SET maxmemory-policy allkeys-lru", "+OK\r\n");
    swap::set(&mut client, 0..60_000, 0);
    client.check("DBSIZE", ":60000\r\n");
    let used = used(&mut client);
    assert!(used < 28_000_000, "{used}");
    assert!(swap(&mut client, "swap_keys") > 30_000);
    // Writes to the disk fail: memory grows beyond the target, as no one said that keys may go.
    client.check("DEBUG SWAP-FAULT WRITE IO", "+OK\r\n");
    swap::set(&mut client, 60_000..80_000, 0);
    client.check("DEBUG SWAP-FAULT WRITE NONE", "+OK\r\n");
    client.check("DBSIZE", ":80000\r\n");
    assert_eq!(field(&client.ask("INFO stats"), "evicted_keys"), 0);
    swap::check(&mut client, (0..80_000).step_by(77), 0);
}
