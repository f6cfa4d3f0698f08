//! Runs the steps of a session against both servers and stops at the first difference.

use std::io;
use std::time::Duration;

use isotherm_resp::reply_parse::Value;

use crate::audit::{facts, first_difference};
use crate::client::{Client, push_request};
use crate::faults::Fault;
use crate::grammar::Command;
use crate::rules::{Rule, agree, rule_of};
use crate::session::{CONNECTION_OF_RESP3, CONNECTIONS, DATABASES, SETTINGS, Step, damaged_value};

/// Settings that are restored between sessions because commands of the grammar change them.
const DEFAULTS: [[&str; 4]; 4] = [
    ["CONFIG", "SET", "maxmemory", "0"],
    ["CONFIG", "SET", "maxmemory-policy", "noeviction"],
    ["CONFIG", "SET", "proto-max-bulk-len", "536870912"],
    ["CONFIG", "SET", "timeout", "0"],
];
/// After this silence a raw stream has been answered.
const RAW_QUIET: Duration = Duration::from_millis(60);
/// More than the lengths that a damaged value of a session gives itself, mostly.
const FILLER_BYTES: usize = 4096;
/// Bytes that can be read as lengths, integers or terminators.
const FILLERS: [u8; 5] = [0, 1, b'P', 0x7f, 0xff];
/// Type of strings in RDB. `STRICTER_TYPES` are streams, whose ids and counters may not fit together, and
/// packed sorted sets, whose scores may not be numbers.
const STRING_TYPE: u8 = 0;
const STRICTER_TYPES: [u8; 5] = [12, 15, 17, 19, 21];
const EXPIRY_WAIT: Duration = Duration::from_millis(25);

pub struct Pair {
    ours: Side,
    theirs: Side,
    fault: Option<Fault>,
    /// The commands that each connection has queued since its MULTI.
    queued: Vec<Vec<Command>>,
}

struct Side {
    port: u16,
    connections: Vec<Client>,
    control: Client,
}

#[derive(Clone, Debug)]
pub struct Difference {
    pub step: usize,
    pub command: String,
    pub ours: String,
    pub theirs: String,
    /// Differences of one cause look alike: the command's name and the kinds of both replies, errors with
    /// their text.
    pub signature: String,
}

impl Difference {
    pub fn new(command: String, ours: String, theirs: String) -> Difference {
        let name = command.split(' ').next().unwrap_or_default().to_uppercase();
        let signature = format!("{name}: {} / {}", outline(&ours), outline(&theirs));
        Difference { step: 0, command, ours, theirs, signature }
    }

    /// Builds the difference of two replies to `command`. Within an EXEC, it is that of the first of its
    /// commands with different replies.
    fn of_replies(command: &Command, queued: &[Command], ours: &Value, theirs: &Value) -> Difference {
        let whole = Difference::new(shown(command), ours.to_string(), theirs.to_string());
        let (Value::Array(a), Value::Array(b)) = (ours, theirs) else { return whole };
        if !command[0].eq_ignore_ascii_case(b"EXEC") || a.len() != queued.len() || b.len() != queued.len() {
            return whole;
        }
        let mut replies = queued.iter().zip(a.iter().zip(b));
        let first = replies.find(|(queued, (ours, theirs))| !agree(queued, &[], ours, theirs));
        let (queued, (ours, theirs)) = first.expect("the whole differs");
        let inner = Difference::of_replies(queued, &[], ours, theirs);
        Difference { command: format!("EXEC > {}", inner.command), ..inner }
    }
}

