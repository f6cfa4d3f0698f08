//! Files that a start finds: the folder of the append-only file, its end, and the files next to it.

use crate::aof::{Data, kill, wire};
use crate::common::{Client, Server, encode, wait_until};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ON: [&str; 5] = ["--appendfsync", "always", "--save", "", "--enable-protected-configs"];

fn start(data: &Data, more: &[&str]) -> Server {
    data.start(2, &[&ON[..], &["yes"], more].concat())
}

fn set(client: &mut Client, keys: std::ops::Range<usize>) {
    keys.for_each(|key| client.check(&format!("SET key{key} {key}"), "+OK\r\n"));
}

fn rewrite(client: &mut Client) {
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    wait_for_rewrite(client);
}

fn wait_for_rewrite(client: &mut Client) {
    wait_until("the rewrite is over", || {
        client.info("persistence", "aof_rewrite_in_progress") == 0
            && client.info("persistence", "aof_rewrite_scheduled") == 0
    });
    assert!(client.ask("INFO persistence").contains("aof_last_bgrewrite_status:ok"));
}

fn check_keys(server: &Server, keys: usize) {
    server.client().check("DBSIZE", &format!(":{keys}\r\n"));
}

#[test]
fn the_folder_stays_while_the_file_is_on() {
    for has_older in [true, false] {
        let (data, other) = (Data::new(), Data::new());
        if has_older {
            other.write_log(&[&wire(&["SELECT 0", "SET older 1"])]);
        }
        let mut server = start(&data, &[]);
        let mut client = server.client();
        set(&mut client, 0..100);
        let to_other = format!("CONFIG SET dir {}", other.0.display());
        client.check(
            &to_other,
            "-ERR CONFIG SET failed (possibly related to argument 'dir') - the append-only file is in it: CONFIG SET \
             appendonly no first\r\n",
        );
        client.check(&format!("CONFIG SET dir {}", data.0.display()), "+OK\r\n");
        set(&mut client, 100..200);
        rewrite(&mut client);
        set(&mut client, 200..300);
        kill(&mut server);
        let mut server = start(&data, &[]);
        check_keys(&server, 300);
        // The way to move it.
        let mut client = server.client();
        client.check("CONFIG SET appendonly no", "+OK\r\n");
        client.check(&to_other, "+OK\r\n");
        client.check("CONFIG SET appendonly yes", "+OK\r\n");
        wait_for_rewrite(&mut client);
        set(&mut client, 300..400);
        kill(&mut server);
        check_keys(&start(&other, &[]), 400);
    }
}

/// Values on disk belong to a manifest; one that stands elsewhere refers to none.
#[test]
fn a_file_that_has_moved_does_not_refer_to_values_on_disk() {
    let (data, other) = (Data::new(), Data::new());
    let swap_dir = data.0.join("swap");
    let swaps = ["--swap-mode", "yes", "--swap-checkpoint", "yes", "--maxmemory", "24mb", "--swap-dir"];
    let swaps = [&swaps[..], &[swap_dir.to_str().unwrap()]].concat();
    let mut server = start(&data, &swaps);
    let mut client = server.client();
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    let value = "v".repeat(1000);
    (0..50).for_each(|key| client.check(&format!("SET key{key} {value}"), "+OK\r\n"));
    wait_until("all values leave memory", || client.info("swap", "swap_keys") == 50);
    rewrite(&mut client);
    assert!(swap_dir.join("owner").exists());
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    client.check(&format!("CONFIG SET dir {}", other.0.display()), "+OK\r\n");
    client.check("CONFIG SET appendonly yes", "+OK\r\n");
    wait_for_rewrite(&mut client);
    rewrite(&mut client);
    wait_until("nothing refers to the folder", || !swap_dir.join("owner").exists());
    kill(&mut server);
    let server = start(&other, &swaps);
    check_keys(&server, 50);
    server.client().check("GET key7", &format!("$1000\r\n{value}\r\n"));
}

