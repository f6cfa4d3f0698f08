//! A session: some hundred random steps from an empty server, and everything needed to repeat them.

use isotherm_stdx::Prng;

use crate::grammar::{Command, Grammar};
use crate::vocabulary::Vocabulary;

#[derive(Clone, Debug)]
pub enum Step {
    /// Commands written at once on one of the session's connections.
    Commands { connection: usize, commands: Vec<Command> },
    /// A key that expires within a millisecond, on the control connection, and a wait until it has.
    ShortExpiry { db: u8, key: Vec<u8> },
    /// A whole SCAN, call by call, whose sum is compared.
    FullScan { db: u8, options: Command },
    /// Bytes that need not be requests, on a connection of their own.
    Raw { pieces: Vec<Vec<u8>> },
    /// All keys of all databases with values and expiry times.
    Audit,
}

pub const CONNECTIONS: usize = 3;
/// What sessions use of the sixteen; SELECT tries others too.
pub const DATABASES: u8 = 4;
/// Between two audits.
const AUDIT_STEPS: usize = 120;
const STEPS: usize = 240;
const BATCH_MAX: u64 = 24;
/// One command in so many is damaged.
const DAMAGED_ONE_IN: u64 = 14;

pub fn generate(seed: u64, grammar: &Grammar, vocabulary: &Vocabulary) -> Vec<Step> {
    let mut prng = Prng::new(seed);
    let mut steps = Vec::with_capacity(STEPS + STEPS / AUDIT_STEPS);
    for i in 1..=STEPS {
        steps.push(step(&mut prng, grammar, vocabulary));
        if i % AUDIT_STEPS == 0 {
            steps.push(Step::Audit);
        }
    }
    steps
}

fn step(prng: &mut Prng, grammar: &Grammar, vocabulary: &Vocabulary) -> Step {
    let db = |prng: &mut Prng| prng.below(u64::from(DATABASES)) as u8;
    match prng.below(100) {
        0 => Step::ShortExpiry { db: db(prng), key: vocabulary.draw("key", prng) },
        1 | 2 => Step::FullScan { db: db(prng), options: scan_options(prng, vocabulary) },
        3 => Step::Raw { pieces: raw_pieces(prng) },
        draw => {
            let count = if draw < 60 { 1 } else { 2 + prng.below(BATCH_MAX - 1) };
            let connection = prng.below(CONNECTIONS as u64) as usize;
            let commands = (0..count).map(|_| command(prng, grammar, vocabulary)).collect();
            Step::Commands { connection, commands }
        }
    }
}

fn command(prng: &mut Prng, grammar: &Grammar, vocabulary: &Vocabulary) -> Command {
    let mut command = grammar.draw(prng, vocabulary);
    if prng.one_in(DAMAGED_ONE_IN) {
        damage(&mut command, prng, vocabulary);
        lengthen_times(&mut command);
    }
    command
}

fn damage(command: &mut Command, prng: &mut Prng, vocabulary: &Vocabulary) {
    let place = prng.below(command.len() as u64) as usize;
    match prng.below(5) {
        0 if command.len() > 1 => drop(command.remove(place)),
        1 if place > 0 => command[place] = vocabulary.junk(prng),
        2 => command.insert(place + 1, vocabulary.junk(prng)),
        3 => command.insert(place, command[place].clone()),
        _ => {
            let other = prng.below(command.len() as u64) as usize;
            command.swap(place, other);
        }
    }
    // An option may have come to the front that is a command of its own: with SYNC, Valkey begins to replicate.
    if command[0].is_empty() || command[0].eq_ignore_ascii_case(b"SYNC") {
        command[0] = b"GET".to_vec();
    }
}

/// A damaged command may hold any small number as its time, and a key that lives a second is gone at one server a
/// moment before the other. 10^13 is far in the future as a duration and as a moment, in seconds and in milliseconds.
fn lengthen_times(command: &mut Command) {
    const WITH_TIMES: [&[u8]; 9] =
        [b"SET", b"GETEX", b"SETEX", b"PSETEX", b"MSETEX", b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT"];
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

/// Streams at the edge of the protocol. Each ends by itself: in an error, or in a PING whose answer is the last thing.
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
    b"*1\r\n\xff\r\n",
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
