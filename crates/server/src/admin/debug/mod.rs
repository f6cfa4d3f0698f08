//! DEBUG: words for tests, allowed by `enable-debug-command` only.
//!
//! All of them hold the gate, so DEBUG SLEEP stops the whole server, as it does in a server of one thread;
//! those that only write to a file let it go first. Words about structures that this server does not have
//! (hash tables that are resized, reply buffers that shrink) are accepted and change nothing: the tests that
//! send them then see what they want to see in any case.

mod cluster;
mod digest;
mod object;
mod protocol;
mod reload;
mod restart;
mod swap;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_keyspace::{Expiry, Lookup, NewValue};
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;

use super::{AdminCall, AdminHandler};
use isotherm_engine::request::fetching::Unreadable;
use isotherm_runtime::log;
#[cfg(debug_assertions)]
use isotherm_runtime::time::{STEPPED_MS, unix_now};
#[cfg(debug_assertions)]
use std::sync::atomic::Ordering::Relaxed;

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::new(DEBUG, debug)];

/// A word of DEBUG, and with how many arguments (the words included) it is one.
struct Word {
    name: &'static str,
    arguments: std::ops::RangeInclusive<usize>,
    run: fn(&mut AdminCall<'_>),
}

const WORDS: &[Word] = &[
    word("help", 2..=2, help),
    word("sleep", 3..=3, sleep),
    word("set-active-expire", 3..=3, set_active_expire),
    word("pause-cron", 3..=3, pause_cron),
    word("client-enforce-reply-list", 3..=3, enforce_reply_list),
    word("set-skip-checksum-validation", 3..=3, set_skip_checksum_validation),
    word("force-tls-write-error", 3..=3, force_tls_write_error),
    word("object", 3..=4, object::object),
    word("digest-value", 2..=usize::MAX, digest::values),
    word("protocol", 3..=3, protocol::example),
    word("populate", 3..=5, populate),
    word("log", 3..=3, write_log),
    word("error", 3..=3, error),
    // Steps that the tests of growth compare; nothing is counted in other builds.
    #[cfg(debug_assertions)]
    word("steps", 2..=2, steps),
    // From now on the wall clock is ahead of the system's by the given milliseconds.
    #[cfg(debug_assertions)]
    word("step-clock", 3..=3, step_clock),
    // COMPAT(debug): DEBUG SWAP-CHAOS is Isotherm's: whatever may leave memory does, however much there is.
    // Why: tests call it.
    word("swap-chaos", 3..=3, swap::chaos),
    // COMPAT(debug): DEBUG SWAP-FAULT is Isotherm's: reads, writes or syncs of swap-dir fail or hang. Why:
    // tests call it.
    word("swap-fault", 4..=5, swap::fault),
    // COMPAT(debug): DEBUG SWAP-MACHINE is Isotherm's: the memory that the machine seems to have. Why: tests
    // call it.
    word("swap-machine", 3..=3, swap::machine),
    word("htstats", 3..=usize::MAX, table_stats),
    word("htstats-key", 3..=usize::MAX, table_stats_of_key),
    // COMPAT(debug): DEBUG CHECK-INVARIANTS is Isotherm's: it checks all data structures and the memory
    // accounting, and blocks all clients meanwhile. Why: tests call it at their end.
    word("check-invariants", 2..=2, check_invariants),
    word("stringmatch-test", 2..=2, match_globs),
    word("client-eviction", 2..=2, client_eviction),
    word("protect-client", 3..=3, protect_client),
    word("reload", 2..=usize::MAX, reload::reload),
    word("loadaof", 2..=usize::MAX, reload::load_aof),
    word("config-rewrite-force-all", 2..=2, rewrite_all),
    word("panic", 2..=usize::MAX, crash),
    word("segfault", 2..=usize::MAX, crash),
    word("assert", 2..=usize::MAX, crash),
    word("oom", 2..=usize::MAX, crash),
    word("drop-cluster-packet-filter", 3..=3, cluster::drop_packets),
    word("close-cluster-link-on-packet-drop", 3..=3, cluster::close_on_drop),
    word("disable-cluster-random-ping", 3..=3, cluster::disable_random_ping),
    word("disable-cluster-reconnection", 3..=3, cluster::disable_reconnection),
    word("clusterlink", 5..=5, cluster::kill_links),
    // Structures that do not exist here.
    // COMPAT(debug): DEBUG subcommands about structures that do not exist here (DICT-RESIZING, REPLYBUFFER,
    // QUICKLIST-PACKED-THRESHOLD, ...) answer OK and change nothing. Why: Valkey's test suite calls them on
    // the way.
    word("replybuffer", 4..=4, reply_buffer),
    word("quicklist-packed-threshold", 3..=3, ok),
    word("set-disable-deny-scripts", 3..=3, set_disable_deny_scripts),
    word("dict-resizing", 3..=3, ok),
    word("hashtable-can-abort-shrink", 3..=3, ok),
    word("change-repl-id", 2..=2, ok),
    word("aof-flush-sleep", 3..=3, ok),
    word("pause-after-fork", 3..=3, ok),
];

const fn word(
    name: &'static str,
    arguments: std::ops::RangeInclusive<usize>,
    run: fn(&mut AdminCall<'_>),
) -> Word {
    Word { name, arguments, run }
}

fn rewrite_all(call: &mut AdminCall<'_>) {
    let_go(call);
    super::config::rewrite_here(call, true);
}

const DEBUG: Spec = Spec {
    name: "debug",
    summary: "Inspects and disturbs the server, for tests.",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE).or(Flags::PROTECTED),
    doc_flags: &["syscmd"],
    reach: Reach::All,
    ..Spec::BASE
};

fn debug(call: &mut AdminCall<'_>) -> Outcome {
    let (name, args) = (call.args.get(1), call.args.len());
    let is_meant =
        |word: &&Word| word.name.as_bytes().eq_ignore_ascii_case(name) && word.arguments.contains(&args);
    if name.eq_ignore_ascii_case(b"restart") {
        return restart::restart(call);
    }
    if name.eq_ignore_ascii_case(b"digest") && args == 2 {
        return digest::all(call);
    }
    if let Some(outcome) = await_values(call) {
        return outcome;
    }
    match WORDS.iter().find(is_meant) {
        Some(word) => (word.run)(call),
        None => call.reply.error(errors::subcommand_syntax(call.args)),
    }
    Outcome::Done
}

/// Returns the keys whose values a word looks at.
fn looked_at<'a>(args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    let is_word = |name: &[u8]| args.get(1).eq_ignore_ascii_case(name);
    let count = match () {
        () if is_word(b"object") => 1,
        () if is_word(b"digest-value") => usize::MAX,
        () => 0,
    };
    args.from(args.len().min(2)).iter().take(count)
}

