//! Memory of a restored payload: at most sixteen times its bytes and 1 MB, or as much as Valkey takes, if
//! that is more. A client that may send RESTORE can exceed `maxmemory` by that much, because the limit is
//! checked before the command.
//!
//! ```text
//! honest     DUMPs of a real Valkey; values of every type whose elements are as small as they can be
//! strange    what Valkey would never write and takes: names of fields longer than a block, nodes of one entry, empty groups
//! damaged    mutations of the honest ones
//! ```
//! Valkey keeps strings, listpacks and the elements of a collection at least as long as they are, so it takes
//! the bytes that the payload unfolds into. A group and a consumer are some objects in it, of the sizes
//! below.

mod common;
#[path = "../../persist/tests/payloads/mod.rs"]
mod payloads;

use common::Server;
use isotherm_allocator as allocator;
use isotherm_keyspace::NoEffects;
use isotherm_persist::dump::{self, Checks, Dump};
use isotherm_persist::rdb::{
    Consumer, Element, Encoding, Group, ListpackBuilder, Pending, RdbType, RdbValue, Shape, StreamCounters,
    StreamId, StreamWriter, Writer, encode, stream_group_whole,
};
use isotherm_persist::{Limits, Texts};
use isotherm_resp::ArgsBuf;
use isotherm_resp::reply::Protocol;
use isotherm_stdx::Prng;

const FACTOR: u64 = 16;
const SLACK_BYTES: u64 = 1 << 20;
/// The structure 48 B, two trees of 32 + 8 B, a node of the tree of groups 40 B.
const VALKEY_GROUP_BYTES: u64 = 48 + 2 * 40 + 40;
/// The structure 32 B, its name 16 B, a tree of 32 + 8 B, a node of the tree of consumers 40 B.
const VALKEY_CONSUMER_BYTES: u64 = 32 + 16 + 40 + 40;

/// Returns the least memory that Valkey takes. `None` for a payload that does not decode.
fn valkey_bytes(body: &[u8]) -> Option<u64> {
    let payload = dump::seal(body.to_vec());
    let dump = Dump::open(&payload, Checks { version: false, checksum: true }).ok()?;
    let value = dump.value(&Limits::default()).ok()?;
    let mut unfolded = Writer::new(false);
    encode(&mut unfolded, &value, Encoding::Listpack, &Shape::default());
    let groups: u64 = match &value {
        RdbValue::Stream(stream) => {
            let consumers: usize = stream.groups.iter().map(|group| group.consumers.len()).sum();
            stream.groups.len() as u64 * VALKEY_GROUP_BYTES + consumers as u64 * VALKEY_CONSUMER_BYTES
        }
        _ => 0,
    };
    Some(unfolded.bytes().len() as u64 + groups)
}

fn run(server: &mut Server, words: &[&[u8]]) -> Vec<u8> {
    let args: ArgsBuf = words.iter().copied().collect();
    server.run(args.args(), &mut NoEffects).out
}

fn used_bytes(server: &Server) -> u64 {
    allocator::allocated_bytes() + server.arena_bytes()
}

/// Restores a body, and compares. True if it was taken.
fn check(server: &mut Server, name: &str, body: &[u8]) -> bool {
    let payload = dump::seal(body.to_vec());
    let before = used_bytes(server);
    let reply = run(server, &[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]);
    let taken = reply == b"+OK\r\n";
    let reply_bytes = reply.capacity() as u64;
    let used = used_bytes(server).saturating_sub(before + reply_bytes);
    let allowed = FACTOR * payload.len() as u64;
    if used > allowed + SLACK_BYTES {
        let valkey = valkey_bytes(body).unwrap_or(0);
        assert!(
            used <= allowed.max(valkey) + SLACK_BYTES,
            "{name}: {used} B of a payload of {} B; Valkey {valkey} B",
            payload.len()
        );
    }
    let dumped = run(server, &[b"DUMP", b"k"]);
    assert!(
        !taken || dumped.len() <= 2 * payload.len().max(valkey_bytes(body).unwrap_or(0) as usize) + 1024,
        "{name}: a DUMP of {} B of a payload of {} B",
        dumped.len(),
        payload.len()
    );
    if !name.starts_with("seed") {
        println!("{name}: {} B, {used} B in memory, DUMP {} B", payload.len(), dumped.len());
    }
    run(server, &[b"DEL", b"k"]);
    taken
}

