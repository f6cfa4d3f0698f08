//! The files: what each holds, and what clients are answered about it.

use super::packed::Entry::{Int4, Int8, Int16, Int24, Int32, Int64, Text};
use super::packed::{Entry, Pair, empty_listpack, intset16, intset32, intset64, ziplist, zipmap};
use super::rdb::{File, Lzf, compressed, field, int8, int16, int32, items, kind, scored, text};

/// Requests and their replies.
pub type Checks = Vec<(String, String)>;

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn array(texts: &[&str]) -> String {
    format!("*{}\r\n{}", texts.len(), texts.iter().map(|text| bulk(text)).collect::<String>())
}

fn checks(all: &[(&str, String)]) -> Checks {
    all.iter().map(|(request, reply)| (request.to_string(), reply.clone())).collect()
}

/// Appends the fields that servers wrote from version 7 on.
fn about(file: File, server_version: &str) -> File {
    let file = file.field("redis-ver", text(server_version)).field("redis-bits", int8(64));
    file.field("ctime", int32(1_500_000_000)).field("used-mem", int32(900_000)).field("aof-preamble", int8(0))
}

fn long(byte: &str, bytes: usize) -> String {
    byte.repeat(bytes)
}

/// Returns `file` with a key in each encoding of version 4, and what is answered about them.
pub fn every_encoding(file: File) -> (File, Checks) {
    let (file, mut all) = strings(file.database(0));
    let (file, more) = plain_collections(file);
    all.extend(more);
    let (file, more) = intsets(file);
    all.extend(more);
    let (file, more) = ziplists(file);
    all.extend(more);
    all.push(("DBSIZE".into(), format!(":{EVERY_ENCODING_KEYS}\r\n")));
    (file, all)
}

pub const EVERY_ENCODING_KEYS: usize = 18;

fn strings(file: File) -> (File, Checks) {
    let tides = [
        Lzf::Bytes(b"ebb, flow; "),
        Lzf::Again { len: 121, back: 11 },
        Lzf::Again { len: 3, back: 11 },
        Lzf::Bytes(b"."),
    ];
    let file = file
        .key(kind::STRING, "hail", text("ahoy there"))
        .key(kind::STRING, "fathoms", int8(-9))
        .key(kind::STRING, "miles", int16(-20_000))
        .key(kind::STRING, "waves", int32(1_234_567_890))
        .key(kind::STRING, "tides", compressed(136, &tides))
        .key(kind::STRING, "horizon", text(long("-", 20_000)))
        .expires_at_seconds(2_147_483_647)
        .key(kind::STRING, "biscuit", text("stale"))
        .expires_at_ms(4_100_000_000_123)
        .key(kind::STRING, "rum", text("left"));
    let checks = checks(&[
        ("GET hail", bulk("ahoy there")),
        ("GET fathoms", bulk("-9")),
        ("GET miles", bulk("-20000")),
        ("GET waves", bulk("1234567890")),
        ("GET tides", bulk(&format!("{}ebb.", "ebb, flow; ".repeat(12)))),
        ("GET horizon", bulk(&long("-", 20_000))),
        ("PEXPIRETIME horizon", ":-1\r\n".into()),
        ("GET biscuit", bulk("stale")),
        ("PEXPIRETIME biscuit", ":2147483647000\r\n".into()),
        ("GET rum", bulk("left")),
        ("PEXPIRETIME rum", ":4100000000123\r\n".into()),
    ]);
    (file, checks)
}

