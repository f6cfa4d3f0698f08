//! Commands of operators about values that are not in memory: SWAP, CONFIG SET, and the words of SWAPDB.

use crate::common::{Client, Server, encode, field, wait_until};
use crate::swap::{Folder, check, name, set, swap, value};
use crate::swap_faults::{fault, state, with_cold};

#[test]
fn all_that_is_on_disk_is_verified() {
    let folder = Folder::new("verify");
    let server = with_cold(&folder, 40, &[]);
    let mut client = server.client();
    let verified = |client: &mut Client, bad: u64| {
        client.check("SWAP VERIFY", "+Verification started\r\n");
        wait_until("it is through", || swap(client, "swap_verify_in_progress") == 0);
        assert_eq!(swap(client, "swap_verify_keys"), 40);
        assert_eq!(swap(client, "swap_verify_bytes"), (40 - bad) * 1000);
        assert_eq!(swap(client, "swap_verify_bad_keys"), bad);
    };
    verified(&mut client, 0);
    let path = folder.0.join("swap/00000000.cold");
    let mut bytes = std::fs::read(&path).expect("the file is there");
    let needle = value(7, 0);
    let at = bytes.windows(1000).position(|part| part == needle.as_bytes()).expect("the value is there");
    bytes[at + 500] ^= 1;
    // The file is written in place: it is open.
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::OpenOptions::new().write(true).open(&path).expect("it is writable"),
        &bytes,
        0,
    )
    .expect("it is written");
    verified(&mut client, 1);
    assert_eq!(swap(&mut client, "swap_keys"), 40, "nothing was changed");
    fault(&mut client, "read hang");
    client.check("SWAP VERIFY", "+Verification started\r\n");
    client.check("SWAP VERIFY", "-ERR it is under way: see SWAP STATUS\r\n");
    assert!(client.ask("SWAP STATUS").contains("swap_verify_in_progress:1"));
    fault(&mut client, "read none");
    let plain = Server::start(&[]);
    for word in ["VERIFY", "CLEAN", "STATUS"] {
        assert!(plain.client().ask(&format!("SWAP {word}")).starts_with("-ERR there are no values on disk"));
    }
    assert!(client.ask("SWAP HELP").contains("VERIFY"));
}

