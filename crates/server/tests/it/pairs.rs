//! Parameters two by two: each pair of values of two parameters, in a file that a server is started with and
//! by CONFIG SET.
//!
//! ```text
//! a row of the array is a file:  start, write a key, CONFIG REWRITE, SHUTDOWN SAVE, start:
//!                                the key and all parameters are there
//! ```
//! Rows are made so that each pair of values stands in one of them at least. Some are drawn, by
//! `ISOTHERM_SEED` or by the commit that is tested; `ISOTHERM_SCALE=1` takes them all.

use crate::common::{Client, PATIENCE, Server, command, free_port, scaled, wait_until};
use crate::tls::Files;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

mod array;
mod parameters;

use parameters::{BASE, PARAMETERS, are_at_odds};

type UnixClient = Client<UnixStream>;

/// Rows that are run at once: a member of a cluster waits for two seconds after each start.
const AT_ONCE: usize = 6;

fn seed() -> u64 {
    let commit = || u64::from_str_radix(env!("ISOTHERM_COMMIT"), 16).unwrap_or(1);
    std::env::var("ISOTHERM_SEED").map_or_else(|_| commit(), |seed| seed.parse().expect("a number"))
}

/// A row: a value of each parameter, by its index.
type Row = Vec<usize>;

/// A row as a file, with the ports and folders in it.
struct Case {
    /// Values of the parameters, in the order of the file.
    values: Vec<(&'static str, String)>,
    port: u16,
}

impl Case {
    fn new(row: &[usize], files: &Files, random: &mut Prng) -> Case {
        let port = free_port();
        let folder = folder_of(port);
        let place = |text: &str| {
            let mut text = text.replace("{folder}", &folder.display().to_string());
            if text.contains("{free}") {
                text = text.replace("{free}", &free_port().to_string());
            }
            text.replace("{port}", &port.to_string()).replace("{certificates}/", &files.path(""))
        };
        let mut values: Vec<(&str, String)> =
            BASE.iter().map(|(name, value)| (*name, place(value))).collect();
        let drawn = PARAMETERS.iter().zip(row).map(|((name, levels), level)| (*name, place(levels[*level])));
        values.extend(drawn);
        // In another order each time: what one line does to another is seen.
        for at in (1..values.len()).rev() {
            values.swap(at, random.below(at as u64 + 1) as usize);
        }
        Case { values, port }
    }

    fn value(&self, name: &str) -> &str {
        self.values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    fn file(&self) -> String {
        let line = |(name, value): &(&str, String)| match *name {
            // Without a primary there is no such line.
            "replicaof" if value.is_empty() => String::new(),
            "save" | "bind" | "replicaof" | "client-output-buffer-limit" if !value.is_empty() => {
                format!("{name} {value}\n")
            }
            _ => format!("{name} \"{value}\"\n"),
        };
        self.values.iter().map(line).collect()
    }

    fn start(&self) -> (Server, UnixClient) {
        let path = folder_of(self.port).join("row.conf");
        let mut server = Server::spawn(self.port, command(&[path.to_str().unwrap()]));
        let mut client = None;
        wait_until("the server answers", || {
            assert!(server.is_alive(), "it has ended");
            client = UnixStream::connect(server.folder.join("socket")).ok();
            client.is_some()
        });
        let stream = client.expect("it is connected");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client::over_any(stream);
        if client.ask("PING").starts_with("-NOAUTH") {
            client.check("AUTH secret", "+OK\r\n");
        }
        wait_until("the data is loaded", || client.ask("INFO persistence").contains("\r\nloading:0\r\n"));
        (server, client)
    }

    /// Start to start, with what was written before.
    fn run(&self) {
        let folder = folder_of(self.port);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("users.acl"), "user default on nopass ~* &* +@all\n").unwrap();
        std::fs::write(folder.join("row.conf"), self.file()).unwrap();
        let (mut server, mut client) = self.start();
        let shown = parameters_of(&mut client);
        for (name, value) in &self.values {
            assert_eq!(shown[*name], *value, "{name}");
        }
        if self.value("cluster-enabled") == "yes" {
            wait_until("the bus takes slots", || client.ask("CLUSTER ADDSLOTSRANGE 0 16383") == "+OK\r\n");
        }
        self.wait_for_cluster(&mut client);
        self.write_key(&mut client);
        client.check("CONFIG REWRITE", "+OK\r\n");
        client.send("SHUTDOWN SAVE\r\n");
        assert!(server.wait().success(), "it ends");
        // Its folder stays for the next.
        let log = server.log();
        std::mem::forget(server);

        let (_server, mut client) = self.start();
        let again = parameters_of(&mut client);
        for (name, value) in &shown {
            assert_eq!(again[name], *value, "{name} after CONFIG REWRITE\n{log}");
        }
        self.wait_for_cluster(&mut client);
        self.lift(&mut client);
        // Writes of clients to a replica are not in its append-only file (COMPAT.md).
        let is_kept = self.value("replicaof").is_empty() || self.value("appendonly") == "no";
        client.check("GET key", if is_kept { "$5\r\nvalue\r\n" } else { "$-1\r\n" });
        client.check("DBSIZE", if is_kept { ":1\r\n" } else { ":0\r\n" });
    }

    fn wait_for_cluster(&self, client: &mut UnixClient) {
        if self.value("cluster-enabled") == "yes" {
            wait_until("the cluster is up", || client.ask("CLUSTER INFO").contains("cluster_state:ok"));
        }
    }

    /// Writes the key, though this server may take no writes as it is set: it is set back.
    fn write_key(&self, client: &mut UnixClient) {
        let may_refuse = self.lift(client);
        client.check("SET key value", "+OK\r\n");
        for name in may_refuse {
            client.check(&format!("CONFIG SET {name} {}", self.value(name)), "+OK\r\n");
        }
    }

