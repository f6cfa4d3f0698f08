//! A session: some hundred random steps from an empty server, and everything needed to repeat them.

use isotherm_stdx::Prng;

use crate::disorder::disorder;
use crate::grammar::{Command, Grammar, Theme};
use crate::vocabulary::{Vocabulary, damaged};

#[derive(Clone, Debug)]
pub enum Step {
    /// Commands written at once on one of the session's connections.
    Commands { connection: usize, commands: Vec<Command> },
    /// A key that expires within a millisecond, on the control connection, and a wait until it has.
    ShortExpiry { db: u8, key: Vec<u8> },
    /// A whole SCAN, HSCAN, SSCAN or ZSCAN, call by call, whose sum is compared.
    FullScan { db: u8, scan: Scan, options: Command },
    /// A parameter of both servers.
    Setting { name: &'static str, value: &'static str },
    /// A value dumped by one server and restored by the other, both ways, so that both have it again.
    Transfer { db: u8, from: Vec<u8>, to: Vec<u8> },
    /// Value dumped by Valkey, damaged as the seed determines, given a new checksum, and restored by both.
    Damage { db: u8, from: Vec<u8>, to: Vec<u8>, seed: u64 },
    /// All data through the RDB codec.
    Reload,
    /// Bytes that need not be requests, on a connection of their own.
    Raw { pieces: Vec<Vec<u8>> },
    /// All keys of all databases with values and expiry times.
    Audit,
}

/// Everything before the cursor; everything after it comes from options.
pub type Scan = Command;

/// The second of them begins with RESP3.
pub const CONNECTIONS: usize = 3;
pub const CONNECTION_OF_RESP3: usize = 1;
/// Number of databases, out of sixteen, that sessions use; SELECT tries others too.
pub const DATABASES: u8 = 4;
/// Parameters that move the borders of encodings, their defaults first. Those of sorted sets are not among
/// them: what a range by member means among members of different scores depends on the encoding.
pub const SETTINGS: [(&str, [&str; 3]); 5] = [
    ("hash-max-listpack-entries", ["512", "4", "20"]),
    ("hash-max-listpack-value", ["64", "10", "200"]),
    ("set-max-listpack-entries", ["128", "4", "20"]),
    ("set-max-intset-entries", ["512", "4", "40"]),
    ("list-max-listpack-size", ["-2", "8", "-1"]),
];
/// Keys that a few lines of the grammar fill.
const LARGE: [&[u8]; 6] = [b"big:h", b"big:s", b"big:i", b"big:z", b"big:l", b"big:x"];
/// Between two audits.
const AUDIT_STEPS: usize = 120;
const STEPS: usize = 240;
const BATCH_MAX: u64 = 24;
/// Interval of damage: one of this many commands is damaged.
const DAMAGED_ONE_IN: u64 = 14;

pub fn generate(seed: u64, grammar: &Grammar, vocabulary: &Vocabulary) -> Vec<Step> {
    let mut prng = Prng::new(seed);
    let theme = grammar.theme(&mut prng);
    let mut steps = Vec::with_capacity(STEPS + STEPS / AUDIT_STEPS);
    for (name, values) in SETTINGS {
        if prng.one_in(3) {
            steps.push(Step::Setting { name, value: values[prng.below(3) as usize] });
        }
    }
    for i in 1..=STEPS {
        steps.push(step(&mut prng, grammar, &theme, vocabulary));
        if i % AUDIT_STEPS == 0 {
            steps.push(Step::Audit);
        }
    }
    steps
}

