//! The log can be played back: random commands of all types, transactions, expiry and eviction, by one thread
//! and by four, are recorded as they run; the records played into an empty keyspace make the same data. One
//! thread with the same seed records the same bytes.
//!
//! ```text
//!   thread: lock | command(s) of one frame | append the frame | unlock           at its own moment, one clock for all
//!   cron:   lock | expire or evict a step  | append, before   | unlock
//!   log:    frame, frame, ...    a frame is (database, words) in order: what expired under it, then its records
//! ```
//! The append comes before the locks are released, so the order of the log is an order in which the frames
//! could have run one after the other. `cargo test --profile fast -p isotherm-commands --test it replay --
//! --ignored` runs a million.

use crate::common::{self, lookup, wanted};
use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::Reach;
use isotherm_commands::{Call, CallSettings, Outcome, Records, naming};
use isotherm_conformance::disorder::disorder;
use isotherm_conformance::grammar::Grammar;
use isotherm_conformance::vocabulary::Vocabulary;
use isotherm_keyspace::{
    Conditions, Config, Db, Effect, EffectMask, EffectSink, EvictionGain, EvictionPolicy, ExpiryMode, Held,
    Keyspace, NoEffects, Txn, UnixMs, Want,
};
use isotherm_resp::reply::Protocol;
use isotherm_resp::{Args, ArgsBuf, Reply};
use isotherm_stdx::Prng;
use isotherm_stdx::crc64::crc64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

/// Entry of the log, with its database.
pub type Entry = (Db, ArgsBuf);

pub const START_MS: i64 = 1_750_000_000_000;
pub const DATABASES: u16 = 4;
pub const SPACE_BYTES: u64 = 512 << 20;
/// An offset that stands where none belongs makes no string that takes long.
const STRING_BYTES_MAX: usize = 1 << 20;
/// Inverse of the share of commands that have their options in another order.
const DISORDERED_ONE_IN: u64 = 5;

/// Data that the threads share.
pub struct World {
    pub keyspace: Keyspace,
    pub now_ms: AtomicI64,
    pub log: Mutex<Vec<Entry>>,
}

/// Entries that a frame adds to the log.
#[derive(Default)]
pub struct Frame {
    entries: Vec<Entry>,
}

impl Frame {
    fn push(&mut self, db: Db, words: &[&[u8]]) {
        self.entries.push((db, words.iter().copied().collect()));
    }
}

/// A sink that has a log behind it: a key that leaves by itself is an entry of the frame, or a frame of its
/// own where none is open.
pub struct Sink<'w> {
    frame: Frame,
    is_open: bool,
    log: &'w Mutex<Vec<Entry>>,
}

impl EffectSink for Sink<'_> {
    fn mask(&self) -> EffectMask {
        EffectMask::LOG
    }

    fn effect(&mut self, effect: Effect<'_>) {
        match effect {
            Effect::Expired { db, key } | Effect::Evicted { db, key } => {
                self.frame.push(db, &[b"UNLINK", key])
            }
            Effect::FieldsExpired { db, key, fields, .. } => {
                let mut words: Vec<&[u8]> = vec![b"HDEL", key];
                words.extend(fields.iter().map(Vec::as_slice));
                self.frame.push(db, &words);
            }
            Effect::Event { .. } | Effect::Written { .. } | Effect::Flushed { .. } => {}
        }
        if !self.is_open {
            self.append();
        }
    }
}

impl Sink<'_> {
    pub fn new(log: &Mutex<Vec<Entry>>) -> Sink<'_> {
        Sink { frame: Frame::default(), is_open: false, log }
    }

    /// The partitions are still locked.
    fn append(&mut self) {
        self.log.lock().expect("no panic").append(&mut self.frame.entries);
    }
}

impl World {
    pub fn new(partitions: usize, reserve_bytes: u64) -> World {
        let config = Config {
            partitions,
            arenas: 1,
            databases: DATABASES,
            reserve_bytes,
            hash_secret: *b"0123456789abcdef",
            class_bytes: |bytes| bytes,
        };
        let keyspace = Keyspace::new(config).expect("address space");
        World { keyspace, now_ms: AtomicI64::new(START_MS), log: Mutex::default() }
    }

