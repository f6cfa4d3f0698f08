//! `swap-freeze` with `swap-checkpoint`: the base of the append-only file refers to keys that lie outside
//! memory, and a start leaves them there.

use crate::common::{Client, encode, field, text_field, wait_until};
use crate::swap::swap;
use crate::swap_checkpoint::{Folder, begin_rewrite, begins_with, kill, rewrite};
use crate::swap_frozen::{check, freeze, name, set, value};

const KEYS: usize = 20_000;
const FREEZES: [&str; 2] = ["--swap-freeze", "yes"];

fn reads(client: &mut Client) -> u64 {
    swap(client, "swap_reads")
}

#[test]
fn frozen_keys_stay_where_they_are_over_a_restart() {
    let folder = Folder::new("frozen-restart");
    let server = folder.start(&FREEZES);
    let mut client = server.client();
    // One that has nothing frozen is as before.
    set(&mut client, 0..100);
    rewrite(&mut client);
    assert!(begins_with(&folder.base(), b"ISOTHERM1"));
    set(&mut client, 0..KEYS);
    client.check("SELECT 3", "+OK\r\n");
    set(&mut client, 0..500);
    client.check("SELECT 0", "+OK\r\n");
    // Some expire, half of them soon.
    let soon = std::time::UNIX_EPOCH.elapsed().expect("it is later").as_millis() + 5000;
    let goes = |n: usize| encode(&["SET", &format!("goes:{n}"), "x", "PXAT", &soon.to_string()]);
    client.send((0..100).flat_map(goes).collect::<Vec<u8>>());
    (0..100).for_each(|_| client.expect("+OK\r\n"));
    for n in 0..100 {
        client.check(&format!("SET stays:{n} x EX 500000"), "+OK\r\n");
    }
    let all = KEYS as u64 + 700;
    freeze(&mut client, all);
    let before = reads(&mut client);
    rewrite(&mut client);
    assert_eq!(reads(&mut client), before, "no record is read for it");
    let base = std::fs::metadata(folder.base()).expect("it is there").len();
    assert!(begins_with(&folder.base(), b"ISOTHERM2") && base < all * 12 + 20_000, "{base} B");
    // After the base: some are promoted, change, leave.
    check(&mut client, (0..KEYS).step_by(501));
    (0..KEYS).step_by(977).for_each(|n| client.check(&format!("DEL {}", name(n)), ":1\r\n"));
    (0..KEYS).step_by(977).for_each(|n| client.check(&format!("SET again:{n} {n}"), "+OK\r\n"));
    client.check(&format!("APPEND {} more", name(1)), ":14\r\n");
    assert!(client.ask("INFO keyspace").contains("expires=200"));
    wait_until("their time is over", || client.ask("EXISTS goes:1") == ":0\r\n");
    let digest = client.ask("DEBUG DIGEST");
    kill(server);

    // It freezes no more, and what is frozen stays until it is used.
    let server = folder.start(&["--swap-freeze", "no"]);
    let mut client = server.client();
    let info = client.ask("INFO swap");
    let frozen = field(&info, "swap_frozen_keys");
    assert!(frozen > all - 200 && field(&info, "swap_bundles") > 0, "{info}");
    assert!(field(&info, "swap_reads") < 200, "what the log behind the base names is read: {info}");
    if info.contains("swap_backend:io_uring") {
        assert!(field(&info, "swap_reads_in_commands") < 5, "and together: {info}");
    }
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    client.check("KEYS goes:*", "*0\r\n");
    let found = client.ask("DEBUG DIGEST");
    // A key that is due is part of it as long as it is there.
    if client.ask("DBSIZE") == format!(":{}\r\n", KEYS + 199) {
        assert_eq!(found, digest);
    }
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("what is due leaves", || client.ask("DBSIZE") == format!(":{}\r\n", KEYS + 100));
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    assert!(client.ask("INFO keyspace").contains("expires=100"));
    assert!(client.ask("TTL stays:7").starts_with(":499"));
    let digest = client.ask("DEBUG DIGEST");
    check(&mut client, (2..KEYS).step_by(977));
    client.check(&format!("EXISTS {} no-{}", name(0), name(0)), ":0\r\n");
    assert!(swap(&mut client, "swap_frozen_keys") < frozen, "what was used came home");
    // Again, by a base of what was loaded, and in place.
    rewrite(&mut client);
    assert!(begins_with(&folder.base(), b"ISOTHERM2"));
    client.check("DEBUG LOADAOF", "+OK\r\n");
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    kill(server);
    let text = folder.refusal(&["--swap-mode", "no", "--maxmemory", "0"]);
    assert!(text.contains("it is loaded with swap-mode yes only"), "{text}");

    // Back to a base that has all of them.
    let server = folder.start(&FREEZES);
    let mut client = server.client();
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    client.check("CONFIG SET swap-checkpoint no", "+OK\r\n");
    rewrite(&mut client);
    assert!(begins_with(&folder.base(), b"REDIS0011"));
    wait_until("the folder is scratch", || !folder.owner().exists());
    kill(server);
    let server = folder.start(&["--swap-mode", "no", "--maxmemory", "0"]);
    assert_eq!(server.client().ask("DEBUG DIGEST"), digest);
}

