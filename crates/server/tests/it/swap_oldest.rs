//! Frozen keys are evicted where space on disk is short: what was written first leaves, and not what has just
//! come.

use crate::common::{Client, encode, field, wait_until};
use crate::swap::{Folder, swap};

/// Some 200 MB, for 128 MB of disk and 20 MB of memory.
const KEYS: usize = 400_000;
const VALUE_BYTES: usize = 480;

/// In few slots, so that there is enough of each in memory to freeze.
fn name(number: usize) -> String {
    format!("{{{}}}key:{number:08}", number % 1000)
}

fn set(client: &mut Client, numbers: std::ops::Range<usize>) {
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(200) {
        let value = |n: &usize| format!("{n}.").repeat(VALUE_BYTES)[..VALUE_BYTES].to_string();
        client.send(some.iter().flat_map(|n| encode(&["SET", &name(*n), &value(n)])).collect::<Vec<u8>>());
        some.iter().for_each(|_| client.expect("+OK\r\n"));
    }
}

/// Counts those of 200 that are there.
fn kept(client: &mut Client, numbers: std::ops::Range<usize>) -> i64 {
    let step = numbers.len() / 200;
    let names: Vec<String> = numbers.step_by(step).take(200).map(name).collect();
    client.ask_number(&format!("EXISTS {}", names.join(" ")))
}

#[test]
fn a_full_disk_loses_the_frozen_keys_that_were_written_first() {
    let folder = Folder::new("oldest");
    let own = ["--swap-freeze", "yes", "--maxmemory", "20mb", "--swap-max-disk", "256mb"];
    let more = ["--maxmemory-policy", "allkeys-lru", "--log-memory-limit", "1mb", "--save", ""];
    let server = folder.start(&[&own[..], &more, &["--notify-keyspace-events", "Ee"]].concat());
    let (mut client, mut events) = (server.client(), server.client());
    set(&mut client, 0..KEYS);
    wait_until("writers wait for nothing", || client.ask("PING") == "+PONG\r\n");
    let evicted = || field(&server.client().ask("INFO stats"), "evicted_keys");
    assert!(evicted() > KEYS as u64 / 10, "{}", evicted());
    let (oldest, newest) = (kept(&mut client, 0..KEYS / 8), kept(&mut client, KEYS * 7 / 8..KEYS));
    assert!(oldest <= 20 && newest >= 180, "{oldest} of the oldest, {newest} of the newest");
    wait_until("each is there or counted", || client.ask_number("DBSIZE") as u64 + evicted() == KEYS as u64);
    assert!(swap(&mut client, "swap_frozen_keys") > KEYS as u64 / 8, "most of what is left is frozen");
    // They have events, as all that is evicted.
    events.ask("SUBSCRIBE __keyevent@0__:evicted");
    let before = evicted();
    set(&mut client, KEYS..KEYS + KEYS / 4);
    wait_until("more are evicted", || evicted() > before + 1000);
    assert!(String::from_utf8_lossy(&events.read_reply()).contains("key:"));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
