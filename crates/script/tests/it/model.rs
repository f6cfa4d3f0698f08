//! A host for tests: strings, lists and some commands that reply in every type of RESP.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_resp::{Args, ArgsBuf, Protocol, Reply};
use isotherm_script::{
    Called, Checkpoint, Ended, Host, Identity, Interpreter, Limits, LogLevel, Progress, Replication, Sha,
};

pub const IDENTITY: Identity =
    Identity { server_name: "valkey", redis_version: "7.2.4", valkey_version: "9.1.2" };

#[derive(Default)]
pub struct Model {
    pub strings: BTreeMap<Vec<u8>, Vec<u8>>,
    pub lists: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    pub fields: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>,
    pub members: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
    /// Each command in wire form.
    pub calls: Vec<Vec<u8>>,
    pub logged: Vec<(LogLevel, Vec<u8>)>,
    pub replication: Option<Replication>,
    /// `checkpoint` says so from this question on; 0 for never.
    pub stop_at: u64,
    pub asked: u64,
    /// Each command and each checkpoint has suspended the run once; it is tried again.
    pub is_retry: bool,
    /// A library that loads is not suspended.
    pub loads: bool,
    pub suspensions: u64,
}

impl Host for Model {
    fn call(&mut self, words: Args<'_>, reply: &mut Reply) -> Called {
        if self.suspends() {
            return Called::Later;
        }
        self.answer(words, reply);
        Called::Done
    }

    fn set_replication(&mut self, replication: Replication) {
        self.replication = Some(replication);
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        self.logged.push((level, text.to_vec()));
    }

    fn may_run(&mut self, words: Args<'_>) -> Option<bool> {
        match words[0].to_ascii_lowercase().as_slice() {
            b"get" => Some(true),
            b"set" => Some(false),
            _ => None,
        }
    }

    fn checkpoint(&mut self) -> Checkpoint {
        if self.suspends() {
            return Checkpoint::Pause;
        }
        self.asked += 1;
        match self.stop_at > 0 && self.asked >= self.stop_at {
            true => Checkpoint::Stop,
            false => Checkpoint::GoOn,
        }
    }
}

impl Model {
    fn suspends(&mut self) -> bool {
        if self.loads {
            return false;
        }
        self.is_retry = !self.is_retry;
        self.suspensions += u64::from(self.is_retry);
        self.is_retry
    }

    fn answer(&mut self, words: Args<'_>, reply: &mut Reply) {
        self.calls.push(words.wire().expect("a request in wire form").to_vec());
        let name = words[0].to_ascii_lowercase();
        match (name.as_slice(), words.len()) {
            (b"get", 2) if self.lists.contains_key(&words[1]) => {
                reply.error("WRONGTYPE Operation against a key holding the wrong kind of value");
            }
            (b"get", 2) => match self.strings.get(&words[1]) {
                Some(value) => reply.bulk(value),
                None => reply.null(),
            },
            (b"set", 3) => {
                self.strings.insert(words[1].to_vec(), words[2].to_vec());
                reply.ok();
            }
            (b"incr", 2) => self.increment(&words[1], reply),
            (b"rpush", 3..) => {
                let list = self.lists.entry(words[1].to_vec()).or_default();
                list.extend(words.from(2).iter().map(<[u8]>::to_vec));
                reply.integer(list.len() as i64);
            }
            (b"lrange", 4) => {
                let list = self.lists.get(&words[1]).cloned().unwrap_or_default();
                reply.array(list.len());
                list.iter().for_each(|value| reply.bulk(value));
            }
            (b"hset", 4) => {
                self.fields
                    .entry(words[1].to_vec())
                    .or_default()
                    .insert(words[2].to_vec(), words[3].to_vec());
                reply.integer(1);
            }
            (b"hgetall", 2) => {
                let fields = self.fields.get(&words[1]).cloned().unwrap_or_default();
                reply.map(fields.len());
                fields.iter().flat_map(|(field, value)| [field, value]).for_each(|text| reply.bulk(text));
            }
            (b"sadd", 3) => {
                self.members.entry(words[1].to_vec()).or_default().insert(words[2].to_vec());
                reply.integer(1);
            }
            (b"smembers", 2) => {
                let members = self.members.get(&words[1]).cloned().unwrap_or_default();
                reply.set(members.len());
                members.iter().for_each(|member| reply.bulk(member));
            }
            (b"echo", 2) => reply.bulk(&words[1]),
            (b"ping", 1) => reply.simple("PONG"),
            (b"debug", 3) => write_type(&words[2], reply),
            (b"get" | b"set" | b"incr" | b"echo", _) => {
                reply.error("ERR Wrong number of args calling command from script");
            }
            _ => reply.error("ERR Unknown command called from script"),
        }
    }

    fn increment(&mut self, key: &[u8], reply: &mut Reply) {
        let old = self.strings.get(key).map_or(Some(0), |text| isotherm_stdx::parse_i64(text));
        match old {
            Some(old) => {
                self.strings.insert(key.to_vec(), (old + 1).to_string().into_bytes());
                reply.integer(old + 1);
            }
            None => reply.error("ERR value is not an integer or out of range"),
        }
    }
}

/// DEBUG PROTOCOL: each type, as Valkey has it.
fn write_type(kind: &[u8], reply: &mut Reply) {
    match kind {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(2.5),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.boolean(number == 1);
            }
        }
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        _ => reply.error("ERR Wrong protocol type name. Please use one of the following: string|..."),
    }
}

pub fn interpreter() -> Interpreter {
    limited(0)
}

pub fn limited(memory_bytes: usize) -> Interpreter {
    Interpreter::new(&Limits { memory_bytes, insecure_api: false }, &IDENTITY).expect("there is memory")
}

pub fn sha_of(body: &str) -> Sha {
    let digits = isotherm_stdx::sha1::hex(&isotherm_stdx::sha1::sha1(body.as_bytes()));
    digits.as_bytes().try_into().expect("40 digits")
}

/// Runs EVAL. Returns the reply's bytes, and how the run ended.
pub fn eval_with(
    lua: &mut Interpreter,
    model: &mut Model,
    proto: Protocol,
    body: &str,
    keys: &[&str],
    args: &[&str],
) -> (String, Option<Ended>) {
    let sha = sha_of(body);
    let mut reply = Reply::new(proto);
    let ended = match lua.compile(&sha, body.as_bytes()) {
        Ok(()) => {
            let words: ArgsBuf = keys.iter().chain(args).map(|word| word.as_bytes()).collect();
            let mut progress = lua.run(&sha, words.args(), keys.len(), model, &mut reply);
            loop {
                match progress {
                    Progress::Ended(ended) => break Some(ended),
                    Progress::Suspended => progress = lua.resume(model, &mut reply),
                }
            }
        }
        Err(why) => {
            reply.error(format!("ERR Error compiling script (new function): {why}"));
            None
        }
    };
    (String::from_utf8_lossy(&reply.out).into_owned(), ended)
}

/// The reply in RESP2 of a script in a new interpreter with an empty host.
pub fn eval(body: &str) -> String {
    eval_in(&mut interpreter(), body)
}

pub fn eval_in(lua: &mut Interpreter, body: &str) -> String {
    eval_with(lua, &mut Model::default(), Protocol::Resp2, body, &[], &[]).0
}

pub fn eval_resp3(body: &str) -> String {
    eval_with(&mut interpreter(), &mut Model::default(), Protocol::Resp3, body, &[], &[]).0
}
