//! Values on their way between two servers: what the peer dumps is restored here, what is dumped here is
//! restored there, and the value is the same everywhere.
//!
//! ```text
//! commands --> peer k --DUMP--> ours k --DUMP--> peer copy              DEBUG DIGEST-VALUE equal at every station
//!                               ours k --DEBUG RELOAD--> ours k         OBJECT ENCODING, TTL too
//! ```
//! Only the peer gets commands of the types, so our server need not have them all. Valkey takes everything
//! back. Redis writes RDB 12 and takes 11: a hash whose fields have times is 80 here and in Valkey, which
//! Redis refuses by its number, so on that way back the fields and their times are read one by one.

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::Fallible;
use crate::client::Client;
use crate::differential::{Attached, Target, attach};

/// Keys between two DEBUG RELOADs.
const KEYS_PER_RELOAD: u64 = 50;
const FOOTER_BYTES: usize = 10;

/// Above it a version is Valkey's own.
const REDIS_VERSION_MAX: u16 = 79;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    Valkey,
    Redis,
}

impl Peer {
    pub const fn name(self) -> &'static str {
        match self {
            Peer::Valkey => "valkey",
            Peer::Redis => "redis",
        }
    }
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub values: u64,
    /// DUMPs whose type and value have the very bytes of the peer's.
    pub same_bytes: u64,
    /// Payloads of a version that the peer does not read.
    pub one_way: u64,
    pub differences: Vec<String>,
}

/// Values to send: the number of random ones, the seed, and the kinds (all, if `kinds` is empty).
#[derive(Clone, Debug)]
pub struct Load {
    pub values: u64,
    pub seed: u64,
    pub kinds: Vec<String>,
}

type Words = Vec<Vec<u8>>;