    /// Runs commands as one frame, and returns their replies. `Want::All` where one of them says so.
    pub fn run(
        &self,
        held: &mut Held<'_>,
        sink: &mut Sink<'_>,
        commands: &[Entry],
        mode: ExpiryMode,
        prng: &mut Prng,
    ) -> Vec<Reply> {
        let mut partitions = Some(Vec::new());
        for (_, args) in commands {
            let (command, _) = lookup(args.args());
            let its = wanted(&self.keyspace, command, args.args());
            partitions =
                partitions.zip(its.filter(|_| command.spec.reach == Reach::Keys)).map(|(mut all, its)| {
                    all.extend(its);
                    all
                });
        }
        if let Some(partitions) = &mut partitions {
            partitions.sort_unstable();
            partitions.dedup();
        }
        held.release();
        held.acquire(partitions.as_deref().map_or(Want::All, Want::Many));
        let now = UnixMs(self.now_ms.fetch_add(1, Ordering::Relaxed));
        let conditions = Conditions { now, expiry_mode: mode, no_touch: false };
        sink.is_open = true;
        let replies = commands
            .iter()
            .map(|(db, args)| run_one(held, sink, *db, args.args(), conditions, prng))
            .collect();
        sink.is_open = false;
        sink.append();
        while held.take_ready().is_some() {}
        held.release();
        replies
    }

    /// Does a thread's share of the work.
    fn work(&self, seed: u64, frames: u64) {
        let (mut prng, grammar) = (Prng::new(seed), grammar());
        let (mut held, mut sink) = (Held::new(&self.keyspace), Sink::new(&self.log));
        let mut theme = grammar.theme(&mut prng);
        let vocabulary = Vocabulary::new(START_MS);
        for number in 0..frames {
            if number % 300 == 0 {
                theme = grammar.theme(&mut prng);
            }
            let length = if prng.one_in(8) { 2 + prng.below(4) } else { 1 };
            let mut commands = Vec::new();
            while commands.len() < length as usize {
                let mut words = grammar.draw(&theme, &mut prng, &vocabulary);
                if prng.one_in(DISORDERED_ONE_IN) {
                    disorder(&mut words, &mut prng);
                }
                let args: ArgsBuf = words.iter().map(Vec::as_slice).collect();
                if is_data_command(args.args()) {
                    commands.push((Db(prng.below(u64::from(DATABASES)) as u16), args));
                }
            }
            self.run(&mut held, &mut sink, &commands, ExpiryMode::Delete, &mut prng);
            if prng.one_in(20) {
                self.upkeep(&mut sink, &mut prng);
            }
        }
    }

    /// Time passes; a step of expiry, and now and then a key is evicted.
    pub fn upkeep(&self, sink: &mut Sink<'_>, prng: &mut Prng) {
        let passed = if prng.one_in(30) { 20_000 } else { prng.below(200) as i64 };
        let now = UnixMs(self.now_ms.fetch_add(passed, Ordering::Relaxed));
        let partition = prng.below(self.keyspace.partition_count() as u64) as u16;
        self.keyspace.expire_step(partition, now, 100, sink);
        if prng.one_in(3) {
            self.keyspace.try_evict(
                (EvictionPolicy::AllKeysRandom, EvictionGain::Any),
                None,
                now,
                prng,
                sink,
            );
        }
        self.keyspace.free_step(partition, 500);
    }
}

fn run_one(
    held: &mut Held<'_>,
    sink: &mut Sink<'_>,
    db: Db,
    args: Args<'_>,
    conditions: Conditions,
    prng: &mut Prng,
) -> Reply {
    let (command, _) = lookup(args);
    let (mut reply, mut records) = (Reply::new(Protocol::Resp2), Records::default());
    if !command.spec.takes(args.len()) {
        reply.error("ERR wrong number of arguments");
        return reply;
    }
    records.begin(true);
    naming::restrict(held, &command.spec, args);
    let mut txn = Txn::new(held, conditions, sink);
    let outcome = (command.handler.expect("a data command"))(&mut Call {
        txn: &mut txn,
        db,
        args,
        keys: HashedKeys::NONE,
        reply: &mut reply,
        prng,
        settings: &CallSettings { bulk_bytes_max: STRING_BYTES_MAX, ..CallSettings::default() },
        records: &mut records,
        may_wait: false,
        in_script: false,
        may_read_all: true,
        is_played_back: conditions.expiry_mode == ExpiryMode::Keep,
    });
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let counts = txn.finish();
    held.unrestrict();
    records.take(args, counts.dirty, |record| {
        sink.frame.push(db, &record.args().iter().collect::<Vec<_>>());
    });
    held.exempt(1 << 40);
    reply
}

