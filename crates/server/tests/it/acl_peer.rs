//! Random users and commands, here and at a real Valkey: the same rules are refused, users are shown the
//! same, and what is permitted and denied is the same, asked by ACL DRYRUN and really sent. Needs
//! `ISOTHERM_PEER_BIN`; `ISOTHERM_DECISIONS` says how many.

use crate::common::{Client, Server, encode};
use crate::peers;
use isotherm_stdx::Prng;

const COMMANDS: &[&str] = &[
    "GET K",
    "SET K v",
    "SET K v GET",
    "MGET K K K",
    "MSET K v K v",
    "DEL K",
    "DEL K K",
    "EXISTS K",
    "TYPE K",
    "APPEND K x",
    "GETDEL K",
    "GETEX K",
    "GETEX K PERSIST",
    "INCR K",
    "EXPIRE K 100",
    "TTL K",
    "PERSIST K",
    "RENAME K K",
    "COPY K K",
    "COPY K K DB D",
    "COPY K K DB D REPLACE",
    "COPY K K DB D DB D",
    "COPY K K DB x",
    "COPY K K nonsense",
    "MOVE K D",
    "MOVE K x",
    "SWAPDB D D",
    "SWAPDB D x",
    "SELECT D",
    "SELECT x",
    "KEYS *",
    "SCAN 0",
    "DBSIZE",
    "RANDOMKEY",
    "FLUSHDB",
    "FLUSHALL",
    "LPUSH K x",
    "LPOP K",
    "LMOVE K K LEFT RIGHT",
    "LRANGE K 0 -1",
    "BLPOP K K 0.001",
    "LMPOP 2 K K LEFT",
    "LMPOP x K LEFT",
    "SADD K x",
    "SINTERCARD 2 K K",
    "SINTERSTORE K K K",
    "SMOVE K K x",
    "HSET K f v",
    "HGET K f",
    "HGETALL K",
    "ZADD K 1 x",
    "ZUNIONSTORE K 2 K K",
    "ZUNION 2 K K",
    "ZRANGESTORE K K 0 -1",
    "ZRANGE K 0 -1",
    "XADD K * f v",
    "XLEN K",
    "XREAD COUNT 1 STREAMS K K 0 0",
    "XREAD STREAMS K",
    "XINFO STREAM K",
    "XGROUP CREATE K g 0",
    "XGROUP HELP",
    "OBJECT ENCODING K",
    "OBJECT HELP",
    "SORT K",
    "SORT K BY w_*",
    "SORT K GET # STORE K",
    "SORT_RO K",
    "BITFIELD K GET u8 0",
    "BITFIELD K SET u8 0 1",
    "BITFIELD_RO K GET u8 0",
    "BITOP AND K K K",
    "PFADD K x",
    "PFCOUNT K K",
    "PFMERGE K K",
    "GEOADD K 1 1 x",
    "GEORADIUS K 1 1 1 km STORE K",
    "GEOSEARCHSTORE K K FROMLONLAT 1 1 BYRADIUS 1 km",
    "EVAL return{} 1 K",
    "EVAL return{} 0",
    "EVAL return{} x",
    "EVAL_RO return{} 2 K K",
    "FCALL nosuch 1 K",
    "SCRIPT EXISTS x",
    "FUNCTION LIST",
    "PUBLISH C x",
    "SPUBLISH C x",
    "UNSUBSCRIBE C",
    "PUNSUBSCRIBE C",
    "PUBSUB CHANNELS",
    "CONFIG GET hz",
    "CONFIG SET hz 10",
    "CLIENT ID",
    "CLIENT GETNAME",
    "ACL WHOAMI",
    "ACL CAT",
    "PING",
    "ECHO x",
    "TIME",
    "INFO server",
    "COMMAND COUNT",
    "LASTSAVE",
    "WAIT 0 0",
    "MEMORY USAGE K",
    "LATENCY LATEST",
    "SLOWLOG LEN",
    "DEBUG SLEEP 0",
    "TOUCH K K",
    "UNLINK K",
    "DUMP K",
    "RESTORE K 0 x",
    "OBJECT FREQ K",
    "SUBSTR K 0 1",
    "LCS K K",
    "SETRANGE K 0 x",
    "MULTI",
    "DISCARD",
    "EXEC",
    "WATCH K",
    "UNWATCH",
    "GET",
    "NONSENSE K",
    "CONFIG NONSENSE",
];

