//! The append-only file of a replica: it has the bytes of its primary's stream, and a restart continues where
//! it ended.

use crate::aof::{Data, kill};
use crate::common::{Client, encode, text_field, wait_until};
use crate::feeder_disk::HangingDisk;
use crate::peers;
use crate::replica::{ID, OTHER_ID, Primary, goes_on_behind, snapshot, wait_for_field};

/// Killed, with an append-only file: after a base that was rewritten in the middle of the stream, and after
/// one more file.
#[test]
fn goes_on_after_a_kill_with_an_append_only_file() {
    let data = Data::new();
    let arguments = ["--dir", data.0.to_str().unwrap(), "--appendonly", "yes", "--appendfsync", "always"];
    let mut primary = Primary::start(&arguments);
    let mut link = primary.sync(&[("a", "1")], 70);
    let mut client = primary.replica.client();
    wait_until("the append-only file has its base", || {
        rests(&mut client) && text_field(&client.ask("INFO persistence"), "aof_enabled") == "1"
    });
    let mut end = 70 + link.send_command("SELECT 5") + link.send_command("SET before once");
    wait_for_field(&mut client, "slave_repl_offset", &end.to_string());
    client.ask("BGREWRITEAOF");
    wait_until("it has another one", || rests(&mut client));
    end += link.send_command("MULTI") + link.send_command("INCR n") + link.send_command("EXEC");
    end += link.send_command("PUBLISH c m");
    end += link.send_command("SET before restart");
    wait_until_durable(&primary, "before", "restart");
    for round in 0..3 {
        kill(&mut primary.replica);
        drop(link);
        primary.start_again(&arguments);
        let (next, asked) = primary.shake_hands();
        assert_eq!(asked, format!("{ID} {}", end + 1), "round {round}");
        link = next;
        link.send("+CONTINUE\r\n");
        end += link.send_command(&format!("SET round {round}"));
        wait_until_durable(&primary, "round", &round.to_string());
    }
    // In this order: it would connect again.
    kill(&mut primary.replica);
    drop(link);
    primary.start_again(&arguments);
    goes_on_behind(&primary, end, 5);
    let mut client = primary.replica.client();
    client.check("SELECT 5", "+OK\r\n");
    client.check("GET n", "$1\r\n1\r\n");
    client.check("GET round", "$1\r\n2\r\n");
}

/// A file of the log that begins where the stream has selected a database begins with a SELECT, for a server
/// takes each file to begin with database 0; offsets do not count it. It is so after a rewrite, after the
/// file was switched on, and if it is torn there.
#[test]
fn a_file_that_begins_in_the_stream_has_its_select() {
    const SELECT: &[u8] = b"#isotherm unlogged\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n5\r\n";
    const COMMENT_BYTES: u64 = 20;
    for (preamble, switches) in [("yes", false), ("no", false), ("yes", true), ("no", true)] {
        let data = Data::new();
        let folder = data.0.to_str().unwrap();
        let common = ["--dir", folder, "--appendfsync", "always", "--aof-use-rdb-preamble", preamble];
        let on = [&common[..], &["--appendonly", "yes"]].concat();
        let mut primary = Primary::start(if switches { &common } else { &on });
        let mut link = primary.sync(&[("a", "1")], 70);
        let mut client = primary.replica.client();
        wait_for_field(&mut client, "master_link_status", "up");
        let mut end = 70 + link.send_command("SELECT 5") + link.send_command("SET before restart");
        wait_for_field(&mut client, "slave_repl_offset", &end.to_string());
        wait_until("the first base is listed", || rests(&mut client));
        client.ask(if switches { "CONFIG SET appendonly yes" } else { "BGREWRITEAOF" });
        let begins = end;
        wait_until("the base is listed", || {
            rests(&mut client)
                && last_file(&data).is_some_and(|file| std::fs::metadata(file).unwrap().len() > 0)
        });
        let file = last_file(&data).unwrap();
        // Before the first command: a start may find it so.
        assert_eq!(std::fs::read(&file).unwrap(), SELECT);
        end += link.send_command("SET x 1");
        wait_until_durable(&primary, "x", "1");
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes, [SELECT, &encode(&["SET", "x", "1"])].concat());
        assert_eq!(end - begins, (bytes.len() - SELECT.len()) as u64);
        kill(&mut primary.replica);
        drop(link);
        valkey_reads_databases(&data, &["DB0", "DB5"]);
        let whole = SELECT.len() as u64;
        for cut in [0, 7, COMMENT_BYTES, COMMENT_BYTES + 9, whole - 1, whole, whole + 5] {
            if preamble == "no" && cut < whole {
                // Such a base does not say which database is selected after it: the file had its SELECT
                // before it was listed.
                continue;
            }
            let opened = std::fs::File::options().write(true).open(&file).unwrap();
            opened.set_len(0).unwrap();
            std::fs::write(&file, &bytes[..cut as usize]).unwrap();
            primary.start_again(&on);
            let (mut link, asked) = primary.shake_hands();
            assert_eq!(asked, format!("{ID} {}", begins + 1), "cut at {cut}");
            link.send("+CONTINUE\r\n");
            end = begins + link.send_command("SET x 2");
            wait_until_durable(&primary, "x", "2");
            kill(&mut primary.replica);
            drop(link);
            let written = std::fs::read(&file).unwrap();
            assert_eq!(written, [SELECT, &encode(&["SET", "x", "2"])].concat(), "cut at {cut}");
        }
        primary.start_again(&on);
        goes_on_behind(&primary, end, 5);
    }
}