/// While a base is written keys are promoted and records are moved: it has the keys that were there at its
/// beginning, at the places of that moment.
#[test]
fn a_base_has_what_was_frozen_at_its_beginning() {
    let folder = Folder::new("frozen-moves");
    let more = [&FREEZES[..], &["--swap-max-disk", "384mb", "--rdb-key-save-delay", "100"]].concat();
    let server = folder.start(&more);
    let (mut client, mut other) = (server.client(), server.client());
    set(&mut client, 0..KEYS);
    freeze(&mut client, KEYS as u64);
    // Half of each segment is dead.
    for round in 0..6 {
        for some in 0..120 {
            let numbers = (0..100).map(|n| some * 100 + n);
            let text = |n: usize| format!("{n}/{round}.").repeat(800)[..3000].to_string();
            let filler = |n: usize| encode(&["SET", &format!("filler:{n}"), &text(n)]);
            client.send(numbers.clone().flat_map(filler).collect::<Vec<u8>>());
            numbers.for_each(|_| client.expect("+OK\r\n"));
        }
    }
    for _ in 0..2 {
        begin_rewrite(&mut client);
        other.check("SWAP CLEAN", "+Cleaning started\r\n");
        let mut n = 0;
        while client.ask("INFO persistence").contains("aof_rewrite_in_progress:1") {
            check(&mut other, std::iter::once(n % KEYS));
            other.check(&format!("SET {} {n}", name((n + 1) % KEYS)), "+OK\r\n");
            other.check(&format!("SET {} {}", name((n + 1) % KEYS), value((n + 1) % KEYS)), "+OK\r\n");
            n += 97;
        }
        assert_eq!(text_field(&client.ask("INFO persistence"), "aof_last_bgrewrite_status"), "ok");
        assert!(begins_with(&folder.base(), b"ISOTHERM2"));
    }
    assert!(swap(&mut client, "swap_cleaned_segments") > 0);
    let digest = client.ask("DEBUG DIGEST");
    kill(server);
    let server = folder.start(&more);
    let mut client = server.client();
    assert!(swap(&mut client, "swap_frozen_keys") > 0);
    client.check("SWAP VERIFY", "+Verification started\r\n");
    wait_until("all is verified", || swap(&mut client, "swap_verify_rounds") == 1);
    assert_eq!(swap(&mut client, "swap_verify_bad_keys"), 0);
    assert_eq!(client.ask("DEBUG DIGEST"), digest);
    check(&mut client, (0..KEYS).step_by(7));
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