    /// Takes away what refuses requests, and returns the parameters.
    fn lift(&self, client: &mut UnixClient) -> Vec<&'static str> {
        let refusing = [
            ("replica-read-only", "no"),
            ("replica-serve-stale-data", "yes"),
            ("min-replicas-to-write", "0"),
            ("repl-ack-quorum", "0"),
        ];
        let lifted = refusing.iter().filter(|(name, harmless)| self.value(name) != *harmless);
        lifted
            .map(|(name, harmless)| {
                client.check(&format!("CONFIG SET {name} {harmless}"), "+OK\r\n");
                *name
            })
            .collect()
    }
}

/// Returns the folder in which `Server::spawn` lets the server of a port run.
fn folder_of(port: u16) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("isotherm-test-{}-{port}", std::process::id()))
}

/// All parameters as CONFIG GET shows them.
fn parameters_of<S: std::io::Read + std::io::Write>(client: &mut Client<S>) -> BTreeMap<String, String> {
    let reply = client.ask("CONFIG GET *");
    let lines: Vec<&str> = reply.split("\r\n").skip(1).collect();
    // Each is a length and a text.
    let texts: Vec<&str> = lines.chunks_exact(2).map(|pair| pair[1]).collect();
    texts.chunks_exact(2).map(|pair| (pair[0].to_string(), pair[1].to_string())).collect()
}

#[test]
fn each_pair_in_a_file_starts_again() {
    let seed = seed();
    let mut random = Prng::new(seed);
    let mut rows: Vec<Row> = array::rows(PARAMETERS, are_at_odds, seed);
    for at in (1..rows.len()).rev() {
        rows.swap(at, random.below(at as u64 + 1) as usize);
    }
    let count = scaled(rows.len(), 20.0 / rows.len() as f64);
    println!("{count} of {} rows by ISOTHERM_SEED={seed}", rows.len());
    let files = Files::make();
    let cases: Vec<Case> = rows[..count].iter().map(|row| Case::new(row, &files, &mut random)).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let run = || {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let run = std::panic::catch_unwind(|| case.run());
                let _ = std::fs::remove_dir_all(folder_of(case.port));
                if run.is_err() {
                    wrong.lock().unwrap().push(case.file());
                }
            }
        };
        (0..AT_ONCE).for_each(|_| drop(scope.spawn(run)));
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "ISOTHERM_SEED={seed}: {} of {count}:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn each_pair_can_be_set_at_run_time() {
    let seed = seed();
    let mut random = Prng::new(seed);
    let files = Files::make();
    let server = Server::start(&[]);
    let mut client = server.client();
    let own = [("tls-cert-file", "own.crt"), ("tls-key-file", "own.key"), ("tls-ca-cert-file", "ca.crt")];
    let own = own.map(|(name, file)| (name, files.path(file)));
    assert_eq!(set(&mut client, &own), "+OK\r\n");
    client.check("SET key value", "+OK\r\n");
    let before = parameters_of(&mut client);
    let settable = settable(&mut client);
    assert!(settable.len() > 70, "only {}", settable.len());
    let mut pairs: Vec<(usize, usize)> =
        (0..settable.len()).flat_map(|a| (a + 1..settable.len()).map(move |b| (a, b))).collect();
    for at in (1..pairs.len()).rev() {
        pairs.swap(at, random.below(at as u64 + 1) as usize);
    }
    let count = scaled(pairs.len(), 500.0 / pairs.len() as f64);
    let (mut wrong, free) = (Vec::new(), free_port().to_string());
    for (a, b) in &pairs[..count] {
        let both = [&settable[*a], &settable[*b]];
        let chosen = both.map(|(name, levels)| (*name, random.pick(levels).replace("{free}", &free)));
        let back = both.map(|(name, _)| (*name, before[*name].clone()));
        let replies = [set(&mut client, &chosen), get(&mut client, &chosen), set(&mut client, &back)];
        if replies.iter().any(|reply| reply != "+OK\r\n") {
            wrong.push(format!("{chosen:?}: {replies:?}"));
        }
    }
    assert!(wrong.is_empty(), "ISOTHERM_SEED={seed}: {} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(parameters_of(&mut client), before);
    client.check("GET key", "$5\r\nvalue\r\n");
}

/// Parameters that can be set at run time, with values that differ from those of now.
fn settable(client: &mut Client) -> Vec<(&'static str, Vec<&'static str>)> {
    let now = parameters_of(client);
    let mut found = Vec::new();
    for (name, levels) in PARAMETERS {
        let same = set(client, &[(name, now[*name].clone())]);
        if same.contains("can't set") || parameters::ONLY_AT_START.contains(name) {
            continue;
        }
        assert_eq!(same, "+OK\r\n", "{name}");
        let is_other = |level: &&str| now[*name] != *level && !level.contains("{port}");
        let others: Vec<&str> = levels.iter().copied().filter(is_other).collect();
        if !others.is_empty() {
            found.push((*name, others));
        }
    }
    found
}

fn set(client: &mut Client, pairs: &[(&str, String)]) -> String {
    let mut words = vec!["CONFIG".to_string(), "SET".to_string()];
    words.extend(pairs.iter().flat_map(|(name, value)| [name.to_string(), value.clone()]));
    client.send(crate::common::encode(&words));
    String::from_utf8(client.read_reply()).unwrap()
}

/// "+OK" if these are the values, else what is otherwise.
fn get(client: &mut Client, pairs: &[(&str, String)]) -> String {
    for (name, value) in pairs {
        let shown = client.ask(&format!("CONFIG GET {name}"));
        if shown.split("\r\n").nth(4) != Some(value) {
            return format!("{name}: {shown:?}");
        }
    }
    "+OK\r\n".into()
}