#[test]
fn space_on_disk_is_freed_when_it_is_wanted() {
    const KEYS: usize = 180_000;
    let folder = Folder::new("clean-now");
    let server = folder.start(&["--maxmemory", "32mb", "--swap-read-timeout", "0"]);
    let mut client = server.client();
    set(&mut client, 0..KEYS, 0);
    for n in (0..KEYS).filter(|n| n % 10 != 0) {
        client.send(encode(&["DEL", &name(n)]));
        if n % 1000 == 999 {
            (0..900).for_each(|_| client.expect(":1\r\n"));
        }
    }
    let before = swap(&mut client, "swap_file_bytes");
    assert!(before > 128 << 20, "{before}");
    assert_eq!(swap(&mut client, "swap_cleaned_segments"), 0);
    // A value that is being read is moved meanwhile.
    let mut readers: Vec<Client> = Vec::new();
    fault(&mut client, "read hang 16");
    for n in 0..16 {
        let mut reader = server.client();
        reader.send(encode(&["GET", &name(n * 10)]));
        readers.push(reader);
    }
    wait_until("they wait", || client.ask("CLIENT LIST").matches("flags=b").count() == 16);
    // Readers have taken them, or are about to.
    std::thread::sleep(std::time::Duration::from_millis(100));
    client.check("SWAP CLEAN", "+Cleaning started\r\n");
    wait_until("it is through", || swap(&mut client, "swap_clean_in_progress") == 0);
    fault(&mut client, "read none");
    for (n, reader) in readers.iter_mut().enumerate() {
        reader.expect(&format!("$1000\r\n{}\r\n", value(n * 10, 0)));
    }
    assert_eq!(swap(&mut client, "swap_unreadable"), 0);
    wait_until("files are removed", || swap(&mut client, "swap_file_bytes") < before / 2);
    check(&mut client, (0..KEYS).step_by(10), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn it_is_switched_off_when_there_is_room() {
    let folder = Folder::new("off-words");
    let server = folder.start(&[]);
    let mut client = server.client();
    set(&mut client, 0..40_000, 0);
    assert!(swap(&mut client, "swap_keys") > 10_000);
    let refusal = client.ask("CONFIG SET swap-mode no");
    assert!(refusal.contains("are in use: raise maxmemory first"), "{refusal}");
    client.check("CONFIG GET swap-mode", "*2\r\n$9\r\nswap-mode\r\n$3\r\nyes\r\n");
    assert_eq!(state(&mut client), "ok");
    client.check("CONFIG SET maxmemory 100mb swap-mode no", "+OK\r\n");
    assert_eq!(state(&mut client), "off");
    wait_until("all is at home", || swap(&mut client, "swap_keys") == 0);
    let reads = swap(&mut client, "swap_reads");
    check(&mut client, 0..40_000, 0);
    assert_eq!(swap(&mut client, "swap_reads"), reads);
    client.check("CONFIG SET swap-mode yes maxmemory 24mb", "+OK\r\n");
    set(&mut client, 0..100, 0);
    wait_until("values leave again", || swap(&mut client, "swap_keys") > 10_000);
    check(&mut client, 0..40_000, 0);
    // Without a limit none leaves, and nothing is lost.
    client.check("CONFIG SET maxmemory 0", "+OK\r\n");
    set(&mut client, 40_000..80_000, 0);
    check(&mut client, (0..80_000).step_by(7), 0);
    client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}

#[test]
fn limits_that_cross_are_refused() {
    let folder = Folder::new("limits");
    let server = folder.start(&[]);
    let mut client = server.client();
    for refused in ["swap-transfer-lower-limit 95", "swap-load-upper-limit 85", "ssdb-load-upper-limit 1"] {
        let reply = client.ask(&format!("CONFIG SET {refused}"));
        assert!(reply.contains("has to be below swap-load-upper-limit"), "{refused}: {reply}");
    }
    for taken in [
        "swap-load-upper-limit 70 swap-transfer-lower-limit 30",
        "ssdb-transfer-lower-limit 0 ssdb-load-upper-limit 0",
        "ssdb-transfer-lower-limit 100",
        "client-visiting-ssdb-timeout 1000",
    ] {
        client.check(&format!("CONFIG SET {taken}"), "+OK\r\n");
    }
    client.check("CONFIG GET swap-read-timeout", "*2\r\n$17\r\nswap-read-timeout\r\n$4\r\n1000\r\n");
    let plain = Server::start(&[]);
    let reply = plain.client().ask("CONFIG SET swap-mode yes");
    assert!(reply.contains("it can be switched on at start only"), "{reply}");
}

#[test]
fn it_says_why_it_does_not_start_with_this() {
    let folder = Folder::new("start-words");
    let dir = folder.0.to_str().expect("a plain path");
    std::fs::write(folder.0.join("file"), b"").expect("a file");
    let path = std::env::temp_dir().join("isotherm-no-such-folder").join("swap");
    let no_parent = path.to_str().expect("a plain path");
    for (more, why) in [
        (&["--swap-transfer-lower-limit", "96"][..], "has to be below swap-load-upper-limit"),
        (&["--swap-dir", "file"][..], "of swap-dir"),
        (&["--swap-dir", no_parent][..], "Can't create the folder"),
        // A file system that is mounted read-only, on every machine.
        (&["--swap-dir", "/proc/isotherm"][..], "Can't create the folder"),
    ] {
        let port = crate::common::free_port().to_string();
        let own = ["--dir", dir, "--swap-mode", "yes", "--maxmemory", "10mb", "--port", &port];
        let output = crate::common::command(&[&own[..], more].concat()).output().expect("it ends");
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why), "{more:?}: {text}");
    }
}

#[test]
fn the_words_of_swapdb() {
    let folder = Folder::new("swapdb");
    let server = folder.start(&[]);
    let mut client = server.client();
    set(&mut client, 0..2, 0);
    client.check("SET short 1", "+OK\r\n");
    let key = name(0);
    client.check(&format!("LOCATEKEY {key}"), "$5\r\nredis\r\n");
    client.check("LOCATEKEY nothing", "$4\r\nnone\r\n");
    client.check(&format!("DUMPFROMSSDB {key}"), "$-1\r\n");
    client.check("STORETOSSDB nothing", "$-1\r\n");
    assert!(client.ask("STORETOSSDB short").starts_with("-ERR this value cannot leave memory"));
    client.check(&format!("STORETOSSDB {key}"), "+OK\r\n");
    wait_until("it is there", || client.ask(&format!("LOCATEKEY {key}")) == "$4\r\nssdb\r\n");
    client.check(&format!("STORETOSSDB {key}"), "$-1\r\n");
    client.check("SSDBKEYS *", &format!("*1\r\n$14\r\n{key}\r\n"));
    client.check("REDISKEYS key:*", &format!("*1\r\n$14\r\n{}\r\n", name(1)));
    let info = client.ask("INFO redis-ssdb");
    assert!(info.contains("# Redis-SSDB\r\n"), "{info}");
    assert_eq!((field(&info, "keys_in_redis_count"), field(&info, "keys_in_ssdb_count")), (2, 1));
    assert_eq!(field(&client.ask("INFO stats"), "keyspace_hits_ssdb"), 0);
    check(&mut client, 0..1, 0);
    assert_eq!(field(&client.ask("INFO stats"), "keyspace_hits_ssdb"), 1);
    client.check(&format!("LOCATEKEY {key}"), "$4\r\nssdb\r\n");
    client.check(&format!("DUMPFROMSSDB {key}"), "+OK\r\n");
    wait_until("it is back", || client.ask(&format!("LOCATEKEY {key}")) == "$5\r\nredis\r\n");
    check(&mut client, 0..1, 0);
    let plain = Server::start(&[]);
    let mut client = plain.client();
    for word in ["LOCATEKEY", "STORETOSSDB", "DUMPFROMSSDB", "REDISKEYS", "SSDBKEYS"] {
        client.check(&format!("{word} a"), &format!("-ERR Command only supported in swap-mode '{word}'\r\n"));
    }
    assert!(!client.ask("INFO").contains("ssdb"));
}

