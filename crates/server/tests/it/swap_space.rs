//! Resources that the tier of cold values shares with the rest: descriptors, space on disk, memory of a
//! snapshot.

use crate::bad_world::limited;
use crate::common::{Client, encode, text_field, wait_until};
use crate::swap::{Folder, check, name, set, swap};
use crate::swap_checkpoint;
use crate::swap_faults::{fault, set_or_oom, state};

/// As much as a ring reads.
const LARGE_BYTES: usize = 60 << 10;

fn large(number: usize) -> String {
    let mut value = format!("{number}.").repeat(LARGE_BYTES / 2);
    value.truncate(LARGE_BYTES);
    value
}

/// More segments than descriptors: clients connect, a save is written, values are read, and the disk counts
/// as well.
#[test]
fn segments_leave_descriptors_to_clients_and_saves() {
    const LARGE: usize = 15_000;
    /// Clients that the limit permits, less one that comes later.
    const CLIENTS: usize = 7;
    let folder = Folder::new("descriptors");
    let arguments = format!(
        "--dir {} --swap-mode yes --maxmemory 48mb --enable-debug-command yes --io-threads 2 --save ''",
        folder.0.display()
    );
    let server = limited("ulimit -n 44;", &arguments);
    server.wait_for_log("Ready to accept connections");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
    let mut client = clients.pop().expect("there are some");
    for number in 0..LARGE {
        client.send(encode(&["SET", &name(number), &large(number)]));
        client.expect("+OK\r\n");
    }
    let files = swap(&mut client, "swap_file_bytes");
    assert!(files > 12 * (64 << 20), "{files}");
    server.client().check("PING", "+PONG\r\n");
    assert_eq!(state(&mut client), "ok");
    for number in (0..LARGE).step_by(37) {
        client.send(encode(&["GET", &name(number)]));
        client.expect(&format!("${LARGE_BYTES}\r\n{}\r\n", large(number)));
    }
    client.check("BGSAVE", "+Background saving started\r\n");
    wait_until("the save", || client.ask("INFO persistence").contains("rdb_bgsave_in_progress:0"));
    assert_eq!(text_field(&client.ask("INFO persistence"), "rdb_last_bgsave_status"), "ok");
    server.client().check("PING", "+PONG\r\n");
    assert_eq!(state(&mut client), "ok");
    assert_eq!((swap(&mut client, "swap_write_errors"), swap(&mut client, "swap_read_errors")), (0, 0));
    let log = server.log();
    assert!(!log.contains("Too many open files") && !log.contains("any more"), "{log}");
}

/// The base of an append-only file that was switched off keeps segments until there is another: that is made
/// when they are needed.
#[test]
fn an_append_only_file_that_is_off_keeps_no_segments_for_ever() {
    const KEYS: usize = 50_000;
    let folder = swap_checkpoint::Folder::new("off");
    let server = folder.start(&["--swap-max-disk", "384mb", "--appendfsync", "no"]);
    let mut client = server.client();
    set(&mut client, 0..KEYS, 0);
    swap_checkpoint::rewrite(&mut client);
    assert!(swap_checkpoint::begins_with(&folder.base(), b"ISOTHERM1"));
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    for _ in 0..3 {
        set_or_oom(&mut client, 0..KEYS);
    }
    wait_until("no write is refused", || set_or_oom(&mut client, 0..KEYS) == 0);
    wait_until("nothing waits", || swap(&mut client, "swap_waiting_segments") == 0);
    // Nothing more is kept, and no further base is made.
    assert!(!swap_checkpoint::begins_with(&folder.base(), b"ISOTHERM1") && !folder.owner().exists());
    check(&mut client, (0..KEYS).step_by(7), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// A start with `appendonly no` next to an append-only file that refers: the segments that it needs are kept,
/// and the log says what frees them.
#[test]
fn a_base_that_was_not_loaded_is_not_written_over_unasked() {
    const KEYS: usize = 50_000;
    let folder = swap_checkpoint::Folder::new("foreign");
    let server = folder.start(&["--appendfsync", "no"]);
    let mut client = server.client();
    set(&mut client, 0..KEYS, 0);
    swap_checkpoint::rewrite(&mut client);
    swap_checkpoint::kill(server);
    let base = std::fs::read(folder.base()).expect("it is there");
    let off = ["--appendonly", "no", "--swap-max-disk", "384mb"];
    let server = folder.start(&off);
    server.wait_for_log("are kept for the append-only file");
    let mut client = server.client();
    (0..3).for_each(|_| _ = set_or_oom(&mut client, 0..KEYS));
    assert!(std::fs::read(folder.base()).expect("it is there") == base);
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    wait_until("no write is refused", || set_or_oom(&mut client, 0..KEYS) == 0);
}

/// Dead space is given back when others need it, and nothing more is taken; when they do not, all is as
/// before.
#[test]
fn space_that_others_need_is_left_to_them() {
    const KEYS: usize = 40_000;
    const VERSIONS: usize = 6;
    let folder = Folder::new("space");
    let server = folder.start(&["--swap-max-disk", "1gb", "--appendonly", "yes", "--appendfsync", "no"]);
    server.wait_for_log("MB of the file system are left");
    let mut client = server.client();
    wait_until("it is loaded", || !client.ask("DBSIZE").contains("LOADING"));
    assert_eq!(swap(&mut client, "swap_usable_bytes"), (16 - 3 + 1) * (64 << 20));
    // In each version some keys are the last of theirs: each segment keeps something alive.
    for version in 0..VERSIONS {
        set(&mut client, (0..KEYS).filter(|number| number % 8 >= version), version);
    }
    let check_all = |client: &mut Client| {
        (0..8).for_each(|rest| check(client, (rest..KEYS).step_by(56), rest.min(VERSIONS - 1)));
    };
    let files = swap(&mut client, "swap_file_bytes");
    assert_eq!(swap(&mut client, "swap_cleaned_segments"), 0, "nothing has to be cleaned yet");
    fault(&mut client, "free 10000000");
    server.wait_for_log("no more values go there");
    assert_eq!(swap(&mut client, "swap_disk_free_bytes"), 10_000_000);
    wait_until("what is dead is cleaned", || swap(&mut client, "swap_cleaned_segments") > 0);
    wait_until("files are removed", || swap(&mut client, "swap_file_bytes") < files);
    wait_until("nothing more is taken", || {
        set_or_oom(&mut client, KEYS..3 * KEYS) > 0 && state(&mut client) == "full"
    });
    check_all(&mut client);
    fault(&mut client, "free 0");
    wait_until("values leave again", || {
        state(&mut client) != "full" && set_or_oom(&mut client, KEYS..3 * KEYS) == 0
    });
    check_all(&mut client);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

/// Files of a former `swap-mode yes` are named, with what they take, and stay.
#[test]
fn files_of_before_are_named_without_swap_mode() {
    let folder = Folder::new("former");
    let server = folder.start(&[]);
    let mut client = server.client();
    set(&mut client, 0..40_000, 0);
    assert!(swap(&mut client, "swap_file_bytes") > 4 << 20);
    drop(server);
    let server = folder.start(&["--swap-mode", "no"]);
    server.wait_for_log("/swap' has 1 files of");
    assert!(folder.0.join("swap/00000000.cold").exists());
}
