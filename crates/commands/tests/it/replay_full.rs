//! A command that ends in OOM halfway leaves a log that says what it has done: random commands run in an
//! arena that is full nearly all the time, what each of them leaves for the log is played at once into a
//! keyspace with room, and the keys of the command are the same in both. Another test does this with room,
//! for the records of commands that name many things.
//!
//! ```text
//!   full world    ballast, ballast, ...  | command: OOM at any of its steps | --> records
//!   roomy world                                      played <-----------------------+
//!                                        | the command's keys equal, hidden keys and fields included |
//! ```
//! Ballast of random sizes takes what room is left, and some of it goes again, so that each size of object is
//! at times the one that finds no room. `cargo test --profile fast -p isotherm-commands --test it replay_full
//! -- --ignored`.

use crate::common::lookup;
use crate::replay::{
    DATABASES, Entry, SPACE_BYTES, START_MS, Sink, World, digest, digest_of, grammar, is_data_command,
};
use isotherm_commands::spec::key_positions;
use isotherm_conformance::grammar::Grammar;
use isotherm_conformance::vocabulary::Vocabulary;
use isotherm_keyspace::{Db, ExpiryMode, Held};
use isotherm_resp::{ArgsBuf, Reply};
use isotherm_stdx::Prng;
use std::sync::atomic::Ordering;

type Words = Vec<Vec<u8>>;

/// The smallest arena: one commit step.
const FULL_BYTES: u64 = 1 << 20;
const BALLAST_KEYS: u64 = 4000;
const OOM: &[u8] = b"-OOM";

/// Requests with many and with large elements, on few keys.
struct Draw<'p> {
    prng: &'p mut Prng,
    /// The number of the last entry that a stream got.
    entries: u64,
    words: Words,
}

