//! A primary and a replica of two makes or versions: after each of many random stretches both have the same
//! data and the same offset.
//!
//! ```text
//!  commands --> primary ==stream==> replica [==stream==> sub-replica]
//!      ^                                                      |
//!      +---- event: link cut | full sync, of a file or of a stream <-- offsets and DEBUG DIGEST equal
//! ```
//! The commands come from the grammar of the differential tester. Those that the replica's version does not
//! know are left out, as users with such a replica do.

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Fallible;
use crate::client::Client;
use crate::grammar::{Command, Grammar, Theme};
use crate::process::Server;
use crate::session::may_wait;
use crate::vocabulary::Vocabulary;

/// Between two comparisons.
const STRETCH_COMMANDS: u64 = 400;
const BATCH_MAX: u64 = 40;
/// Two servers that should have the same data have it within this time. Keys that expire in between make a
/// difference for a moment.
const EQUAL_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// The replica learns of a link that was cut only when it looks again.
const LINK_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of databases that the grammar uses and that SELECT finds.
const DATABASES: u32 = 16;
/// Data of these only: what others do is not replicated, or not answered at once.
const GROUPS: [&str; 12] = [
    "bitmap",
    "generic",
    "geo",
    "hash",
    "hyperloglog",
    "list",
    "set",
    "sort",
    "stream",
    "string",
    "transactions",
    "sorted_set",
];
/// Words of commands that older versions know without them.
const NEW_WORDS: [&[u8]; 3] = [b"IFEQ", b"FNX", b"FXX"];

const FIELD_TIMES: [&[u8]; 6] = [b"HEXPIRE", b"HPEXPIRE", b"HEXPIREAT", b"HPEXPIREAT", b"HSETEX", b"HGETEX"];

#[derive(Clone, Debug)]
pub struct Options {
    /// The programs, the primary first; each follows the one before.
    pub chain: Vec<PathBuf>,
    pub commands: u64,
    pub seed: u64,
}

#[derive(Debug, Default)]
pub struct Outcome {
    /// Names of the servers that took part, the primary first.
    pub chain: Vec<String>,
    pub commands: u64,
    pub comparisons: u64,
    /// Number of full syncs as the primary counts them.
    pub full_syncs: u64,
    pub partial_syncs: u64,
    pub links_cut: u64,
    pub difference: Option<String>,
    /// Why these were not compared.
    pub skipped: Option<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ", self.chain.join(" <- "))?;
        if let Some(why) = &self.skipped {
            return write!(out, "skipped: {why}");
        }
        let Outcome { commands, comparisons, links_cut, full_syncs, partial_syncs, .. } = self;
        write!(
            out,
            "{commands} commands, {comparisons} comparisons, {links_cut} links cut, {full_syncs} full and {partial_syncs} \
             partial syncs"
        )?;
        self.difference.as_ref().map_or(Ok(()), |difference| write!(out, "\nDIFFERENCE: {difference}"))
    }
}