/// These change what a connection is, so they are only asked about.
const ONLY_ASKED: &[&str] = &[
    "SUBSCRIBE C",
    "SUBSCRIBE C C",
    "PSUBSCRIBE C",
    "SSUBSCRIBE C",
    "MONITOR",
    "RESET",
    "QUIT",
    "AUTH x",
    "HELLO 3",
    "SHUTDOWN",
    "MIGRATE 127.0.0.1 1 K 0 100",
    "MIGRATE 127.0.0.1 1 E 0 100 KEYS K K",
    "DEBUG OBJECT K",
    "REPLICAOF no one",
    "CLIENT KILL ID 1",
    "CLUSTER INFO",
    "SYNC",
    "FAILOVER",
    "ASKING",
    "READONLY",
    "BGSAVE",
];

const NAMES: &[&str] = &["a", "ab", "abc", "b", "ba", "a:1", "a:2", "b:1", "", "*", "a*"];
const PATTERNS: &[&str] =
    &["a", "a*", "*", "b*", "?", "a?", "[ab]", "[^a]*", "a:*", "*1", "a\\*", "", "**", "[a", "*b*"];
const CATEGORIES: &[&str] = &[
    "read",
    "write",
    "keyspace",
    "fast",
    "slow",
    "admin",
    "dangerous",
    "string",
    "list",
    "set",
    "sortedset",
    "hash",
    "stream",
    "pubsub",
    "connection",
    "scripting",
    "transaction",
    "blocking",
    "geo",
    "bitmap",
    "hyperloglog",
    "all",
    "ALL",
    "nosuch",
];

fn fill(random: &mut Prng, template: &str) -> Vec<String> {
    let word = |word: &str| match word {
        "K" | "C" => random.pick(NAMES).to_string(),
        "D" => random.pick(&["0", "1", "2", "3", "15", "16", "-1"]).to_string(),
        "E" => String::new(),
        _ => word.to_string(),
    };
    template.split(' ').map(word).collect()
}

fn command_name(random: &mut Prng) -> String {
    let words: Vec<&str> = random.pick(COMMANDS).split(' ').collect();
    let is_container =
        ["CONFIG", "CLIENT", "ACL", "OBJECT", "XGROUP", "XINFO", "SCRIPT", "PUBSUB"].contains(&words[0]);
    match is_container && random.one_in(2) {
        true => format!("{}|{}", words[0], words[1]),
        false => words[0].to_lowercase(),
    }
}

fn rule(random: &mut Prng, depth: u32) -> String {
    let pattern = |random: &mut Prng| random.pick(PATTERNS).to_string();
    match random.below(if depth == 0 { 24 } else { 19 }) {
        0..=3 => format!("{}{}", random.pick(&["+", "+", "-"]), command_name(random)),
        4..=7 => format!("{}@{}", random.pick(&["+", "+", "-"]), random.pick(CATEGORIES)),
        8 => format!(
            "+{}|{}",
            random.pick(&["select", "config", "get", "debug", "nosuch"]),
            random.pick(&["0", "get", "x", ""])
        ),
        9..=11 => {
            format!("{}{}", random.pick(&["~", "~", "%R~", "%W~", "%RW~", "%~", "%RR~"]), pattern(random))
        }
        12 | 13 => format!("&{}", pattern(random)),
        14 => format!(
            "db={}",
            random.pick(&["0", "0,1", "2,0,2", "15", "16", "", "1,", "x", "-1", "3000000000", "0, 1"])
        ),
        15 => random
            .pick(&["allkeys", "resetkeys", "allchannels", "resetchannels", "alldbs", "resetdbs"])
            .to_string(),
        16 => random.pick(&["allcommands", "nocommands", "RESETKEYS"]).to_string(),
        17 | 18 => "+@read".to_string(),
        19 => random
            .pick(&["off", "nonsense", "reset", "clearselectors", "sanitize-payload", "resetpass"])
            .to_string(),
        20 => random.pick(&[">secret", "<secret", ">other", "#12", "nopass"]).to_string(),
        _ => {
            let rules: Vec<String> = (0..random.below(5)).map(|_| rule(random, 1)).collect();
            format!("({})", rules.join(" "))
        }
    }
}

struct Pair {
    name: &'static str,
    server: Server,
    admin: Client,
    user: Client,
}

impl Pair {
    fn new(name: &'static str, server: Server) -> Pair {
        let (admin, user) = (server.client(), server.client());
        Pair { name, server, admin, user }
    }
}

fn ask(client: &mut Client, words: &[String]) -> Vec<u8> {
    client.send(encode(words));
    client.read_reply()
}

/// Checks that both replies are equal. Replies of commands that neither server denies may differ.
#[track_caller]
fn compare(replies: &[Vec<u8>], what: &[String], rules: &[String], is_all: bool) {
    let matters = is_all
        || replies.iter().any(|reply| reply.starts_with(b"-NOPERM") || reply.starts_with(b"-EXECABORT"));
    let [ours, theirs] = [0, 1].map(|at| replies[at].escape_ascii().to_string());
    assert!(!matters || ours == theirs, "{what:?}\nby {rules:?}\nours:   {ours}\nValkey: {theirs}");
}

