//! Instructions per operation: what a command costs the worker that runs it, whatever else the machine does.
//!
//! The server runs under valgrind's callgrind, which counts the instructions of each thread. Nothing of the
//! kernel is counted, and a cache miss counts as little as a hit: the figures show what was added to a path
//! or taken from it, to an instruction or two, where CPU time differs by five per cent from one run to the
//! next. `speed` shows what it costs.
//!
//! ```text
//! fill -> a part of the commands, to warm up -> counting on, from 0 -> the rest -> dump, counting off
//! ```
//! The keys are those of 256 slots, 78 a slot: as many as a slot has with 1.3 million keys.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use isotherm_probe::{Client, Server, command};
use isotherm_stdx::{Prng, Slot};

use crate::options::Options;
use crate::process::Side;
use crate::report::Table;
use crate::shape::{KEY_BYTES, named, stride_through};
use crate::{Fallible, progress};

pub const KIND: &str = "instructions";

const SLOTS: usize = 256;
const KEYS: u64 = 20_000;
/// Small collections.
const SMALL: u64 = 2_000;
const COMMANDS: u64 = 20_000;
const PIPELINE: u64 = 32;

type Words = Vec<Vec<u8>>;

pub struct Case {
    pub name: &'static str,
    fills: u64,
    fill: fn(&mut Draw<'_>) -> Words,
    commands: u64,
    deed: fn(&mut Draw<'_>) -> Words,
    /// The rules of the user who sends the counted requests; none: the default user does.
    rules: &'static [&'static str],
}

/// Source of the next command's parts.
struct Draw<'a> {
    keys: &'a [[u8; KEY_BYTES]],
    prng: Prng,
    /// Number of commands that came before this one.
    number: u64,
}

impl Draw<'_> {
    fn key(&self, number: u64) -> Vec<u8> {
        self.keys[number as usize].to_vec()
    }

    fn next_key(&self) -> Vec<u8> {
        self.key(self.number)
    }

    fn any_key(&mut self) -> Vec<u8> {
        let number = self.prng.below(KEYS);
        self.key(number)
    }

    /// Returns the next number of `0..count`, each of them once, in an order that favors no table.
    fn shuffled(&self, count: u64) -> u64 {
        self.number % count * stride_through(count) % count
    }

    /// The keys of small collections in turns.
    fn small(&self) -> Vec<u8> {
        self.key(self.shuffled(SMALL))
    }

    fn below(&mut self, count: u64) -> u64 {
        self.prng.below(count)
    }
}

/// Words of a command: text as it is, numbers as they are printed.
macro_rules! words {
    ($($word:expr),+ $(,)?) => { vec![$(Word::from($word).0),+] };
}

struct Word(Vec<u8>);