pub fn grammar() -> Grammar {
    const GROUPS: [&str; 13] = [
        "string",
        "bitmap",
        "hyperloglog",
        "sort",
        "generic",
        "server",
        "geo",
        "hash",
        "set",
        "list",
        "stream",
        "transfer",
        "sorted_set",
    ];
    Grammar::of_groups(&GROUPS.map(String::from)).expect("the groups of the grammar")
}

pub fn is_data_command(args: Args<'_>) -> bool {
    common::find(args).is_some_and(|(command, _)| command.handler.is_some())
}

/// Everything that the keyspace holds, expired keys included, in a form that does not depend on how it is
/// stored.
pub fn digest(world: &World) -> Vec<String> {
    let mut digest = Vec::new();
    for db in (0..DATABASES).map(Db) {
        let keys = with_questions(world, |ask| ask(db, &[b"KEYS", b"*"]));
        digest.extend(keys.iter().filter_map(|key| digest_of(world, db, &unescape(key))));
    }
    digest.sort();
    digest
}

/// Returns the digest of a key of `world`; `None` if the key is absent.
pub fn digest_of(world: &World, db: Db, key: &[u8]) -> Option<String> {
    with_questions(world, |ask| {
        let kind = ask(db, &[b"TYPE", key]).remove(0);
        let mut value = match kind.as_str() {
            "none" => return None,
            "string" => ask(db, &[b"GET", key]),
            "list" => ask(db, &[b"LRANGE", key, b"0", b"-1"]),
            "set" => ask(db, &[b"SMEMBERS", key]),
            "hash" => {
                let flat = ask(db, &[b"HGETALL", key]);
                let with_time = |pair: &[String]| {
                    let field = unescape(&pair[0]);
                    let time = ask(db, &[b"HPEXPIRETIME", key, b"FIELDS", b"1", &field]);
                    format!("{pair:?} {time:?}")
                };
                flat.chunks(2).map(with_time).collect()
            }
            // The compact form has no negative zero, and when a sorted set left it is not recorded.
            "zset" => {
                let scores = ask(db, &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]);
                scores.into_iter().map(|text| if text == "-0" { "0".into() } else { text }).collect()
            }
            "stream" => stream(&mut |words| ask(db, words), key),
            other => panic!("{other}"),
        };
        if matches!(kind.as_str(), "set" | "hash") {
            value.sort();
        }
        let expiry = ask(db, &[b"PEXPIRETIME", key]);
        Some(format!("{} {} {kind} {expiry:?} {}", db.0, key.escape_ascii(), value.join(" ")))
    })
}

type Ask<'a> = &'a mut dyn FnMut(Db, &[&[u8]]) -> Vec<String>;

