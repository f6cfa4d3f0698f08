//! Request of a client: the arguments of MIGRATE.

use isotherm_commands::spec::KeyFlags;
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;
use std::time::Duration;

/// Position of the first option.
const OPTIONS_AT: usize = 6;
const KEY_AT: usize = 3;
const TIMEOUT_DEFAULT: Duration = Duration::from_millis(1000);

const KEY_AND_KEYS: &str =
    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string";

/// Word of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Copy,
    Replace,
    /// A password follows.
    Auth,
    /// A user and a password follow.
    Auth2,
    /// All that follows is keys.
    Keys,
    Unknown,
}

impl Word {
    fn of(word: &[u8]) -> Word {
        match word.to_ascii_lowercase().as_slice() {
            b"copy" => Word::Copy,
            b"replace" => Word::Replace,
            b"auth" => Word::Auth,
            b"auth2" => Word::Auth2,
            b"keys" => Word::Keys,
            _ => Word::Unknown,
        }
    }

    /// Arguments that belong to it.
    fn values(self) -> usize {
        match self {
            Word::Auth => 1,
            Word::Auth2 => 2,
            Word::Copy | Word::Replace | Word::Keys | Word::Unknown => 0,
        }
    }
}

/// The options, in their order; KEYS is the last.
fn options(args: Args<'_>) -> impl Iterator<Item = (usize, Word)> {
    let mut at = OPTIONS_AT;
    std::iter::from_fn(move || {
        let found = at;
        let word = Word::of(args.try_get(found)?);
        at = if word == Word::Keys { args.len() } else { found + 1 + word.values() };
        Some((found, word))
    })
}

/// The arguments that are keys.
pub fn find_keys(args: Args<'_>, out: &mut Vec<(usize, KeyFlags)>) {
    let flags = KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE);
    // As its key specifications say: a word with nothing after it is not looked for.
    let has_word = (2..args.len() - 1).any(|at| Word::of(args.get(at)) == Word::Keys);
    let keys = options(args).find(|(_, word)| *word == Word::Keys && has_word);
    match keys {
        None => out.push((KEY_AT, flags)),
        // The command is refused.
        Some(_) if !args.get(KEY_AT).is_empty() => {}
        Some((at, _)) => out.extend((at + 1..args.len()).map(|at| (at, flags))),
    }
}

/// The name and the password of a user.
pub fn is_secret(args: Args<'_>, at: usize) -> bool {
    options(args).any(|(found, word)| word != Word::Keys && (found + 1..=found + word.values()).contains(&at))
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub host: Box<[u8]>,
    pub port: Box<[u8]>,
    pub db: i64,
    /// Time limit of each step: to connect, to write some more, to read a line.
    pub timeout: Duration,
    pub copy: bool,
    pub replace: bool,
    /// The words of AUTH, if it is to be sent.
    pub auth: Vec<Box<[u8]>>,
}

impl Request {
    pub fn parse(args: Args<'_>) -> Result<Request, &'static str> {
        let (mut copy, mut replace, mut auth) = (false, false, Vec::new());
        // A password alone keeps the user that was named before.
        let mut user: Option<Box<[u8]>> = None;
        let mut password: Option<Box<[u8]>> = None;
        for (at, word) in options(args) {
            if at + word.values() >= args.len() {
                return Err(errors::SYNTAX);
            }
            match word {
                Word::Copy => copy = true,
                Word::Replace => replace = true,
                Word::Auth => password = Some(args.get(at + 1).into()),
                Word::Auth2 => {
                    user = Some(args.get(at + 1).into());
                    password = Some(args.get(at + 2).into());
                }
                Word::Keys if !args.get(KEY_AT).is_empty() => return Err(KEY_AND_KEYS),
                Word::Keys => {}
                Word::Unknown => return Err(errors::SYNTAX),
            }
        }
        if let Some(password) = password {
            auth.extend(user);
            auth.push(password);
        }
        let timeout_ms = parse_i64(args.get(5)).ok_or(errors::NOT_AN_INTEGER)?;
        let db = parse_i64(args.get(4)).ok_or(errors::NOT_AN_INTEGER)?;
        let timeout = match u64::try_from(timeout_ms) {
            Err(_) | Ok(0) => TIMEOUT_DEFAULT,
            Ok(ms) => Duration::from_millis(ms),
        };
        let (host, port) = (args.get(1).into(), args.get(2).into());
        Ok(Request { host, port, db, timeout, copy, replace, auth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::ArgsBuf;

    fn args(line: &str) -> ArgsBuf {
        line.split(' ').map(|word| word.strip_prefix('_').unwrap_or(word).as_bytes()).collect()
    }

    #[test]
    fn keys_are_found() {
        let check = |line: &str, expected: &[usize]| {
            let (args, mut out) = (args(line), Vec::new());
            find_keys(args.args(), &mut out);
            assert_eq!(out.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected, "{line}");
        };
        check("migrate h 1 k 0 1", &[3]);
        check("migrate h 1 _ 0 1 COPY keys a b", &[8, 9]);
        check("migrate h 1 _ 0 1 auth keys keys a", &[9]);
        check("migrate h 1 _ 0 1 auth2 keys keys replace keys a", &[11]);
        check("migrate h 1 k 0 1 keys a", &[]);
        check("migrate h 1 _ 0 1 keys", &[3]);
        check("migrate h 1 k 0 1 keys", &[3]);
        check("migrate h 1 k keys 1 _ keys", &[]);
        check("migrate h 1 _ 0 1 auth", &[3]);
    }

    #[test]
    fn requests_are_read() {
        let read = |line: &str| Request::parse(args(line).args());
        let plain = read("migrate h 1 k 3 0").unwrap();
        assert_eq!((plain.db, plain.timeout, plain.copy), (3, TIMEOUT_DEFAULT, false));
        let auth = |line: &str| read(line).unwrap().auth.concat();
        assert_eq!(auth("migrate h 1 k 3 -5 auth a auth2 b c"), b"bc");
        assert_eq!(auth("migrate h 1 k 3 9 auth2 b c auth a"), b"ba");
        for line in ["migrate h 1 k 0 1 x", "migrate h 1 k 0 1 auth", "migrate h 1 k 0 1 auth2 u"] {
            assert_eq!(read(line), Err(errors::SYNTAX), "{line}");
        }
        assert_eq!(read("migrate h 1 k x 1"), Err(errors::NOT_AN_INTEGER));
        assert_eq!(read("migrate h 1 k 0 x"), Err(errors::NOT_AN_INTEGER));
        assert_eq!(read("migrate h 1 k 0 x keys a"), Err(KEY_AND_KEYS));
    }

    #[test]
    fn passwords_are_secret() {
        let line = args("migrate h 1 _ 0 1 auth p auth2 u w keys auth x");
        let secret: Vec<usize> = (0..line.args().len()).filter(|at| is_secret(line.args(), *at)).collect();
        assert_eq!(secret, [7, 9, 10]);
    }
}