/// Seconds are what an RDB file knows of its time.
fn await_next_second(client: &mut Client) {
    let mut second = || client.ask("TIME").lines().nth(2).map(str::to_owned);
    let first = second();
    wait_until("the second is over", || second() != first);
}

#[test]
fn a_save_behind_the_end_of_the_file_is_newer() {
    let data = Data::new();
    let mut server = start(&data, &[]);
    let mut client = server.client();
    set(&mut client, 0..100);
    client.check("SAVE", "+OK\r\n");
    set(&mut client, 100..200);
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    set(&mut client, 200..300);
    kill(&mut server);
    // The RDB file is as before: the append-only file has more, and is written again.
    let mut server = start(&data, &[]);
    check_keys(&server, 200);
    let mut client = server.client();
    set(&mut client, 200..250);
    kill(&mut server);
    let mut server = start(&data, &[]);
    check_keys(&server, 250);
    let mut client = server.client();
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    set(&mut client, 250..300);
    client.check("SAVE", "+OK\r\n");
    kill(&mut server);
    let mut server = start(&data, &[]);
    assert!(server.log().contains("was switched off before the RDB file was written"));
    check_keys(&server, 300);
    // It is the append-only file now.
    set(&mut server.client(), 300..310);
    kill(&mut server);
    check_keys(&start(&data, &[]), 310);
}

/// The note of the end as if a clock had been set since, or the RDB file had been replaced at that moment.
fn set_end(data: &Data, seconds: &str, rdb: Option<&str>) {
    let manifest = data.0.join("appendonlydir/appendonly.aof.manifest");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let mut words: Vec<&str> = text.split(' ').collect();
    let at = words.iter().position(|word| word.ends_with("ended")).unwrap();
    words[at + 1] = seconds;
    words[at + 3] = rdb.unwrap_or(words[at + 3]);
    std::fs::write(&manifest, words.join(" ")).unwrap();
}

#[test]
fn no_clock_decides_which_of_two_files_of_one_server_is_newer() {
    const FUTURE: &str = "9000000000";
    let data = Data::new();
    let mut server = start(&data, &[]);
    let mut client = server.client();
    set(&mut client, 0..100);
    client.check("SAVE", "+OK\r\n");
    set(&mut client, 100..200);
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    kill(&mut server);
    // A save whose file came at the very end.
    set_end(&data, "0", Some("unknown"));
    let mut server = start(&data, &[]);
    check_keys(&server, 200);
    let mut client = server.client();
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    set(&mut client, 200..300);
    client.check("SAVE", "+OK\r\n");
    kill(&mut server);
    // The clock was set back before the save.
    set_end(&data, FUTURE, None);
    let mut server = start(&data, &["--appendonly", "no"]);
    assert!(!server.log().contains("newer than the RDB file"));
    let mut client = server.client();
    set(&mut client, 300..310);
    client.check("SAVE", "+OK\r\n");
    kill(&mut server);
    check_keys(&start(&data, &[]), 310);
}

/// An RDB file of a clock that was ahead lies there while the next is written, and the log ends: neither has
/// what the log has.
#[test]
fn a_file_of_another_clock_is_recognized_beside_a_save_that_is_under_way() {
    const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];
    let data = Data::new();
    let mut server = start(&data, &[&DEBUG[..], &["--appendonly", "no"]].concat());
    let mut client = server.client();
    set(&mut client, 0..100);
    client.check("DEBUG STEP-CLOCK 86400000", "+OK\r\n");
    client.check("SAVE", "+OK\r\n");
    kill(&mut server);
    let mut server = start(&data, &[]);
    let mut client = server.client();
    set(&mut client, 100..200);
    client.check("CONFIG SET rdb-key-save-delay 1000000", "+OK\r\n");
    client.check("BGSAVE", "+Background saving started\r\n");
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    kill(&mut server);
    check_keys(&start(&data, &[]), 200);
}