fn texts(texts: impl Iterator<Item = String>) -> Texts {
    let all: Vec<String> = texts.collect();
    all.iter().map(String::as_bytes).collect()
}

fn body(value: &RdbValue, encoding: Encoding, compress: bool) -> Vec<u8> {
    let mut writer = Writer::new(compress);
    encode(&mut writer, value, encoding, &Shape::default());
    writer.into_bytes()
}

/// A value of each type, of as many and as small elements as the bytes allow, in each encoding, folded and
/// not.
fn honest() -> Vec<(String, Vec<u8>)> {
    const COUNT: usize = 60_000;
    let numbers = || texts((0..COUNT).map(|number| number.to_string()));
    let pairs = || texts((0..COUNT).flat_map(|number| [number.to_string(), String::new()]));
    let zset = || {
        let scores = (0..COUNT).map(|number| number as f64).collect();
        isotherm_persist::rdb::ZsetMembers { members: numbers(), scores }
    };
    let values = [
        ("string", RdbValue::String(vec![b'x'; 4 << 20])),
        ("list of nothing", RdbValue::List(texts((0..COUNT).map(|_| String::new())))),
        ("list of 0", RdbValue::List(texts((0..COUNT).map(|_| "0".to_string())))),
        ("list of numbers", RdbValue::List(numbers())),
        ("set", RdbValue::Set(numbers())),
        ("set of texts", RdbValue::Set(texts((0..COUNT).map(|number| format!("{number:03x}z"))))),
        ("zset", RdbValue::Zset(zset())),
        ("hash", RdbValue::Hash { pairs: pairs(), expiries_ms: Vec::new() }),
        ("hash with times", RdbValue::Hash { pairs: pairs(), expiries_ms: vec![4_102_444_800_000; COUNT] }),
    ];
    let mut all = Vec::new();
    for (name, value) in &values {
        let encodings: &[Encoding] = match name {
            &"set" => &[Encoding::Plain, Encoding::Listpack, Encoding::Intset],
            _ => &[Encoding::Plain, Encoding::Listpack],
        };
        for encoding in encodings {
            for compress in [false, true] {
                all.push((
                    format!("{name}, {encoding:?}, folded {compress}"),
                    body(value, *encoding, compress),
                ));
            }
        }
    }
    // A list of the old type is written element by element: a byte each.
    let mut plain = vec![RdbType::List as u8, 0x80];
    plain.extend((COUNT as u32).to_be_bytes());
    plain.resize(plain.len() + COUNT, 0);
    all.push(("an old list of nothing".to_string(), plain));
    for fields in [1, 100] {
        let names: Vec<String> = (0..fields).map(|number| format!("f{number}")).collect();
        let stream = stream(20_000 / fields, 1, 100, &names, |_| true);
        all.push((format!("stream of {fields} fields"), stream));
    }
    all
}

/// `nodes` of `entries` with these fields and empty values; where `shares` says no the name is `x`.
fn stream(
    nodes: usize,
    first_ms: u64,
    entries: usize,
    names: &[String],
    shares: impl Fn(usize) -> bool,
) -> Vec<u8> {
    let mut writer = Writer::new(false);
    writer.byte(RdbType::StreamListpacks3 as u8);
    let mut out = StreamWriter::begin(&mut writer, nodes as u64);
    let mut id = StreamId { ms: first_ms, seq: 0 };
    for _ in 0..nodes {
        id.ms += 1;
        let shared = names.iter().map(|name| Element::Text(name.as_bytes()));
        out.begin_node(&mut writer, id, entries as u64, shared);
        for entry in 0..entries {
            id.seq = entry as u64;
            if shares(entry) {
                out.begin_entry(id, None);
                names.iter().for_each(|_| out.push(Element::Text(b"")));
            } else {
                out.begin_entry(id, Some(1));
                out.push(Element::Text(b"x"));
                out.push(Element::Text(b""));
            }
            out.end_entry();
        }
    }
    let length = (nodes * entries) as u64;
    let first_id = StreamId { ms: first_ms + 1, seq: 0 };
    let counters =
        StreamCounters { length, last_id: id, first_id, entries_added: length, ..Default::default() };
    out.counters(&mut writer, &counters, 0);
    writer.into_bytes()
}

