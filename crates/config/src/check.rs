//! Rules of single parameters beyond type and range, with Valkey's texts.

use super::params::Value;
use isotherm_keyspace::PREFIX_PINS_MAX;
use std::net::{Ipv4Addr, Ipv6Addr};

type Verdict = Result<(), &'static str>;

/// Database numbers are 16 bits.
const DATABASES_MAX: i64 = u16::MAX as i64;
const HASH_SEED_BYTES_MAX: usize = 256;
/// INET6_ADDRSTRLEN, the end included.
const IP_TEXT_BYTES: usize = 46;
const HOST_NAME_BYTES: usize = 256;

pub fn databases(value: &Value) -> Verdict {
    refuse(number(value) > DATABASES_MAX, "there can be at most 65535 databases")
}

/// "128-128:2|200-1024:8": pages of the slabs of sizes.
pub fn slab_sizes(value: &Value) -> Verdict {
    let numbers = |part: &[u8]| {
        let (sizes, pages) = split_at_byte(part, b':')?;
        let (from, to) = split_at_byte(sizes, b'-')?;
        Some([parse_small(from)?, parse_small(to)?, parse_small(pages)?])
    };
    let good = |part: &[u8]| numbers(part).is_some_and(|[from, to, pages]| from <= to && pages > 0);
    refuse(
        !text(value).is_empty() && !text(value).split(|&byte| byte == b'|').all(good),
        "jemalloc-slab-sizes are 'from-to:pages' of sizes in bytes, with '|' between them",
    )
}

fn split_at_byte(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&other| other == byte)?;
    Some((&text[..at], &text[at + 1..]))
}

/// At most five digits.
fn parse_small(digits: &[u8]) -> Option<u32> {
    let plain = (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

pub fn log_memory_limit(value: &Value) -> Verdict {
    const BYTES_MIN: i64 = 1 << 20;
    refuse((0..BYTES_MIN).contains(&number(value)), "log-memory-limit is 1mb at least, or -1")
}

pub fn no_mptcp(value: &Value) -> Verdict {
    refuse(number(value) != 0, "MPTCP is not supported on this platform")
}

pub fn no_rdma_port(value: &Value) -> Verdict {
    refuse(number(value) != 0, "No RDMA building support.")
}

pub fn cluster_config_file(value: &Value) -> Verdict {
    refuse(text(value).is_empty(), "cluster-config-file can't be empty")
}

pub fn db_filename(value: &Value) -> Verdict {
    refuse(text(value).is_empty(), "dbfilename can't be empty")?;
    refuse(is_path(text(value)), "dbfilename can't be a path, just a filename")
}

pub fn aof_filename(value: &Value) -> Verdict {
    refuse(text(value).is_empty(), "appendfilename can't be empty")?;
    refuse(is_path(text(value)), "appendfilename can't be a path, just a filename")
}

pub fn aof_dirname(value: &Value) -> Verdict {
    refuse(text(value).is_empty(), "appenddirname can't be empty")?;
    refuse(is_path(text(value)), "appenddirname can't be a path, just a dirname")
}

pub fn shutdown_flags(value: &Value) -> Verdict {
    const SAVE_AND_NOSAVE: i64 = 3;
    refuse(
        number(value) & SAVE_AND_NOSAVE == SAVE_AND_NOSAVE,
        "shutdown options SAVE and NOSAVE can't be used simultaneously",
    )
}

pub fn nodename(value: &Value) -> Verdict {
    refuse(!is_plain_word(text(value)), "Announced human node name contained invalid character")
}

pub fn announced_ip(value: &Value) -> Verdict {
    refuse(text(value).len() >= IP_TEXT_BYTES, "cluster-announce-ip is too long")?;
    refuse(!is_plain_word(text(value)), "cluster-announce-ip contains invalid character")
}

pub fn hostname(value: &Value) -> Verdict {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    refuse(text(value).len() >= HOST_NAME_BYTES, "Hostnames must be less than 256 characters")?;
    refuse(
        !text(value).iter().all(allowed),
        "Hostnames may only contain alphanumeric characters, hyphens or dots",
    )
}

pub fn ipv4(value: &Value) -> Verdict {
    refuse(!text(value).is_empty() && !parses::<Ipv4Addr>(text(value)), "Invalid IPv4 address")
}

pub fn ipv6(value: &Value) -> Verdict {
    refuse(!text(value).is_empty() && !parses::<Ipv6Addr>(text(value)), "Invalid IPv6 address")
}

pub fn hash_seed(value: &Value) -> Verdict {
    refuse(text(value).len() > HASH_SEED_BYTES_MAX, "hash-seed must be less than or equal to 256 characters")
}

/// `{name}` stands for a variable, `{{` for a brace.
pub fn title_template(value: &Value) -> Verdict {
    const VARIABLES: [&[u8]; 7] =
        [b"title", b"listen-addr", b"server-mode", b"config-file", b"port", b"tls-port", b"unixsocket"];
    refuse(text(value).trim_ascii().is_empty(), "template format is invalid or contains unknown variables")?;
    let mut rest = text(value);
    while let Some(open) = rest.iter().position(|&byte| byte == b'{') {
        rest = &rest[open + 1..];
        if let Some(literal) = rest.strip_prefix(b"{") {
            rest = literal;
            continue;
        }
        let close = rest.iter().position(|&byte| byte == b'}').unwrap_or(rest.len());
        let known = close < rest.len() && VARIABLES.contains(&&rest[..close]);
        refuse(!known, "template format is invalid or contains unknown variables")?;
        rest = &rest[close + 1..];
    }
    Ok(())
}

/// The words of `memory-pinned-prefixes`.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

pub fn pinned_prefixes(value: &Value) -> Verdict {
    const PREFIX_BYTES_MAX: usize = 256;
    refuse(words(text(value)).count() > PREFIX_PINS_MAX, "there can be at most 16 pinned prefixes")?;
    let has_long = words(text(value)).any(|word| word.len() > PREFIX_BYTES_MAX);
    refuse(has_long, "a pinned prefix can have at most 256 bytes")
}

pub fn prefix_separator(value: &Value) -> Verdict {
    refuse(text(value).len() > 1, "the separator of prefixes is one byte, or none")
}

fn refuse(condition: bool, reason: &'static str) -> Verdict {
    if condition { Err(reason) } else { Ok(()) }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Number(number) => *number,
        Value::Text(_) => unreachable!("the rule belongs to a number"),
    }
}

fn text(value: &Value) -> &[u8] {
    match value {
        Value::Text(text) => text,
        Value::Number(_) => unreachable!("the rule belongs to a text"),
    }
}

fn parses<T: std::str::FromStr>(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<T>().is_ok())
}

fn is_path(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'/' | b'\\'))
}

/// Fit for the cluster's file of nodes.
fn is_plain_word(text: &[u8]) -> bool {
    const DELETE: u8 = 0x7f;
    !text.iter().any(|byte| *byte <= b',' || *byte == DELETE || b";<=>?@[]^{|}~\\".contains(byte))
}

/// Accepts the locales that compare texts by their bytes.
pub fn locale(value: &Value) -> Verdict {
    let is_plain = matches!(text(value), b"" | b"C" | b"POSIX" | b"C.UTF-8" | b"C.utf8");
    refuse(!is_plain, "Invalid locale name")
}
