//! The words of random commands: few keys, so that commands meet each other's traces, and values at the
//! edges.
//!
//! Two servers run a command some milliseconds apart. So relative times are long (100 s and more) and never
//! repeat, lest a comparison of two of them (`GT`, `LT`) depends on those milliseconds; absolute times repeat
//! on purpose.

use isotherm_stdx::Prng;

pub struct Vocabulary {
    /// The moment of the run's start, against which absolute times are drawn.
    now_ms: i64,
    /// Results of DUMP in Valkey, for a value of each encoding.
    payloads: Vec<Vec<u8>>,
}

/// Payloads from the tests of the codec.
const PAYLOADS: &str = include_str!("../../persist/tests/goldens/valkey-9.1.2.txt");
/// Longer ones are collections that answer in an order of their own.
const PAYLOAD_BYTES_MAX: usize = 600;

const KEYS: [&[u8]; 12] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"{t}1",
    b"{t}2",
    b"{t}3",
    b"",
    b"k\r\n\0\xff",
    b"key:with:a:long:name:of:44:bytes:and:more:here",
];

const INTEGERS: [&[u8]; 30] = [
    b"0",
    b"1",
    b"-1",
    b"2",
    b"10",
    b"-10",
    b"99",
    b"100",
    b"127",
    b"128",
    b"255",
    b"256",
    b"9999",
    b"10000",
    b"32767",
    b"32768",
    b"-32769",
    b"2147483647",
    b"2147483648",
    b"-2147483649",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775806",
    b"-9223372036854775808",
    b"-9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"123456789012",
    b"-5000000000",
];

const FLOATS: [&[u8]; 26] = [
    b"0.1",
    b"-0.1",
    b"1.5",
    b"3.0e3",
    b"1e-17",
    b"-1e-18",
    b"0",
    b"-0",
    b"1e20",
    b"1e308",
    b"-1e4000",
    b"1e4932",
    b"0x10",
    b"0x1p-3",
    b".5",
    b"5.",
    b"+7",
    b"inf",
    b"-inf",
    b"nan",
    b"1e5000",
    b"1e-5000",
    b"1e",
    b" 1",
    b"1 ",
    b"3.141592653589793238",
];

const PATTERNS: [&[u8]; 16] = [
    b"*", b"?", b"a*", b"*t*", b"{t}[12]", b"[a-c]", b"[^a]", b"[c-a]", b"\\*", b"k*", b"**", b"*:*:*", b"[",
    b"nothing", b"\\{t}?", b"*\xff",
];

const JUNK: [&[u8]; 20] = [
    b"junk", b"", b"0", b"-1", b"abc", b"1.5", b"99999999999999999999", b"-9223372036854775808", b"*", b"NX", b"GET",
    b"a b", b"\r\n", b"9223372036854775807", b"volatile-lru", b"yes", b"100mb", b"foo\0bar", b"KEEPTTL",
    b"a-rather-long-word-that-no-command-knows-and-that-error-texts-have-to-cut-off-somewhere-because-nobody-wants-to-read-all-of-it-anyway-honestly",
];

const COMMANDS: [&str; 30] = [
    "get",
    "getset",
    "setnx",
    "setex",
    "psetex",
    "getex",
    "getdel",
    "mset",
    "msetnx",
    "msetex",
    "delifeq",
    "append",
    "incr",
    "incrbyfloat",
    "lcs",
    "setrange",
    "del",
    "unlink",
    "expire",
    "pexpireat",
    "ttl",
    "copy",
    "rename",
    "scan",
    "keys",
    "multi",
    "discard",
    "watch",
    "config|get",
    "client|setname",
];

impl Vocabulary {
    pub fn new(now_ms: i64) -> Vocabulary {
        let bytes = |hex: &str| -> Option<Vec<u8>> {
            let digits: Option<Vec<u8>> =
                hex.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
            Some(digits?.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect())
        };
        let payloads = PAYLOADS.lines().filter_map(|line| line.strip_prefix("= ").and_then(bytes));
        // A list of more nodes than its length needs is a quicklist in Valkey only; and a sorted set with a
        // long member keeps a -0 that is a 0 here.
        let is_special = |bytes: &[u8]| bytes.starts_with(&[18]) && bytes[1] > 1 || bytes.starts_with(&[5]);
        let payloads =
            payloads.filter(|bytes| bytes.len() <= PAYLOAD_BYTES_MAX && !is_special(bytes)).collect();
        Vocabulary { now_ms, payloads }
    }

    pub fn knows(name: &str) -> bool {
        const NAMES: [&str; 21] = [
            "key",
            "value",
            "int",
            "float",
            "ttl",
            "ttl-ms",
            "at",
            "at-ms",
            "past",
            "past-ms",
            "db",
            "pattern",
            "offset",
            "index",
            "count",
            "bit",
            "junk",
            "command",
            "client-name",
            "many",
            "payload",
        ];
        NAMES.contains(&name)
    }

