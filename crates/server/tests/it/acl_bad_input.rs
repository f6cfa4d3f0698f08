//! Users whose rules are too long, too many, or made to be slow; clients that guess passwords; and a disk
//! that takes nothing.

use crate::common::{Client, OnDrop, Server, encode, scaled};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const OK: &str = "+OK\r\n";
const NO_KEY: &str = "-NOPERM No permissions to access a key\r\n";
const NO_CHANNEL: &str = "-NOPERM No permissions to access a channel\r\n";
const MEGABYTE: usize = 1 << 20;

fn set_user(admin: &mut Client, name: &str, rules: &[&[u8]]) {
    admin.send(encode(
        &[&[&b"ACL"[..], b"SETUSER", name.as_bytes(), b"reset", b"on", b"nopass"], rules].concat(),
    ));
    admin.expect(OK);
}

fn enter(server: &Server, name: &str) -> Client {
    let mut client = server.client();
    client.check(&format!("AUTH {name} any"), OK);
    client
}

fn check(client: &mut Client, words: &[&[u8]], reply: &str) {
    client.send(encode(words));
    let got = client.read_reply();
    assert_eq!(got.escape_ascii().to_string(), reply.escape_default().to_string());
}

#[test]
fn patterns_of_a_megabyte_are_patterns() {
    let server = Server::with_workers(2, &[]);
    let mut admin = server.client();
    let long = vec![b'k'; MEGABYTE];
    let rule = |sign: &str, end: &str| [sign.as_bytes(), &long, end.as_bytes()].concat();
    let (exact, prefix, channel) = (rule("~", ""), rule("%R~", ":*"), rule("&", "?"));
    let selector = rule("(+set ~", "*)");
    set_user(&mut admin, "ann", &[&exact, &prefix, &channel, &selector, b"+get", b"+publish", b"+append"]);
    let mut client = enter(&server, "ann");
    check(&mut client, &[b"GET", &long], "$-1\r\n");
    check(&mut client, &[b"APPEND", &long, b"x"], ":1\r\n");
    check(&mut client, &[b"GET", &rule("", ":1")], "$-1\r\n");
    check(&mut client, &[b"APPEND", &rule("", ":1"), b"x"], NO_KEY);
    check(&mut client, &[b"SET", &rule("", "more"), b"x"], OK);
    check(&mut client, &[b"GET", &long[1..]], NO_KEY);
    check(&mut client, &[b"PUBLISH", &rule("", "!"), b"x"], ":0\r\n");
    check(&mut client, &[b"PUBLISH", &long, b"x"], NO_CHANNEL);
    // They are shown whole, and what is shown makes the same user.
    let shown = admin.ask_bytes("ACL DRYRUN ann GET a");
    assert_eq!(shown, b"User ann has no permissions to access the 'a' key");
    assert!(admin.ask("ACL LIST").len() > 4 * MEGABYTE);
    let digest = admin.ask("ACL DIGEST");
    check(&mut admin, &[b"ACL", b"SETUSER", b"ann", &exact, &channel], OK);
    assert_eq!(admin.ask("ACL DIGEST"), digest);
    // A rule that is wrong at its end changes nothing.
    let wrong = rule("~", " x");
    admin.send(encode(&[&b"ACL"[..], b"SETUSER", b"ann", &wrong]));
    assert!(admin.read_reply().starts_with(b"-ERR Error in ACL SETUSER modifier '~kkk"));
    assert_eq!(admin.ask("ACL DIGEST"), digest);
    admin.check("ACL DELUSER ann", ":1\r\n");
    client.expect_end();
}