impl Draw<'_> {
    fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        self.words.push(word.as_ref().to_vec());
        self
    }

    fn all(&mut self, words: &str) -> &mut Self {
        words.split(' ').for_each(|word| self.words.push(word.as_bytes().to_vec()));
        self
    }

    fn key(&mut self, kind: &str) -> &mut Self {
        let number = self.prng.below(3);
        self.word(format!("{kind}{number}"))
    }

    fn one_of(&mut self, words: &[&str]) -> &mut Self {
        let word = *self.prng.pick(words);
        self.word(word)
    }

    fn number(&mut self, from: i64, to: i64) -> &mut Self {
        let number = from + self.prng.below((to - from) as u64) as i64;
        self.word(number.to_string())
    }

    /// Few different ones, of all sizes.
    fn element(&mut self) -> &mut Self {
        let which = self.prng.below(100);
        let element = match which {
            // The numbers of the keys of each type.
            0..40 if which < 3 && self.prng.one_in(2) => format!("h{which}").into_bytes(),
            0..40 => which.to_string().into_bytes(),
            40..70 => format!("m{which}").into_bytes(),
            70..95 => vec![which as u8; (which as usize - 60) * 6],
            _ => vec![which as u8; 300 + (which as usize - 95) * 900],
        };
        self.word(element)
    }

    fn count(&mut self) -> u64 {
        match self.prng.below(6) {
            0..3 => 1 + self.prng.below(3),
            3..5 => 10 + self.prng.below(30),
            _ => 100 + self.prng.below(200),
        }
    }

    fn many(&mut self, mut each: impl FnMut(&mut Self)) {
        (0..self.count()).for_each(|_| each(self));
    }

    fn fields(&mut self, mut each: impl FnMut(&mut Self)) {
        let count = self.count();
        self.word("FIELDS").word(count.to_string());
        (0..count).for_each(|_| each(self));
    }

    fn list(&mut self) {
        match self.prng.below(9) {
            0..2 => self.one_of(&["RPUSH", "LPUSH"]).key("l").many(|draw| _ = draw.element()),
            2 => _ = self.word("LSET").key("l").number(-50, 50).element(),
            3 => _ = self.word("LINSERT").key("l").one_of(&["BEFORE", "AFTER"]).element().element(),
            4 => _ = self.word("LREM").key("l").number(-3, 4).element(),
            5 => _ = self.word("LTRIM").key("l").number(0, 60).number(-60, 80),
            6 => _ = self.one_of(&["LPOP", "RPOP"]).key("l").number(0, 100),
            7 => {
                self.word("LMOVE").key("l").key("l").one_of(&["LEFT", "RIGHT"]).one_of(&["LEFT", "RIGHT"]);
            }
            _ => {
                self.word("SORT").key("l").word("ALPHA");
                if self.prng.one_in(2) {
                    // Elements are fields of these hashes, too.
                    self.all("LIMIT 0 100 GET # GET").one_of(&["h*->1", "*->m40"]).all("BY h*->m42");
                }
                self.word("STORE").key("l");
            }
        }
    }

    fn set(&mut self) {
        match self.prng.below(6) {
            0..2 => self.word("SADD").key("s").many(|draw| _ = draw.element()),
            2 => self.word("SREM").key("s").many(|draw| _ = draw.element()),
            3 => _ = self.word("SMOVE").key("s").key("s").element(),
            4 => _ = self.word("SPOP").key("s").number(0, 100),
            _ => {
                self.one_of(&["SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE"]).key("s").key("s").key("s");
            }
        }
    }

    fn zset(&mut self) {
        match self.prng.below(10) {
            0..2 => self.word("ZADD").key("z").many(|draw| _ = draw.number(-40, 40).element()),
            2 => {
                self.word("ZADD").key("z").one_of(&["NX", "XX", "GT", "LT", "CH"]);
                self.many(|draw| _ = draw.number(-40, 40).element());
            }
            3 => self.word("GEOADD").key("z").many(|draw| _ = draw.number(0, 90).number(0, 80).element()),
            4 => _ = self.word("ZINCRBY").key("z").one_of(&["1", "-0", "0.5", "-3"]).element(),
            5 => self.word("ZREM").key("z").many(|draw| _ = draw.element()),
            6 => _ = self.one_of(&["ZPOPMIN", "ZPOPMAX"]).key("z").number(0, 50),
            7 => _ = self.word("ZREMRANGEBYRANK").key("z").number(0, 50).number(-20, 60),
            8 => {
                _ = self
                    .one_of(&["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"])
                    .key("z")
                    .word("2")
                    .key("z")
                    .key("z")
            }
            _ => _ = self.word("ZRANGESTORE").key("z").key("z").number(0, 30).number(-20, 60),
        }
    }

    fn hash(&mut self) {
        match self.prng.below(12) {
            0..2 => self.word("HSET").key("h").many(|draw| _ = draw.element().element()),
            2 => self.word("HDEL").key("h").many(|draw| _ = draw.element()),
            3 => self.word("HGETDEL").key("h").fields(|draw| _ = draw.element()),
            4 => self.word("HPERSIST").key("h").fields(|draw| _ = draw.element()),
            5..7 => {
                self.word("HPEXPIRE").key("h").number(0, 100);
                if self.prng.one_in(3) {
                    self.one_of(&["NX", "XX", "GT", "LT"]);
                }
                self.fields(|draw| _ = draw.element());
            }
            7 => {
                self.word("HSETEX").key("h");
                if self.prng.one_in(3) {
                    self.one_of(&["FNX", "FXX"]);
                }
                self.word("PX").number(1, 100).fields(|draw| _ = draw.element().element());
            }
            8 => self.word("HGETEX").key("h").word("PX").number(1, 100).fields(|draw| _ = draw.element()),
            9 => self.word("HGETEX").key("h").word("PERSIST").fields(|draw| _ = draw.element()),
            10 => _ = self.word("HINCRBY").key("h").element().number(-9, 9),
            _ => _ = self.word("HSETNX").key("h").element().element(),
        }
    }

    fn stream(&mut self) {
        let entry = |draw: &mut Self| {
            let number = 1 + draw.prng.below(draw.entries + 1);
            draw.word(format!("1-{number}"));
        };
        match self.prng.below(8) {
            0..3 => {
                self.word("XADD").key("x");
                if self.prng.one_in(3) {
                    self.word("MAXLEN").one_of(&["=", "~"]).number(0, 50);
                }
                self.entries += 1;
                self.word(format!("1-{}", self.entries)).many(|draw| _ = draw.element().element());
            }
            3 => {
                self.word("XDEL").key("x");
                self.many(entry);
            }
            4 => _ = self.word("XTRIM").key("x").word("MAXLEN").one_of(&["=", "~"]).number(0, 50),
            5 => _ = self.all("XGROUP CREATE").key("x").all("g 0 MKSTREAM"),
            6 => {
                _ = self
                    .all("XREADGROUP GROUP g")
                    .one_of(&["a", "b"])
                    .all("COUNT 5 STREAMS")
                    .key("x")
                    .word(">")
            }
            _ => {
                self.word("XACK").key("x").word("g");
                self.many(entry);
            }
        }
    }

    fn string(&mut self) {
        match self.prng.below(9) {
            0..2 => _ = self.word("SET").key("t").element(),
            2 => _ = self.word("APPEND").key("t").element(),
            3 => _ = self.word("SETRANGE").key("t").number(0, 6000).element(),
            4 => _ = self.word("SETBIT").key("t").number(0, 40_000).word("1"),
            5 => _ = self.all("BITOP OR").key("t").key("t").key("t"),
            6 => self.word("MSET").many(|draw| _ = draw.key("t").element()),
            7 => self.word("PFADD").key("p").many(|draw| _ = draw.element()),
            _ => _ = self.word("PFMERGE").key("p").key("p").key("p"),
        }
    }

    fn generic(&mut self) {
        const KINDS: [&str; 7] = ["l", "s", "z", "h", "x", "t", "p"];
        let kind = *self.prng.pick(&KINDS);
        match self.prng.below(6) {
            0 => _ = self.word("COPY").key(kind).key(kind).word("REPLACE"),
            1 => _ = self.word("RENAME").key(kind).key(kind),
            2 => _ = self.word("PEXPIRE").key(kind).number(0, 500),
            3 => _ = self.word("PERSIST").key(kind),
            4 => _ = self.word("HVALS").key("h"),
            _ => _ = self.word("DEL").key(kind),
        }
    }

    fn any(&mut self) {
        match self.prng.below(8) {
            0 => self.list(),
            1 => self.set(),
            2 => self.zset(),
            3..5 => self.hash(),
            5 => self.stream(),
            6 => self.string(),
            _ => self.generic(),
        }
    }
}

