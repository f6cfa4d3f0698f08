//! Growth is measured: a command that takes many keys, fields, members, ids or elements looks at 17 times as
//! much for 16 times as many, at most. Not time is compared but what `isotherm_stdx::steps` counted: entries
//! compared, elements walked.
//!
//! Declarations say which commands these are: an argument that repeats, or keys to the last one or by
//! their number. Each needs a request in `REQUESTS`, or a reason in `LEFT_OUT`; a new one without either
//! fails. Where the complexity that is documented has a logarithm, as much more is allowed.
//!
//! A request that counts less than one look an item would not notice a loop that grows: it fails, and its
//! loop needs a `steps::note`.
//!
//! A count sees only the loops that count. For the others there is `time_grows_with_the_request`, which is
//! not for CI.

use crate::common::Server;
use isotherm_commands::COMMANDS;
use isotherm_commands::spec::{Argument, Find, Spec};
use isotherm_keyspace::NoEffects;
use isotherm_resp::ArgsBuf;
use isotherm_resp::reply::Protocol;
use isotherm_stdx::steps;
use std::collections::BTreeSet;

const FEW: usize = 1000;
const MANY: usize = 16_000;
const GROWTH_MAX: u64 = 17;
/// Looks at an item that are no growth: of few keys most slots are empty, so an entry of another key is
/// seldom compared.
const LOOKS: u64 = 1;

/// A command line. The part in brackets is repeated, with `#` for its number; `#n` outside of them is how
/// often.
struct Request {
    /// Commands before it. One that ends with `*` is run for each number, with `#` for it.
    before: &'static [&'static str],
    line: &'static str,
}

const fn request(before: &'static [&'static str], line: &'static str) -> Request {
    Request { before, line }
}

const STRINGS: &[&str] = &["SET k# v *"];
const SETS: &[&str] = &["SADD k# a b c# *"];
const ZSETS: &[&str] = &["ZADD k# 1 a 2 b 3 c# *"];
const HASH: &[&str] = &["HSET h [f# v#]"];
const SET: &[&str] = &["SADD s [m#]"];
const ZSET: &[&str] = &["ZADD z [# m#]"];
const HLLS: &[&str] = &["PFADD k# a b c# *"];
const STREAMS: &[&str] = &["XADD k# 1-1 f v *"];
const LAST_LIST: &[&str] = &["RPUSH last a"];
const LAST_ZSET: &[&str] = &["ZADD last 1 a"];
const PENDING: &[&str] =
    &["XGROUP CREATE x g 0 MKSTREAM", "XADD x 1-# f v *", "XREADGROUP GROUP g c STREAMS x >"];

