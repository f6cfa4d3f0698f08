//! The process: how it starts, how it ends, and what it says.

use crate::common;
use crate::common::{Server, command, encode, free_port, wait_until};
use std::process::Command;

const OK: &str = "+OK\r\n";

#[test]
fn it_ends_at_a_signal() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::with_workers(2, &["--pidfile", "server.pid"]);
        // The file comes after the first connection that is accepted.
        let pid = || std::fs::read_to_string(server.folder.join("server.pid")).unwrap_or_default();
        wait_until("its process id is there", || pid().trim() == server.pid().to_string());
        let mut client = server.client();
        client.check("SET k v", OK);
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        client.expect_end();
        assert!(!server.folder.join("server.pid").exists());
        let log = server.log();
        for line in [
            "Server initialized",
            "Ready to accept connections tcp",
            &format!("Received SIG{signal} scheduling shutdown..."),
            "User requested shutdown...",
            "is now ready to exit, bye bye...",
        ] {
            assert!(log.contains(line), "{line:?} is missing in {log}");
        }
        assert_eq!(log.matches("'appendonly' is off").count(), 1, "{log}");
    }
}

/// A client that has asked for the end, and starts the next server when its connection ends, does not meet
/// the server that ends.
#[test]
fn after_shutdown_no_connection_is_accepted() {
    for _ in 0..10 {
        let mut server = Server::with_workers(2, &["--appendonly", "yes"]);
        let mut client = server.client();
        wait_until("it has loaded", || client.ask("SET k v") == OK);
        client.send(encode(&["SHUTDOWN", "NOSAVE"]));
        client.expect_end();
        let connected = std::net::TcpStream::connect(("127.0.0.1", server.port));
        assert!(connected.is_err(), "the old server's port is open");
        assert_eq!(server.wait().code(), Some(0));
    }
}