/// Both worlds, and the way from one to the other.
struct Pair {
    full: World,
    roomy: World,
    prng: Prng,
    grammar: Grammar,
    vocabulary: Vocabulary,
    entries: u64,
    out_of_memory: u64,
}

impl Pair {
    /// Runs a command, plays what it left for the log, and compares its keys.
    fn run(&mut self, db: Db, words: &[Vec<u8>]) -> Reply {
        let args: ArgsBuf = words.iter().map(Vec::as_slice).collect();
        let entry: Entry = (db, args);
        let mut sink = Sink::new(&self.full.log);
        let mut held = Held::new(&self.full.keyspace);
        let commands = std::slice::from_ref(&entry);
        let reply =
            self.full.run(&mut held, &mut sink, commands, ExpiryMode::Delete, &mut self.prng).remove(0);
        drop(held);
        self.out_of_memory += u64::from(reply.out.starts_with(OOM));
        let records = self.play();
        let (command, _) = lookup(entry.1.args());
        let mut positions = Vec::new();
        if key_positions(&command.spec, entry.1.args(), &mut positions).is_ok() {
            for (at, _) in positions {
                let key = entry.1.args().get(at);
                let (ours, theirs) = (digest_of(&self.full, db, key), digest_of(&self.roomy, db, key));
                if ours != theirs {
                    let (ours, theirs) = difference(&ours.unwrap_or_default(), &theirs.unwrap_or_default());
                    let reply = reply.out[..reply.out.len().min(60)].escape_ascii();
                    let [entry, records] =
                        [format!("{entry:?}"), format!("{records:?}")].map(|text| short(&text));
                    panic!(
                        "{entry}\nreplied {reply}\nand recorded {records}\nhere   {ours}\nplayed {theirs}"
                    );
                }
            }
        }
        reply
    }