fn groups(groups: impl Iterator<Item = Group>) -> Vec<u8> {
    let mut writer = Writer::new(false);
    let groups: Vec<Group> = groups.collect();
    writer.byte(RdbType::StreamListpacks3 as u8);
    let mut out = StreamWriter::begin(&mut writer, 0);
    out.counters(&mut writer, &StreamCounters::default(), groups.len() as u64);
    groups.iter().for_each(|group| stream_group_whole(&mut writer, group));
    writer.into_bytes()
}

fn strange() -> Vec<(String, Vec<u8>)> {
    let long = |bytes: usize| [vec!["a".repeat(bytes)], vec!["b".to_string()]].concat();
    let mut all = vec![
        ("a stream under a name of 64 KB".to_string(), stream(1, 1, 20_000, &long(64 << 10), |_| true)),
        ("a stream under a name of 5 KB".to_string(), stream(20, 1, 2_000, &long(5 << 10), |_| true)),
        ("a stream under a name of 1 KB".to_string(), stream(20, 1, 2_000, &long(1 << 10), |_| true)),
        (
            "a stream whose entries rarely share".to_string(),
            stream(1, 1, 20_000, &long(64 << 10), |at| at % 2 == 1),
        ),
        ("a stream of nodes of one entry".to_string(), stream(20_000, 1, 1, &["n".to_string()], |_| true)),
        ("a stream of unused names".to_string(), stream(200, 1, 1, &long(4000), |_| false)),
        ("empty groups".to_string(), groups((0..20_000).map(|number| group(number, 0, 0)))),
        ("a group of idle consumers".to_string(), groups(std::iter::once(group(0, 20_000, 0)))),
        ("groups of a consumer".to_string(), groups((0..20_000).map(|number| group(number, 1, 0)))),
        ("groups of a busy consumer".to_string(), groups((0..20_000).map(|number| group(number, 1, 1)))),
        ("a group of busy consumers".to_string(), groups(std::iter::once(group(0, 20_000, 20_000)))),
        ("a group with much pending".to_string(), groups(std::iter::once(group(0, 1, 50_000)))),
    ];
    // A list of nodes with one element each, as texts and as listpacks.
    let mut plain = vec![RdbType::ListQuicklist2 as u8, 0x80, 0, 0, 0x40, 0];
    let mut packed = plain.clone();
    let mut listpack = ListpackBuilder::new();
    listpack.push(b"");
    let listpack = listpack.finish().to_vec();
    for _ in 0..0x4000 {
        plain.extend([1, 1, b'x']);
        packed.extend([2, listpack.len() as u8]);
        packed.extend(&listpack);
    }
    all.push(("a list of texts as nodes".to_string(), plain));
    all.push(("a list of nodes of nothing".to_string(), packed));
    all
}

fn group(number: usize, consumers: usize, pending: usize) -> Group {
    let consumer =
        |number: usize| Consumer { name: format!("{number:06}").into_bytes(), seen_ms: 1, active_ms: 1 };
    let entry = |at: usize| Pending {
        id: StreamId { ms: 1, seq: at as u64 },
        consumer: at % consumers,
        delivered_ms: 1,
        deliveries: 1,
    };
    Group {
        name: format!("{number:06}").into_bytes(),
        consumers: (0..consumers).map(consumer).collect(),
        pending: (0..pending).map(entry).collect(),
        ..Group::default()
    }
}

/// A payload takes sixteen times its bytes at most. This is a single test, because the allocator's figure is
/// one of the whole process.
#[test]
fn a_payload_takes_sixteen_times_its_bytes_at_most() {
    let mut server = Server::new(Protocol::Resp2, 2);
    for (name, body) in honest().into_iter().chain(strange()) {
        assert!(check(&mut server, &name, &body), "{name}: refused");
    }
    let bodies = payloads::bodies();
    for (number, body) in bodies.iter().enumerate() {
        assert!(check(&mut server, &format!("payload {number}"), body), "payload {number}: refused");
    }
    let sources: Vec<Vec<u8>> = bodies
        .into_iter()
        .filter(|body| body.len() < payloads::SHORT_BYTES_MAX)
        .chain([stream(3, 1, 30, &["a".repeat(300)], |at| at % 3 > 0)])
        .collect();
    let mut taken = 0;
    for seed in 0..10_000 {
        let mut prng = Prng::new(seed);
        let body = payloads::damaged(&mut prng, &sources);
        taken += u64::from(check(&mut server, &format!("seed {seed}"), &body));
    }
    assert!(taken > 500, "too few mutations reach the keyspace: {taken}");
    server.check_invariants();
}