#[test]
fn a_rewrite_of_a_file_that_is_off_is_an_end_too() {
    let data = Data::new();
    let mut server = start(&data, &["--appendonly", "no"]);
    let mut client = server.client();
    set(&mut client, 0..100);
    rewrite(&mut client);
    kill(&mut server);
    let mut server = start(&data, &[]);
    check_keys(&server, 100);
    let mut client = server.client();
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    set(&mut client, 100..200);
    rewrite(&mut client);
    await_next_second(&mut client);
    set(&mut client, 200..300);
    client.check("SAVE", "+OK\r\n");
    kill(&mut server);
    check_keys(&start(&data, &[]), 300);
}

#[test]
fn which_of_two_files_is_newer_is_not_guessed() {
    let (data, other) = (Data::new(), Data::new());
    let mut server = start(&other, &["--appendonly", "no"]);
    server.client().check("SAVE", "+OK\r\n");
    await_next_second(&mut server.client());
    kill(&mut server);
    let mut server = start(&data, &[]);
    let mut client = server.client();
    set(&mut client, 0..10);
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    kill(&mut server);
    std::fs::copy(other.0.join("dump.rdb"), data.0.join("dump.rdb")).unwrap();
    let log = data.fails_to_start();
    assert!(log.contains("came behind the end, and says that it was begun before"), "{log}");
    std::fs::remove_file(data.0.join("dump.rdb")).unwrap();
    check_keys(&start(&data, &[]), 10);
}

#[test]
fn a_start_without_the_file_warns_of_one_that_has_more() {
    const WARNING: &str = "what only that has is not loaded";
    let data = Data::new();
    let off = ["--appendonly", "no"];
    let mut server = start(&data, &off);
    assert!(!server.log().contains(WARNING));
    kill(&mut server);
    let mut server = start(&data, &[]);
    set(&mut server.client(), 0..10);
    kill(&mut server);
    let mut server = start(&data, &off);
    assert!(server.log().contains("was not switched off: what only that has"));
    kill(&mut server);
    let mut server = start(&data, &[]);
    let mut client = server.client();
    client.check("CONFIG SET appendonly no", "+OK\r\n");
    kill(&mut server);
    let mut server = start(&data, &off);
    assert!(server.log().contains("is newer than the RDB file: what only that has"));
    server.client().check("SAVE", "+OK\r\n");
    kill(&mut server);
    assert!(!start(&data, &off).log().contains(WARNING));
}

#[test]
fn files_without_their_manifest_are_not_written_over() {
    let data = Data::new();
    let mut server = start(&data, &[]);
    set(&mut server.client(), 0..10);
    kill(&mut server);
    let (manifest, aside) = (data.file("appendonly.aof.manifest"), data.0.join("aside"));
    std::fs::rename(&manifest, &aside).unwrap();
    let log = data.fails_to_start();
    assert!(log.contains("There is no manifest of the append-only file"), "{log}");
    let mut server = start(&data, &["--appendonly", "no"]);
    let mut client = server.client();
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to turn on AOF. Check server logs.\r\n";
    client.check("CONFIG SET appendonly yes", refused);
    client.check("BGREWRITEAOF", "+Background append only file rewriting started\r\n");
    server.wait_for_log("Background AOF rewrite terminated with error");
    kill(&mut server);
    std::fs::rename(&aside, &manifest).unwrap();
    check_keys(&start(&data, &[]), 10);
}

/// A start that was killed before its first list is no loss of one.
#[test]
fn a_folder_in_which_nothing_counts_yet_is_begun_anew() {
    let data = Data::new();
    data.write("appendonly.aof.manifest", b"# Nothing is listed yet.\n");
    data.write("appendonly.aof.1.base.rdb", b"half");
    data.write("appendonly.aof.1.incr.aof", b"");
    let mut server = start(&data, &[]);
    set(&mut server.client(), 0..10);
    kill(&mut server);
    check_keys(&start(&data, &[]), 10);
}