/// An error's text without its numbers; of anything else only the kind.
fn outline(reply: &str) -> String {
    const SHOWN_MAX: usize = 70;
    if reply.starts_with("(error)") || reply.starts_with(['+', '<']) {
        return reply.chars().filter(|char| !char.is_ascii_digit()).take(SHOWN_MAX).collect();
    }
    match reply.chars().next() {
        Some('"') => "bulk".to_string(),
        Some('(') => reply.split_inclusive(')').next().unwrap_or_default().to_string(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

impl Side {
    /// New connections to a server that has been emptied.
    fn fresh(port: u16) -> io::Result<Side> {
        let mut control = Client::connect(port)?;
        for setting in DEFAULTS {
            control.call(&setting)?;
        }
        for (name, values) in SETTINGS {
            control.call(&["CONFIG", "SET", name, values[0]])?;
        }
        control.call(&["FLUSHALL"])?;
        let mut connections =
            (0..CONNECTIONS).map(|_| Client::connect(port)).collect::<io::Result<Vec<_>>>()?;
        connections[CONNECTION_OF_RESP3].call(&["HELLO", "3"])?;
        Ok(Side { port, connections, control })
    }
}

/// Both sides' answer to the same thing, where an answer may be that the connection broke.
fn both<T>(
    pair: (io::Result<T>, io::Result<T>),
    show: impl Fn(&T) -> String,
) -> (Option<(T, T)>, String, String) {
    let shown = |result: &io::Result<T>| match result {
        Ok(value) => show(value),
        Err(why) => format!("<{why}>"),
    };
    let (ours, theirs) = (shown(&pair.0), shown(&pair.1));
    match pair {
        (Ok(a), Ok(b)) => (Some((a, b)), ours, theirs),
        _ => (None, ours, theirs),
    }
}

impl Pair {
    pub fn fresh(ours: u16, theirs: u16, fault: Option<Fault>) -> io::Result<Pair> {
        let queued = vec![Vec::new(); CONNECTIONS];
        Ok(Pair { ours: Side::fresh(ours)?, theirs: Side::fresh(theirs)?, fault, queued })
    }

    /// Runs the steps. Returns how many commands were compared, or the first difference.
    pub fn run(&mut self, steps: &[Step]) -> io::Result<Result<u64, Difference>> {
        let mut compared = 0;
        for (i, step) in steps.iter().enumerate() {
            let outcome = match step {
                Step::Commands { connection, commands } => self.run_commands(*connection, commands)?,
                Step::ShortExpiry { db, key } => self.run_short_expiry(*db, key)?,
                Step::FullScan { db, scan, options } => self.run_scan(*db, scan, options)?,
                Step::Setting { name, value } => self
                    .on_control(&words(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()]))?
                    .map(|_| 1),
                Step::Transfer { db, from, to } => self.run_transfer(*db, from, to)?,
                Step::Damage { db, from, to, seed } => self.run_damage(*db, from, to, *seed)?,
                Step::Reload => self.on_control(&words(&[b"DEBUG", b"RELOAD"]))?.map(|_| 1),
                Step::Raw { pieces } => self.run_raw(pieces)?,
                Step::Audit => self.audit()?,
            };
            match outcome {
                Ok(count) => compared += count,
                Err(difference) => return Ok(Err(Difference { step: i, ..difference })),
            }
        }
        Ok(Ok(compared))
    }

    fn run_commands(
        &mut self,
        connection: usize,
        commands: &[Command],
    ) -> io::Result<Result<u64, Difference>> {
        let (mut to_ours, mut to_theirs) = (Vec::new(), Vec::new());
        for command in commands {
            push_request(&mut to_theirs, command);
            match self.fault {
                Some(fault) => push_request(&mut to_ours, &fault.apply(command)),
                None => push_request(&mut to_ours, command),
            }
        }
        self.theirs.connections[connection].write(&to_theirs)?;
        let written = self.ours.connections[connection].write(&to_ours);
        for command in commands {
            let theirs = self.theirs.connections[connection].read();
            let ours = match &written {
                Ok(()) => self.ours.connections[connection].read(),
                Err(why) => Err(io::Error::other(why.to_string())),
            };
            let (values, ours, theirs) = both((ours, theirs), Value::to_string);
            let Some((a, b)) = values else {
                return Ok(Err(Difference::new(shown(command), ours, theirs)));
            };
            let queued = &self.queued[connection];
            if !agree(command, queued, &a, &b) {
                return Ok(Err(Difference::of_replies(command, queued, &a, &b)));
            }
            self.follow_transaction(connection, command, &b);
        }
        Ok(Ok(commands.len() as u64))
    }

    fn follow_transaction(&mut self, connection: usize, command: &Command, reply: &Value) {
        let queue = &mut self.queued[connection];
        if *reply == Value::Simple(b"QUEUED".to_vec()) {
            queue.push(command.clone());
        } else if [&b"EXEC"[..], b"DISCARD", b"RESET", b"MULTI"]
            .iter()
            .any(|word| command[0].eq_ignore_ascii_case(word))
        {
            queue.clear();
        }
    }

    fn on_control(&mut self, command: &Command) -> io::Result<Result<(Value, Value), Difference>> {
        let answers = (self.ours.control.call(command), self.theirs.control.call(command));
        let (values, ours, theirs) = both(answers, Value::to_string);
        let difference = Difference::new(shown(command), ours, theirs);
        Ok(match values {
            Some((ours, theirs)) if rule_of(command) == Rule::Kind || agree(command, &[], &ours, &theirs) => {
                Ok((ours, theirs))
            }
            _ => Err(difference),
        })
    }

    fn run_short_expiry(&mut self, db: u8, key: &[u8]) -> io::Result<Result<u64, Difference>> {
        self.select(db)?;
        if let Err(difference) = self.on_control(&words(&[b"SET", key, b"soon gone", b"PX", b"1"]))? {
            return Ok(Err(difference));
        }
        std::thread::sleep(EXPIRY_WAIT);
        Ok(self.on_control(&words(&[b"EXISTS", key]))?.map(|_| 2))
    }

    fn select(&mut self, db: u8) -> io::Result<()> {
        self.on_control_of_both(&words(&[b"SELECT", db.to_string().as_bytes()]))
    }

    fn run_scan(&mut self, db: u8, scan: &Command, options: &Command) -> io::Result<Result<u64, Difference>> {
        self.select(db)?;
        let of = |side: &mut Side| scan_all(&mut side.control, scan, options);
        let (values, ours, theirs) = both((of(&mut self.ours), of(&mut self.theirs)), |keys| keys.join(" "));
        Ok(match values {
            Some((a, b)) if a == b => Ok(1),
            _ => {
                let command = [&scan[..], &[b"(whole)".to_vec()], options].concat();
                Err(Difference::new(shown(&command), ours, theirs))
            }
        })
    }

    /// Each restores what the other has dumped; the replies and, by the next audit, the values are compared.
    fn run_transfer(&mut self, db: u8, from: &[u8], to: &[u8]) -> io::Result<Result<u64, Difference>> {
        self.select(db)?;
        let payloads = match self.on_control(&words(&[b"DUMP", from]))? {
            Ok((Value::Bulk(ours), Value::Bulk(theirs))) => (ours, theirs),
            Ok(_) => return Ok(Ok(1)),
            Err(difference) => return Ok(Err(difference)),
        };
        let restore = |client: &mut Client, payload: &[u8]| {
            client.call(&[b"RESTORE".as_slice(), to, b"0", payload, b"REPLACE"])
        };
        let ours = restore(&mut self.ours.control, &payloads.1)?;
        let theirs = restore(&mut self.theirs.control, &payloads.0)?;
        if ours == theirs {
            return Ok(self.on_control(&words(&[b"DEBUG", b"DIGEST-VALUE", to]))?.map(|_| 3));
        }
        let command = shown(&words(&[b"RESTORE-OF-THE-OTHER", from, to]));
        Ok(Err(Difference::new(command, ours.to_string(), theirs.to_string())))
    }

    fn run_damage(
        &mut self,
        db: u8,
        from: &[u8],
        to: &[u8],
        seed: u64,
    ) -> io::Result<Result<u64, Difference>> {
        self.select(db)?;
        let Value::Bulk(payload) = self.theirs.control.call(&[b"DUMP", from])? else { return Ok(Ok(0)) };
        let restore = |filler: &[u8]| {
            let damaged = damaged_value(payload.clone(), seed, filler);
            words(&[b"RESTORE", to, b"0", &damaged, b"REPLACE"])
        };
        // The result is not compared: a value may be sound here and say something else of itself there.
        let is_stricter = is_refused_on_purpose(&damaged_value(payload.clone(), seed, &[]));
        let filled = FILLERS.map(|filler| restore(&[filler; FILLER_BYTES]));
        let compared = match self.on_control(&restore(&[]))? {
            Err(difference) if is_refused_here_only(&difference) && is_stricter => Ok(1),
            Err(difference) if self.reads_into_the_footer(&difference, &filled)? => Ok(1),
            compared => compared.map(|_| 1),
        };
        self.on_control_of_both(&words(&[b"DEL", to]))?;
        Ok(compared)
    }

    /// Valkey takes the footer for a part of the value; with something else to read there we take it too.
    fn reads_into_the_footer(&mut self, difference: &Difference, filled: &[Command]) -> io::Result<bool> {
        if !is_refused_here_only(difference) {
            return Ok(false);
        }
        Ok(self.ours.control.call_all(filled)?.iter().any(|reply| reply.as_error().is_none()))
    }

    /// Whatever they answer.
    fn on_control_of_both(&mut self, command: &Command) -> io::Result<()> {
        for side in [&mut self.ours, &mut self.theirs] {
            side.control.call(command)?;
        }
        Ok(())
    }

    fn run_raw(&mut self, pieces: &[Vec<u8>]) -> io::Result<Result<u64, Difference>> {
        let talk = |port: u16| -> io::Result<Vec<u8>> {
            let mut client = Client::connect(port)?;
            for piece in pieces {
                // The server may have closed already; what it said is read all the same.
                client.write(piece).ok();
                std::thread::sleep(Duration::from_millis(2));
            }
            client.read_until_quiet(RAW_QUIET)
        };
        let answers = std::thread::scope(|scope| {
            let ours = scope.spawn(|| talk(self.ours.port));
            let theirs = talk(self.theirs.port);
            (ours.join().expect("it does not panic"), theirs)
        });
        let (values, ours, theirs) = both(answers, |bytes| bytes.escape_ascii().to_string());
        Ok(match values {
            Some((a, b)) if without_facts(&a) == without_facts(&b) => Ok(1),
            _ => {
                let command =
                    format!("raw {}", pieces.iter().map(|piece| cut(piece)).collect::<Vec<_>>().join(" | "));
                Err(Difference::new(command, ours, theirs))
            }
        })
    }

    fn audit(&mut self) -> io::Result<Result<u64, Difference>> {
        let mut compared = 0;
        for db in 0..DATABASES {
            let ours = facts(&mut self.ours.control, db);
            let theirs = facts(&mut self.theirs.control, db);
            let (values, ours, theirs) = both((ours, theirs), |facts| format!("{} facts", facts.len()));
            let command = format!("audit of database {db}");
            let Some((a, b)) = values else {
                return Ok(Err(Difference::new(command, ours, theirs)));
            };
            compared += 1;
            if let Some((question, ours, theirs)) = first_difference(&a, &b) {
                return Ok(Err(Difference::new(format!("audit: {question} (in {db})"), ours, theirs)));
            }
        }
        Ok(Ok(compared))
    }
}

fn is_refused_here_only(difference: &Difference) -> bool {
    difference.ours == "(error) ERR Bad data format" && difference.theirs == "+OK"
}

/// Returns whether Isotherm may refuse this damaged value in RESTORE, as COMPAT.md says, where Valkey reads
/// another value from it.
fn is_refused_on_purpose(payload: &[u8]) -> bool {
    let is_marked = |byte: u8| byte >= 0xc0;
    let has_marked_count = payload[0] != STRING_TYPE && is_marked(payload[1]);
    let may_be_compressed = payload.contains(&0xc3);
    STRICTER_TYPES.contains(&payload[0]) || has_marked_count || may_be_compressed
}

fn words(words: &[&[u8]]) -> Command {
    words.iter().map(|word| word.to_vec()).collect()
}

/// All that a scan from 0 to 0 gives, once each, in order; or the error that it ends with.
fn scan_all(control: &mut Client, scan: &Command, options: &Command) -> io::Result<Vec<String>> {
    /// A database of the tests has a dozen keys in at most 16384 slots.
    const CALLS_MAX: usize = 40_000;
    let mut cursor = b"0".to_vec();
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..CALLS_MAX {
        let mut command = scan.clone();
        command.push(cursor);
        command.extend(options.iter().cloned());
        let reply = match control.call(&command)? {
            Value::Array(reply) => reply,
            other => return Ok(vec![other.to_string()]),
        };
        let [Value::Bulk(next), Value::Array(found)] = &reply[..] else {
            return Err(io::Error::other("SCAN gave something else than a cursor and keys"));
        };
        keys.extend(found.iter().map(Value::to_string));
        if next == b"0" {
            return Ok(keys.into_iter().collect());
        }
        cursor = next.clone();
    }
    Err(io::Error::other("SCAN does not come to an end"))
}

/// A reply to HELLO within a raw stream has the server's name, version and the connection's number.
fn without_facts(heard: &[u8]) -> Vec<u8> {
    match heard.windows(8).position(|window| window == b"\r\nserver") {
        None => heard.to_vec(),
        Some(at) => {
            let tail = heard.windows(7).rposition(|window| window == b"modules").unwrap_or(at);
            [&heard[..at], &heard[tail..]].concat()
        }
    }
}

fn cut(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;
    let shown = bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii().to_string();
    if bytes.len() > SHOWN_MAX { format!("{shown}... ({} bytes)", bytes.len()) } else { shown }
}

/// A command as it would be typed.
pub fn shown(command: &Command) -> String {
    let word = |arg: &Vec<u8>| {
        let plain = !arg.is_empty()
            && arg.iter().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\'));
        if plain { cut(arg) } else { format!("\"{}\"", cut(arg)) }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}