/// Commands that only read; hidden keys and fields are seen.
fn with_questions<R>(world: &World, work: impl FnOnce(Ask<'_>) -> R) -> R {
    let mut prng = Prng::new(1);
    let log = Mutex::default();
    let mut sink = Sink::new(&log);
    let mut held = Held::new(&world.keyspace);
    work(&mut |db: Db, words: &[&[u8]]| {
        let entry = [(db, words.iter().copied().collect::<ArgsBuf>())];
        let reply = world.run(&mut held, &mut sink, &entry, ExpiryMode::Keep, &mut prng).remove(0);
        lines(&reply)
    })
}

/// The entries of a stream, its description of itself, and the pending entries of each consumer of each
/// group. The moment at which a consumer was last seen is not recorded, nor a consumer that was given
/// nothing, as with Valkey.
fn stream(ask: &mut dyn FnMut(&[&[u8]]) -> Vec<String>, key: &[u8]) -> Vec<String> {
    let mut all = ask(&[b"XRANGE", key, b"-", b"+"]);
    let info = ask(&[b"XINFO", b"STREAM", key]);
    let kept = ["length", "last-generated-id", "max-deleted-entry-id", "entries-added", "groups"];
    all.extend(info.windows(2).filter(|pair| kept.contains(&pair[0].as_str())).map(|pair| pair.join("=")));
    let groups = ask(&[b"XINFO", b"GROUPS", key]);
    for group in groups.chunks(12) {
        let named = |name: &str| group.windows(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
        let name = named("name").expect("a group has a name");
        all.push(format!("{name} {:?} {:?}", named("pending"), named("last-delivered-id")));
        all.push(format!("{:?} {:?}", named("entries-read"), named("lag")));
        let pending = ask(&[b"XPENDING", key, &unescape(&name), b"-", b"+", b"10000"]);
        // Id, consumer, idle time, deliveries; the clock runs while it is asked.
        all.extend(pending.chunks(4).map(|one| format!("{} {} {}", one[0], one[1], one[3])));
    }
    all
}

/// The scalars of a reply, flat and escaped.
fn lines(reply: &Reply) -> Vec<String> {
    let (mut rest, mut found) = (&reply.out[..], Vec::new());
    while !rest.is_empty() {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("a line ends");
        let line = &rest[..end];
        rest = &rest[end + 2..];
        match line[0] {
            b'*' => {}
            b'$' if line != b"$-1" => {
                let len: usize = std::str::from_utf8(&line[1..]).unwrap().parse().expect("a length");
                found.push(escape(&rest[..len]));
                rest = &rest[len + 2..];
            }
            b'-' => panic!("{}", line.escape_ascii()),
            _ => found.push(line[1..].escape_ascii().to_string()),
        }
    }
    found
}

/// A long value by its sum: no key or field is that long.
fn escape(bytes: &[u8]) -> String {
    const LONG: usize = 5000;
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'\\' | b'"' | b'\'');
    match bytes {
        _ if bytes.len() > LONG => format!("{} bytes of {:x}", bytes.len(), crc64(0, bytes)),
        _ if bytes.iter().all(is_plain) => bytes.iter().copied().map(char::from).collect(),
        _ => bytes.escape_ascii().to_string(),
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        let (value, taken) = match (byte, behind.first()) {
            (b'\\', Some(b'x')) => {
                (u8::from_str_radix(std::str::from_utf8(&behind[1..3]).unwrap(), 16).unwrap(), 4)
            }
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(&other)) => (other, 2),
            _ => (byte, 1),
        };
        bytes.push(value);
        rest = &rest[taken..];
    }
    bytes
}

/// Runs the work, plays its log into an empty keyspace, and returns the log.
fn check(seed: u64, partitions: usize, threads: u64, frames: u64) -> Vec<Entry> {
    let world = World::new(partitions, SPACE_BYTES);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let world = &world;
            scope.spawn(move || world.work(seed + thread * 1000, frames / threads));
        }
    });
    world.keyspace.check_invariants();
    let log = std::mem::take(&mut *world.log.lock().expect("no panic"));
    let played = World::new(1, SPACE_BYTES);
    played.now_ms.store(world.now_ms.load(Ordering::Relaxed), Ordering::Relaxed);
    let (mut held, mut prng) = (Held::new(&played.keyspace), Prng::new(2));
    let mut sink = Sink::new(&played.log);
    for entry in &log {
        let replies =
            played.run(&mut held, &mut sink, std::slice::from_ref(entry), ExpiryMode::Keep, &mut prng);
        let out = &replies[0].out;
        assert!(out[0] != b'-', "seed {seed}: {entry:?} is refused: {}", out.escape_ascii());
    }
    let (original, copy) = (digest(&world), digest(&played));
    for (ours, theirs) in original.iter().zip(&copy) {
        assert_eq!(ours, theirs, "seed {seed}, {partitions} partitions, {threads} threads");
    }
    assert_eq!(original.len(), copy.len(), "seed {seed}, {partitions} partitions, {threads} threads");
    assert!(log.len() as u64 > frames / 8, "{} entries of {frames} frames", log.len());
    log
}

fn check_all(seeds: std::ops::Range<u64>, frames: u64) {
    for seed in seeds {
        for partitions in [1, 8] {
            let first = check(seed, partitions, 1, frames);
            assert!(check(seed, partitions, 1, frames) == first, "seed {seed}: other bytes the second time");
            check(seed, partitions, 4, frames);
        }
    }
}

#[test]
fn a_log_played_back_makes_the_same_data() {
    check_all(0..2, 6_000);
}

#[test]
#[ignore = "a million commands take minutes without optimisation"]
fn a_million_commands_played_back() {
    check_all(100..124, 7_000);
}

#[test]
fn an_empty_log_makes_nothing() {
    let world = World::new(8, SPACE_BYTES);
    Txn::new(
        &mut Held::new(&world.keyspace),
        Conditions { now: UnixMs(START_MS), expiry_mode: ExpiryMode::Keep, no_touch: true },
        &mut NoEffects,
    )
    .finish();
    assert!(digest(&world).is_empty());
}