#[test]
fn it_is_switched_off_at_once_while_a_replica_follows() {
    for policy in ["everysec", "no"] {
        let data = Data::new();
        let server = data.start(2, &["--appendfsync", policy, "--save", ""]);
        let replica = Server::start(&["--save", "", "--replicaof", &format!("127.0.0.1 {}", server.port)]);
        let mut follower = replica.client();
        wait_until("the replica follows", || follower.ask("ROLE").contains("connected"));
        let mut client = server.client();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = server.client();
                while !ends.load(Ordering::Relaxed) {
                    writer.ask("INCR counter");
                }
            });
            wait_until("it writes", || client.ask("GET counter").len() > 8);
            let begun = Instant::now();
            client.check("CONFIG SET appendonly no", "+OK\r\n");
            let took = begun.elapsed();
            ends.store(true, Ordering::Relaxed);
            assert!(took < Duration::from_secs(5), "{took:?}");
        });
        assert!(!server.log().contains("may be lost"));
    }
}

/// The rewrite waits until it is known whose the folder is.
#[test]
fn a_rewrite_that_is_asked_for_while_it_is_switched_on_succeeds() {
    let data = Data::new();
    let server = start(&data, &["--appendonly", "no"]);
    let [mut client, mut holder, mut switcher, mut rewriter] = std::array::from_fn(|_| server.client());
    for _ in 0..5 {
        client.check("CONFIG SET appendonly no", "+OK\r\n");
        server.hold_all_locks(&mut holder, &[]);
        switcher.send(encode(&["CONFIG", "SET", "appendonly", "yes"]));
        rewriter.send(encode(&["BGREWRITEAOF"]));
        holder.read_reply();
        switcher.expect("+OK\r\n");
        rewriter.read_reply();
        wait_for_rewrite(&mut client);
    }
    assert!(!server.log().contains("Another process writes"));
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

struct Unmount<'p>(&'p Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        // The server may still have it as its own.
        run("umount", &["-l"], self.0);
    }
}

#[test]
fn under_always_a_full_disk_is_waited_for() {
    let data = Data::new();
    if !run("mount", &["-t", "tmpfs", "-o", "size=2m", "tmpfs"], &data.0) {
        return println!("no file system can be mounted here: a full one is not tried");
    }
    let _end = Unmount(&data.0);
    let mut server = start(&data, &["--aof-prepare-bytes", "0"]);
    let mut client = server.client();
    let value = "v".repeat(200_000);
    let mut keys = 0;
    let refusal = loop {
        let key = format!("key{keys}");
        client.send([encode(&["SET", &key, &value]), encode(&["LPUSH", &key, "x"])].concat());
        let replies = [client.read_reply(), client.read_reply()];
        // An error waits with the reply before it, and has applied nothing.
        let is_own_error =
            ["-WRONGTYPE", "-MISCONF"].iter().any(|own| replies[1].starts_with(own.as_bytes()));
        assert!(is_own_error, "{:?}", String::from_utf8_lossy(&replies[1]));
        keys += 1;
        if replies[0] != b"+OK\r\n" {
            break String::from_utf8_lossy(&replies[0]).into_owned();
        }
    };
    assert_eq!(refusal, "-NOTDURABLE The disk of the append-only file is full: applied, not durable\r\n");
    // Reads go on, and show what is applied; writes are refused.
    let last = format!("GET key{}", keys - 1);
    for mut client in [client, server.client()] {
        assert_eq!(client.ask(&last).len(), 200_011);
        client.check("EXISTS key0 key1", ":2\r\n");
        assert!(client.ask("SET other 1").starts_with("-MISCONF"));
    }
    let mut client = server.client();
    assert!(client.ask("INFO errorstats").contains("errorstat_NOTDURABLE:count=1"));
    assert!(run("mount", &["-o", "remount,size=40m"], &data.0));
    wait_until("it is written again", || client.ask("SET other 1") == "+OK\r\n");
    kill(&mut server);
    let server = start(&data, &[]);
    check_keys(&server, keys + 1);
    assert_eq!(server.client().ask(&last).len(), 200_011);
}