/// A file that was prepared has its SELECT too, if it is the last after a base of commands when the process
/// is killed: without a command of the log, and with one.
#[test]
fn a_prepared_file_that_begins_in_the_stream_has_its_select() {
    let data = Data::new();
    let folder = data.0.to_str().unwrap();
    let on = [
        &["--dir", folder, "--appendonly", "yes", "--appendfsync", "always", "--aof-prepare-bytes", "1mb"][..],
        &["--aof-use-rdb-preamble", "no"],
    ];
    let on = on.concat();
    let mut primary = Primary::start(&on);
    let mut link = primary.sync(&[("a", "1")], 70);
    let mut client = primary.replica.client();
    wait_for_field(&mut client, "master_link_status", "up");
    let mut end = 70 + link.send_command("SELECT 5");
    link.without_delay();
    // Many syncs a second, until a file is ready when the base is begun: the one after it has nothing but its
    // SELECT then.
    let prepared = data.file("temp-appendonly.aof.prepared");
    let has = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    let is_begun = |bytes: &[u8]| {
        let is_prepared = bytes.starts_with(b"#isotherm prepared ");
        is_prepared && has(bytes, b"SELECT") && !has(bytes, b"before")
    };
    wait_until("the file behind a base of commands was prepared", || {
        for _ in 0..20 {
            end += link.send_command("INCR before") + link.send_command("REPLCONF GETACK *");
            link.expect_ack(end);
        }
        if std::fs::read(&prepared).is_ok_and(|bytes| bytes.starts_with(b"#isotherm prepared ")) {
            client.ask("BGREWRITEAOF");
            wait_until("the base is listed", || rests(&mut client));
        }
        // It may have been listed, and go as the next one is.
        last_file(&data).and_then(|file| std::fs::read(file).ok()).is_some_and(|bytes| is_begun(&bytes))
    });
    for written in 0..3 {
        kill(&mut primary.replica);
        drop(link);
        if written < 2 {
            valkey_reads_databases(&data, &["DB0", "DB5"]);
        }
        primary.start_again(&on);
        let (next, asked) = primary.shake_hands();
        assert_eq!(asked, format!("{ID} {}", end + 1));
        link = next;
        link.send("+CONTINUE\r\n");
        end += link.send_command(&format!("SET written {written}"));
        wait_until_durable(&primary, "written", &written.to_string());
        client = primary.replica.client();
        client.check("DBSIZE", ":1\r\n");
        client.check("SELECT 5", "+OK\r\n");
        client.check("DBSIZE", ":2\r\n");
    }
}

/// No base is on its way.
pub fn rests(client: &mut Client) -> bool {
    let info = client.ask("INFO persistence");
    ["aof_rewrite_in_progress", "aof_rewrite_scheduled"].iter().all(|name| text_field(&info, name) == "0")
}

/// The last file of the log that the manifest lists.
fn last_file(data: &Data) -> Option<std::path::PathBuf> {
    let manifest = std::fs::read_to_string(data.file("appendonly.aof.manifest")).ok()?;
    let name = manifest.lines().rfind(|line| line.ends_with(" type i"))?.split(' ').nth(1)?;
    Some(data.file(name))
}

/// A real Valkey, if there is one, finds these databases and no other in a copy of the append-only file.
fn valkey_reads_databases(data: &Data, databases: &[&str]) {
    let Some(valkey) = peers::peer("valkey-server") else { return };
    let copy = Data::new();
    std::fs::create_dir_all(copy.file("")).unwrap();
    for entry in std::fs::read_dir(data.file("")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.file("").join(entry.file_name())).unwrap();
    }
    let server = peers::start_with(valkey, &copy.0, &["--appendonly", "yes"]);
    let info = server.client().ask("INFO keyspace").to_uppercase();
    let found: Vec<&str> = info
        .lines()
        .filter(|line| line.starts_with("DB"))
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(found, databases);
}

/// Under `always` what is read is durable.
#[track_caller]
fn wait_until_durable(primary: &Primary, key: &str, value: &str) {
    let mut client = primary.replica.client();
    client.check("SELECT 5", "+OK\r\n");
    let reply = format!("${}\r\n{value}\r\n", value.len());
    wait_until("the change is there", || client.ask(&format!("GET {key}")) == reply);
}

/// The file that the manifest lists as the base.
fn base_file(data: &Data) -> Option<std::path::PathBuf> {
    let manifest = std::fs::read_to_string(data.file("appendonly.aof.manifest")).ok()?;
    let name = manifest.lines().find(|line| line.ends_with(" type b"))?.split(' ').nth(1)?;
    Some(data.file(name))
}

