//! Valkey's error texts, in one list. Clients, scripts and test suites compare them byte by byte.
//!
//! Each begins with its code and goes to `Reply::error` as it is. Texts that only one command knows stay with
//! that command; here are those that several share.

use crate::request::Args;

// --- keys and types
// ------------------------------------------------------------------------------------------------
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const NO_SUCH_KEY: &str = "ERR no such key";
pub const SAME_OBJECT: &str = "ERR source and destination objects are the same";
pub const BUSY_KEY: &str = "BUSYKEY Target key name already exists.";

// --- arguments
// -----------------------------------------------------------------------------------------------------
pub const SYNTAX: &str = "ERR syntax error";
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub const OUT_OF_RANGE: &str = "ERR value is out of range";
pub const MUST_BE_POSITIVE: &str = "ERR value is out of range, must be positive";
pub const INDEX_OUT_OF_RANGE: &str = "ERR index out of range";
pub const OFFSET_OUT_OF_RANGE: &str = "ERR offset is out of range";
pub const DB_OUT_OF_RANGE: &str = "ERR DB index is out of range";
pub const TIMEOUT_NEGATIVE: &str = "ERR timeout is negative";
pub const INVALID_CURSOR: &str = "ERR invalid cursor";
pub const PROTOCOL_NOT_AN_INTEGER: &str = "ERR Protocol version is not an integer or out of range";
pub const UNSUPPORTED_PROTOCOL: &str = "NOPROTO unsupported protocol version";
pub const NO_SUCH_CLIENT: &str = "ERR No such client";

// --- strings
// -------------------------------------------------------------------------------------------------------
pub const STRING_TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
pub const INCREMENT_OVERFLOW: &str = "ERR increment or decrement would overflow";
pub const DECREMENT_OVERFLOW: &str = "ERR decrement would overflow";
pub const INCREMENT_NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";
pub const LCS_NOT_STRINGS: &str = "ERR The specified keys must contain string values";
pub const LCS_LEN_AND_IDX: &str = "ERR If you want both the length and indexes, please just use IDX.";
pub const LCS_OUT_OF_MEMORY: &str =
    "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";

// --- expiry
// --------------------------------------------------------------------------------------------------------
pub const NX_WITH_XX_GT_LT: &str = "ERR NX and XX, GT or LT options at the same time are not compatible";
pub const GT_WITH_LT: &str = "ERR GT and LT options at the same time are not compatible";

// --- transactions
// --------------------------------------------------------------------------------------------------
pub const EXEC_WITHOUT_MULTI: &str = "ERR EXEC without MULTI";
pub const DISCARD_WITHOUT_MULTI: &str = "ERR DISCARD without MULTI";
pub const EXEC_ABORT: &str = "EXECABORT Transaction discarded because of previous errors.";

// --- the state of the server
// -----------------------------------------------------------------------------------------
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// Ours: of walks over keys on disk.
pub const NOT_READ_HERE: &str =
    "SWAPERR This command needs more keys on disk than are read before a transaction or a script";
/// Ours: of a value on disk.
pub const UNREADABLE: &str = "SWAPERR A value that this command needs cannot be read from disk";
pub const READ_TOO_SLOW: &str =
    "SWAPERR The disk brought nothing of what this command needs for longer than swap-read-timeout";
// COMPAT(memory): A write that finds no memory although `maxmemory` is not reached (an arena of 64 GB is
// full, or the kernel refuses) is answered `OOM command not allowed: no memory available for this key.` With
// `maxmemory` and an eviction policy, keys are evicted for later writes; without `maxmemory` none are. Why:
// Valkey has no such limit, and ends when the system refuses memory.
/// `maxmemory` is not what was met: the memory for the keys of some slots has ended. Valkey has no such
/// limit.
pub const NO_MEMORY_FOR_KEY: &str = "OOM command not allowed: no memory available for this key.";
pub const READONLY: &str = "READONLY You can't write against a read only replica.";
/// `replica-serve-stale-data no`, and the link to the primary is down.
pub const PRIMARY_DOWN: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
pub const NO_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
/// The data is not there yet. `name` is the server's.
pub fn is_loading(name: &str) -> String {
    format!("LOADING {name} is loading the dataset in memory")
}

/// A script, or a function, takes long.
pub fn busy_with_script(name: &str, is_function: bool) -> String {
    let what = if is_function { "FUNCTION" } else { "SCRIPT" };
    format!("BUSY {name} is busy running a script. You can only call {what} KILL or SHUTDOWN NOSAVE.")
}