fn set_rule(client: &mut Client, rule: &str) {
    client.send(encode(&["CONFIG", "SET", "ssdb-load-rule", rule]));
    client.expect("+OK\r\n");
}

/// Values that are used often are promoted while the rule is met, and those that had left within the minute
/// before are counted.
#[test]
fn a_rule_says_when_values_come_home() {
    let folder = Folder::new("load-rule");
    let server = folder.start(&["--swap-cache", "0", "--ssdb-load-rule", "3600 50"]);
    let mut client = server.client();
    client.check("CONFIG GET swap-load-rule", "*2\r\n$14\r\nswap-load-rule\r\n$7\r\n3600 50\r\n");
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    set(&mut client, 0..20, 0);
    wait_until("all values leave memory", || swap(&mut client, "swap_keys") == 20);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    let use_some = |client: &mut Client| {
        (0..3).for_each(|_| check(client, 0..3, 0));
        wait_until("they go", || swap(client, "swap_lent_values") == 0);
        swap(client, "swap_came_home")
    };
    assert_eq!(use_some(&mut client), 0, "so few uses bring nothing home");
    // 50 are enough; so is no rule.
    wait_until("some come home", || {
        (0..3).for_each(|_| check(&mut client, 3..6, 0));
        use_some(&mut client) > 0
    });
    set_rule(&mut client, "3600 1000000 1 100000");
    (0..3).for_each(|_| check(&mut client, 10..13, 0));
    let came_home = use_some(&mut client);
    (0..3).for_each(|_| check(&mut client, 13..16, 0));
    assert_eq!(use_some(&mut client), came_home);
    assert_eq!(swap(&mut client, "swap_regrets"), came_home);
    set_rule(&mut client, "");
    (0..3).for_each(|_| check(&mut client, 16..19, 0));
    wait_until("they come home", || swap(&mut client, "swap_came_home") > came_home);
    let refused = client.ask("CONFIG SET swap-load-rule 10");
    assert!(refused.contains("up to 16 pairs of seconds and uses"), "{refused}");
}

/// Of a list that is not in memory DEBUG OBJECT says what it says of one that is.
#[test]
fn objects_that_are_not_in_memory_are_described() {
    let folder = Folder::new("objects");
    let server = folder.start(&["--list-max-listpack-size", "4"]);
    let mut client = server.client();
    let long = "x".repeat(9000);
    let words: Vec<String> = (0..50).map(|at| format!("element:{at}")).chain([long]).collect();
    for word in &words {
        client.send(encode(&["RPUSH", "list", word]));
        client.read_reply();
    }
    client.ask(&format!("SET text {}", value(0, 0)));
    client.ask(&format!("XADD stream 1-1 field {}", value(0, 0)));
    client.ask(&format!("HSET hash field {}", value(0, 0)));
    client.ask("HEXPIRE hash 1000 FIELDS 1 field");
    let names = ["list", "text", "stream", "hash"];
    let without_use = |text: String| {
        text.split(" lru:")
            .next()
            .map(|first| [first, text.find(" ql_").map_or("", |at| &text[at..])].concat())
    };
    let describe =
        |client: &mut Client| names.map(|name| without_use(client.ask(&format!("DEBUG OBJECT {name}"))));
    let all = describe(&mut client);
    let described = client.ask("DEBUG OBJECT list");
    assert!(described.contains(" encoding:quicklist "), "{described}");
    assert!(
        described.contains(
            " ql_nodes:14 ql_avg_node:3.64 ql_listpack_max:4 ql_compressed:0 ql_uncompressed_size:9681"
        ),
        "{described}"
    );
    client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    wait_until("they leave memory", || swap(&mut client, "swap_keys") == names.len() as u64);
    client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    assert_eq!(describe(&mut client), all);
}