/// Fetches what the word looks at and is on disk, while nothing is held.
fn await_values(call: &mut AdminCall<'_>) -> Option<Outcome> {
    match call.exec.find_looked_at(call.session.db, looked_at(call.args)) {
        Ok(keys) if keys.is_empty() => None,
        // Nothing is read while a transaction holds what it does.
        Ok(_) if call.session.in_exec => {
            call.exec.refuse_look(call.reply);
            Some(Outcome::Done)
        }
        Ok(keys) => Some(call.exec.fetch_for_look(keys, call.reply)),
        Err(Unreadable) => {
            call.reply.error(errors::UNREADABLE);
            Some(Outcome::Done)
        }
    }
}

/// Releases the locks before a file is written, which concerns no key. Inside EXEC everything stays held.
fn let_go(call: &mut AdminCall<'_>) {
    if !call.session.in_exec {
        call.exec.held.release();
    }
}

fn ok(call: &mut AdminCall<'_>) {
    call.reply.ok();
}

fn crash(call: &mut AdminCall<'_>) {
    panic!("DEBUG {} was called", String::from_utf8_lossy(call.args.get(1)).to_uppercase());
}

/// C's `atoi(argument) != 0`.
fn is_on(argument: &[u8]) -> bool {
    let digits = argument.trim_ascii_start();
    let digits = digits.strip_prefix(b"-").unwrap_or(digits);
    digits.iter().take_while(|byte| byte.is_ascii_digit()).any(|&byte| byte != b'0')
}

