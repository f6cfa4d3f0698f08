//! A server as far as data commands need one: it looks up, checks the arity, locks and calls.

use isotherm_commands::call::HashedKeys;
use isotherm_commands::spec::{Command, Reach, key_positions};
use isotherm_commands::{COMMANDS, Call, CallSettings, Handler, Outcome, Record, Records, naming};
use isotherm_keyspace::{Conditions, Config, Db, EffectSink, ExpiryMode, Held, Keyspace, Txn, UnixMs, Want};
use isotherm_resp::reply::Protocol;
use isotherm_resp::{Args, ArgsBuf, Reply, errors};
use isotherm_stdx::args_split::{Dialect, args_split};
use isotherm_stdx::{Prng, parse_i64};

/// Takes the records of a command.
pub type LogOf<'l> = &'l mut dyn FnMut(Db, Record<'_>);

pub struct Server {
    keyspace: Keyspace,
    pub conditions: Conditions,
    db: Db,
    pub settings: CallSettings,
    prng: Prng,
    proto: Protocol,
}

impl Server {
    pub fn new(proto: Protocol, partitions: usize) -> Server {
        Server::with_space(proto, partitions, 256 << 20)
    }

    pub fn with_space(proto: Protocol, partitions: usize, reserve_bytes: u64) -> Server {
        let config = Config {
            partitions,
            arenas: 1,
            databases: 16,
            reserve_bytes,
            hash_secret: *b"0123456789abcdef",
            class_bytes: |bytes| bytes,
        };
        Server {
            keyspace: Keyspace::new(config).expect("address space"),
            conditions: Conditions {
                now: UnixMs(1_750_000_000_000),
                expiry_mode: ExpiryMode::Delete,
                no_touch: false,
            },
            db: Db(0),
            settings: CallSettings::default(),
            prng: Prng::new(1),
            proto,
        }
    }

    #[allow(dead_code, reason = "not every test asks")]
    pub fn check_invariants(&self) {
        self.keyspace.check_invariants();
    }

    /// Bytes of strings and elements that do not lie in the arenas.
    #[allow(dead_code, reason = "not every test asks")]
    pub fn large_bytes(&self) -> u64 {
        self.keyspace.large_bytes()
    }

    #[allow(dead_code, reason = "not every test asks")]
    pub fn arena_bytes(&self) -> u64 {
        self.keyspace.arenas().iter().map(|arena| arena.live_bytes()).sum()
    }

    #[allow(dead_code, reason = "not every test wants replies only")]
    pub fn run(&mut self, args: Args<'_>, sink: &mut dyn EffectSink) -> Reply {
        self.run_recorded(args, sink, None)
    }

    /// Runs a command and passes on what the log would hold.
    pub fn run_recorded(
        &mut self,
        args: Args<'_>,
        sink: &mut dyn EffectSink,
        log: Option<LogOf<'_>>,
    ) -> Reply {
        let mut reply = Reply::new(self.proto);
        if self.run_of_session(args) {
            reply.ok();
            return reply;
        }
        let (command, name) = lookup(args);
        if !command.spec.takes(args.len()) {
            reply.error(errors::wrong_arity(&name));
            return reply;
        }
        let mut held = Held::new(&self.keyspace);
        let wanted = wanted(&self.keyspace, command, args);
        held.acquire(match (command.spec.reach, &wanted) {
            (Reach::Keys, Some(wanted)) => Want::Many(wanted),
            _ => Want::All,
        });
        let mut records = Records::default();
        records.begin(log.is_some());
        naming::restrict(&mut held, &command.spec, args);
        let mut txn = Txn::new(&mut held, self.conditions, sink);
        let mut call = Call {
            txn: &mut txn,
            db: self.db,
            args,
            keys: HashedKeys::NONE,
            reply: &mut reply,
            prng: &mut self.prng,
            settings: &self.settings,
            records: &mut records,
            may_wait: false,
            in_script: false,
            may_read_all: true,
            is_played_back: false,
        };
        let outcome = (command.handler.expect("a command with code"))(&mut call);
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
        let counts = txn.finish();
        held.unrestrict();
        if let Some(log) = log {
            records.take(args, counts.dirty, |record| log(self.db, record));
        }
        if held.has_flushed() {
            held.exempt(u64::MAX / 2);
            held.free_flushed();
        }
        reply
    }

    /// Runs a command of the session or the configuration. Returns whether the command was one of these.
    fn run_of_session(&mut self, args: Args<'_>) -> bool {
        let word = |at: usize| String::from_utf8_lossy(args.try_get(at).unwrap_or_default()).to_uppercase();
        let number = |at: usize| args.try_get(at).and_then(parse_i64);
        match (word(0).as_str(), word(2).as_str()) {
            ("DEBUG", _) => {}
            ("SELECT", _) => self.db = Db(number(1).expect("a database") as u16),
            ("CONFIG", "PROTO-MAX-BULK-LEN") => self.settings.bulk_bytes_max = number(3).unwrap() as usize,
            ("CONFIG", "STREAM-NODE-MAX-ENTRIES") => {
                self.settings.limits.stream_node_max_entries = number(3).unwrap() as usize;
            }
            ("CONFIG", "MAXMEMORY-POLICY") => self.settings.lfu = word(3).ends_with("LFU"),
            _ => return false,
        }
        true
    }
}

pub fn lookup(args: Args<'_>) -> (&'static Command<Handler>, String) {
    find(args).unwrap_or_else(|| panic!("{args:?}"))
}

/// The command, or subcommand, of a request, and its name.
pub fn find(args: Args<'_>) -> Option<(&'static Command<Handler>, String)> {
    let named = |commands: &'static [Command<Handler>], word: &[u8]| {
        commands.iter().find(|command| command.spec.name.as_bytes().eq_ignore_ascii_case(word))
    };
    let command = COMMANDS.iter().find_map(|group| named(group, args.get(0)))?;
    let sub = args.try_get(1).and_then(|word| named(command.subcommands, word));
    Some(match sub {
        Some(sub) => (sub, format!("{}|{}", command.spec.name, sub.spec.name)),
        None => (command, command.spec.name.to_string()),
    })
}

/// The partitions of the keys, ascending. Of arguments that make no sense the command itself knows what they
/// are.
pub fn wanted(keyspace: &Keyspace, command: &Command<Handler>, args: Args<'_>) -> Option<Vec<u16>> {
    let mut positions = Vec::new();
    // Finders rely on the arity.
    command.spec.takes(args.len()).then_some(())?;
    key_positions(&command.spec, args, &mut positions).ok()?;
    let mut wanted: Vec<u16> =
        positions.iter().map(|(at, _)| keyspace.partition_of(keyspace.key(args.get(*at)).slot)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    Some(wanted)
}

/// A command line; `@20xa` stands for twenty times the character a.
#[allow(dead_code, reason = "not every test writes its requests as lines")]
pub fn words(line: &str) -> ArgsBuf {
    let words = args_split(line.as_bytes(), Dialect::File).expect("balanced quotes");
    let expand = |word: &Vec<u8>| {
        let parts = word.strip_prefix(b"@").and_then(|rest| {
            let at = rest.iter().position(|byte| *byte == b'x')?;
            Some((parse_i64(&rest[..at])?, *rest.get(at + 1)?))
        });
        parts.map_or_else(|| word.clone(), |(count, byte)| vec![byte; count as usize])
    };
    let words: Vec<Vec<u8>> = words.iter().map(expand).collect();
    words.iter().map(Vec::as_slice).collect()
}