#[test]
fn ten_thousand_patterns_of_a_user() {
    const COUNT: usize = 10_000;
    let path = std::env::temp_dir().join(format!("isotherm-patterns-{}.acl", std::process::id()));
    std::fs::write(&path, "").expect("written");
    let _remove = OnDrop(|| drop(std::fs::remove_file(&path)));
    let server = Server::start(&["--aclfile", path.to_str().expect("text")]);
    let mut admin = server.client();
    let kinds = |at: usize| match at % 4 {
        0 => format!("~exact:{at}"),
        1 => format!("%R~prefix:{at}:*"),
        2 => format!("~*:glob:{at}:*"),
        _ => format!("&channel:{at}:*"),
    };
    let rules: Vec<String> = (0..COUNT).map(kinds).collect();
    let words: Vec<&[u8]> = rules.iter().map(String::as_bytes).chain([&b"+@all"[..]]).collect();
    set_user(&mut admin, "ann", &words);
    let last = COUNT - COUNT % 4 - 4;
    let check_all = |client: &mut Client| {
        for at in [0, last] {
            client.check(&format!("SET exact:{at} x"), OK);
            client.check(&format!("GET prefix:{}:x", at + 1), "$-1\r\n");
            client.check(&format!("SET prefix:{}:x x", at + 1), NO_KEY);
            client.check(&format!("SET a:glob:{}:b x", at + 2), OK);
            client.check(&format!("PUBLISH channel:{}:x x", at + 3), ":0\r\n");
        }
        client.check("SET exact:1 x", NO_KEY);
        client.check("PUBLISH channel:0:x x", NO_CHANNEL);
        client.check(&format!("MGET exact:0 exact:{last} nothing"), NO_KEY);
    };
    let mut client = enter(&server, "ann");
    check_all(&mut client);
    // One more is one more; the same again is none.
    let digest = admin.ask("ACL DIGEST");
    admin.check("ACL SETUSER ann ~exact:0 &channel:3:*", OK);
    assert_eq!(admin.ask("ACL DIGEST"), digest);
    admin.check("ACL SETUSER ann ~exact:1", OK);
    client.check("SET exact:1 x", OK);
    admin.check("ACL SAVE", OK);
    admin.check("ACL DELUSER ann", ":1\r\n");
    client.expect_end();
    admin.check("ACL LOAD", OK);
    admin.check("ACL SETUSER ann resetkeys", OK);
    enter(&server, "ann").check("GET exact:0", NO_KEY);
    admin.check("ACL LOAD", OK);
    enter(&server, "ann").check("GET exact:1", "$1\r\nx\r\n");
}

/// Each of them would take hours, were it tried to its end.
#[test]
fn globs_that_blow_up_come_to_an_end() {
    let server = Server::with_workers(1, &[]);
    let mut admin = server.client();
    let half = MEGABYTE / 2;
    let key = vec![b'a'; MEGABYTE];
    for pattern in [
        [&b"~*"[..], &vec![b'a'; half], b"b"].concat(),
        [&b"~*"[..], &b"a?".repeat(half / 2), b"b"].concat(),
        [&b"~*["[..], &vec![b'x'; half], b"]b"].concat(),
        [&b"~"[..], &b"*a".repeat(900), b"*b"].concat(),
        [&b"~"[..], &b"a*".repeat(half), b"b"].concat(),
    ] {
        set_user(&mut admin, "ann", &[&pattern, b"+get", b"+multi", b"+exec"]);
        let mut client = enter(&server, "ann");
        check(&mut client, &[b"GET", &key], NO_KEY);
        admin.check("PING", "+PONG\r\n");
    }
    // A user who may not name such keys may still listen by such patterns.
    let mut listener = server.client();
    listener.send(encode(&[&b"PSUBSCRIBE"[..], &[&b"*"[..], &vec![b'a'; half], b"b"].concat()]));
    listener.read_reply();
    admin.send(encode(&[&b"PUBLISH"[..], &key, b"x"]));
    admin.expect(":0\r\n");
}

/// With ISOTHERM_SCALE=1 a million.
#[test]
fn guesses_of_passwords_leave_nothing_behind() {
    let server = Server::with_workers(2, &["--requirepass", "secret", "--acllog-max-len", "32"]);
    let mut admin = server.client();
    admin.check("AUTH secret", OK);
    admin.check("ACL SETUSER ann on >right +ping", OK);
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    const BATCH: usize = 500;
    let guess = |batches: usize| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let server = &server;
                scope.spawn(move || {
                    for batch in 0..batches {
                        // Each batch is a connection; half of them name users that are not there.
                        let mut client = server.client();
                        let mut requests = Vec::new();
                        for at in 0..BATCH {
                            let name = match at % 2 {
                                0 => "ann".to_string(),
                                _ => format!("user:{thread}:{batch}:{at}"),
                            };
                            requests.extend(encode(&["AUTH", &name, &format!("{batch}:{at}")]));
                        }
                        client.send(requests);
                        (0..BATCH).for_each(|_| client.expect(wrong));
                    }
                });
            }
        });
    };
    let warm = 5;
    guess(warm);
    let before = server.resident_bytes();
    let batches = scaled(1_000_000, 1.0 / 25.0) / BATCH / 4;
    guess(batches);
    let after = server.resident_bytes();
    let count = (warm + batches) * BATCH * 4;
    println!("{count} wrong passwords: {before} bytes of memory before, {after} after");
    assert_eq!(admin.info("stats", "acl_access_denied_auth"), count as u64);
    assert!(admin.ask("ACL LOG 1000").starts_with("*32\r\n"));
    assert!(after < before + (4 << 20), "{before} -> {after}");
    enter_with(&server, "ann", "right").check("PING", "+PONG\r\n");
}