/// Answers with the number of steps that the thread of the client's worker has counted so far
/// (`isotherm_stdx::steps`).
#[cfg(debug_assertions)]
fn steps(call: &mut AdminCall<'_>) {
    call.reply.integer(isotherm_stdx::steps::looked() as i64);
}

// ---- the clock and the cron ----

#[cfg(debug_assertions)]
fn step_clock(call: &mut AdminCall<'_>) {
    match parse_i64(call.args.get(2)) {
        Some(ahead_ms) => {
            STEPPED_MS.store(ahead_ms, Relaxed);
            // Notes the step, so that the next command of every worker sees it.
            unix_now();
            call.reply.ok();
        }
        None => call.reply.error(errors::NOT_AN_INTEGER),
    }
}

/// Longer than any test sleeps, and no overflow.
const SLEEP_SECONDS_MAX: f64 = 1e6;

fn sleep(call: &mut AdminCall<'_>) {
    let seconds = isotherm_stdx::parse_f64(call.args.get(2)).unwrap_or_default();
    // A node that serves no client does not look alive to the others either.
    let silence = &call.node.debug.is_asleep;
    silence.set(true);
    std::thread::sleep(std::time::Duration::from_secs_f64(seconds.clamp(0.0, SLEEP_SECONDS_MAX)));
    silence.set(false);
    call.reply.ok();
}

fn set_active_expire(call: &mut AdminCall<'_>) {
    call.node.debug.no_active_expire.set(!is_on(call.args.get(2)));
    call.reply.ok();
}

fn pause_cron(call: &mut AdminCall<'_>) {
    call.node.debug.cron_paused.set(is_on(call.args.get(2)));
    call.reply.ok();
}

/// Workers write again what waits within a second of its end.
fn force_tls_write_error(call: &mut AdminCall<'_>) {
    isotherm_reactor::tls::take_nothing(is_on(call.args.get(2)));
    call.reply.ok();
}

/// Switches whether any unread reply of an unauthenticated client is too much. In Valkey each reply then
/// takes a block of its own, which is more than such a client may leave unread.
fn enforce_reply_list(call: &mut AdminCall<'_>) {
    call.node.debug.reply_lists.set(is_on(call.args.get(2)));
    call.node.config.touch();
    call.reply.ok();
}

fn set_skip_checksum_validation(call: &mut AdminCall<'_>) {
    call.node.debug.skip_checksums.set(is_on(call.args.get(2)));
    call.node.config.touch();
    call.reply.ok();
}

// COMPAT(debug): DEBUG SET-DISABLE-DENY-SCRIPTS 1 lets scripts call CLIENT LIST, DEBUG PROTOCOL and SLEEP,
// and none of the other commands that they may not call. Why: it is for tests, and most of those commands
// need a client.
fn set_disable_deny_scripts(call: &mut AdminCall<'_>) {
    call.node.debug.scripts_may_debug.set(is_on(call.args.get(2)));
    call.reply.ok();
}

// ---- keys ----

