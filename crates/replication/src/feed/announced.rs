//! REPLCONF: what a replica says of itself, in pairs of words.
//!
//! The texts are those that clients of Valkey know. The options before an error take effect.

use isotherm_log::LogOffset;
use isotherm_resp::{Args, errors};
use isotherm_stdx::args_split::{Dialect, args_split};
use isotherm_stdx::parse_i64;

/// An address is no longer than a name in the domain name system.
const ADDRESS_BYTES_MAX: usize = 255;

/// Capabilities that a replica announces.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Capabilities(u8);

impl Capabilities {
    /// A snapshot whose end is a mark.
    pub const EOF: Capabilities = Capabilities(1);
    /// `+CONTINUE` with another name of the history.
    pub const PSYNC2: Capabilities = Capabilities(2);
    pub const SKIP_CHECKSUM: Capabilities = Capabilities(4);

    pub fn has(self, other: Capabilities) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the capabilities that both sides have.
    pub fn and(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & other.0)
    }
}

/// Parts of a snapshot that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Filter {
    pub without_data: bool,
    pub without_functions: bool,
}

#[derive(Clone, Default, Debug)]
pub struct Announced {
    pub listening_port: i64,
    pub address: Option<Box<str>>,
    pub capabilities: Capabilities,
    /// Version of the replica as `0x00MMmmpp`; 0 if it has announced none.
    pub version: u32,
    pub wants_snapshot_only: bool,
    pub filter: Filter,
}

/// Kind of a REPLCONF command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// To be answered with OK.
    Options,
    /// Not to be answered. `None`: no number stands where one should.
    Ack(Option<(LogOffset, Option<LogOffset>)>),
    /// Our primary wants an ACK from us; not to be answered either.
    GetAck,
}

/// A look at whether a word is the id of a node of the cluster; `None`: there is no cluster.
pub type Members<'m> = Option<&'m dyn Fn(&[u8]) -> bool>;

/// The text of an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused(pub Vec<u8>);

fn refused<T>(text: impl Into<Vec<u8>>) -> Result<T, Refused> {
    Err(Refused(text.into()))
}

impl Announced {
    /// `args` begins with the command's name.
    pub fn replconf(&mut self, args: Args<'_>, members: Members<'_>) -> Result<Said, Refused> {
        if args.len().is_multiple_of(2) {
            return refused(errors::SYNTAX);
        }
        for at in (1..args.len()).step_by(2) {
            let (option, value) = (args.get(at).to_ascii_lowercase(), args.get(at + 1));
            match option.as_slice() {
                b"listening-port" => self.listening_port = number(value)?,
                b"ip-address" => self.address = Some(address(value)?),
                b"capa" => self.add_capability(value),
                b"ack" => return Ok(Said::Ack(ack(args, at))),
                b"getack" => return Ok(Said::GetAck),
                b"rdb-only" => self.wants_snapshot_only = zero_or_one(value)?,
                b"rdb-filter-only" => self.filter = filter(value)?,
                b"version" => self.version = version(value)?,
                b"rdb-channel" => _ = zero_or_one(value)?,
                b"set-rdb-client-id" => {
                    return refused(format!("ERR Unrecognized RDB client id {}", number(value)?));
                }
                // A replica's address says as much, so the id is kept nowhere.
                b"set-cluster-node-id" => check_member(value, members)?,
                _ => {
                    return refused(errors::with_bytes(
                        "ERR Unrecognized REPLCONF option: ",
                        args.get(at),
                        "",
                    ));
                }
            }
        }
        Ok(Said::Options)
    }

    /// Adds a capability by its name. A name that is not known adds none.
    fn add_capability(&mut self, name: &[u8]) {
        self.capabilities.0 |= match name.to_ascii_lowercase().as_slice() {
            b"eof" => Capabilities::EOF.0,
            b"psync2" => Capabilities::PSYNC2.0,
            b"skip-rdb-checksum" => Capabilities::SKIP_CHECKSUM.0,
            _ => 0,
        };
    }

    /// Returns whether the replica reads version 80 of the RDB format, which Valkey 9.0 brought.
    pub fn reads_version_80(&self) -> bool {
        self.version >= 0x09_00_00
    }
}

fn check_member(id: &[u8], members: Members<'_>) -> Result<(), Refused> {
    match members {
        None => refused("ERR This instance has cluster support disabled"),
        Some(knows) if knows(id) => Ok(()),
        Some(_) => refused(errors::with_bytes("ERR Unknown node ", id, "")),
    }
}

fn number(text: &[u8]) -> Result<i64, Refused> {
    parse_i64(text).map_or_else(|| refused(errors::NOT_AN_INTEGER), Ok)
}

fn zero_or_one(text: &[u8]) -> Result<bool, Refused> {
    match number(text)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => refused(errors::out_of_range_between(0, 1)),
    }
}

fn address(text: &[u8]) -> Result<Box<str>, Refused> {
    if text.len() > ADDRESS_BYTES_MAX {
        let text =
            format!("ERR REPLCONF ip-address provided by replica instance is too long: {} bytes", text.len());
        return refused(text);
    }
    // Characters that would break a line of INFO are not shown.
    Ok(String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect::<String>().into())
}

fn ack(args: Args<'_>, at: usize) -> Option<(LogOffset, Option<LogOffset>)> {
    let offset = |at: usize| {
        let number = parse_i64(args.try_get(at)?)?;
        Some(LogOffset(u64::try_from(number).unwrap_or(0)))
    };
    let acked = offset(at + 1)?;
    let has_synced = args.try_get(at + 2).is_some_and(|word| word.eq_ignore_ascii_case(b"fack"));
    Some((acked, if has_synced { offset(at + 3) } else { None }))
}

