//! Names from clients are not kept without a bound: very many of each kind that clients can make up -
//! error codes, texts of scripts, users, keys that come and go - leave reports, logs, metrics and memory as
//! they were.
//!
//! Names of a first round fill what is bounded; those of a second one must then take nothing.

use crate::common::{self, Client, Server, encode, scaled, wait_until};

const OK: &str = "+OK\r\n";
/// Names of a kind and a round: 5,000, or with ISOTHERM_SCALE=1 50,000.
fn names() -> usize {
    scaled(50_000, 0.1)
}
/// Memory that a kind may take more after its second round than before it: 200 B a name. Some 76 KB are seen.
const GROWTH_BYTES_MAX: u64 = 1 << 20;

/// A kind of names: the client that sends them, and its requests, with `#` for the name.
struct Kind {
    name: &'static str,
    sender: Sender,
    requests: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
enum Sender {
    Default,
    /// A user without any key.
    Poor,
    /// A client that tracks what it reads, in RESP3.
    Tracking,
}

const fn kind(name: &'static str, requests: &'static [&'static str]) -> Kind {
    Kind { name, sender: Sender::Default, requests }
}

const KINDS: &[Kind] = &[
    kind("error codes", &["EVAL return{err=ARGV[1]} 0 C#"]),
    kind("texts of scripts", &["EVAL return'#' 0"]),
    kind("scripts and functions that are not there", &["EVALSHA s# 0", "FCALL f# 0"]),
    kind("commands that are not there", &["NOSUCH#", "CONFIG NOSUCH#", "CONFIG SET nosuch# 1"]),
    kind("channels", &["PUBLISH c# x", "SPUBLISH c# x"]),
    kind("subscriptions", &["SUBSCRIBE c#", "PSUBSCRIBE p#*", "UNSUBSCRIBE c#", "PUNSUBSCRIBE p#*"]),
    kind("names of clients", &["CLIENT SETNAME n#", "CLIENT SETINFO LIB-NAME l#"]),
    kind("keys that come and go", &["SET p#:k v", "DEL p#:k"]),
    kind("keys that are not there", &["GET a#", "WATCH w#", "UNWATCH"]),
    kind("users who are not there", &["AUTH nobody# x"]),
    kind("users that come and go", &["ACL SETUSER u# on >p# +get|a# ~k#:*", "ACL DELUSER u#"]),
    Kind { name: "denied keys", sender: Sender::Poor, requests: &["GET denied#"] },
    Kind { name: "tracked keys", sender: Sender::Tracking, requests: &["GET t#"] },
];

/// Sends the requests of all names from `first` on. Every one has one reply, besides pushes.
fn send_all(client: &mut Client, kind: &Kind, first: usize, count: usize) {
    const BATCH: usize = 500;
    for first in (first..first + count).step_by(BATCH) {
        let mut bytes = Vec::new();
        for number in first..first + BATCH {
            for request in kind.requests {
                let words: Vec<String> =
                    request.split(' ').map(|word| word.replace('#', &number.to_string())).collect();
                bytes.extend(encode(&words));
            }
        }
        client.send(bytes);
        let mut replies = 0;
        while replies < BATCH * kind.requests.len() {
            replies += usize::from(client.read_reply()[0] != b'>');
        }
    }
}

fn metrics(port: u16) -> String {
    let mut stream = Client::over(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    stream.send("GET /metrics HTTP/1.0\r\n\r\n");
    String::from_utf8(stream.read_to_end()).unwrap()
}

#[test]
fn names_that_clients_make_up_are_not_kept() {
    let port = common::free_port();
    // All commands are in the slow log and in the sample of keys.
    let logged = ["--slowlog-log-slower-than", "0", "--hotkeys-sample-ratio", "1"];
    let server =
        Server::with_metrics(1, port, &[&logged[..], &["--tracking-table-max-keys", "500"]].concat());
    let mut admin = server.client();
    admin.check("ACL SETUSER poor on nopass +get", OK);
    let client_of = |sender: Sender| {
        let mut client = server.client();
        match sender {
            Sender::Default => {}
            Sender::Poor => client.check("AUTH poor any", OK),
            Sender::Tracking => {
                assert!(client.ask("HELLO 3").starts_with('%'));
                client.check("CLIENT TRACKING ON", OK);
            }
        }
        client
    };
    // While it is there the table of what was read is not emptied as a whole.
    let _stays = client_of(Sender::Tracking);
    let names = names();
    let mut lengths = Vec::new();
    for round in 0..2 {
        for kind in KINDS {
            let before = admin.info("memory", "used_memory");
            let mut client = client_of(kind.sender);
            send_all(&mut client, kind, round * names, names);
            drop(client);
            wait_until("the client is gone", || admin.info("clients", "connected_clients") == 2);
            wait_until("what it has read is forgotten", || admin.info("stats", "tracking_total_items") == 0);
            let after = admin.info("memory", "used_memory");
            println!("{} in round {round}: {before}, {after}", kind.name);
            let allowed = before + GROWTH_BYTES_MAX;
            assert!(round == 0 || after < allowed, "{}: {after}, before {before}", kind.name);
        }
        lengths.push((admin.ask("INFO everything").len(), metrics(port).len()));
    }

    let lines = |text: &str, part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert!(lines(&admin.ask("INFO errorstats"), "errorstat_") <= 130);
    assert!(lines(&admin.ask("INFO commandstats"), "cmdstat_") <= 60);
    assert!(admin.info("memory", "number_of_cached_scripts") <= 500);
    assert!(admin.ask_number("SLOWLOG LEN") <= 128);
    assert!(lines(&admin.ask("ACL LOG 100000"), "entry-id") <= 128);
    let page = metrics(port);
    assert!(
        lines(&page, "redis_errors_total{") <= 130 && lines(&page, "isotherm_prefix_keys{") <= 16,
        "{page}"
    );
    // Figures have more digits, names are others.
    let [first, second] = lengths[..] else { panic!("two rounds") };
    assert!(second.0 < first.0 + 32_768 && second.1 < first.1 + 32_768, "{lengths:?}");
}