/// `POPULATE count [prefix] [size]`: keys that are there stay as they are.
fn populate(call: &mut AdminCall<'_>) {
    let count = parse_i64(call.args.get(2));
    let size = call.args.try_get(4).map_or(Some(0), parse_i64);
    let limit = isotherm_keyspace::STRING_BYTES_MAX as i64;
    let (Some(count @ 0..), Some(size)) = (count, size.filter(|size| (0..=limit).contains(size))) else {
        call.reply.error(errors::MUST_BE_POSITIVE);
        return;
    };
    let prefix = call.args.try_get(3).unwrap_or(b"key");
    let db = call.session.db;
    let mut txn = call.txn();
    for number in 0..count {
        let name = [prefix, format!(":{number}").as_bytes()].concat();
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            value.resize(size as usize, 0);
        }
        let key = txn.key(&name);
        if !txn.contains(db, &key) && txn.set(db, &key, NewValue::encode(&value), Expiry::Clear).is_err() {
            call.reply.error(errors::NO_MEMORY_FOR_KEY);
            return;
        }
    }
    call.reply.ok();
}

/// Pages instead of hash tables: what there is to say of them, INFO memory says.
fn table_stats(call: &mut AdminCall<'_>) {
    let Some(number) = parse_i64(call.args.get(2)) else {
        call.reply.error(errors::NOT_AN_INTEGER);
        return;
    };
    let Some(db) = u16::try_from(number).ok().filter(|db| *db < call.node.config.databases()) else {
        call.reply.error("ERR Out of range database");
        return;
    };
    let mut txn = call.txn();
    let db = isotherm_keyspace::Db(db);
    let text = format!(
        "[Dictionary HT]\nPacked pages: {} keys\n[Expires HT]\nInside the pages: {} keys\n",
        txn.len(db),
        txn.volatile_len(db)
    );
    call.reply.verbatim("txt", text.as_bytes());
}

fn table_stats_of_key(call: &mut AdminCall<'_>) {
    let (db, name) = (call.session.db, call.args.get(2));
    let mut txn = call.debug_txn();
    let key = txn.key(name);
    let exists = txn.find(db, &key, Lookup::Silent).is_some();
    call.reply.error(if exists {
        "ERR The value stored at the specified key is not represented using an hash table"
    } else {
        errors::NO_SUCH_KEY
    });
}

// ---- others ----

fn write_log(call: &mut AdminCall<'_>) {
    let_go(call);
    log::warning(format!("DEBUG LOG: {}", String::from_utf8_lossy(call.args.get(2))));
    call.reply.ok();
}

fn error(call: &mut AdminCall<'_>) {
    call.reply.error(call.args.get(2));
}

/// Random patterns over random texts: the matcher neither fails nor takes long.
fn match_globs(call: &mut AdminCall<'_>) {
    const ROUNDS: usize = 10_000;
    const BYTES_MAX: u64 = 32;
    let alphabet = b"ab*?[]^-\\x";
    for _ in 0..ROUNDS {
        let [pattern, text] = [(); 2].map(|()| -> Vec<u8> {
            (0..call.exec.prng.below(BYTES_MAX)).map(|_| *call.exec.prng.pick(alphabet)).collect()
        });
        std::hint::black_box(isotherm_stdx::glob_match(&pattern, &text, false));
    }
    call.reply.simple("Apparently the server did not crash: test passed");
}

/// Asserts whatever the keyspace calls an invariant, accounting included: the process ends where one does not
/// hold.
fn check_invariants(call: &mut AdminCall<'_>) {
    call.exec.held.check_invariants();
    call.node.libraries.check_invariants();
    call.reply.ok();
}

fn client_eviction(call: &mut AdminCall<'_>) {
    match call.node.config.client_memory_bytes_max() {
        Some(_) => call.reply.verbatim("txt", call.node.clients.by_memory().as_bytes()),
        None => call.reply.error("ERR maxmemory-clients is disabled."),
    }
}

/// Connections are closed by their owners, between two commands: they need no protection.
fn protect_client(call: &mut AdminCall<'_>) {
    match isotherm_stdx::parse_u64(call.args.get(2)) {
        None => call.reply.error("ERR Invalid client id"),
        Some(id) if call.node.clients.get(id).is_some() => call.reply.ok(),
        Some(_) => call.reply.error(errors::NO_SUCH_CLIENT),
    }
}