impl From<&str> for Word {
    fn from(text: &str) -> Word {
        Word(text.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for Word {
    fn from(bytes: Vec<u8>) -> Word {
        Word(bytes)
    }
}

impl From<String> for Word {
    fn from(text: String) -> Word {
        Word(text.into_bytes())
    }
}

impl From<u64> for Word {
    fn from(number: u64) -> Word {
        Word(number.to_string().into_bytes())
    }
}

/// Elements of small collections, 8 B, and of large ones, 16 B.
fn short(number: u64) -> String {
    format!("e{number:07}")
}

fn long(number: u64) -> String {
    format!("element:{number:08}")
}

const VALUE: &str = "xxxxxxxxxxxxxxxx";
/// Elements that were not there.
const FRESH: u64 = 100_000;

/// A command that fills a small collection.
fn twelve(verb: &str, key: Vec<u8>, element: impl Fn(u64) -> Words) -> Words {
    words![verb, key].into_iter().chain((0..12).flat_map(element)).collect()
}

pub fn cases() -> Vec<Case> {
    let case = |name, fills, fill, deed| Case { name, fills, fill, commands: COMMANDS, deed, rules: &[] };
    // After the others: a peer without users ends here.
    let users = users();
    let mut cases = strings();
    cases.extend([
        case(
            "lpush_small",
            SMALL,
            |draw| words!["LPUSH", draw.next_key(), short(1)],
            |draw| words!["LPUSH", draw.small(), short(draw.number)],
        ),
        case(
            "lpush_big",
            KEYS,
            |draw| words!["LPUSH", "l", long(draw.number)],
            |draw| words!["LPUSH", "l", long(draw.number)],
        ),
        case(
            "rpush_big",
            KEYS,
            |draw| words!["LPUSH", "l", long(draw.number)],
            |draw| words!["RPUSH", "l", long(draw.number)],
        ),
        case(
            "rpop_small",
            SMALL,
            |draw| twelve("RPUSH", draw.next_key(), |at| words![short(at)]),
            |draw| words!["RPOP", draw.small()],
        ),
        case(
            "rpop_big",
            KEYS * 3 / 2,
            |draw| words!["RPUSH", "l", long(draw.number)],
            |_| words!["RPOP", "l"],
        ),
        case(
            "sadd_small",
            SMALL,
            |draw| words!["SADD", draw.next_key(), short(1)],
            |draw| words!["SADD", draw.small(), short(draw.below(1_000_000))],
        ),
        case(
            "sadd_big",
            KEYS,
            |draw| words!["SADD", "s", long(draw.number)],
            |draw| words!["SADD", "s", long(draw.shuffled(COMMANDS) + FRESH)],
        ),
        case(
            "srem_small",
            SMALL,
            |draw| twelve("SADD", draw.next_key(), |at| words![short(at)]),
            |draw| words!["SREM", draw.small(), short(draw.below(12))],
        ),
        case(
            "srem_big",
            KEYS,
            |draw| words!["SADD", "s", long(draw.number)],
            |draw| words!["SREM", "s", long(draw.shuffled(KEYS))],
        ),
        case(
            "hset_small",
            SMALL,
            |draw| words!["HSET", draw.next_key(), short(1), VALUE],
            |draw| words!["HSET", draw.small(), short(draw.below(10)), VALUE],
        ),
        case(
            "hset_over",
            KEYS,
            |draw| words!["HSET", "h", long(draw.number), VALUE],
            |draw| words!["HSET", "h", long(draw.shuffled(KEYS)), "yyyyyyyyyyyyyyyy"],
        ),
        case(
            "hset_big",
            KEYS,
            |draw| words!["HSET", "h", long(draw.number), VALUE],
            |draw| words!["HSET", "h", long(draw.shuffled(COMMANDS) + FRESH), VALUE],
        ),
        case(
            "hget_big",
            KEYS,
            |draw| words!["HSET", "h", long(draw.number), VALUE],
            |draw| words!["HGET", "h", long(draw.shuffled(KEYS))],
        ),
        case(
            "hdel_small",
            SMALL,
            |draw| twelve("HSET", draw.next_key(), |at| words![short(at), VALUE]),
            |draw| words!["HDEL", draw.small(), short(draw.below(12))],
        ),
        case(
            "hdel_big",
            KEYS,
            |draw| words!["HSET", "h", long(draw.number), VALUE],
            |draw| words!["HDEL", "h", long(draw.shuffled(KEYS))],
        ),
        case(
            "zadd_small",
            SMALL,
            |draw| words!["ZADD", draw.next_key(), 1, short(1)],
            |draw| words!["ZADD", draw.small(), draw.below(1_000), short(draw.below(10))],
        ),
        case(
            "zadd_big",
            KEYS,
            |draw| words!["ZADD", "z", draw.number, long(draw.number)],
            |draw| {
                let score = draw.below(1 << 53) as f64 / (1u64 << 53) as f64;
                words!["ZADD", "z", score.to_string(), long(draw.shuffled(COMMANDS) + FRESH)]
            },
        ),
        case(
            "zadd_over",
            KEYS,
            |draw| words!["ZADD", "z", draw.number, long(draw.number)],
            |draw| words!["ZADD", "z", draw.below(KEYS), long(draw.shuffled(KEYS))],
        ),
        case(
            "zrem_big",
            KEYS,
            |draw| words!["ZADD", "z", draw.number, long(draw.number)],
            |draw| words!["ZREM", "z", long(draw.shuffled(KEYS))],
        ),
        case(
            "zrem_small",
            SMALL,
            |draw| twelve("ZADD", draw.next_key(), |at| words![at, short(at)]),
            |draw| words!["ZREM", draw.small(), short(draw.below(12))],
        ),
        case("xadd_small", SMALL, |draw| entry(draw.next_key()), |draw| entry(draw.small())),
        case("xadd_big", KEYS, |_| entry(b"x".to_vec()), |_| entry(b"x".to_vec())),
    ]);
    cases.extend(users);
    cases
}

/// A user who may do much, but not everything.
const ONE_PATTERN: &[&str] = &["+@read", "+@write", "~key:*"];
/// The twentieth pattern fits, of the second selector.
const MANY_PATTERNS: &[&str] = &[
    "+@read",
    "~a:*",
    "~b:*",
    "~c:*",
    "~d:*",
    "~e:*",
    "~f:*",
    "~g:*",
    "~h:*",
    "~i:*",
    "~j:*",
    "~k:*",
    "~l:*",
    "~m:*",
    "~n:*",
    "~o:*",
    "~p:*",
    "~q:*",
    "~r:*",
    "~s:*",
    "~t:*",
    "(+@read +@write ~key:*)",
];

fn users() -> Vec<Case> {
    let of = |name, rules, of: &str| {
        let case = strings().into_iter().find(|case| case.name == of).expect("it is there");
        Case { name, rules, ..case }
    };
    vec![
        of("get_user", ONE_PATTERN, "get"),
        of("set_user", ONE_PATTERN, "set_same"),
        of("get_patterns", MANY_PATTERNS, "get"),
        of("set_patterns", MANY_PATTERNS, "set_same"),
    ]
}

fn strings() -> Vec<Case> {
    let set = |draw: &mut Draw<'_>| words!["SET", draw.next_key(), VALUE];
    let case = |name, deed| Case { name, fills: KEYS, fill: set, commands: COMMANDS, deed, rules: &[] };
    vec![
        case("get", |draw| words!["GET", draw.any_key()]),
        case("set_same", |draw| words!["SET", draw.any_key(), VALUE]),
        case("set_resize", |draw| words!["SET", draw.any_key(), "y".repeat(8 + draw.below(121) as usize)]),
        Case { fills: 0, ..case("set_new", |draw| words!["SET", draw.key(draw.shuffled(KEYS)), VALUE]) },
        case("delete", |draw| words!["DEL", draw.key(draw.shuffled(KEYS))]),
        case("append", |draw| words!["APPEND", draw.any_key(), "12345678"]),
        Case {
            fill: |draw| words!["SET", draw.next_key(), draw.number],
            ..case("incr", |draw| words!["INCR", draw.any_key()])
        },
        Case {
            commands: COMMANDS / 10,
            ..case("mset", |draw| {
                let pairs = (0..10).flat_map(|_| words![draw.any_key(), VALUE]);
                words!["MSET"].into_iter().chain(pairs).collect()
            })
        },
        case("expire", |draw| words!["EXPIRE", draw.any_key(), 1000]),
        Case { commands: COMMANDS / 4, ..case("get_single", |draw| words!["GET", draw.any_key()]) },
        Case { commands: COMMANDS / 4, ..case("set_single", |draw| words!["SET", draw.any_key(), VALUE]) },
    ]
}

fn entry(key: Vec<u8>) -> Words {
    words!["XADD", key, "*", "field0", VALUE, "field1", VALUE]
}

/// Returns how many of a case's commands come before the counted ones.
fn warming(case: &Case) -> u64 {
    match case.name {
        // From half full on, and while there is something left to remove.
        "set_new" => case.commands / 2,
        "delete" | "rpop_big" | "srem_big" | "hdel_big" | "zrem_big" => 2 * PIPELINE,
        _ => case.commands / 10,
    }
}

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let mut table = Table::new(KIND, "Instructions per operation", &["case", "Isotherm", "peer", "ratio"]);
    table.note(
        "Of the worker's thread, outside of the kernel, counted by valgrind's callgrind; one connection, pipelined 32 \
         (`single`: not). The peer is another build of the server; below 1, this one needs fewer.",
    );
    for tool in ["valgrind", "callgrind_control"] {
        if !is_installed(tool) {
            eprintln!("bench: instructions: skipped, since {tool} is not installed");
            return Ok(Vec::new());
        }
    }
    let cases: Vec<Case> = cases().into_iter().filter(|case| options.wants(case.name)).collect();
    if cases.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<[u8; KEY_BYTES]> =
        (0..).map(named).filter(|key| Slot::of_key(key).index() < SLOTS).take(KEYS as usize).collect();
    let limit = options.maxmemory.as_deref();
    let mut counted = Counted::start("counted", &options.program(Side::Isotherm), limit, options)?;
    let peer = options.peer_server.as_ref().map(|peer| Counted::start("peer", peer, None, options));
    let mut peer = peer.transpose()?;
    let mut ratios = Vec::new();
    for case in &cases {
        let ours = counted.run(case, &keys)?;
        let theirs = peer.as_mut().map(|peer| peer.run(case, &keys)).transpose()?;
        let ratio = theirs.map(|theirs| ours / theirs);
        let text =
            |figure: Option<f64>, digits| figure.map_or(String::new(), |figure| format!("{figure:.digits$}"));
        progress(&format!("{}: {ours:.0} {} {}", case.name, text(theirs, 0), text(ratio, 3)));
        ratios.extend(ratio);
        table.row([case.name.to_string(), format!("{ours:.0}"), text(theirs, 0), text(ratio, 3)]);
    }
    if !ratios.is_empty() {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        table.row(["geometric mean".to_string(), String::new(), String::new(), format!("{mean:.3}")]);
    }
    Ok(vec![table])
}

fn is_installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// A server whose instructions are counted.
struct Counted {
    server: Server,
    client: Client,
    /// Folder to which the counts of the server are written.
    folder: PathBuf,
}

impl Counted {
    fn start(
        name: &'static str,
        program: &Path,
        maxmemory: Option<&str>,
        options: &Options,
    ) -> Fallible<Counted> {
        let folder = options.scratch.join(format!("counts-of-{name}"));
        fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--separate-threads=yes", "--instr-atstart=no"])
            .arg(format!("--callgrind-out-file={}", folder.join("counts").display()))
            .arg(program);
        let mut arguments = vec!["--io-threads".to_string(), "1".to_string()];
        arguments
            .extend(maxmemory.into_iter().flat_map(|bytes| ["--maxmemory".to_string(), bytes.to_string()]));
        let server = Server::start(name, command, &arguments, &options.scratch)?;
        let client = server.client()?;
        Ok(Counted { server, client, folder })
    }

    /// Instructions of one command.
    fn run(&mut self, case: &Case, keys: &[[u8; KEY_BYTES]]) -> Fallible<f64> {
        let pipeline = if case.name.ends_with("_single") { 1 } else { PIPELINE };
        self.client.call(&["FLUSHALL", "SYNC"])?;
        let mut fill = Draw { keys, prng: Prng::new(1), number: 0 };
        self.send(case.fill, &mut fill, case.fills, PIPELINE)?;
        let mut draw = Draw { keys, prng: Prng::new(7), number: 0 };
        let warming = warming(case);
        if !case.rules.is_empty() {
            let fresh = ["ACL", "SETUSER", "bench", "reset", "on", "nopass", "+ping", "+auth"];
            self.client.call(&[&fresh, case.rules].concat())?;
            self.client.call(&["AUTH", "bench", "any"])?;
        }
        self.send(case.deed, &mut draw, warming, pipeline)?;
        self.control("--instr=on")?;
        // Counting begins when the thread runs next; these are not counted.
        (0..3).try_for_each(|_| self.client.call(&["PING"]).map(drop))?;
        self.control("--zero")?;
        self.send(case.deed, &mut draw, case.commands, pipeline)?;
        self.control("--dump")?;
        self.control("--instr=off")?;
        if !case.rules.is_empty() {
            self.client.call(&["AUTH", "default", "any"])?;
        }
        Ok(self.take_count()? as f64 / (case.commands - warming) as f64)
    }

    /// Sends commands until `draw` is at number `end`.
    fn send(
        &mut self,
        deed: fn(&mut Draw<'_>) -> Words,
        draw: &mut Draw<'_>,
        end: u64,
        pipeline: u64,
    ) -> Fallible {
        let mut out = Vec::new();
        while draw.number < end {
            out.clear();
            let batch = pipeline.min(end - draw.number);
            for _ in 0..batch {
                command(&mut out, deed(draw).iter().map(Vec::as_slice));
                draw.number += 1;
            }
            self.client.send(&out)?;
            (0..batch).try_for_each(|_| self.client.read().map(drop))?;
        }
        Ok(())
    }

    fn control(&self, action: &str) -> Fallible {
        let id = self.server.id().to_string();
        let mut command = Command::new("callgrind_control");
        let status = command.args([action, &id]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("callgrind_control {action}: {status}")),
            Err(why) => Err(format!("cannot run callgrind_control: {why}")),
        }
    }

    /// The count of the thread that has counted most: the worker. The files go.
    fn take_count(&self) -> Fallible<u64> {
        let files = fs::read_dir(&self.folder).map_err(|why| format!("no counts: {why}"))?;
        let mut most = 0;
        for file in files.flatten().map(|file| file.path()) {
            let text = fs::read_to_string(&file).map_err(|why| format!("cannot read a count: {why}"))?;
            let count = text.lines().find_map(|line| {
                line.strip_prefix("summary:")
                    .or_else(|| line.strip_prefix("totals:"))?
                    .trim()
                    .parse::<u64>()
                    .ok()
            });
            most = most.max(count.unwrap_or(0));
            fs::remove_file(&file).map_err(|why| format!("cannot remove a count: {why}"))?;
        }
        if most == 0 { Err("callgrind has counted nothing".to_string()) } else { Ok(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Two builds are sent the same commands, and the counted part of a case is not empty.
    #[test]
    fn a_case_sends_the_same_commands_each_time() {
        let keys: Vec<[u8; KEY_BYTES]> = (0..KEYS).map(named).collect();
        let mut names = BTreeSet::new();
        for case in cases() {
            let sent = |seed| -> Vec<Words> {
                let mut draw = Draw { keys: &keys, prng: Prng::new(seed), number: 0 };
                let mut sent = Vec::new();
                while draw.number < 100 {
                    sent.extend([(case.fill)(&mut draw), (case.deed)(&mut draw)]);
                    draw.number += 1;
                }
                sent
            };
            assert_eq!(sent(7), sent(7), "{}", case.name);
            assert!(warming(&case) < case.commands, "{}", case.name);
            assert!(names.insert(case.name), "{} twice", case.name);
        }
    }
}