/// Parses a filter. Every part of the snapshot that is not named is left out.
fn filter(text: &[u8]) -> Result<Filter, Refused> {
    let Ok(words) = args_split(text, Dialect::Request) else {
        return refused("ERR Missing rdb-filter-only values");
    };
    let mut filter = Filter { without_data: true, without_functions: true };
    for word in words {
        if !word.eq_ignore_ascii_case(b"functions") {
            return refused(errors::with_bytes("ERR Unsupported rdb-filter-only option: ", &word, ""));
        }
        filter.without_functions = false;
    }
    Ok(filter)
}

/// `major.minor.patch`, each below 256.
fn version(text: &[u8]) -> Result<u32, Refused> {
    let parts: Vec<Option<u32>> = text
        .split(|byte| *byte == b'.')
        .map(|part| parse_i64(part).and_then(|part| u8::try_from(part).ok()).map(u32::from))
        .collect();
    match parts[..] {
        [Some(major), Some(minor), Some(patch)] => Ok(major << 16 | minor << 8 | patch),
        _ => refused(errors::with_bytes("ERR Unrecognized version format: ", text, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::ArgsBuf;

    fn say(announced: &mut Announced, words: &[&str]) -> Result<Said, String> {
        let words: Vec<&[u8]> =
            std::iter::once("replconf").chain(words.iter().copied()).map(str::as_bytes).collect();
        let args = ArgsBuf::from_slices(&words);
        announced.replconf(args.args(), None).map_err(|text| String::from_utf8(text.0).unwrap())
    }

    #[test]
    fn a_node_of_the_cluster() {
        let say = |id: &str, members: Members<'_>| {
            let args = ArgsBuf::from_slices(&[b"REPLCONF", b"SET-CLUSTER-NODE-ID", id.as_bytes()]);
            Announced::default()
                .replconf(args.args(), members)
                .map_err(|text| String::from_utf8(text.0).unwrap())
        };
        let knows = |id: &[u8]| id == b"ab";
        assert_eq!(say("ab", Some(&knows)), Ok(Said::Options));
        assert_eq!(say("abc", Some(&knows)), Err("ERR Unknown node abc".into()));
        assert_eq!(say("ab", None), Err("ERR This instance has cluster support disabled".into()));
    }

    #[test]
    fn what_a_valkey_says() {
        let mut announced = Announced::default();
        assert_eq!(say(&mut announced, &["listening-port", "7001"]), Ok(Said::Options));
        assert_eq!(say(&mut announced, &["capa", "eof", "capa", "PSYNC2", "capa", "lz4"]), Ok(Said::Options));
        assert_eq!(say(&mut announced, &["version", "9.1.2"]), Ok(Said::Options));
        assert!(
            announced.capabilities.has(Capabilities::EOF) && announced.capabilities.has(Capabilities::PSYNC2)
        );
        assert!(!announced.capabilities.has(Capabilities::SKIP_CHECKSUM));
        assert!((announced.listening_port, announced.version) == (7001, 0x09_01_02));
        assert!(announced.reads_version_80());
    }

    #[test]
    fn acknowledgements() {
        let announced = &mut Announced::default();
        let ack = |acked, synced: Option<u64>| Ok(Said::Ack(Some((LogOffset(acked), synced.map(LogOffset)))));
        assert_eq!(say(announced, &["ACK", "12"]), ack(12, None));
        assert_eq!(say(announced, &["ack", "12", "FACK", "7"]), ack(12, Some(7)));
        assert_eq!(say(announced, &["ack", "12", "hack", "7"]), ack(12, None));
        assert_eq!(say(announced, &["ack", "-1"]), ack(0, None));
        assert_eq!(say(announced, &["ack", "x"]), Ok(Said::Ack(None)));
        assert_eq!(say(announced, &["getack", "*"]), Ok(Said::GetAck));
    }

    #[test]
    fn filters() {
        let mut announced = Announced::default();
        assert_eq!(say(&mut announced, &["rdb-filter-only", "functions"]), Ok(Said::Options));
        assert_eq!(announced.filter, Filter { without_data: true, without_functions: false });
        assert_eq!(say(&mut announced, &["rdb-filter-only", ""]), Ok(Said::Options));
        assert_eq!(announced.filter, Filter { without_data: true, without_functions: true });
    }

    #[test]
    fn what_is_refused() {
        let announced = &mut Announced::default();
        let mut refused = |words: &[&str], text: &str| assert_eq!(say(announced, words), Err(text.into()));
        refused(&["listening-port"], errors::SYNTAX);
        refused(&["listening-port", "x"], errors::NOT_AN_INTEGER);
        refused(&["rdb-only", "2"], &errors::out_of_range_between(0, 1));
        refused(&["rdb-filter-only", "functions keys"], "ERR Unsupported rdb-filter-only option: keys");
        refused(&["rdb-filter-only", "\"x"], "ERR Missing rdb-filter-only values");
        refused(&["version", "9.1"], "ERR Unrecognized version format: 9.1");
        refused(&["version", "9.1.256"], "ERR Unrecognized version format: 9.1.256");
        refused(&["set-rdb-client-id", "5"], "ERR Unrecognized RDB client id 5");
        refused(&["monkey", "1"], "ERR Unrecognized REPLCONF option: monkey");
        let long = "x".repeat(300);
        refused(
            &["ip-address", &long],
            "ERR REPLCONF ip-address provided by replica instance is too long: 300 bytes",
        );
    }
}