pub fn run(options: &Options) -> Fallible<Outcome> {
    let mut chain: Vec<Node> =
        options.chain.iter().map(|program| Node::start(program)).collect::<Fallible<_>>()?;
    let names: Vec<String> = chain.iter().map(|node| node.name.clone()).collect();
    if let Some(old) = chain[1..].iter().find(|node| !node.reads_rdb_11()) {
        return Ok(Outcome {
            skipped: Some(format!("{} reads no RDB 11", old.name)),
            chain: names,
            ..Outcome::default()
        });
    }
    for at in 1..chain.len() {
        let port = chain[at - 1].server.port;
        chain[at].follow(port)?;
    }
    let mut known = chain[0].commands()?;
    for replica in &mut chain[1..] {
        let others = replica.commands()?;
        known.retain(|name| others.contains(name));
    }
    let spares_field_times = chain[1..].iter().any(|node| node.name.starts_with("Redis"));
    let grammar = Grammar::of_groups(&GROUPS.map(String::from))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|why| why.to_string())?;
    let vocabulary = Vocabulary::new(now.as_millis() as i64);
    let mut prng = Prng::new(options.seed);
    let mut outcome = Outcome { chain: names, ..Outcome::default() };
    await_equal(&mut chain, &known)?.map_or(Ok(()), Err)?;
    while outcome.commands < options.commands && outcome.difference.is_none() {
        let theme = grammar.theme(&mut prng);
        let draw = Draw {
            grammar: &grammar,
            theme: &theme,
            vocabulary: &vocabulary,
            known: &known,
            spares_field_times,
        };
        let event = Event::draw(&mut prng);
        let cut_at = prng.below(STRETCH_COMMANDS);
        let mut sent = 0;
        let mut is_due = event != Event::Nothing;
        while sent < STRETCH_COMMANDS {
            let commands: Vec<Command> =
                (0..1 + prng.below(BATCH_MAX)).map(|_| draw.command(&mut prng)).collect();
            chain[0].client.call_all(&commands).map_err(|why| format!("the primary is gone: {why}"))?;
            sent += commands.len() as u64;
            if is_due && sent > cut_at {
                is_due = false;
                outcome.links_cut += u64::from(event == Event::Cut);
                happen(event, &mut chain, &mut prng)?;
            }
        }
        chain[0].call(&["DISCARD"])?;
        outcome.commands += sent;
        outcome.comparisons += 1;
        outcome.difference = await_equal(&mut chain, &known)?.map(|why| {
            format!("seed {}, after {} commands and {event:?}: {why}", options.seed, outcome.commands)
        });
    }
    outcome.full_syncs = chain[0].info("sync_full")?;
    outcome.partial_syncs = chain[0].info("sync_partial_ok")?;
    Ok(outcome)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Nothing,
    /// A link in the chain is cut, at one of its ends.
    Cut,
    /// A replica was a primary for a moment, with a history of its own.
    FullSync,
    Flush,
}

impl Event {
    fn draw(prng: &mut Prng) -> Event {
        match prng.below(8) {
            0..=2 => Event::Cut,
            3 | 4 => Event::FullSync,
            5 => Event::Flush,
            _ => Event::Nothing,
        }
    }
}

fn happen(event: Event, chain: &mut [Node], prng: &mut Prng) -> Fallible {
    let replica = 1 + prng.below(chain.len() as u64 - 1) as usize;
    match event {
        Event::Nothing => {}
        Event::Cut if prng.one_in(2) => _ = chain[replica - 1].call(&["CLIENT", "KILL", "TYPE", "slave"])?,
        Event::Cut => _ = chain[replica].call(&["CLIENT", "KILL", "TYPE", "master"])?,
        Event::Flush => _ = chain[0].call(&["FLUSHALL"])?,
        Event::FullSync => {
            let port = chain[replica - 1].server.port;
            let streams = if prng.one_in(2) { "yes" } else { "no" };
            chain[replica - 1].call(&["CONFIG", "SET", "repl-diskless-sync", streams])?;
            let load = *prng.pick(&["disabled", "on-empty-db", "swapdb"]);
            chain[replica].call(&["CONFIG", "SET", "repl-diskless-load", load])?;
            chain[replica].call(&["REPLICAOF", "NO", "ONE"])?;
            chain[replica].call(&["SET", "of-its-own", "history"])?;
            chain[replica].follow(port)?;
        }
    }
    Ok(())
}

struct Draw<'a> {
    grammar: &'a Grammar,
    theme: &'a Theme,
    vocabulary: &'a Vocabulary,
    /// Commands that all know.
    known: &'a HashSet<Vec<u8>>,
    /// A replica is Redis: fields with a time stand in an RDB file in a form of Valkey's own, and its sync
    /// fails.
    spares_field_times: bool,
}

impl Draw<'_> {
    fn command(&self, prng: &mut Prng) -> Command {
        if prng.one_in(40) {
            let ttl_ms = (1 + prng.below(300)).to_string().into_bytes();
            return vec![b"PEXPIRE".to_vec(), self.vocabulary.draw("key", prng), ttl_ms];
        }
        loop {
            let command = self.grammar.draw(self.theme, prng, self.vocabulary);
            let is_spared = self.spares_field_times
                && FIELD_TIMES.iter().any(|name| command[0].eq_ignore_ascii_case(name));
            if is_known(&command, self.known) && !is_spared && !may_wait(&command) {
                return command;
            }
        }
    }
}

