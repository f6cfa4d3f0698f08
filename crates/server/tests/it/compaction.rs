//! Memory follows what lives: objects move within a share of a CPU that is set and shown.

use crate::common::{Client, PATIENCE, Server, encode, field};
use std::time::{Duration, Instant};

const KEYS: usize = 60_000;

/// Sets keys with values of 100 to 900 B, and deletes every second of them.
fn leave_holes(client: &mut Client) {
    for from in (0..KEYS).step_by(1000) {
        for key in from..from + 1000 {
            let value = vec![b'x'; 100 + key * 7 % 800];
            client.send(encode(&[b"SET".as_slice(), format!("key:{key}").as_bytes(), &value]));
        }
        (0..1000).for_each(|_| client.expect("+OK\r\n"));
    }
    for from in (0..KEYS).step_by(1000) {
        (from..from + 1000).step_by(2).for_each(|key| client.send(encode(&["DEL", &format!("key:{key}")])));
        (0..500).for_each(|_| client.expect(":1\r\n"));
    }
}

#[test]
fn what_has_left_is_given_back() {
    let server = Server::start(&["--hz", "50"]);
    let mut client = server.client();
    leave_holes(&mut client);
    let (begun, mut running) = (Instant::now(), false);
    loop {
        let info = client.ask("INFO everything");
        running |= field(&info, "active_defrag_running") == 25;
        let (live, free) =
            (field(&info, "isotherm_arena_live_bytes"), field(&info, "isotherm_arena_partial_free_bytes"));
        // The arena's bound at rest, and that nothing runs then.
        if free + field(&info, "isotherm_arena_tail_bytes") < (3 << 19) + live / 50
            && field(&info, "active_defrag_running") == 0
        {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{free} B are free inside slabs: {info}");
        std::thread::sleep(Duration::from_millis(2));
    }
    let info = client.ask("INFO everything");
    let moved = field(&info, "active_defrag_hits");
    assert!(moved > 0 && field(&info, "active_defrag_key_hits") > moved, "{info}");
    assert!(running || field(&info, "total_active_defrag_time") < 100, "it ran unseen: {info}");
    assert_eq!(field(&info, "current_active_defrag_time"), 0);
    let (cpu, time) =
        (field(&info, "isotherm_compaction_cpu_milliseconds"), field(&info, "total_active_defrag_time"));
    assert!(cpu <= time, "{info}");
    client.check("CONFIG RESETSTAT", "+OK\r\n");
    assert_eq!(field(&client.ask("INFO stats"), "active_defrag_hits"), 0);
}

#[test]
fn the_share_is_what_the_parameters_say() {
    let server = Server::start(&["--compaction-cpu-percent", "3"]);
    let mut client = server.client();
    let percent = |client: &mut Client| field(&client.ask("INFO stats"), "isotherm_compaction_cpu_percent");
    assert_eq!(percent(&mut client), 3);
    client.check("CONFIG SET activedefrag yes", "+OK\r\n");
    assert_eq!(percent(&mut client), 3, "little is free inside slabs");
    client.check("CONFIG SET active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0", "+OK\r\n");
    client.check("CONFIG SET active-defrag-cycle-min 40 active-defrag-cycle-max 60", "+OK\r\n");
    client.check("SET key value", "+OK\r\n");
    assert!((40..=60).contains(&percent(&mut client)));
    client.check("CONFIG SET activedefrag no", "+OK\r\n");
    assert_eq!(percent(&mut client), 3);
    client.check(
        "CONFIG SET compaction-cpu-percent 0",
        "-ERR CONFIG SET failed (possibly related to argument 'compaction-cpu-percent') - argument must be between 1 and 99 \
         inclusive\r\n",
    );
}
