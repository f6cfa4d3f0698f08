//! A configuration file that includes others: CONFIG REWRITE says nothing twice, and the next start is as
//! this one was left.

use crate::aof::Data;
use crate::common::{Client, Server, command, free_port, wait_until};
use std::path::PathBuf;

const OK: &str = "+OK\r\n";

/// A file that includes another, and servers that are started with it one after the other.
struct Started {
    data: Data,
    port: u16,
}

impl Started {
    /// `main`: the text after the line that includes `other`.
    fn new(other: &str, main: &str) -> Started {
        let started = Started { data: Data::new(), port: free_port() };
        std::fs::write(started.other(), other).unwrap();
        let text = format!(
            "port {}\nbind 127.0.0.1\ndir {}\ninclude {}\n{main}",
            started.port,
            started.data.0.display(),
            started.other().display()
        );
        std::fs::write(started.file(), text).unwrap();
        started
    }

    fn file(&self) -> PathBuf {
        self.data.0.join("main.conf")
    }

    fn other(&self) -> PathBuf {
        self.data.0.join("other.conf")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap()
    }

    fn start(&self) -> (Server, Client) {
        let server = Server::spawn(self.port, command(&[self.file().to_str().unwrap()]));
        server.wait_for_log("Ready to accept connections");
        let client = server.client();
        (server, client)
    }
}

fn leave(mut server: Server, client: &mut Client) {
    client.send("SHUTDOWN NOSAVE\r\n");
    assert!(server.wait().success());
}