fn enter_with(server: &Server, name: &str, password: &str) -> Client {
    let mut client = server.client();
    client.check(&format!("AUTH {name} {password}"), OK);
    client
}

/// A small file system of its own, where the machine permits that.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let folder = std::env::temp_dir().join(format!("isotherm-small-disk-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mounted = run("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs"], &folder);
        if !mounted {
            std::fs::remove_dir(&folder).ok();
            return None;
        }
        Some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The server may still have it as its own.
        run("umount", &["-l"], &self.0);
        std::fs::remove_dir(&self.0).ok();
    }
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

const NOT_SAVED: &str =
    "-ERR There was an error trying to save the ACLs. Please check the server logs for more information\r\n";

/// The old file stays, no file lies next to it, and the users continue.
fn check_not_saved(server: &Server, admin: &mut Client, path: &Path, line: &str) {
    let before = std::fs::read(path).ok();
    admin.check("ACL SAVE", NOT_SAVED);
    server.wait_for_log(line);
    assert_eq!(std::fs::read(path).ok(), before);
    let folder = path.parent().expect("a folder");
    let name = format!("{}.", path.file_name().expect("a name").display());
    let beside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let beside: Vec<_> =
        beside.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)).collect();
    assert!(beside.is_empty(), "{beside:?}");
    admin.check("PING", "+PONG\r\n");
}

#[test]
fn a_disk_that_takes_nothing_keeps_the_old_file() {
    let Some(disk) = SmallDisk::mount() else {
        // For a user who may not mount, the next test shows this with a file that cannot be replaced.
        println!("no file system can be mounted here: a full disk is not tried");
        return;
    };
    let path = disk.0.join("users.acl");
    std::fs::write(&path, "user ann on nopass +ping\n").expect("written");
    let server = Server::start(&["--aclfile", path.to_str().expect("text")]);
    let mut admin = server.client();
    let long = vec![b'k'; 200_000];
    set_user(&mut admin, "bob", &[&[b"~", &long[..]].concat(), b"+get"]);
    check_not_saved(&server, &mut admin, &path, "Writing ACL file for ACL SAVE: No space left on device");
    check(&mut enter(&server, "bob"), &[b"GET", &long], "$-1\r\n");
    admin.check("ACL DELUSER bob", ":1\r\n");
    assert!(run("mount", &["-o", "remount,ro"], &disk.0));
    check_not_saved(&server, &mut admin, &path, "Opening temp ACL file for ACL SAVE: Read-only file system");
    assert!(run("mount", &["-o", "remount,rw"], &disk.0));
    admin.check("ACL SAVE", OK);
    assert!(std::fs::read_to_string(&path).expect("text").contains("user ann on nopass"));
}

#[test]
fn a_file_that_cannot_be_replaced_stays() {
    let folder = std::env::temp_dir().join(format!("isotherm-users-folder-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("users.acl");
    std::fs::write(&path, "user ann on nopass +ping\n").expect("written");
    let server = Server::start(&["--aclfile", path.to_str().expect("text")]);
    let mut admin = server.client();
    // Something else has its name.
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("a folder");
    check_not_saved(&server, &mut admin, &path, "Renaming ACL file for ACL SAVE: Is a directory");
    assert!(path.is_dir());
    std::fs::remove_dir_all(&folder).expect("removed");
    check_not_saved(
        &server,
        &mut admin,
        &path,
        "Opening temp ACL file for ACL SAVE: No such file or directory",
    );
    std::fs::create_dir(&folder).expect("a folder");
    admin.check("ACL SAVE", OK);
    assert!(std::fs::read_to_string(&path).expect("text").contains("user ann on nopass"));
    std::fs::remove_dir_all(&folder).expect("removed");
}