/// A save in the background failed.
pub fn cannot_save(name: &str) -> String {
    format!(
        "MISCONF {name} is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that \
         may modify the data set are disabled, because this instance is configured to report errors during writes if RDB \
         snapshotting fails (stop-writes-on-bgsave-error option). Please check the {name} logs for details about the RDB \
         error."
    )
}

/// The append-only file cannot be written.
pub fn cannot_log(error: &str) -> String {
    format!("MISCONF Errors writing to the AOF file: {error}")
}

/// Error for a monitor that uses the keyspace. In Valkey a monitor is a kind of replica.
pub const NOT_FOR_MONITORS: &str = "ERR Replica can't interact with the keyspace";
pub const MAX_CLIENTS: &str = "ERR max number of clients reached";
pub const LFU_NOT_SELECTED: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
    Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.";
pub const LFU_SELECTED: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. \
    Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.";

// --- who is asking
// -------------------------------------------------------------------------------------------------
pub const NO_AUTH: &str = "NOAUTH Authentication required.";
pub const WRONG_PASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
pub const AUTH_WITHOUT_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default \
    user. Are you sure your configuration is correct?";
pub const HELLO_NO_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
    HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
    version at the same time";

// --- a cluster
// -----------------------------------------------------------------------------------------------------
pub const CLUSTER_DISABLED: &str = "ERR This instance has cluster support disabled";

// --- texts with parts
// ------------------------------------------------------------------------------------------------

/// `command` is the full name in lower case, `config|get` for a subcommand.
pub fn wrong_arity(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

pub fn invalid_expire(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

pub fn out_of_range_between(min: i64, max: i64) -> String {
    format!("ERR value is out of range, value must between {min} and {max}")
}

/// `reason`: the error of EXEC itself.
pub fn exec_abort_because(reason: &[u8]) -> Vec<u8> {
    [b"EXECABORT Transaction discarded because of: ", reason].concat()
}

/// Returns the error for a RESP2 connection that is subscribed to something.
pub fn not_for_subscribers(command: &str) -> String {
    format!(
        "ERR Can't execute '{command}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
         this context"
    )
}

/// A text with bytes of a client, up to the first NUL as in Valkey: `Reply::error` takes bytes as well.
pub fn with_bytes(before: &str, bytes: &[u8], after: &str) -> Vec<u8> {
    let shown = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    [before.as_bytes(), shown, after.as_bytes()].concat()
}

/// Names and arguments are shown up to this many bytes.
const SHOWN_BYTES_MAX: usize = 128;

/// An unknown command, with as many of its arguments as fit.
pub fn unknown_command(args: Args<'_>) -> Vec<u8> {
    let mut shown = Vec::new();
    for argument in args.from(1).iter() {
        if shown.len() >= SHOWN_BYTES_MAX {
            break;
        }
        let room = SHOWN_BYTES_MAX - shown.len();
        shown.push(b'\'');
        shown.extend_from_slice(c_text(argument, room));
        shown.extend_from_slice(b"' ");
    }
    let name = c_text(args.get(0), SHOWN_BYTES_MAX);
    [&b"ERR unknown command '"[..], name, b"', with args beginning with: ", &shown].concat()
}

/// A subcommand that the container (`config`) does not have.
pub fn unknown_subcommand(args: Args<'_>) -> Vec<u8> {
    let name = c_text(args.get(1), SHOWN_BYTES_MAX);
    let container = c_text(args.get(0), usize::MAX).to_ascii_uppercase();
    [&b"ERR unknown subcommand '"[..], name, b"'. Try ", &container, b" HELP."].concat()
}

/// Returns the error of a container's handler for invalid arguments of a known subcommand.
pub fn subcommand_syntax(args: Args<'_>) -> Vec<u8> {
    let name = c_text(args.get(1), SHOWN_BYTES_MAX);
    let container = c_text(args.get(0), usize::MAX).to_ascii_uppercase();
    [
        &b"ERR unknown subcommand or wrong number of arguments for '"[..],
        name,
        b"'. Try ",
        &container,
        b" HELP.",
    ]
    .concat()
}

/// Bytes as C's `%.*s` prints them: up to the first NUL and at most `max`.
fn c_text(bytes: &[u8], max: usize) -> &[u8] {
    let end = bytes.iter().take(max).position(|&byte| byte == 0);
    &bytes[..end.unwrap_or(bytes.len().min(max))]
}

#[cfg(test)]
mod tests;
