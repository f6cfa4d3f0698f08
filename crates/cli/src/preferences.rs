//! Preferences that a person may set, and which lines must not be kept.

use std::fs;
use std::path::PathBuf;

use isotherm_stdx::args_split::{Dialect, args_split};

use crate::options::ours_or_theirs;

/// Lines that begin with a colon are for us and not for the server.
#[derive(Debug)]
pub struct Preferences {
    pub hints: bool,
}

impl Default for Preferences {
    fn default() -> Preferences {
        Preferences { hints: true }
    }
}

impl Preferences {
    /// Obeys `:set x` or `:get x`; returns what is to be said about it.
    pub fn apply(&mut self, words: &[Vec<u8>], subscribed: bool, place: &str) -> String {
        let word = |at: usize| words.get(at).map(|word| String::from_utf8_lossy(word).to_ascii_lowercase());
        let (name, what) = (word(0).unwrap_or_default(), word(1));
        match (name.as_str(), what.as_deref()) {
            (":set", Some("hints")) => self.hints = true,
            (":set", Some("nohints")) => self.hints = false,
            (":set", Some(what)) => return format!("{place}unknown isotherm-cli preference '{what}'\n"),
            (":get", Some("pubsub")) => return format!("{}\n", u8::from(subscribed)),
            (":get", Some(what)) => return format!("{place}unknown isotherm-cli get option '{what}'\n"),
            _ => return format!("{place}unknown isotherm-cli internal command '{name}'\n"),
        }
        String::new()
    }

    /// Obeys the file of the person, if there is one.
    pub fn load(&mut self) -> String {
        let Some(text) = dotfile("RCFILE", ".isothermclirc").and_then(|path| fs::read(path).ok()) else {
            return String::new();
        };
        let lines = text.split(|&byte| byte == b'\n');
        lines
            .filter_map(|line| args_split(line, Dialect::File).ok())
            .filter(|words| !words.is_empty())
            .map(|words| self.apply(&words, false, ".isothermclirc: "))
            .collect()
    }
}

/// A file of the person: where the environment says, else in the home folder. `None` if there is to be none.
pub fn dotfile(name: &str, default: &str) -> Option<PathBuf> {
    match ours_or_theirs(name).filter(|path| !path.is_empty()) {
        Some(path) if path == "/dev/null" => None,
        Some(path) => Some(path.into()),
        None => {
            let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
            Some(PathBuf::from(home).join(default))
        }
    }
}

/// True if the line holds a password or the like: it is remembered, but not written down.
pub fn is_secret(words: &[Vec<u8>]) -> bool {
    let is = |at: usize, names: &[&str]| {
        words.get(at).is_some_and(|word| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes())))
    };
    let count = words.len();
    if is(0, &["auth"]) || is(0, &["acl"]) && is(1, &["deluser", "setuser", "getuser"]) {
        return true;
    }
    if is(0, &["config"]) && is(1, &["set"]) {
        return (2..count).step_by(2).any(|at| is(at, &SECRET_PARAMETERS));
    }
    if is(0, &["hello"]) {
        return (2..count).any(|at| is(at, &["auth"]) && count - 1 - at >= 2);
    }
    if is(0, &["migrate"]) {
        let keys = (6..count).find(|&at| is(at, &["keys"])).unwrap_or(count);
        return (6..keys).any(|at| is(at, &["auth", "auth2"]) && at + 1 < count);
    }
    is(0, &["sentinel"])
        && count > 4
        && (is(1, &["config"]) && is(2, &["set"]) && is(3, &["sentinel-pass", "sentinel-user"])
            || is(1, &["set"]) && is(3, &["auth-pass", "auth-user"]))
}

const SECRET_PARAMETERS: [&str; 7] = [
    "masterauth",
    "masteruser",
    "primaryauth",
    "primaryuser",
    "requirepass",
    "tls-client-key-file-pass",
    "tls-key-file-pass",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn preferences() {
        let mut preferences = Preferences::default();
        let mut say = |line: &str| preferences.apply(&words(line), true, "");
        assert_eq!(say(":set nohints"), "");
        assert_eq!(say(":get pubsub"), "1\n");
        assert_eq!(say(":set x"), "unknown isotherm-cli preference 'x'\n");
        assert_eq!(say(":get x"), "unknown isotherm-cli get option 'x'\n");
        assert_eq!(say(":set"), "unknown isotherm-cli internal command ':set'\n");
        assert!(!preferences.hints);
    }

    #[test]
    fn secrets() {
        for line in [
            "AUTH x",
            "acl setuser u >p",
            "config set maxmemory 1 RequirePass x",
            "hello 3 auth u p",
            "hello 3 setname n auth u p",
            "migrate h 1 k 0 1 copy auth p",
            "migrate h 1 k 0 1 auth2 u p",
            "sentinel set m auth-pass p",
            "sentinel config set sentinel-pass p",
        ] {
            assert!(is_secret(&words(line)), "{line}");
        }
        for line in
            ["get auth", "acl list", "config get requirepass", "config set a requirepass", "hello 3 auth"]
        {
            assert!(!is_secret(&words(line)), "{line}");
        }
        assert!(!is_secret(&words("migrate h 1 k 0 1 keys auth p")));
    }
}