fn step(prng: &mut Prng, grammar: &Grammar, theme: &Theme, vocabulary: &Vocabulary) -> Step {
    // Most of a session happens in the first.
    let db = |prng: &mut Prng| if prng.one_in(2) { 0 } else { prng.below(u64::from(DATABASES)) as u8 };
    let key = |prng: &mut Prng| {
        if prng.one_in(4) { prng.pick(&LARGE).to_vec() } else { vocabulary.draw("key", prng) }
    };
    // Large ones stay where the grammar knows that they are large.
    let copy_of = |prng: &mut Prng, from: &[u8]| match from.starts_with(b"big:") {
        true => [from, b"2"].concat(),
        false => vocabulary.draw("key", prng),
    };
    match prng.below(200) {
        0 | 1 => Step::ShortExpiry { db: db(prng), key: vocabulary.draw("key", prng) },
        2 | 3 => Step::FullScan {
            db: db(prng),
            scan: vec![b"SCAN".to_vec()],
            options: scan_options(prng, vocabulary),
        },
        4 | 5 => {
            let word = *prng.pick(&[b"HSCAN", b"SSCAN", b"ZSCAN"]);
            let count = *prng.pick(&[&b"1"[..], b"10", b"40"]);
            let (scan, options) = (vec![word.to_vec(), key(prng)], vec![b"COUNT".to_vec(), count.to_vec()]);
            Step::FullScan { db: db(prng), scan, options }
        }
        6 => Step::Raw { pieces: raw_pieces(prng) },
        draw @ 7..=18 => {
            let (db, from) = (db(prng), key(prng));
            let to = if prng.one_in(3) { from.clone() } else { copy_of(prng, &from) };
            match draw {
                7..=12 => Step::Transfer { db, from, to },
                _ => Step::Damage { db, from, to, seed: prng.next_u64() },
            }
        }
        19 => Step::Reload,
        draw => {
            let count = if draw < 120 { 1 } else { 2 + prng.below(BATCH_MAX - 1) };
            let connection = prng.below(CONNECTIONS as u64) as usize;
            let commands = (0..count).map(|_| command(prng, grammar, theme, vocabulary)).collect();
            Step::Commands { connection, commands }
        }
    }
}

fn command(prng: &mut Prng, grammar: &Grammar, theme: &Theme, vocabulary: &Vocabulary) -> Command {
    let mut command = grammar.draw(theme, prng, vocabulary);
    if prng.one_in(DAMAGED_ONE_IN) && !is_delicate(&command) {
        damage(&mut command, prng, vocabulary);
        lengthen_times(&mut command);
    }
    command
}

/// Returns whether the command may block, so that its reply comes late.
pub fn may_wait(command: &Command) -> bool {
    const NAMES: [&[u8]; 9] = [
        b"BLPOP",
        b"BRPOP",
        b"BLMOVE",
        b"BRPOPLPUSH",
        b"BLMPOP",
        b"BZPOPMIN",
        b"BZPOPMAX",
        b"BZMPOP",
        b"BLOCK",
    ];
    has_word(command, &NAMES)
}

/// Damage to these may make a wait without end, a choice of chance, or an id of the clock.
fn is_delicate(command: &Command) -> bool {
    const NAMES: [&[u8]; 7] =
        [b"SPOP", b"SRANDMEMBER", b"HRANDFIELD", b"ZRANDMEMBER", b"XADD", b"LSET", b"CONFIG"];
    may_wait(command) || has_word(command, &NAMES)
}

fn has_word(command: &Command, names: &[&[u8]]) -> bool {
    command.iter().any(|word| names.contains(&word.to_ascii_uppercase().as_slice()))
}

fn damage(command: &mut Command, prng: &mut Prng, vocabulary: &Vocabulary) {
    /// Commands that take more words here than in Valkey 9.1. A damaged one is refused for another reason,
    /// and later.
    const TAKE_MORE: [&[u8]; 3] = [b"EXEC", b"MOVE", b"SISMEMBER"];
    if has_word(command, &TAKE_MORE) {
        return;
    }
    let place = prng.below(command.len() as u64) as usize;
    match prng.below(8) {
        0 if command.len() > 1 => drop(command.remove(place)),
        1 if place > 0 => command[place] = vocabulary.junk(prng),
        2 => command.insert(place + 1, vocabulary.junk(prng)),
        3 => command.insert(place, command[place].clone()),
        5..=7 => {
            let before = command.clone();
            disorder(command, prng);
            if is_delicate(command) {
                *command = before;
            }
        }
        _ => {
            let other = prng.below(command.len() as u64) as usize;
            command.swap(place, other);
        }
    }
    // Valkey looks for the word in the place of the key, too.
    if command.len() > 1 && command[1].eq_ignore_ascii_case(b"FIELDS") {
        command[1] = b"a".to_vec();
    }
    // An option may have come to the front that is a command of its own: with SYNC, Valkey begins to
    // replicate.
    if command[0].is_empty() || command[0].eq_ignore_ascii_case(b"SYNC") {
        command[0] = b"GET".to_vec();
    }
}