fn is_known(command: &Command, known: &HashSet<Vec<u8>>) -> bool {
    // MSETEX came with the last of the new words.
    let is_new = known.contains(&b"msetex"[..]);
    known.contains(&command[0].to_ascii_lowercase())
        && (is_new || !command.iter().any(|word| NEW_WORDS.contains(&&word.to_ascii_uppercase()[..])))
}

/// Until all have the offset and the data of the first, or what differs.
fn await_equal(chain: &mut [Node], known: &HashSet<Vec<u8>>) -> Fallible<Option<String>> {
    let begun = Instant::now();
    loop {
        let found = difference(chain, known)?;
        if found.is_none() || begun.elapsed() > EQUAL_TIMEOUT {
            return Ok(found);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn difference(chain: &mut [Node], known: &HashSet<Vec<u8>>) -> Fallible<Option<String>> {
    let offset = chain[0].info("master_repl_offset")?;
    for replica in &mut chain[1..] {
        if !replica.is_link_up()? {
            return Ok(Some(format!("{} has no link", replica.name)));
        }
        let other = replica.info("master_repl_offset")?;
        if other != offset {
            return Ok(Some(format!("{} is at {other}, the primary at {offset}", replica.name)));
        }
    }
    let digest = chain[0].call(&["DEBUG", "DIGEST"])?;
    let mut is_equal = true;
    for replica in &mut chain[1..] {
        is_equal &= replica.call(&["DEBUG", "DIGEST"])? == digest;
    }
    // Redis before 7.2 digests scores in another form, Redis 8 the times of fields.
    Ok(if is_equal { None } else { differing_keys(chain, known)? })
}

/// Members in their order, and their scores as numbers: how a version writes them is its own affair.
fn scores(reply: Value) -> String {
    let Value::Array(words) = reply else { return String::new() };
    let word = |value: &Value| match value {
        Value::Bulk(bytes) => bytes.escape_ascii().to_string(),
        other => other.to_string(),
    };
    let score =
        |value: &Value| word(value).parse::<f64>().map_or_else(|_| word(value), |score| score.to_string());
    let pairs = words.chunks_exact(2).map(|pair| format!("{}={}", word(&pair[0]), score(&pair[1])));
    pairs.collect::<Vec<String>>().join(", ")
}

/// The first keys whose values or times are not those of the primary.
fn differing_keys(chain: &mut [Node], known: &HashSet<Vec<u8>>) -> Fallible<Option<String>> {
    const SHOWN_MAX: usize = 10;
    let mut text = String::new();
    for db in 0..DATABASES {
        let mut all = Vec::new();
        for node in chain.iter_mut() {
            node.ask(&[b"SELECT", db.to_string().as_bytes()])?;
            all.push(node.keys(known)?);
        }
        for (node, keys) in chain.iter().zip(&all).skip(1) {
            let differs = |key: &&Vec<u8>| keys.get(*key) != all[0].get(*key);
            let both: BTreeSet<&Vec<u8>> = keys.keys().chain(all[0].keys()).collect();
            for key in both.into_iter().filter(differs).take(SHOWN_MAX) {
                text += &format!(
                    "\n  {} db {db} {}: {:.300?}, the primary's: {:.300?}",
                    node.name,
                    key.escape_ascii(),
                    keys.get(key),
                    all[0].get(key)
                );
            }
        }
    }
    for node in chain {
        node.ask(&[b"SELECT", b"0"])?;
    }
    Ok((!text.is_empty()).then_some(text))
}

struct Node {
    server: Server,
    client: Client,
    name: String,
}

impl Node {
    fn start(binary: &Path) -> Fallible<Node> {
        let version = Program::new(binary).arg("--version").output();
        let version = version.map_err(|why| format!("{}: {why}", binary.display()))?.stdout;
        let version = String::from_utf8_lossy(&version);
        let name = version.split(" sha=").next().unwrap_or_default().trim().to_string();
        let mut args = vec!["--repl-diskless-sync-delay", "0", "--repl-diskless-sync", "yes"];
        // Redis 6 has neither the parameter nor the ban.
        if !name.contains("v=6.") {
            args.extend(["--enable-debug-command", "yes"]);
        }
        let args: Vec<String> = args.into_iter().map(String::from).collect();
        let server = Server::start(binary, &args)?;
        let client = Client::connect(server.port).map_err(|why| format!("{name}: {why}"))?;
        Ok(Node { server, client, name })
    }

    /// Redis 7.2 and what came of it do.
    fn reads_rdb_11(&self) -> bool {
        !["v=6.", "v=7.0"].iter().any(|old| self.name.contains(old))
    }

    fn call(&mut self, words: &[&str]) -> Fallible<Value> {
        self.client.call(words).map_err(|why| format!("{} is gone at {words:?}: {why}", self.name))
    }

    fn follow(&mut self, port: u16) -> Fallible {
        let answer = self.call(&["REPLICAOF", "127.0.0.1", &port.to_string()])?;
        match answer {
            Value::Simple(_) => self.await_link(),
            other => Err(format!("{} does not follow: {other}", self.name)),
        }
    }

    fn await_link(&mut self) -> Fallible {
        let begun = Instant::now();
        while !self.is_link_up()? {
            if begun.elapsed() > LINK_TIMEOUT {
                return Err(format!("{} has no link after {LINK_TIMEOUT:?}", self.name));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn is_link_up(&mut self) -> Fallible<bool> {
        Ok(self.info_text()?.contains("master_link_status:up"))
    }

    fn info(&mut self, field: &str) -> Fallible<u64> {
        let text = self.info_text()?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.ok_or_else(|| format!("{} says nothing of {field}", self.name))
    }

    fn info_text(&mut self) -> Fallible<String> {
        match self.call(&["INFO"])? {
            Value::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => Err(format!("{}: INFO gives {other}", self.name)),
        }
    }

    /// Returns the keys of the selected database, each with its type, value and expiry time. Times that one
    /// of the servers does not give are left out.
    fn keys(&mut self, known: &HashSet<Vec<u8>>) -> Fallible<BTreeMap<Vec<u8>, String>> {
        let keys = match self.call(&["KEYS", "*"])? {
            Value::Array(keys) => keys,
            other => return Err(format!("{}: KEYS gives {other}", self.name)),
        };
        let mut found = BTreeMap::new();
        for key in keys {
            let Value::Bulk(key) = key else { continue };
            let kind = self.ask(&[b"TYPE", &key])?.to_string();
            let value = match kind.as_str() {
                "+zset" => scores(self.ask(&[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"])?),
                "+hash" => self.fields(&key, known)?,
                _ => self.ask(&[b"DEBUG", b"DIGEST-VALUE", &key])?.to_string(),
            };
            let until = match known.contains(&b"pexpiretime"[..]) {
                true => self.ask(&[b"PEXPIRETIME", &key])?.to_string(),
                false => String::new(),
            };
            found.insert(key, format!("{kind} {value} {until}"));
        }
        Ok(found)
    }

    fn fields(&mut self, key: &[u8], known: &HashSet<Vec<u8>>) -> Fallible<String> {
        let Value::Array(words) = self.ask(&[b"HGETALL", key])? else { return Ok(String::new()) };
        let mut fields = Vec::new();
        for pair in words.chunks_exact(2) {
            let [Value::Bulk(field), value] = pair else { continue };
            let until = match known.contains(&b"hpexpiretime"[..]) {
                true => self.ask(&[b"HPEXPIRETIME", key, b"FIELDS", b"1", field])?.to_string(),
                false => "[(integer) -1]".to_string(),
            };
            fields.push(format!("{}={value} {until}", field.escape_ascii()));
        }
        fields.sort_unstable();
        Ok(fields.join(", "))
    }

    fn ask(&mut self, words: &[&[u8]]) -> Fallible<Value> {
        self.client.call(words).map_err(|why| format!("{} is gone: {why}", self.name))
    }

    /// The names of all commands, in lower case.
    fn commands(&mut self) -> Fallible<HashSet<Vec<u8>>> {
        let Value::Array(entries) = self.call(&["COMMAND"])? else {
            return Err(format!("{} does not list its commands", self.name));
        };
        let name = |entry: Value| match entry {
            Value::Array(mut words) if !words.is_empty() => match words.swap_remove(0) {
                Value::Bulk(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            },
            _ => None,
        };
        Ok(entries.into_iter().filter_map(name).collect())
    }
}