fn reply_buffer(call: &mut AdminCall<'_>) {
    let (what, value) = (call.args.get(2), call.args.get(3));
    let is = |bytes: &[u8], word: &str| bytes.eq_ignore_ascii_case(word.as_bytes());
    let known_time = is(value, "never") || is(value, "reset") || parse_i64(value).is_some();
    match () {
        _ if is(what, "resizing") || (is(what, "peak-reset-time") && known_time) => call.reply.ok(),
        _ if is(what, "peak-reset-time") => call.reply.error(errors::NOT_AN_INTEGER),
        _ => call.reply.error(errors::subcommand_syntax(call.args)),
    }
}

fn help(call: &mut AdminCall<'_>) {
    write_help(call.reply, call.args, HELP);
}

const HELP: &[&str] = &[
    "CHECK-INVARIANTS",
    "    Check all data structures. The server crashes if one is found corrupted.",
    "CHANGE-REPL-ID",
    "    Take new replication IDs, so that replicas have to copy all data again. Only for tests.",
    "DIGEST",
    "    Return a digest of all keys and values, in hex: equal data has equal digests.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Return a digest of each value, in hex.",
    "ERROR <string>",
    "    Reply with the error <string>, for tests of clients.",
    "LOG <message>",
    "    Add a line with <message> to the server's log.",
    "HTSTATS <dbid> [full]",
    "    Return how many keys this database has, and how many of them expire.",
    "HTSTATS-KEY <key> [full]",
    "    Answer with an error: no value has a hash table here.",
    "LOADAOF",
    "    Write out the append-only file, then replace the data in memory by what it says.",
    "OBJECT <key> [fast]",
    "    Return how the value of <key> is kept. With `fast` it leaves out",
    "    what takes time to compute.",
    "OOM",
    "    Crash as if memory had run out.",
    "PANIC",
    "    Crash by a panic.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Create <count> strings called key:<num>, or <prefix>:<num>, of <size> bytes.",
    "    Keys that exist stay as they are. Replicas do not get the new ones, and in",
    "    a cluster all are created here, whatever slots this node owns.",
    "PROTOCOL <type>",
    "    Reply with an example of this <type> of the protocol, one of:",
    "    string, integer, double, bignum, null, array, set, map, attrib, push,",
    "    verbatim, true, false",
    "RELOAD [option ...]",
    "    Write all data to an RDB file and load it. Each <option> changes that:",
    "    * MERGE: libraries of functions that are in memory too are replaced.",
    "    * NOFLUSH: memory is not emptied before; keys that are there too are replaced.",
    "    * NOSAVE: no file is written; the one that is there is loaded.",
    "RESTART [<milliseconds>]",
    "    Write the configuration and the data, and start again after <milliseconds> (default: 0).",
    "SEGFAULT",
    "    Crash by an invalid access to memory.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    With 0 expired keys are deleted only when a command meets them;",
    "    with 1, as usual, in the background too.",
    "SLEEP <seconds>",
    "    Do nothing for <seconds>, which may have a fraction.",
    "STRINGMATCH-TEST",
    "    Match random patterns with random strings, in search of crashes.",
    "PAUSE-CRON <0|1>",
    "    Hold the periodic work (1) or resume it (0).",
    "REPLYBUFFER PEAK-RESET-TIME <NEVER||RESET|time>",
    "    Check the arguments and change nothing: reply buffers have no peaks here.",
    "REPLYBUFFER RESIZING <0|1>",
    "    Check the arguments and change nothing.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches() {
        for (argument, expected) in
            [("1", true), ("0", false), ("", false), ("10x", true), ("x1", false), (" -1", true)]
        {
            assert_eq!(is_on(argument.as_bytes()), expected, "{argument:?}");
        }
    }
}