fn plain_collections(file: File) -> (File, Checks) {
    let sailing = compressed(40, &[Lzf::Bytes(b"~"), Lzf::Again { len: 39, back: 1 }]);
    let harbours =
        [text("Bergen"), int8(7), text("Cork"), int16(300), text("Bergen"), int32(-70_000), sailing];
    let crew = [text("cook"), int8(-1), int16(1000), int32(100_000), text("mate")];
    let depths = [
        scored("quay", "0.10000000000000001"),
        scored("trench", "-inf"),
        scored("mast", "17.5"),
        scored("reef", "-3"),
        scored("star", "inf"),
        scored("moon", "384400000"),
    ];
    let cargo = [
        field("tea", text("chests")),
        field("tons", int8(80)),
        field("value", int32(-2_000_000)),
        field("", text("")),
    ];
    let file = file
        .key(kind::LIST, "harbours", items(&harbours))
        .key(kind::SET, "crew", items(&crew))
        .key(kind::ZSET, "depths", items(&depths))
        .key(kind::HASH, "cargo", items(&cargo));
    let by_depth = ["trench", "-inf", "reef", "-3", "quay", "0.1", "mast", "17.5"];
    let by_depth = [&by_depth[..], &["moon", "384400000", "star", "inf"]].concat();
    let checks = checks(&[
        ("LRANGE harbours 0 -1", array(&["Bergen", "7", "Cork", "300", "Bergen", "-70000", &long("~", 40)])),
        ("SORT crew ALPHA", array(&["-1", "1000", "100000", "cook", "mate"])),
        ("ZRANGE depths 0 -1 WITHSCORES", array(&by_depth)),
        ("HMGET cargo tea tons value", array(&["chests", "80", "-2000000"])),
        ("HLEN cargo", ":4\r\n".into()),
    ]);
    (file, checks)
}

fn intsets(file: File) -> (File, Checks) {
    let file = file
        .key(kind::SET_INTSET, "cabins", text(intset16(&[-32_768, -1, 4, 32_767])))
        .key(kind::SET_INTSET, "buoys", text(intset32(&[-2_147_483_648, 5, 70_000])))
        .key(kind::SET_INTSET, "crates", text(intset64(&[i64::MIN, 6, 5_000_000_000, i64::MAX])));
    let checks = checks(&[
        ("SMEMBERS cabins", array(&["-32768", "-1", "4", "32767"])),
        ("SMEMBERS buoys", array(&["-2147483648", "5", "70000"])),
        ("SMEMBERS crates", array(&["-9223372036854775808", "6", "5000000000", "9223372036854775807"])),
    ]);
    (file, checks)
}

fn ziplists(file: File) -> (File, Checks) {
    let (rope, anchor) = (long("r", 300), long("a", 17_000));
    // An entry of 254 bytes and more makes the next one say so in five bytes.
    let texts = [Text("knot"), Text(&rope), Text(&anchor), Text("")];
    let small = [Int4(0), Int4(12), Int8(-128), Int8(13), Int16(-32_768), Int16(128)];
    let large = [Int24(-8_388_608), Int24(32_768), Int32(i32::MIN), Int32(8_388_608), Int64(i64::MIN)];
    let chain: Vec<Entry<'_>> = texts.into_iter().chain(small).chain(large).collect();
    let sails = [Text("main"), Text("canvas"), Text("jibs"), Int4(2), Text("area"), Int16(1200)];
    let ports = [
        Text("north"),
        Text("-inf"),
        Text("west"),
        Text("2.5"),
        Text("east"),
        Int4(3),
        Text("south"),
        Int24(40_000),
    ];
    let file = file
        .key(kind::LIST_ZIPLIST, "chain", text(ziplist(&chain)))
        .key(kind::HASH_ZIPLIST, "sails", text(ziplist(&sails)))
        .key(kind::ZSET_ZIPLIST, "ports", text(ziplist(&ports)));
    let numbers = ["0", "12", "-128", "13", "-32768", "128", "-8388608", "32768", "-2147483648", "8388608"];
    let linked = [&["knot", &rope, &anchor, ""], &numbers[..], &["-9223372036854775808"]].concat();
    let checks = checks(&[
        ("LRANGE chain 0 -1", array(&linked)),
        ("HMGET sails main jibs area", array(&["canvas", "2", "1200"])),
        ("HLEN sails", ":3\r\n".into()),
        (
            "ZRANGE ports 0 -1 WITHSCORES",
            array(&["north", "-inf", "west", "2.5", "east", "3", "south", "40000"]),
        ),
    ]);
    (file, checks)
}

/// The answers about the hash of `zipmap_hash` and `ziplist_hash`.
pub fn hash_checks() -> Checks {
    checks(&[
        ("HMGET boat keel mast log", array(&["elm", "spruce", &long("=", 300)])),
        ("HLEN boat", ":3\r\n".into()),
        ("DBSIZE", ":1\r\n".into()),
    ])
}