    fn play(&mut self) -> Vec<Entry> {
        let records = std::mem::take(&mut *self.full.log.lock().expect("no panic"));
        self.roomy.now_ms.store(self.full.now_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut sink = Sink::new(&self.roomy.log);
        let mut held = Held::new(&self.roomy.keyspace);
        for record in &records {
            let commands = std::slice::from_ref(record);
            let reply = self.roomy.run(&mut held, &mut sink, commands, ExpiryMode::Keep, &mut self.prng);
            let out = &reply[0].out;
            assert!(out[0] != b'-', "{record:?} is refused: {}", out.escape_ascii());
        }
        records
    }

    /// Takes room, or gives some.
    fn ballast(&mut self) {
        let key = format!("ballast{}", self.prng.below(BALLAST_KEYS)).into_bytes();
        if self.prng.one_in(4) {
            self.run(Db(0), &[b"DEL".to_vec(), key]);
            return;
        }
        let bytes = match self.prng.below(3) {
            0 => 10 + self.prng.below(200),
            1 => 200 + self.prng.below(1000),
            _ => 1000 + self.prng.below(2900),
        };
        self.run(Db(0), &[b"SET".to_vec(), key, vec![b'b'; bytes as usize]]);
    }

    /// Until nothing is left, not for the smallest either.
    fn fill(&mut self) {
        for bytes in [3000, 700, 100, 10] {
            for number in 0..BALLAST_KEYS {
                let key = format!("ballast{bytes}:{number}").into_bytes();
                let reply = self.run(Db(0), &[b"SET".to_vec(), key, vec![b'b'; bytes]]);
                if reply.out.starts_with(OOM) {
                    break;
                }
            }
        }
    }

    fn restore(&mut self) {
        let kind = *self.prng.pick(&["l", "s", "z", "h", "x", "t"]);
        let name = |prng: &mut Prng| format!("{kind}{}", prng.below(3)).into_bytes();
        let (from, to) = (name(&mut self.prng), name(&mut self.prng));
        let dump = self.run(Db(0), &[b"DUMP".to_vec(), from]).out;
        if let Some(at) = dump.windows(2).position(|pair| pair == b"\r\n").filter(|_| dump[1] != b'-') {
            let payload = dump[at + 2..dump.len() - 2].to_vec();
            self.run(Db(0), &[b"RESTORE".to_vec(), to, b"0".to_vec(), payload, b"REPLACE".to_vec()]);
        }
    }

    fn step(&mut self, is_full: bool) {
        if is_full && self.prng.one_in(3) {
            self.ballast();
        }
        if self.prng.one_in(15) {
            return self.restore();
        }
        if self.prng.one_in(20) {
            let passed = self.prng.below(60) as i64;
            self.full.now_ms.fetch_add(passed, Ordering::Relaxed);
        }
        if self.prng.one_in(40) {
            let mut sink = Sink::new(&self.full.log);
            let now = isotherm_keyspace::UnixMs(self.full.now_ms.load(Ordering::Relaxed));
            self.full.keyspace.expire_step(0, now, 100, &mut sink);
            self.play();
        }
        if self.prng.one_in(4) {
            let theme = self.grammar.theme(&mut self.prng);
            let words = self.grammar.draw(&theme, &mut self.prng, &self.vocabulary);
            let args: ArgsBuf = words.iter().map(Vec::as_slice).collect();
            let flushes = words[0].to_ascii_uppercase().starts_with(b"FLUSH");
            if is_data_command(args.args()) && !(flushes && is_full) {
                let db = Db(self.prng.below(u64::from(DATABASES)) as u16);
                self.run(db, &words);
            }
        } else {
            let mut draw = Draw { prng: &mut self.prng, entries: self.entries, words: Vec::new() };
            draw.any();
            let words = draw.words;
            self.entries = draw.entries;
            self.run(Db(0), &words);
        }
        while self.full.keyspace.free_step(0, 500) {}
    }
}

/// Returns the places at which two texts begin to differ.
fn difference(ours: &str, theirs: &str) -> (String, String) {
    const CONTEXT: usize = 60;
    let same = ours.bytes().zip(theirs.bytes()).take_while(|(our, their)| our == their).count();
    let around = |text: &str| {
        short(&text.bytes().skip(same.saturating_sub(CONTEXT)).map(char::from).collect::<String>())
    };
    (around(ours), around(theirs))
}

fn short(text: &str) -> String {
    const SHORT: usize = 500;
    let mut short = text.to_string();
    short.retain({
        let mut last = ['\0'; 4];
        move |char| {
            let repeats = last == [char; 4];
            last.rotate_left(1);
            last[3] = char;
            !repeats
        }
    });
    short.chars().take(SHORT).collect()
}

fn check(seed: u64, space_bytes: u64, steps: u64) {
    let is_full = space_bytes == FULL_BYTES;
    let mut pair = Pair {
        full: World::new(1, space_bytes),
        roomy: World::new(1, SPACE_BYTES),
        prng: Prng::new(seed),
        grammar: grammar(),
        vocabulary: Vocabulary::new(START_MS),
        entries: 0,
        out_of_memory: 0,
    };
    for step in 0..steps {
        if is_full && step == steps / 10 {
            pair.fill();
        }
        pair.step(is_full);
    }
    pair.full.keyspace.check_invariants();
    assert_eq!(digest(&pair.full), digest(&pair.roomy), "seed {seed}");
    let found = pair.out_of_memory;
    assert_eq!(found > steps / 50, is_full, "seed {seed}: {found} of {steps} commands found no memory");
}

#[test]
fn what_a_full_arena_cuts_short_is_recorded() {
    (0..6).for_each(|seed| check(seed, FULL_BYTES, 2000));
}

#[test]
fn what_a_command_has_changed_is_recorded() {
    (0..3).for_each(|seed| check(seed, SPACE_BYTES, 2000));
}

#[test]
#[ignore = "takes minutes"]
fn many_commands_in_a_full_arena() {
    for seed in 100..200 {
        check(seed, FULL_BYTES, 6000);
        check(seed, SPACE_BYTES, 6000);
    }
}