const REQUESTS: &[Request] = &[
    request(STRINGS, "DEL [k#]"),
    request(STRINGS, "UNLINK [k#]"),
    request(STRINGS, "EXISTS [k#]"),
    request(&[], "EXISTS [same]"),
    request(STRINGS, "TOUCH [k#]"),
    request(STRINGS, "MGET [k#]"),
    request(STRINGS, "MSET [k# w]"),
    request(&[], "MSET [same #]"),
    request(&[], "MSETNX [k# w]"),
    request(&[], "MSETEX #n [k# w] EX 100"),
    request(STRINGS, "BITOP OR d [k#]"),
    request(&[], "BITFIELD b [SET u8 # 1]"),
    request(&[], "BITFIELD_RO b [GET u8 #]"),
    request(HLLS, "PFCOUNT [k#]"),
    request(HLLS, "PFMERGE d [k#]"),
    request(&[], "PFADD p [m#]"),
    request(SETS, "SINTER [k#]"),
    request(SETS, "SINTERSTORE d [k#]"),
    request(SETS, "SINTERCARD #n [k#]"),
    request(SETS, "SUNION [k#]"),
    request(SETS, "SUNIONSTORE d [k#]"),
    request(SETS, "SDIFF [k#]"),
    request(SETS, "SDIFFSTORE d [k#]"),
    request(&["SADD k0 [m#]", "SADD k1 [m#]"], "SDIFF k0 k1"),
    request(ZSETS, "ZINTER #n [k#]"),
    request(ZSETS, "ZINTERSTORE d #n [k#]"),
    request(ZSETS, "ZINTERCARD #n [k#]"),
    request(ZSETS, "ZUNION #n [k#] WEIGHTS [#]"),
    request(ZSETS, "ZUNIONSTORE d #n [k#]"),
    request(ZSETS, "ZDIFF #n [k#]"),
    request(ZSETS, "ZDIFFSTORE d #n [k#]"),
    request(LAST_LIST, "LMPOP #m [k#] last LEFT"),
    request(LAST_LIST, "BLMPOP 0 #m [k#] last LEFT"),
    request(LAST_LIST, "BLPOP [k#] last 0"),
    request(LAST_LIST, "BRPOP [k#] last 0"),
    request(LAST_ZSET, "ZMPOP #m [k#] last MIN"),
    request(LAST_ZSET, "BZMPOP 0 #m [k#] last MIN"),
    request(LAST_ZSET, "BZPOPMIN [k#] last 0"),
    request(LAST_ZSET, "BZPOPMAX [k#] last 0"),
    request(STREAMS, "XREAD STREAMS [k#] [0]"),
    request(&["XGROUP CREATE k# g 0 MKSTREAM *"], "XREADGROUP GROUP g c STREAMS [k#] [>]"),
    request(&[], "HSET h [f# v]"),
    request(HASH, "HSET h [f# w]"),
    request(&[], "HMSET h [f# v]"),
    request(HASH, "HDEL h [f#]"),
    request(HASH, "HMGET h [f#]"),
    request(HASH, "HEXPIRE h 100 FIELDS #n [f#]"),
    request(HASH, "HPEXPIRE h 100000 FIELDS #n [f#]"),
    request(HASH, "HEXPIREAT h 1900000000 FIELDS #n [f#]"),
    request(HASH, "HPEXPIREAT h 1900000000000 FIELDS #n [f#]"),
    request(&["HSET h [f# v]", "HEXPIRE h 100 FIELDS #n [f#]"], "HPERSIST h FIELDS #n [f#]"),
    request(HASH, "HTTL h FIELDS #n [f#]"),
    request(HASH, "HPTTL h FIELDS #n [f#]"),
    request(HASH, "HEXPIRETIME h FIELDS #n [f#]"),
    request(HASH, "HPEXPIRETIME h FIELDS #n [f#]"),
    request(HASH, "HGETEX h EX 100 FIELDS #n [f#]"),
    request(HASH, "HGETDEL h FIELDS #n [f#]"),
    request(&[], "HSETEX h EX 100 FIELDS #n [f# v]"),
    request(&[], "SADD s [m#]"),
    request(&[], "SADD s [#]"),
    request(SET, "SREM s [m#]"),
    request(SET, "SMISMEMBER s [m#]"),
    request(&[], "ZADD z [# m#]"),
    request(ZSET, "ZREM z [m#]"),
    request(ZSET, "ZMSCORE z [m#]"),
    request(&[], "GEOADD z [13.361389 38.115556 m#]"),
    request(ZSET, "GEOHASH z [m#]"),
    request(ZSET, "GEOPOS z [m#]"),
    request(&["GEOADD z 0.15 1 a 0.3 1 b"], "GEOSEARCH z BYPOLYGON #n [0.# 1]"),
    request(&["GEOADD z 0.15 1 a 0.3 1 b"], "GEOSEARCHSTORE d z BYPOLYGON #n [0.# 1]"),
    request(&[], "LPUSH l [e#]"),
    request(&[], "RPUSH l [e#]"),
    request(&["RPUSH l e"], "LPUSHX l [e#]"),
    request(&["RPUSH l e"], "RPUSHX l [e#]"),
    request(&["RPUSH l [#]"], "SORT l BY nosort GET # GET w_*"),
    request(&["RPUSH l a b"], "SORT l ALPHA [GET w#_*]"),
    request(&["RPUSH l a b"], "SORT_RO l ALPHA [GET w#_*]"),
    request(&[], "XADD x * [f# v]"),
    request(&["XADD x 1-# f v *"], "XDEL x [1-#]"),
    request(&["XADD x 1-1 [f# v]", "XADD x 1-2 [f# v]"], "XADD x 1-3 [f# v]"),
    request(PENDING, "XACK x g [1-#]"),
    request(PENDING, "XCLAIM x g d 0 [1-#]"),
];

/// Commands that say they take many, and why no request stands here.
const LEFT_OUT: &[(&str, &str)] = &[];

/// Words of a line, for this count.
fn words(line: &str, count: usize) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (part, behind) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').expect("a closing bracket"),
            None => rest.split_at(rest.find('[').unwrap_or(rest.len())),
        };
        if rest.starts_with('[') {
            for number in 1..=count {
                words.extend(part.split(' ').map(|word| word.replace('#', &number.to_string())));
            }
        } else {
            let numbers = |word: &str| match word {
                "#n" => count.to_string(),
                "#m" => (count + 1).to_string(),
                _ => word.to_string(),
            };
            words.extend(part.split_whitespace().map(numbers));
        }
        rest = behind.trim_start();
    }
    words
}

fn run(server: &mut Server, words: &[String]) -> String {
    let args: ArgsBuf = words.iter().map(|word| word.as_bytes()).collect();
    let out = server.run(args.args(), &mut NoEffects).out;
    String::from_utf8_lossy(&out[..out.len().min(200)]).into_owned()
}

