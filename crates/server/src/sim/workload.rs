//! Random requests, and which keys their replies show.

use isotherm_stdx::Prng;

pub type Words = Vec<Vec<u8>>;

fn words(text: &str) -> Words {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

const KEYS: u64 = 12;

pub fn key(prng: &mut Prng) -> String {
    format!("k{}", prng.below(KEYS))
}

/// A command on data. `now_ms` is for those that name a time.
pub fn command(prng: &mut Prng, now_ms: i64) -> Words {
    let (k, other) = (key(prng), key(prng));
    let n = prng.below(100);
    let soon = now_ms + prng.below(1500) as i64;
    let text = match prng.below(60) {
        0..6 => format!("SET {k} {n}"),
        6 => format!("SET {k} value{n} PX {}", prng.below(1200) + 1),
        7 => format!("SET {k} value{n} KEEPTTL"),
        8..11 => format!("APPEND {k} {n}"),
        11 => format!("INCRBY {k} {n}"),
        12 => format!("SETRANGE {k} {} {n}", prng.below(300)),
        13 => format!("GETEX {k} PXAT {soon}"),
        14 => format!("GETDEL {k}"),
        15..18 => format!("PEXPIREAT {k} {soon}"),
        18 => format!("PERSIST {k}"),
        19 => format!("DEL {k} {other}"),
        20 => format!("UNLINK {k}"),
        21 => format!("RENAME {k} {other}"),
        22 => format!("COPY {k} {other} REPLACE"),
        23 => format!("MOVE {k} {}", prng.below(3)),
        24 => format!("MSET {k} {n} {other} {n}"),
        25..28 => format!("RPUSH {k} {n} b{n}"),
        28 => format!("LPOP {k} 2"),
        29 => format!("LMOVE {k} {other} LEFT RIGHT"),
        30 => format!("LSET {k} 0 {n}"),
        31..33 => format!("SADD {k} {n} m{n}"),
        33 => format!("SPOP {k}"),
        34 => format!("SREM {k} {n}"),
        35 => format!("SUNIONSTORE {k} {other}"),
        36..38 => format!("HSET {k} f{} {n} g{n} x", n % 5),
        38 => format!("HINCRBY {k} f{} {n}", n % 5),
        39 => format!("HPEXPIREAT {k} {soon} FIELDS 1 f{}", n % 5),
        40 => format!("HDEL {k} f{}", n % 5),
        41..43 => format!("ZADD {k} {n} m{n} 1 one"),
        43 => format!("ZINCRBY {k} 0.5 one"),
        44 => format!("ZPOPMIN {k}"),
        45..47 => format!("XADD {k} * f {n}"),
        47 => format!("XTRIM {k} MAXLEN 3"),
        48 => format!("XGROUP CREATE {k} g{n} 0 MKSTREAM"),
        49 => format!("SETBIT {k} {n} 1"),
        50 => format!("PFADD {k} {n}"),
        51 => format!("SORT {k} ALPHA STORE {other}"),
        _ => return read(prng).0,
    };
    words(&text)
}

/// Part of the data that a reply shows.
pub enum Shown {
    Key(String),
    Database,
}

/// A read, and what its reply shows.
pub fn read(prng: &mut Prng) -> (Words, Shown) {
    let k = key(prng);
    let text = match prng.below(10) {
        0..3 => format!("GET {k}"),
        3 => format!("EXISTS {k}"),
        4 => format!("TYPE {k}"),
        5 => format!("DUMP {k}"),
        6 => format!("PTTL {k}"),
        7 => return (words("DBSIZE"), Shown::Database),
        8 => return (words("KEYS *"), Shown::Database),
        _ => format!("OBJECT ENCODING {k}"),
    };
    (words(&text), Shown::Key(k))
}

/// A value of several sectors, now and then of several portions of a save.
pub fn large(prng: &mut Prng) -> Words {
    let bytes = match prng.below(12) {
        0 => 100_000 + prng.below(200_000),
        _ => 300 + prng.below(6000),
    };
    // Not all the same: a lost sector has to be another value.
    let value = (0..bytes).map(|at| b'a' + ((at / 7 + at / 512) % 26) as u8).collect();
    vec![b"SET".to_vec(), key(prng).into_bytes(), value]
}

/// A command on databases.
pub fn of_databases(prng: &mut Prng) -> Words {
    let [a, b] = [prng.below(3), prng.below(3)];
    words(&match prng.below(10) {
        0..6 => format!("SELECT {a}"),
        6..8 => format!("SWAPDB {a} {b}"),
        8 => "FLUSHDB".to_string(),
        _ => "FLUSHALL".to_string(),
    })
}

/// A command on files.
pub fn of_files(prng: &mut Prng) -> Words {
    words(match prng.below(8) {
        0..4 => "BGREWRITEAOF",
        4 | 5 => "BGSAVE",
        6 => "BGSAVE SCHEDULE",
        _ => "SAVE",
    })
}

/// A change of the configuration that holds while the process runs.
pub fn of_settings(prng: &mut Prng) -> Words {
    words(match prng.below(12) {
        0 => "CONFIG SET appendfsync always",
        1 => "CONFIG SET appendfsync everysec",
        2 => "CONFIG SET appendfsync no",
        3 => "CONFIG SET aof-timestamp-enabled yes",
        4 => "CONFIG SET aof-use-rdb-preamble no",
        5 => "CONFIG SET aof-use-rdb-preamble yes",
        6 => "CONFIG SET aof-prepare-bytes 64kb",
        7 => "CONFIG SET appendonly no",
        8..11 => "CONFIG SET appendonly yes",
        _ => "CONFIG SET aof-timestamp-enabled no",
    })
}