#[test]
fn users_of_an_included_file_are_not_written_twice() {
    let started = Started::new(
        "user ann on >secret ~* +get\nuser bob on nopass +ping\nuser default on nopass ~* &* +@all\n",
        "user carl on nopass +ping\n",
    );
    let (server, mut client) = started.start();
    let others = std::fs::read(started.other()).unwrap();
    let before = client.ask("ACL LIST");
    client.check("CONFIG REWRITE", OK);
    let users = |text: &str| {
        text.lines().filter(|line| line.starts_with("user ")).map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(users(&started.text()), ["user carl on nopass resetchannels -@all +ping"]);
    leave(server, &mut client);

    let (server, mut client) = started.start();
    assert_eq!(client.ask("ACL LIST"), before);
    client.check("ACL SETUSER ann +set", OK);
    client.check("ACL DELUSER bob carl", ":2\r\n");
    client.check("ACL SETUSER dora on nopass", OK);
    client.check("CONFIG REWRITE", OK);
    let text = started.text();
    let names: Vec<_> = users(&text).iter().map(|line| line.split(' ').nth(1).unwrap().to_string()).collect();
    assert_eq!(names, ["ann", "dora", "bob"], "{text}");
    client.check("CONFIG REWRITE", OK);
    assert_eq!(started.text(), text, "rewriting changes nothing more");
    leave(server, &mut client);

    let (server, mut client) = started.start();
    let list = client.ask("ACL LIST");
    assert!(list.contains("+get +set") && list.contains("user dora on nopass"), "{list}");
    assert!(list.contains("user bob off resetchannels -@all\r\n") && !list.contains("carl"), "{list}");
    assert!(client.ask("AUTH bob any").starts_with("-WRONGPASS"));
    // As the included file has her: then no line of hers is left.
    client.check("ACL SETUSER ann -set", OK);
    client.check("ACL SETUSER ann reset on >secret ~* +get", OK);
    client.check("CONFIG REWRITE", OK);
    assert!(!started.text().contains("user ann"), "{}", started.text());
    leave(server, &mut client);
    drop(started.start());
    assert_eq!(std::fs::read(started.other()).unwrap(), others, "it is the operator's");
}

#[test]
fn parameters_that_were_changed_win_over_included_ones() {
    let started = Started::new(
        "hz 30\nsave 900 1\nsave 60 10\nmaxmemory 5mb\nrequirepass x\nreplicaof 127.0.0.1 1\nloglevel verbose\n",
        "maxclients 77\n",
    );
    let (server, mut client) = started.start();
    client.check("AUTH x", OK);
    client.check("CONFIG REWRITE", OK);
    let text = started.text();
    for name in ["hz", "save", "maxmemory ", "requirepass", "replicaof", "loglevel"] {
        assert!(!text.contains(&format!("\n{name}")), "{name}: {text}");
    }
    // Back to the defaults, but for one.
    client.check("CONFIG SET hz 10 maxmemory 0 loglevel notice maxclients 78", OK);
    client.send(b"*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$4\r\nsave\r\n$4\r\n60 1\r\n");
    client.expect(OK);
    client.send(b"*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$11\r\nrequirepass\r\n$0\r\n\r\n");
    client.expect(OK);
    client.check("REPLICAOF NO ONE", OK);
    let before = client.ask("CONFIG GET *");
    client.check("CONFIG REWRITE", OK);
    let text = started.text();
    leave(server, &mut client);
    let (server, mut client) = started.start();
    assert_eq!(client.ask("CONFIG GET *"), before);
    client.check("CONFIG REWRITE", OK);
    assert_eq!(started.text(), text, "rewriting changes nothing more");
    leave(server, &mut client);
}

#[test]
fn a_file_with_which_no_server_would_start_is_not_written() {
    let started = Started::new("hz 30\n", "");
    let (_server, mut client) = started.start();
    let before = started.text();
    client.check("CONFIG SET maxmemory 3mb", OK);
    let failed = "-ERR Rewriting config file: the next start would fail: ";
    for (other, why) in [
        ("nonsense 1\n", "Bad directive or wrong number of arguments"),
        ("hz x\n", "argument couldn't be parsed into an integer"),
        ("user ann on +nonsense\n", "Error loading ACL rule '+nonsense' for the user named 'ann'"),
        ("user ann on\nuser ann on\n", "Error in user declaration 'ann': Duplicate user found."),
        ("rename-command nothing other\n", "No such command in rename-command"),
    ] {
        std::fs::write(started.other(), other).unwrap();
        let reply = client.ask("CONFIG REWRITE");
        assert!(reply.starts_with(&format!("{failed}{why}")), "{other}: {reply}");
        assert_eq!(started.text(), before);
    }
    std::fs::remove_file(started.other()).unwrap();
    let reply = client.ask("CONFIG REWRITE");
    assert!(reply.ends_with("No such file or directory\r\n"), "{reply}");
    std::fs::write(started.other(), "hz 30\n").unwrap();
    client.check("CONFIG REWRITE", OK);
    assert!(started.text().contains("maxmemory 3mb\n"));
}

/// Relative names of included files begin where the server was started, wherever it works by now.
#[test]
fn included_files_are_found_from_where_the_server_was_started() {
    let port = free_port();
    let folder = std::env::temp_dir().join(format!("isotherm-test-{}-{port}", std::process::id()));
    std::fs::create_dir_all(folder.join("data")).unwrap();
    std::fs::create_dir_all(folder.join("conf.d")).unwrap();
    std::fs::write(folder.join("conf.d/a.conf"), "hz 30\n").unwrap();
    let text = format!("port {port}\nbind 127.0.0.1\ninclude conf.d/*.conf\ndir data\n");
    std::fs::write(folder.join("main.conf"), text).unwrap();
    let server = Server::spawn(port, command(&["main.conf"]));
    assert_eq!(server.folder, folder);
    server.wait_for_log("Ready to accept connections");
    let mut client = server.client();
    client.check("CONFIG REWRITE", OK);
    let text = std::fs::read_to_string(folder.join("main.conf")).unwrap();
    assert!(!text.contains("hz"), "{text}");
    client.check("CONFIG SET hz 10", OK);
    client.check("CONFIG REWRITE", OK);
    wait_until("it is written", || {
        std::fs::read_to_string(folder.join("main.conf")).unwrap().contains("\nhz 10\n")
    });
}

/// The command line comes after the file at each start, and wins over what was written into it.
#[test]
fn the_next_start_is_tried_with_the_same_command_line() {
    let port = free_port();
    let folder = std::env::temp_dir().join(format!("isotherm-test-{}-{port}", std::process::id()));
    std::fs::create_dir_all(folder.join("data")).unwrap();
    let (file, other) = (folder.join("main.conf"), folder.join("other.conf"));
    std::fs::write(&file, format!("port {port}\nbind 127.0.0.1\nuser bob on nopass +ping\n")).unwrap();
    std::fs::write(&other, "hz 30\nuser ann on >secret ~* +get\n").unwrap();
    let start = || {
        let words = ["main.conf", "--include", "other.conf", "--dir", "data", "--user", "bob", "on", "+get"];
        let server = Server::spawn(port, command(&words));
        server.wait_for_log("Ready to accept connections");
        let client = server.client();
        (server, client)
    };
    let read = || std::fs::read_to_string(&file).unwrap();
    let (mut server, mut client) = start();
    let before = [client.ask("CONFIG GET *"), client.ask("ACL LIST")];
    assert!(before[1].contains("user ann on") && before[1].contains("+get"), "{}", before[1]);
    client.check("CONFIG REWRITE", OK);
    let text = read();
    assert!(text.contains("hz 30\n") && text.contains("user ann on"), "{text}");
    // Its folder stays: the next one starts there.
    client.send("SHUTDOWN NOSAVE\r\n");
    assert!(server.wait().success());

    let (_server, mut client) = start();
    assert_eq!([client.ask("CONFIG GET *"), client.ask("ACL LIST")], before);
    client.check("CONFIG REWRITE", OK);
    assert_eq!(read(), text, "rewriting changes nothing more");
    // The folder of a start is where the file lies, not where the server works by now.
    std::fs::write(&other, "hz x\n").unwrap();
    let reply = client.ask("CONFIG REWRITE");
    assert!(reply.starts_with("-ERR Rewriting config file: the next start would fail: argument"), "{reply}");
    std::fs::remove_file(&other).unwrap();
    let reply = client.ask("CONFIG REWRITE");
    assert!(reply.ends_with("No such file or directory\r\n"), "{reply}");
    assert_eq!(read(), text);
}