    pub fn draw(&self, name: &str, prng: &mut Prng) -> Vec<u8> {
        let number = |value: i64| value.to_string().into_bytes();
        let below = |prng: &mut Prng, n: u64| prng.below(n) as i64;
        match name {
            "key" => {
                // The first few are met most often.
                let range = *prng.pick(&[3, 6, 9, KEYS.len()]);
                prng.pick(&KEYS[..range]).to_vec()
            }
            "value" => value(prng),
            "int" => prng.pick(&INTEGERS).to_vec(),
            "float" if prng.one_in(3) => random_float(prng),
            "float" => prng.pick(&FLOATS).to_vec(),
            "ttl" if prng.one_in(12) => prng.pick(&INTEGERS[18..]).to_vec(),
            "ttl-ms" if prng.one_in(12) => prng.pick(&INTEGERS[22..]).to_vec(),
            "ttl" => number(100 + below(prng, 1_000_000)),
            "ttl-ms" => number(100_000 + below(prng, 1_000_000_000)),
            "at" => number(self.now_ms / 1000 + 1000 * (1 + below(prng, 5))),
            "at-ms" => number(self.now_ms + 1_000_000 * (1 + below(prng, 5))),
            "past" => number(*prng.pick(&[1, 1_000_000, self.now_ms / 1000 - 100])),
            "past-ms" => number(*prng.pick(&[1, 1_000_000, self.now_ms - 100_000])),
            "db" => prng
                .pick(&[&b"0"[..], b"0", b"1", b"1", b"2", b"3", b"15", b"16", b"-1", b"x", b"99999999999"])
                .to_vec(),
            "pattern" => prng.pick(&PATTERNS).to_vec(),
            "offset" if prng.one_in(10) => {
                prng.pick(&[&b"-1"[..], b"536870912", b"9223372036854775807", b"x", b"4294967296"]).to_vec()
            }
            "offset" => number(below(prng, 300)),
            "index" if prng.one_in(10) => prng.pick(&INTEGERS).to_vec(),
            "index" => number(below(prng, 40) - 20),
            "count" => prng.pick(&[&b"0"[..], b"1", b"2", b"10", b"1000", b"-1", b"x"]).to_vec(),
            "bit" => number(below(prng, 2)),
            // Some hundred members for collections that grow large; `m1` to `m9` come most often.
            "many" => format!("m{}", prng.below(500) >> prng.below(4)).into_bytes(),
            "payload" if prng.one_in(4) => damaged(prng.pick(&self.payloads).clone(), prng),
            "payload" => prng.pick(&self.payloads).clone(),
            "junk" => prng.pick(&JUNK).to_vec(),
            "command" => prng.pick(&COMMANDS).as_bytes().to_vec(),
            "client-name" => {
                prng.pick(&[&b"name"[..], b"", b"with space", b"caf\xc3\xa9", b"x\n", b"a-b_c"]).to_vec()
            }
            _ => unreachable!("check_names has seen every name: {name}"),
        }
    }

    pub fn junk(&self, prng: &mut Prng) -> Vec<u8> {
        prng.pick(&JUNK).to_vec()
    }
}

fn value(prng: &mut Prng) -> Vec<u8> {
    match prng.below(10) {
        0..=2 => prng.pick(&INTEGERS).to_vec(),
        3 => prng.pick(&FLOATS).to_vec(),
        4 => prng.pick(&[&b""[..], b"010", b" 10", b"10 ", b"+1", b"-0", b"1.0", b"x"]).to_vec(),
        5..=7 => {
            let length = *prng.pick(&[1, 3, 8, 16, 30]);
            text(prng, length)
        }
        // Around the limits of encodings: embstr and raw, in the page and outside of it.
        8 => {
            let length = *prng.pick(&[43u64, 44, 45, 63, 64, 65, 127, 128, 129, 199, 200, 201, 255, 256]);
            text(prng, length)
        }
        _ => {
            let longest = *prng.pick(&[700, 700, 700, 6000]);
            let length = prng.below(longest);
            text(prng, length)
        }
    }
}

/// A payload that its checksum or its version gives away.
pub fn damaged(mut payload: Vec<u8>, prng: &mut Prng) -> Vec<u8> {
    let at = prng.below(payload.len() as u64) as usize;
    match prng.below(3) {
        0 => payload[at] ^= 1 << prng.below(8),
        1 => payload.truncate(at),
        _ => payload.insert(at, b'x'),
    }
    payload
}

fn text(prng: &mut Prng, length: u64) -> Vec<u8> {
    let alphabet: &[u8] = if prng.one_in(4) { b"ab\r\n\0\xff " } else { b"abcdefgh" };
    (0..length).map(|_| *prng.pick(alphabet)).collect()
}

fn random_float(prng: &mut Prng) -> Vec<u8> {
    let whole = prng.next_u64() >> prng.below(64);
    let fraction = prng.next_u64() >> prng.below(64);
    let sign = if prng.one_in(2) { "-" } else { "" };
    match prng.below(3) {
        0 => format!("{sign}{whole}.{fraction}"),
        1 => format!("{sign}0.{fraction}"),
        _ => format!("{sign}{whole}.{fraction}e{}", prng.below(60) as i64 - 30),
    }
    .into_bytes()
}