fn prepared(request: &Request, count: usize) -> Server {
    let mut server = Server::new(Protocol::Resp2, 8);
    for line in request.before {
        let rounds = if line.ends_with('*') { 1..=count } else { 0..=0 };
        for number in rounds {
            let words: Vec<String> = match line.strip_suffix(" *") {
                Some(each) => each.split(' ').map(|word| word.replace('#', &number.to_string())).collect(),
                None => words(line, count),
            };
            let reply = run(&mut server, &words);
            assert!(!reply.starts_with('-'), "{line}: {reply}");
        }
    }
    server
}

/// Returns by how much `measure` grows over the request.
fn cost(request: &Request, count: usize, measure: impl Fn() -> u64) -> u64 {
    let mut server = prepared(request, count);
    let words = words(request.line, count);
    let before = measure();
    let reply = run(&mut server, &words);
    let cost = measure() - before;
    assert!(!reply.starts_with('-'), "{}: {reply}", request.line);
    cost
}

fn specs() -> impl Iterator<Item = &'static Spec> {
    let all = COMMANDS.iter().flat_map(|group| group.iter());
    all.flat_map(|command| {
        std::iter::once(&command.spec).chain(command.subcommands.iter().map(|sub| &sub.spec))
    })
}

fn repeats(arguments: &[Argument]) -> bool {
    arguments.iter().any(|argument| argument.multiple || repeats(argument.arguments))
}

fn takes_many(spec: &Spec) -> bool {
    let many_keys = spec.key_specs.iter().any(|key_spec| match key_spec.find {
        Find::Range { last, .. } => last < 0,
        Find::KeyNum { .. } => true,
        Find::Unknown => false,
    });
    many_keys || repeats(spec.arguments)
}

#[test]
fn every_command_that_takes_many_is_measured() {
    let name = |line: &str| line.split(' ').next().expect("a name").to_lowercase();
    let measured: BTreeSet<String> = REQUESTS.iter().map(|request| name(request.line)).collect();
    let left_out: BTreeSet<&str> = LEFT_OUT.iter().map(|(name, _)| *name).collect();
    let declared: BTreeSet<&str> = specs().filter(|spec| takes_many(spec)).map(|spec| spec.name).collect();
    let missing: Vec<&&str> =
        declared.iter().filter(|name| !measured.contains(**name) && !left_out.contains(**name)).collect();
    assert!(missing.is_empty(), "no request for {missing:?}");
    assert!(left_out.is_subset(&declared), "what is left out takes many");
    assert!(declared.len() > 60, "{declared:?}");
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "nothing is counted without debug assertions")]
fn work_grows_with_the_request() {
    let (mut worse, mut blind) = (Vec::new(), Vec::new());
    for request in REQUESTS {
        let (few, many) = (cost(request, FEW, steps::looked), cost(request, MANY, steps::looked));
        let name = request.line.split(' ').next().expect("a name");
        let spec = specs().find(|spec| spec.name.eq_ignore_ascii_case(name)).expect("a command");
        // ln 16,000 / ln 1,000 = 1.4
        let logarithm = if spec.complexity.contains("log") { 3 } else { 2 };
        let allowed = (GROWTH_MAX * few + LOOKS * MANY as u64) * logarithm / 2;
        println!("{}: {few}, {many}", request.line);
        if many > allowed {
            worse.push(format!("{}: {few} for {FEW}, {many} for {MANY}", request.line));
        }
        if few < FEW as u64 || many < MANY as u64 {
            blind.push(format!("{}: {few} for {FEW}, {many} for {MANY}", request.line));
        }
    }
    assert!(blind.is_empty(), "these count less than one look an item, so they cannot fail: {blind:#?}");
    assert!(worse.is_empty(), "{worse:#?}");
}

/// `cargo test --release -p isotherm-commands --test it growth:: -- --ignored --nocapture`
#[test]
#[ignore = "measures time"]
fn time_grows_with_the_request() {
    const GROWTH_MAX: f64 = 40.0;
    /// Size above which small forms no longer count.
    const FEW: usize = 4000;
    const MANY: usize = 64_000;
    const ROUNDS: usize = 3;
    // The least of some rounds is nearly what the CPU took.
    let begun = std::time::Instant::now();
    let elapsed_ns = || begun.elapsed().as_nanos() as u64;
    let mut worse = Vec::new();
    for request in REQUESTS {
        let least = |count| (0..ROUNDS).map(|_| cost(request, count, elapsed_ns)).min().expect("some rounds");
        let (few, many) = (least(FEW), least(MANY));
        let growth = many as f64 / few.max(1) as f64;
        println!("{:>10.1} {:>8} us {:>8} us  {}", growth, few / 1000, many / 1000, request.line);
        if growth > GROWTH_MAX {
            worse.push(format!("{}: x {growth:.0}", request.line));
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}