pub fn zipmap_hash() -> Vec<u8> {
    let log = long("=", 300);
    let pairs = [Pair("keel", "elm", b""), Pair("mast", "spruce", b"old"), Pair("log", &log, b"")];
    File::new("REDIS0003").database(9).key(kind::HASH_ZIPMAP, "boat", text(zipmap(&pairs))).end()
}

pub fn ziplist_hash() -> Vec<u8> {
    let log = long("=", 300);
    let pairs = [Text("keel"), Text("elm"), Text("mast"), Text("spruce"), Text("log"), Text(&log)];
    let file = about(File::new("REDIS0009"), "6.0.5").database(9).sizes(1, 0);
    file.key(kind::HASH_ZIPLIST, "boat", text(ziplist(&pairs))).end_summed()
}

/// A list of ziplists, one of them compressed, and a string.
pub fn quicklist() -> (Vec<u8>, Checks) {
    let foam = long("*", 40);
    let node = ziplist(&[Text(&foam)]);
    // Head, length of the entry before, length and first byte of the text; the rest of it; the end.
    let steps = [Lzf::Bytes(&node[..13]), Lzf::Again { len: 39, back: 1 }, Lzf::Bytes(&node[52..])];
    let nodes = [
        text(ziplist(&[Int8(20), Text("bells")])),
        compressed(node.len(), &steps),
        text(ziplist(&[Int4(8)])),
    ];
    let file = about(File::new("REDIS0008"), "4.0.2").database(0).sizes(2, 0);
    let file = file.key(kind::LIST_QUICKLIST, "watch", items(&nodes)).key(kind::STRING, "lamps", int8(3));
    let checks = checks(&[
        ("LRANGE watch 0 -1", array(&["20", "bells", &foam, "8"])),
        ("GET lamps", bulk("3")),
        ("DBSIZE", ":2\r\n".into()),
    ]);
    (file.end_summed(), checks)
}

/// A sorted set; its members lie in the order of their scores, on which Valkey relies.
pub fn ziplist_zset() -> (Vec<u8>, Checks) {
    let members = [Int16(500), Int16(-700), Text("tug"), Int4(1), Text("barge"), Text("1.25")];
    let file = about(File::new("REDIS0010"), "7.0.4").database(0).sizes(1, 0);
    let file = file.key(kind::ZSET_ZIPLIST, "speeds", text(ziplist(&members)));
    let checks = checks(&[
        ("ZRANGE speeds 0 -1 WITHSCORES", array(&["500", "-700", "tug", "1", "barge", "1.25"])),
        ("DBSIZE", ":1\r\n".into()),
    ]);
    (file.end_summed(), checks)
}

pub const EMPTY_KEYS: usize = 10;

/// Collections without elements, in every encoding that can be so.
pub fn empty_collections() -> Vec<u8> {
    let none = || items(&[]);
    let empty_ziplist = || text(ziplist(&[]));
    let file = about(File::new("REDIS0010"), "7.0.4").database(0).sizes(EMPTY_KEYS, 0);
    let file = file
        .key(kind::SET, "no set", none())
        .key(kind::HASH, "no hash", none())
        .key(kind::ZSET_2, "no zset", none())
        .key(kind::LIST_ZIPLIST, "no entry of a list", empty_ziplist())
        .key(kind::HASH_ZIPLIST, "no entry of a hash", empty_ziplist())
        .key(kind::ZSET_ZIPLIST, "no entry of a zset", empty_ziplist())
        .key(kind::HASH_LISTPACK, "no element of a hash", text(empty_listpack()))
        .key(kind::ZSET_LISTPACK, "no element of a zset", text(empty_listpack()))
        .key(kind::LIST_QUICKLIST, "no node", none())
        .key(kind::LIST_QUICKLIST, "an empty node", items(&[empty_ziplist()]));
    file.end_summed()
}

/// A hash whose ziplist is only text, after a key that is sound.
pub fn broken_ziplist() -> Vec<u8> {
    let file = about(File::new("REDIS0007"), "3.2.1").database(0).sizes(2, 0);
    let file = file.key(kind::STRING, "hull", text("sound"));
    file.key(kind::HASH_ZIPLIST, "leak", text("water")).end_unsummed()
}

/// The version of a future format.
pub fn version_to_come() -> Vec<u8> {
    every_encoding(File::new("VALKEY987")).0.end_unsummed()
}