/// Writes until there is no room.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).expect("a name has room");
    while file.write_all(&[7; 4096]).is_ok() {}
}

#[test]
fn a_start_on_a_full_disk_reads_and_writes_once_there_is_room() {
    for policy in ["everysec", "always"] {
        let data = Data::new();
        if !run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &data.0) {
            return println!("no file system can be mounted here: a full one is not tried");
        }
        let _end = Unmount(&data.0);
        let arguments = ["--appendfsync", policy, "--save", "", "--aof-prepare-bytes", "0"];
        let (manifest, filler) = (data.file("appendonly.aof.manifest"), data.0.join("filler"));
        let listed = || std::fs::read_to_string(&manifest).expect("there is one");
        let mut keys = 100;
        // It was killed; it ended its log.
        for is_ended in [false, true] {
            let mut server = data.start(1, &arguments);
            let mut client = server.client();
            set(&mut client, 0..100);
            if is_ended {
                client.check("CONFIG SET appendonly no", "+OK\r\n");
                wait_until("its end is noted", || listed().contains("ended"));
            } else {
                client.check("WAITAOF 1 0 0", "*2\r\n:1\r\n:0\r\n");
            }
            kill(&mut server);
            fill(&filler);
            let before = listed();
            for _ in 0..2 {
                let mut server = data.start(1, &arguments);
                check_keys(&server, keys);
                let reply = server.client().ask("SET other 1");
                assert!(reply.starts_with("-MISCONF"), "{reply}");
                kill(&mut server);
                assert_eq!(listed(), before, "no change is in a history of another name");
            }
            let mut server = data.start(1, &arguments);
            let mut client = server.client();
            std::fs::remove_file(&filler).expect("it is there");
            wait_until("writes are accepted", || client.ask(&format!("SET other{is_ended} 1")) == "+OK\r\n");
            client.check("WAITAOF 1 0 0", "*2\r\n:1\r\n:0\r\n");
            keys += 1;
            let replication = client.ask("INFO replication");
            let id = replication.split_once("master_replid:").expect("it is there").1;
            assert!(listed().contains(&id[..40]) && !listed().contains("ended"), "{}", listed());
            kill(&mut server);
        }
        check_keys(&data.start(1, &arguments), keys);
    }
}

#[test]
fn files_under_the_names_of_later_numbers_are_not_written_over() {
    let data = Data::new();
    let mut server = start(&data, &["--aof-prepare-bytes", "0"]);
    set(&mut server.client(), 0..10);
    rewrite(&mut server.client());
    set(&mut server.client(), 10..20);
    kill(&mut server);
    let manifest = data.file("appendonly.aof.manifest");
    let mut text = std::fs::read_to_string(&manifest).expect("there is one");
    for (name, renamed) in [("2.base.rdb", "3.base.rdb"), ("2.incr.aof", "3.incr.aof")] {
        let [name, renamed] = [name, renamed].map(|name| format!("appendonly.aof.{name}"));
        assert!(text.contains(&name), "{text}");
        text = text.replace(&name, &renamed);
        std::fs::rename(data.file(&name), data.file(&renamed)).expect("it is there");
    }
    std::fs::write(&manifest, text).expect("it is written");
    let mut server = start(&data, &["--aof-prepare-bytes", "0"]);
    check_keys(&server, 20);
    rewrite(&mut server.client());
    let text = std::fs::read_to_string(&manifest).expect("there is one");
    for name in ["4.base.rdb seq 4", "4.incr.aof seq 4"] {
        assert!(text.contains(&format!("appendonly.aof.{name} ")), "{text}");
    }
    kill(&mut server);
    check_keys(&start(&data, &[]), 20);
}
