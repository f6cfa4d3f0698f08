//! The command line client and the load generator.
//!
//! **Architecture invariant:** `cli` knows a server only by what it answers: the protocol, and COMMAND DOCS,
//! INFO, SCAN, CLUSTER SLOTS; the cluster manager also by the other commands of CLUSTER, and MIGRATE. It
//! links nothing of the server, and serves any server that speaks the protocol.
//!
//! Reading order: how a server is reached (`address`, `connection`), how a reply looks (`text`, `render`),
//! what the command line says (`options`), what a connection becomes by its commands (`session`,
//! `cluster::topology`), what is known of commands (`docs`, `hint`, `help`), the conversation (`terminal`,
//! `line`, `preferences`, `conversation`), everything else one can be asked for (`modes`), the cluster
//! manager (`cluster`), and the load generator (`bench`).

pub mod address;
pub mod connection;
pub mod text;

pub mod render;

pub mod options;
pub mod tls;
pub mod usage;

pub mod cluster;
pub mod session;

pub mod docs;
pub mod help;
pub mod hint;

pub mod conversation;
pub mod line;
pub mod preferences;
pub mod terminal;

pub mod modes;

pub mod bench;

/// Result whose error is a text for the user; the text is empty if it has been printed already.
pub type Fallible<T = ()> = Result<T, String>;

/// A number that differs from run to run and from machine to machine.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Version of Valkey's client that this one stands for.
const VALKEY_VERSION: &str = "9.1.2";
/// Names of files of this program that stand for Valkey's.
const THEIR_NAMES: [&str; 2] = ["valkey-cli", "redis-cli"];

// COMPAT(tools): `--version` of the client prints `valkey-cli 9.1.2`, with `isotherm=` and the own version
// behind it, where its file is called `valkey-cli` or `redis-cli`. Why: scripts compare that version.
/// Returns the line of `--version`. `program`: as it was called.
pub fn version_line(program: &std::ffi::OsStr) -> String {
    let name = std::path::Path::new(program).file_name();
    match name.is_some_and(|name| THEIR_NAMES.iter().any(|theirs| name == *theirs)) {
        true => format!("valkey-cli {VALKEY_VERSION} isotherm={VERSION}\n"),
        false => format!("isotherm-cli {VERSION}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_its_names_it_says_what_valkey_says() {
        let theirs = format!("valkey-cli 9.1.2 isotherm={VERSION}\n");
        let ours = format!("isotherm-cli {VERSION}\n");
        for (name, line) in [
            ("valkey-cli", &theirs),
            ("/usr/bin/redis-cli", &theirs),
            ("isotherm-cli", &ours),
            ("redis-cli/isotherm-cli", &ours),
            ("", &ours),
        ] {
            assert_eq!(version_line(name.as_ref()), *line, "{name}");
        }
    }
}