/// A damaged command may hold any small number as its time, and a key that lives a second is gone at one
/// server a moment before the other. 10^13 is far in the future as a duration and as a moment, in seconds and
/// in milliseconds.
fn lengthen_times(command: &mut Command) {
    const WITH_TIMES: [&[u8]; 19] = [
        b"SET",
        b"GETEX",
        b"SETEX",
        b"PSETEX",
        b"MSETEX",
        b"EXPIRE",
        b"PEXPIRE",
        b"EXPIREAT",
        b"PEXPIREAT",
        b"HEXPIRE",
        b"HPEXPIRE",
        b"HEXPIREAT",
        b"HPEXPIREAT",
        b"HSETEX",
        b"HGETEX",
        b"RESTORE",
        b"XCLAIM",
        b"XAUTOCLAIM",
        b"XPENDING",
    ];
    if !command.iter().any(|arg| WITH_TIMES.contains(&arg.to_ascii_uppercase().as_slice())) {
        return;
    }
    for arg in command.iter_mut().skip(1) {
        if let Some(short @ 1..1_000_000_000) = isotherm_stdx::parse_i64(arg) {
            *arg = (10_000_000_000_000 + short).to_string().into_bytes();
        }
    }
}

fn scan_options(prng: &mut Prng, vocabulary: &Vocabulary) -> Command {
    let mut options = Command::new();
    if prng.one_in(2) {
        options.extend([b"MATCH".to_vec(), vocabulary.draw("pattern", prng)]);
    }
    if prng.one_in(2) {
        options.extend([b"COUNT".to_vec(), prng.pick(&["1", "3", "10", "100"]).as_bytes().to_vec()]);
    }
    if prng.one_in(4) {
        options.extend([b"TYPE".to_vec(), b"string".to_vec()]);
    }
    options
}

/// Streams at the edge of the protocol. Each ends by itself: in an error, or in a PING whose answer is the
/// last thing.
const RAW: [&[u8]; 36] = [
    b"PING\r\n",
    b"\r\nPING\r\n",
    b"*0\r\n*-10\r\nPING\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"*3000000000\r\n",
    b"*x\r\n",
    b"*\r\n",
    b"*01\r\n",
    b"*-\r\n",
    b"*1\r\nfoo\r\n",
    b"*1\r\n\xfe\r\n",
    b"*1\r\n\r\n",
    b"*1\r\n\0\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$-10\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$blabla\r\n",
    b"*1\r\n$536870913\r\n",
    b"*3\rx$3\r\n",
    b"*3x\n$3\r\nSET\r\n",
    b"*1\r\n$3\rxSET\r\n",
    b"*1\r\n$4\r\nPINGxx",
    b"*1\r\n$4\r\nPING\rx",
    b"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\nPING\r\n",
    b"set foo 'b'a'r\r\nping\r\n",
    b"echo \"a\\x41\\n\\t'\"\r\necho 'it\\'s'\r\n",
    b"echo \"a\\\"\r\n",
    b"echo 'a\\'\r\n",
    b"echo \"a\" b\r\nPING\r\n",
    b"   \r\n\t\r\n echo\x0bx \r\nPING\r\n",
    b"echo a\0b\r\nPING\r\n",
    b"GET a b c\r\nnosuchcommand with some args\r\nPING\r\n",
    b"MULTI\r\nGET\r\nEXEC\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$-1\r\n",
    b"QUIT\r\nPING\r\n",
    b"PING\r\nGET nosuchkeyatall\r\nRESET\r\nGET nosuchkeyatall\r\n",
];

fn raw_pieces(prng: &mut Prng) -> Vec<Vec<u8>> {
    let mut stream = prng.pick(&RAW).to_vec();
    if prng.one_in(3) {
        let at = prng.below(stream.len() as u64) as usize;
        stream[at] = *prng.pick(b"\r\n$*-19aG\0\" ");
    }
    if prng.one_in(20) {
        // One byte more than a line may have.
        stream.extend(std::iter::repeat_n(b'A', (64 << 10) + 1));
    }
    let cut = prng.below(stream.len() as u64 + 1) as usize;
    let rest = stream.split_off(cut);
    [stream, rest].into_iter().filter(|piece| !piece.is_empty()).collect()
}

/// A payload, damaged and sealed again with these bytes between its value and its footer.
pub fn damaged_value(mut payload: Vec<u8>, seed: u64, filler: &[u8]) -> Vec<u8> {
    const FOOTER_BYTES: usize = 10;
    const CHECKSUM_BYTES: usize = 8;
    let mut prng = Prng::new(seed);
    let footer = payload.split_off(payload.len() - FOOTER_BYTES);
    let mut value = damaged(payload, &mut prng);
    value.extend_from_slice(filler);
    value.extend_from_slice(&footer[..FOOTER_BYTES - CHECKSUM_BYTES]);
    value.extend_from_slice(&isotherm_stdx::crc64::crc64(0, &value).to_le_bytes());
    value
}