#[test]
fn a_received_file_becomes_the_base() {
    let data = Data::new();
    let folder = data.0.to_str().unwrap();
    let on = ["--dir", folder, "--appendonly", "yes", "--appendfsync", "always"];
    let mut primary = Primary::start(&on);
    let keys = [("a", "1"), ("b", "2")];
    let mut link = primary.sync(&keys, 70);
    let is_base =
        |data: &Data| base_file(data).is_some_and(|file| std::fs::read(file).unwrap() == snapshot(&keys));
    wait_until("the base is what was received", || is_base(&data));
    assert!(!data.0.join("dump.rdb").exists(), "it was renamed");
    let mut client = primary.replica.client();
    wait_until("no rewrite follows", || rests(&mut client));
    let end = 70 + link.send_command("SELECT 5") + link.send_command("SET before restart");
    wait_until_durable(&primary, "before", "restart");
    assert!(is_base(&data));
    kill(&mut primary.replica);
    drop(link);
    primary.start_again(&on);
    goes_on_behind(&primary, end, 5);
    let mut client = primary.replica.client();
    client.check("GET a", "$1\r\n1\r\n");
}

/// Killed on the way: the folder has what it had, or what was received, and the start says which.
#[test]
fn a_kill_before_the_received_file_is_listed() {
    for step in 0..4 {
        let data = Data::new();
        let folder = data.0.to_str().unwrap();
        let on = ["--dir", folder, "--appendonly", "yes", "--appendfsync", "always"];
        let mut primary = Primary::start(&on);
        let mut link = primary.sync(&[("a", "1")], 70);
        let end = 70 + link.send_command("SET a 2");
        wait_for_field(&mut primary.replica.client(), "slave_repl_offset", &end.to_string());
        wait_until("the base is listed", || {
            base_file(&data).is_some_and(|file| std::fs::read(file).unwrap() == snapshot(&[("a", "1")]))
        });
        let before = base_file(&data).unwrap();
        drop(link);
        let (mut link, _) = primary.shake_hands();
        link.send(format!("+FULLRESYNC {OTHER_ID} 500\r\n"));
        let received = snapshot(&[("c", "3")]);
        link.send(format!("${}\r\n", received.len()));
        link.send(&received);
        let bases = || {
            let names = std::fs::read_dir(data.file("")).unwrap();
            names
                .filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().ends_with(".base.rdb"))
                .count()
        };
        let is_listed = || base_file(&data).is_some_and(|file| file != before);
        // Without a pause between two looks: the steps take less than a millisecond.
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_secs(20) {
            let reached = match step {
                0 => data.0.join("dump.rdb").exists() || bases() > 1 || is_listed(),
                1 => bases() > 1 || is_listed(),
                2 => is_listed(),
                _ => is_listed() && bases() == 1,
            };
            if reached {
                break;
            }
        }
        kill(&mut primary.replica);
        drop(link);
        let has_new = is_listed();
        assert!(has_new || step < 2, "it was listed");
        primary.start_again(&on);
        let (_link, asked) = primary.shake_hands();
        let mut client = primary.replica.client();
        if has_new {
            assert_eq!(asked, format!("{OTHER_ID} 501"));
            client.check("GET c", "$1\r\n3\r\n");
            client.check("GET a", "$-1\r\n");
        } else {
            assert_eq!(asked, format!("{ID} {}", end + 1));
            client.check("GET a", "$1\r\n2\r\n");
            client.check("GET c", "$-1\r\n");
        }
    }
}

/// The file of the former history waits for the disk before the new one is loaded: no command changes the
/// primary meanwhile.
#[test]
fn nothing_comes_between_the_end_of_the_old_file_and_the_load() {
    let disk = HangingDisk::new("old-file");
    let primary = Primary::start_with(|port| {
        let port = port.to_string();
        disk.start(&["--replicaof", "127.0.0.1", &port, "--appendonly", "yes"])
    });
    let mut link = primary.sync(&[("a", "1")], 70);
    let mut client = primary.replica.client();
    wait_until("the file is written", || {
        rests(&mut client) && text_field(&client.ask("INFO persistence"), "aof_enabled") == "1"
    });
    disk.hang();
    link.send_command("SET a 2");
    wait_until("the change is applied", || client.ask("GET a") == "$1\r\n2\r\n");
    drop(link);
    let (mut link, _) = primary.shake_hands();
    let received = snapshot(&[("b", "3")]);
    link.send(format!("+FULLRESYNC {OTHER_ID} 500\r\n${}\r\n", received.len()));
    link.send(&received);
    wait_until("the file waits for the disk", || {
        primary.replica.log().matches("Calling fsync() on the AOF file.").count() == 2
    });
    let refused = "-LOADING Isotherm is loading the dataset in memory\r\n";
    for request in ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "GET a"] {
        client.check(request, refused);
    }
    disk.answer();
    link.expect_ack(500);
    wait_until("the data is served", || client.ask("GET b") == "$1\r\n3\r\n");
    wait_until("the file is written again", || {
        rests(&mut client) && text_field(&client.ask("INFO persistence"), "aof_enabled") == "1"
    });
}