/// Of ACL LOG what does not depend on time and connection.
fn log_of(client: &mut Client) -> Vec<String> {
    let reply = ask(client, &["ACL".into(), "LOG".into(), "128".into()]);
    let text = String::from_utf8_lossy(&reply).into_owned();
    let lines: Vec<&str> = text.split("\r\n").collect();
    let named = ["count", "reason", "context", "object", "username"];
    let wanted = |at: &usize| named.contains(&lines[*at]) && lines[at - 1].starts_with('$');
    (1..lines.len())
        .filter(wanted)
        .map(|at| {
            format!("{} {}", lines[at], lines[at + 1..].iter().take(2).copied().collect::<Vec<_>>().join(" "))
        })
        .collect()
}

#[test]
fn decisions_are_those_of_valkey() {
    let Some(program) = peers::peer("valkey-server") else { return };
    let decisions: u64 =
        std::env::var("ISOTHERM_DECISIONS").map_or(2_000, |count| count.parse().expect("a number"));
    let seed = std::env::var("ISOTHERM_SEED").map_or(17, |seed| seed.parse().expect("a number"));
    let ours = Server::start(&["--enable-debug-command", "local"]);
    let mut both = [
        Pair::new("ours", ours),
        Pair::new("Valkey", peers::start_with(program, &std::env::temp_dir(), &["--appendonly", "no"])),
    ];
    let (mut random, mut decided, mut denied) = (Prng::new(seed), 0, 0);
    while decided < decisions {
        let mut rules: Vec<String> = ["on", "nopass", "+acl|whoami"].map(String::from).to_vec();
        let mut set = ["ACL", "SETUSER", "ann", "reset"].map(String::from).to_vec();
        set.extend(rules.iter().cloned());
        let made: Vec<Vec<u8>> = both.iter_mut().map(|pair| ask(&mut pair.admin, &set)).collect();
        compare(&made, &set, &rules, true);
        for _ in 0..1 + random.below(8) {
            let rule = rule(&mut random, 0);
            let set = ["ACL", "SETUSER", "ann", &rule].map(String::from);
            let replies: Vec<Vec<u8>> = both.iter_mut().map(|pair| ask(&mut pair.admin, &set)).collect();
            rules.push(rule);
            compare(&replies, &set, &rules, true);
        }
        for shown in [&["ACL", "GETUSER", "ann"][..], &["ACL", "LIST"]] {
            let shown: Vec<String> = shown.iter().map(|word| word.to_string()).collect();
            let replies: Vec<Vec<u8>> = both.iter_mut().map(|pair| ask(&mut pair.admin, &shown)).collect();
            compare(&replies, &shown, &rules, true);
        }
        let can_enter = ["AUTH", "ann", "secret"].map(String::from);
        let replies: Vec<Vec<u8>> = both.iter_mut().map(|pair| ask(&mut pair.user, &can_enter)).collect();
        compare(&replies, &can_enter, &rules, true);
        let has_entered = replies[0] == b"+OK\r\n";
        for _ in 0..20 {
            let is_sent = has_entered && !random.one_in(3);
            let list = if is_sent || random.one_in(2) { COMMANDS } else { ONLY_ASKED };
            let template = random.pick(list);
            let words = fill(&mut random, template);
            let db = random.pick(&["0", "0", "1", "2", "15"]).to_string();
            for pair in &mut both {
                assert_eq!(
                    ask(&mut pair.admin, &["SELECT".to_string(), db.clone()]),
                    b"+OK\r\n",
                    "{}",
                    pair.name
                );
            }
            let dry: Vec<String> =
                ["ACL", "DRYRUN", "ann"].map(String::from).into_iter().chain(words.clone()).collect();
            let replies: Vec<Vec<u8>> = both.iter_mut().map(|pair| ask(&mut pair.admin, &dry)).collect();
            compare(&replies, &dry, &rules, true);
            denied += u64::from(replies[0] != b"+OK\r\n");
            decided += 1;
            if is_sent {
                let replies: Vec<Vec<u8>> = both.iter_mut().map(|pair| ask(&mut pair.user, &words)).collect();
                compare(&replies, &words, &rules, false);
                decided += 1;
            }
        }
        let logs: Vec<Vec<String>> = both.iter_mut().map(|pair| log_of(&mut pair.admin)).collect();
        assert_eq!(logs[0], logs[1], "by {rules:?}");
        for pair in &mut both {
            assert_eq!(ask(&mut pair.admin, &["ACL".into(), "LOG".into(), "RESET".into()]), b"+OK\r\n");
            pair.user = pair.server.client();
        }
    }
    println!("{decided} decisions, {denied} of those that were asked by DRYRUN denied");
    assert!(denied > decided / 10);
}