/// The program starts again in the same process, on what it has saved: its file, and parameters that were
/// changed.
#[test]
fn debug_restart_keeps_process_and_data() {
    let folder = std::env::temp_dir().join(format!("isotherm-restart-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let port = free_port();
    let file = folder.join("server.conf");
    let text = format!("port {port}\nbind 127.0.0.1\ndir {}\nenable-debug-command yes\n", folder.display());
    std::fs::write(&file, format!("{text}save 3600 1\nio-threads 2\n")).unwrap();
    let mut command = Command::new(common::binary());
    command.arg(&file);
    let mut server = Server::spawn(port, command);
    let pid = server.pid();
    let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until("it listens", listens);
    for delay in [&[][..], &["10"]] {
        let mut client = server.client();
        let started = common::text_field(&client.ask("INFO server"), "run_id").to_string();
        client.check("SET k v", OK);
        client.check("CONFIG SET maxmemory 123456789", OK);
        client.send(encode(&[&["DEBUG", "RESTART"][..], delay].concat()));
        client.expect_end();
        wait_until("it is back", listens);
        let mut client = server.client();
        wait_until("it has loaded", || client.ask("GET k") == "$1\r\nv\r\n");
        let info = client.ask("INFO server");
        assert_eq!(common::field(&info, "process_id"), u64::from(pid));
        assert_ne!(common::text_field(&info, "run_id"), started);
        assert!(client.ask("CONFIG GET maxmemory").contains("123456789"));
    }
    let mut client = server.client();
    client.check("DEBUG RESTART soon", "-ERR value is not an integer or out of range\r\n");
    client.check("MULTI", OK);
    client.check("DEBUG RESTART", "+QUEUED\r\n");
    client.check("EXEC", "*1\r\n-ERR failed to restart the server. Check server logs.\r\n");
    client.check("GET k", "$1\r\nv\r\n");
    assert!(server.is_alive());
    drop(server);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_broken_pipe_is_no_reason_to_end() {
    let mut server = Server::start(&[]);
    server.signal("PIPE");
    server.client().check("PING", "+PONG\r\n");
    assert!(server.is_alive());
}

/// A terminal is closed, a log is rotated, an operator says `reload`: everything is in memory, and stays
/// there.
#[test]
fn a_hangup_is_no_reason_to_end() {
    let mut server = Server::with_workers(2, &[]);
    let mut client = server.client();
    client.check("SET k v", OK);
    for signal in ["HUP", "ALRM", "USR2", "HUP"] {
        server.signal(signal);
        client.check("GET k", "$1\r\nv\r\n");
    }
    server.client().check("DBSIZE", ":1\r\n");
    assert!(server.is_alive());
}

#[test]
fn a_port_in_use() {
    let server = Server::start(&[]);
    let port = server.port.to_string();
    let mut second = Server::spawn(free_port(), command(&["--port", &port, "--bind", "127.0.0.1"]));
    assert_eq!(second.wait().code(), Some(1));
    let log = second.log();
    let socket = format!(
        "Warning: Could not create server TCP listening socket 127.0.0.1:{port}: bind: Address already in use"
    );
    assert!(log.contains(&socket), "{log}");
    assert!(log.contains(&format!("Failed listening on port {port} (tcp), aborting.")), "{log}");
}

#[test]
fn configuration_that_cannot_be_read() {
    let folder = std::env::temp_dir().join(format!("isotherm-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let wrong = folder.join("wrong.conf");
    std::fs::write(&wrong, "port 0\nnonsense 1\n").unwrap();
    let missing = folder.join("missing.conf");
    for (path, message) in [(&wrong, "nonsense 1"), (&missing, "Fatal error, can't open config file")] {
        let output = Command::new(common::binary()).arg(path).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(message), "{said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_it_says_of_itself() {
    for (argument, begins) in
        [("--version", "Isotherm server v="), ("-v", "Isotherm server v="), ("--help", "Usage:")]
    {
        let output = Command::new(common::binary()).arg(argument).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(begins));
    }
}

/// A program that is called by Valkey's name, or Redis's, is asked for its version by what starts it.
#[test]
fn under_valkeys_names_it_says_valkeys_line() {
    let folder = std::env::temp_dir().join(format!("isotherm-names-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["valkey-server", "redis-server"] {
        let link = folder.join(name);
        std::os::unix::fs::symlink(common::binary(), &link).unwrap();
        let output = Command::new(&link).arg("--version").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.starts_with("Valkey server v=9.1.2 sha="), "{said}");
        assert!(said.ends_with(&format!(" isotherm={}\n", env!("CARGO_PKG_VERSION"))), "{said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_named_at_start() {
    // No user can make a file there, root included.
    let warning = "WARNING: no file can be made in '/proc' (";
    for (save, is_named) in [("60 1", true), ("", false)] {
        let server = Server::start(&["--dir", "/proc", "--save", save]);
        server.wait_for_log("Ready to accept connections");
        assert_eq!(server.log().contains(warning), is_named, "save '{save}': {}", server.log());
    }
    let server = Server::start(&["--save", "60 1", "--appendonly", "yes"]);
    server.wait_for_log("Ready to accept connections");
    assert!(!server.log().contains("no file can be made"), "{}", server.log());
    let left = std::fs::read_dir(&server.folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with("temp-")), "a file is left");
}

#[test]
fn few_files_allow_few_clients() {
    let run = |files: u32| {
        let port = free_port();
        let binary = common::binary().display();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files}; exec {binary} --port {port} --bind 127.0.0.1")]);
        Server::spawn(port, shell)
    };
    let server = run(100);
    server.wait_for_log("Ready to accept connections");
    let log = server.log();
    assert!(
        log.contains("You requested maxclients of 10000 requiring at least 10032 max file descriptors."),
        "{log}"
    );
    assert!(log.contains("maxclients has been reduced to 68"), "{log}");
    let mut server = run(32);
    assert_eq!(server.wait().code(), Some(1));
    assert!(server.log().contains("is not enough for the server to start"), "{}", server.log());
}

/// A limit on address space makes the reservations smaller; it does not keep the server from starting.
#[test]
fn little_address_space() {
    let port = free_port();
    let binary = common::binary().display();
    let mut shell = Command::new("sh");
    let script = format!("ulimit -v 2000000; exec {binary} --port {port} --bind 127.0.0.1 --io-threads 2");
    shell.args(["-c", &script]);
    let server = Server::spawn(port, shell);
    server.wait_for_log("Ready to accept connections");
    let mut client = server.client();
    for number in 0..1000 {
        client.check(&format!("SET k{number} {}", "v".repeat(1000)), OK);
    }
    client.check("DBSIZE", ":1000\r\n");
}

#[test]
fn the_log_goes_to_a_file() {
    let server = Server::start(&["--logfile", "server.log"]);
    let path = server.folder.join("server.log");
    wait_until("the line", || {
        std::fs::read_to_string(&path).is_ok_and(|text| text.contains("Server initialized"))
    });
    // Moved away (logrotate), it is made anew.
    std::fs::rename(&path, server.folder.join("old.log")).unwrap();
    server.client().send("POST / HTTP/1.1\r\n");
    wait_until("a new file", || {
        std::fs::read_to_string(&path).is_ok_and(|text| text.contains("SECURITY ATTACK"))
    });
}

#[test]
fn systemd_hears_when_the_server_is_ready_and_when_it_ends() {
    let folder = std::env::temp_dir().join(format!("isotherm-notify-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let heard = |word: &str| {
        let mut bytes = [0; 256];
        while !String::from_utf8_lossy(&bytes).contains(word) {
            bytes = [0; 256];
            socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{word} was not heard: {error}"));
        }
    };
    let port = common::free_port();
    let text = port.to_string();
    let slow =
        ["--key-load-delay", "100000", "--rdb-key-save-delay", "100000", "--dir", folder.to_str().unwrap()];
    let arguments = ["--port", &text, "--supervised", "systemd", "--save", "3600 1"];
    let start = || {
        let mut command = common::command(&[&arguments[..], &slow].concat());
        command.env("NOTIFY_SOCKET", &path);
        Server::spawn(port, command)
    };
    let mut server = start();
    heard("READY=1\n");
    let mut client = server.client();
    (0..5).for_each(|number| client.check(&format!("SET key{number} x"), "+OK\r\n"));
    server.signal("TERM");
    heard("STATUS=Saving the final RDB snapshot: ");
    heard("STOPPING=1\n");
    assert!(server.wait().success());
    server = start();
    heard("\nEXTEND_TIMEOUT_USEC=30000000\n");
    heard("READY=1\n");
    assert!(server.client().ask("INFO server").contains("process_supervised:systemd\r\n"));
    server.signal("TERM");
    heard("STOPPING=1\n");
    assert!(server.wait().success());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_log_changes_its_format() {
    let server = Server::start(&["--log-format", "logfmt", "--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.check("DEBUG LOG one", "+OK\r\n");
    client.check("CONFIG SET log-format json log-timestamp-format milliseconds", "+OK\r\n");
    client.check("DEBUG LOG \"two\"", "+OK\r\n");
    let log = server.log();
    let pid = server.pid();
    assert!(log.contains(&format!("\npid={pid} role=primary timestamp=\"")), "{log}");
    assert!(log.contains("level=warning message=\"DEBUG LOG: one\"\n"), "{log}");
    assert!(log.contains("\"level\":\"warning\",\"message\":\"DEBUG LOG: \\\"two\\\"\"}\n"), "{log}");
}

#[test]
fn an_end_can_be_called_off_or_refused() {
    let mut server = Server::start(&["--enable-debug-command", "yes", "--shutdown-on-sigterm", "save"]);
    let mut client = server.client();
    client.check("SHUTDOWN ABORT", "-ERR No shutdown in progress.\r\n");
    client.check("SHUTDOWN SAVE NOSAVE", "-ERR syntax error\r\n");
    client.check("SHUTDOWN ABORT NOW", "-ERR syntax error\r\n");
    client.check("SHUTDOWN FAILOVER", "-ERR SHUTDOWN FAILOVER is only supported in cluster mode.\r\n");
    // The name of the file is taken by a folder.
    std::fs::create_dir(server.folder.join("dump.rdb")).unwrap();
    client.check("SHUTDOWN SAVE", "-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
    server.wait_for_log("Error trying to save the DB, can't exit.");
    server.signal("TERM");
    // The client has got the first of these lines; a signal that is not taken by then would wait with the
    // next.
    wait_until("the signal is refused", || {
        server.log().matches("Errors trying to shut down the server.").count() >= 2
    });
    // While nothing is done from time to time, a signal waits.
    client.check("DEBUG PAUSE-CRON 1", "+OK\r\n");
    server.signal("INT");
    server.wait_for_log("Received SIGINT scheduling shutdown...");
    client.check("SHUTDOWN ABORT", "+OK\r\n");
    client.check("DEBUG PAUSE-CRON 0", "+OK\r\n");
    server.wait_for_log("Shutdown manually aborted.");
    client.check("PING", "+PONG\r\n");
    client.send(encode(&["SHUTDOWN", "SAVE", "FORCE"]));
    client.expect_end();
    assert_eq!(server.wait().code(), Some(0));
}

/// The second thread that is asked for the end would end the save of the first, and with it the pause of
/// writes.
#[test]
fn a_signal_leaves_the_last_save_alone() {
    let delayed = ["--enable-debug-command", "yes", "--save", "", "--rdb-key-save-delay", "1000"];
    let mut server = Server::with_workers(2, &delayed);
    let mut client = server.client();
    client.check("DEBUG POPULATE 2000", "+OK\r\n");
    client.send(encode(&["SHUTDOWN", "SAVE"]));
    server.wait_for_log("Saving the final RDB snapshot before exiting.");
    server.signal("TERM");
    server.wait_for_log("Received SIGTERM scheduling shutdown...");
    let mut other = server.client();
    other.send(encode(&["SHUTDOWN", "ABORT"]));
    client.expect_end();
    assert_eq!(server.wait().code(), Some(0));
    let log = server.log();
    assert!(!log.contains("Ending it!") && !log.contains("Errors trying"), "{log}");
}