/// `ours` is emptied first, and so is what `theirs` names.
pub fn run(ours: &Attached, theirs: &Target, peer: Peer, load: &Load) -> Fallible<Outcome> {
    let theirs = attach(theirs)?;
    let lost = |why: std::io::Error| format!("a server is gone: {why}");
    let mut servers = Servers {
        ours: Client::connect(ours.port).map_err(lost)?,
        theirs: Client::connect(theirs.port).map_err(lost)?,
        peer,
        outcome: Outcome::default(),
    };
    for client in [&mut servers.ours, &mut servers.theirs] {
        client.call(&["FLUSHALL"]).map_err(lost)?;
    }
    let is_wanted = |name: &str| load.kinds.is_empty() || load.kinds.iter().any(|kind| kind == name);
    let kinds: Vec<&(&str, Make)> = KINDS.iter().filter(|(name, _)| is_wanted(name)).collect();
    for number in 0..load.values {
        let mut prng = Prng::new(load.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let key = format!("key:{number}");
        let (_, make) = prng.pick(&kinds);
        let before = servers.outcome.differences.len();
        servers.send(&key, &make(&mut prng, &key))?;
        if (number + 1).is_multiple_of(KEYS_PER_RELOAD) {
            servers.reload()?;
        }
        if servers.outcome.differences.len() > before {
            servers.outcome.differences.push(format!("  at value {number} of seed {}", load.seed));
        }
    }
    Ok(servers.outcome)
}

struct Servers {
    ours: Client,
    theirs: Client,
    peer: Peer,
    outcome: Outcome,
}

fn call(client: &mut Client, words: &[&[u8]]) -> Fallible<Value> {
    client.call(words).map_err(|why| format!("a server is gone: {why}"))
}

impl Servers {
    fn send(&mut self, key: &str, commands: &[Words]) -> Fallible {
        for command in commands {
            if let Value::Error(text) = self.theirs.call(command).map_err(|why| why.to_string())? {
                return Err(format!(
                    "{} refuses {:?}: {}",
                    self.peer.name(),
                    command[0].escape_ascii().to_string(),
                    text.escape_ascii()
                ));
            }
        }
        let key = key.as_bytes();
        let Value::Bulk(payload) = call(&mut self.theirs, &[b"DUMP", key])? else {
            return Ok(());
        };
        self.outcome.values += 1;
        // There too: some encodings are not what they were after it.
        call(&mut self.theirs, &[b"RESTORE", key, b"0", &payload, b"REPLACE"])?;
        let restored = call(&mut self.ours, &[b"RESTORE", key, b"0", &payload, b"REPLACE"])?;
        if restored != Value::Simple(b"OK".to_vec()) {
            return self.difference(key, "RESTORE here", &format!("{restored:?}"), "OK");
        }
        let Value::Bulk(back) = call(&mut self.ours, &[b"DUMP", key])? else {
            return self.difference(key, "DUMP here", "nothing", "a payload");
        };
        self.outcome.same_bytes += u64::from(body(&back) == body(&payload));
        if self.peer == Peer::Redis && version(&back) > REDIS_VERSION_MAX {
            self.outcome.one_way += 1;
            self.compare_fields(key)?;
            // Redis has another digest for it: that of all keys goes without.
            call(&mut self.ours, &[b"DEL", key])?;
            return call(&mut self.theirs, &[b"DEL", key]).map(drop);
        }
        self.compare(key, key, "after RESTORE here")?;
        let copy = [key, b":copy"].concat();
        let restored = call(&mut self.theirs, &[b"RESTORE", &copy, b"0", &back, b"REPLACE"])?;
        if restored != Value::Simple(b"OK".to_vec()) {
            return self.difference(key, "RESTORE there", &format!("{restored:?}"), "OK");
        }
        self.compare(key, &copy, "after RESTORE there")?;
        call(&mut self.theirs, &[b"DEL", &copy])?;
        Ok(())
    }

    /// `ours` here, `theirs` there: one value under two names.
    fn compare(&mut self, ours: &[u8], theirs: &[u8], when: &str) -> Fallible {
        for question in [&[b"DEBUG".as_slice(), b"DIGEST-VALUE"], &[b"OBJECT".as_slice(), b"ENCODING"]] {
            let here = call(&mut self.ours, &[question[0], question[1], ours])?;
            let there = call(&mut self.theirs, &[question[0], question[1], theirs])?;
            if here != there && !(self.peer == Peer::Redis && is_text(&here) && is_text(&there)) {
                let what = format!("{} {when}", String::from_utf8_lossy(question[1]));
                self.difference(ours, &what, &format!("{here:?}"), &format!("{there:?}"))?;
            }
        }
        Ok(())
    }

    /// Redis has neither Valkey's digest of such a hash nor its name for how it lies: it is asked for all its
    /// fields.
    fn compare_fields(&mut self, key: &[u8]) -> Fallible {
        let Value::Array(mut pairs) = call(&mut self.theirs, &[b"HGETALL", key])? else { return Ok(()) };
        let fields: Vec<Vec<u8>> = pairs
            .drain(..)
            .step_by(2)
            .filter_map(|field| match field {
                Value::Bulk(field) => Some(field),
                _ => None,
            })
            .collect();
        let count = fields.len().to_string();
        let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
        let times = [&[b"HPEXPIRETIME".as_slice(), key, b"FIELDS", count.as_bytes()], &fields[..]].concat();
        let values = [&[b"HMGET".as_slice(), key], &fields[..]].concat();
        for question in [&[b"HLEN", key][..], &values, &times] {
            let (here, there) = (call(&mut self.ours, question)?, call(&mut self.theirs, question)?);
            if here != there {
                let what = question[0].escape_ascii().to_string();
                self.difference(key, &what, &format!("{here:?}"), &format!("{there:?}"))?;
            }
        }
        Ok(())
    }

    /// Everything through the codec at once, and the signature of the whole data set.
    fn reload(&mut self) -> Fallible {
        call(&mut self.ours, &[b"DEBUG", b"RELOAD"])?;
        let here = call(&mut self.ours, &[b"DEBUG", b"DIGEST"])?;
        let there = call(&mut self.theirs, &[b"DEBUG", b"DIGEST"])?;
        if here != there {
            self.difference(
                b"(all)",
                "DIGEST after DEBUG RELOAD",
                &format!("{here:?}"),
                &format!("{there:?}"),
            )?;
        }
        Ok(())
    }

    fn difference(&mut self, key: &[u8], what: &str, ours: &str, theirs: &str) -> Fallible {
        let key = key.escape_ascii();
        self.outcome
            .differences
            .push(format!("{key}: {what}\n  ours:   {ours}\n  {}: {theirs}", self.peer.name()));
        Ok(())
    }
}

/// Both names of a string that is no number: the border between them is Valkey's.
fn is_text(encoding: &Value) -> bool {
    matches!(encoding, Value::Bulk(name) if name == b"embstr" || name == b"raw")
}

fn body(payload: &[u8]) -> &[u8] {
    &payload[..payload.len() - FOOTER_BYTES]
}

/// The footer is `[version u16][crc u64]`.
fn version(payload: &[u8]) -> u16 {
    let footer = &payload[payload.len() - FOOTER_BYTES..];
    u16::from_le_bytes([footer[0], footer[1]])
}

// ---- values ----

type Make = fn(&mut Prng, &str) -> Vec<Words>;

const KINDS: [(&str, Make); 6] =
    [("string", string), ("list", list), ("set", set), ("hash", hash), ("zset", zset), ("stream", stream)];

fn words<const N: usize>(words: [&[u8]; N]) -> Words {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Small mostly, now and then above every limit.
fn count(prng: &mut Prng) -> u64 {
    match prng.below(10) {
        0..5 => 1 + prng.below(8),
        5..9 => 1 + prng.below(140),
        _ => 1 + prng.below(1200),
    }
}

/// Integers at the ends of every width, short and long texts, bytes that no text has.
fn element(prng: &mut Prng) -> Vec<u8> {
    match prng.below(12) {
        0..3 => prng.below(300).to_string().into_bytes(),
        3 => (1i64 << prng.below(63)).wrapping_neg().to_string().into_bytes(),
        4 => (prng.next_u64() as i64 >> prng.below(64)).to_string().into_bytes(),
        5 => b"0".repeat(1 + prng.below(3) as usize),
        6..9 => format!("member:{}", prng.below(10_000)).into_bytes(),
        9 => (0..prng.below(64)).map(|_| prng.next_u64() as u8).collect(),
        10 => b"abcab".repeat(prng.below(14) as usize),
        _ if prng.one_in(20) => {
            format!("{:x}", prng.next_u64()).repeat(prng.below(700) as usize).into_bytes()
        }
        _ => format!("{:x}", prng.next_u64()).into_bytes(),
    }
}

fn string(prng: &mut Prng, key: &str) -> Vec<Words> {
    if prng.one_in(8) {
        return vec![filled(prng, b"PFADD", key, |prng, all| all.push(element(prng)))];
    }
    vec![words([b"SET", key.as_bytes(), &element(prng)])]
}

/// Builds a command with many words after its first two.
fn filled(prng: &mut Prng, command: &[u8], key: &str, mut fill: impl FnMut(&mut Prng, &mut Words)) -> Words {
    let mut all = words([command, key.as_bytes()]);
    for _ in 0..count(prng) {
        fill(prng, &mut all);
    }
    all
}

fn list(prng: &mut Prng, key: &str) -> Vec<Words> {
    let command: &[u8] = if prng.one_in(3) { b"LPUSH" } else { b"RPUSH" };
    vec![filled(prng, command, key, |prng, all| all.push(element(prng)))]
}

fn set(prng: &mut Prng, key: &str) -> Vec<Words> {
    let integers = prng.one_in(2);
    let shift = prng.below(60);
    vec![filled(prng, b"SADD", key, |prng, all| {
        all.push(if integers {
            (prng.next_u64() as i64 >> shift).to_string().into_bytes()
        } else {
            element(prng)
        });
    })]
}

fn hash(prng: &mut Prng, key: &str) -> Vec<Words> {
    let mut fields = Vec::new();
    let mut commands = vec![filled(prng, b"HSET", key, |prng, all| {
        fields.push(element(prng));
        all.extend([fields.last().expect("just pushed").clone(), element(prng)]);
    })];
    if prng.one_in(3) {
        for field in fields.iter().take(prng.below(5) as usize) {
            let at = 4_102_444_800_000 + prng.below(1_000_000);
            commands.push(words([
                b"HPEXPIREAT",
                key.as_bytes(),
                at.to_string().as_bytes(),
                b"FIELDS",
                b"1",
                field,
            ]));
        }
    }
    commands
}

fn zset(prng: &mut Prng, key: &str) -> Vec<Words> {
    vec![filled(prng, b"ZADD", key, |prng, all| {
        let score = match prng.below(6) {
            0 => "inf".to_string(),
            1 => "-inf".to_string(),
            2 => (prng.next_u64() as i64 >> prng.below(64)).to_string(),
            3 => format!("{:e}", f64::from_bits(prng.next_u64() >> 2)),
            4 => format!("{}", prng.below(1000) as f64 / 8.0),
            _ => prng.below(10).to_string(),
        };
        all.extend([score.into_bytes(), element(prng)]);
    })]
}

fn stream(prng: &mut Prng, key: &str) -> Vec<Words> {
    let key = key.as_bytes();
    let mut commands = Vec::new();
    let entries = count(prng).min(300);
    for number in 1..=entries {
        let id = format!("{}-{}", number / 3 + 1, number);
        let mut add = words([b"XADD", key, id.as_bytes()]);
        for field in 0..1 + prng.below(3) {
            add.extend([format!("field{field}").into_bytes(), element(prng)]);
        }
        commands.push(add);
    }
    if prng.one_in(3) {
        commands.push(words([b"XTRIM", key, b"MAXLEN", prng.below(entries + 1).to_string().as_bytes()]));
    }
    for group in [b"alpha".as_slice(), b"beta"].iter().take(prng.below(3) as usize) {
        let from: &[u8] = if prng.one_in(2) { b"0" } else { b"$" };
        commands.push(words([b"XGROUP", b"CREATE", key, group, from]));
        commands.push(words([b"XGROUP", b"CREATECONSUMER", key, group, b"idle"]));
        for consumer in [b"ann".as_slice(), b"bob"] {
            let count = prng.below(20).to_string();
            commands.push(words([
                b"XREADGROUP",
                b"GROUP",
                group,
                consumer,
                b"COUNT",
                count.as_bytes(),
                b"STREAMS",
                key,
                b">",
            ]));
        }
    }
    commands
}
