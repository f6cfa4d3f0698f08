//! The stages: the commands, and the lane and phase of each.
//!
//! ```text
//! phase   lane that waits                    lane that works
//! 1       house
//! 2       build, tests                       lints, fuzz, miri, locks
//! 3       stress
//! 4       kills, pressure, sentinel, ...     sim, differential, ...
//! 5       allocators
//! ```
//!
//! `build` makes all that later stages run, in one profile, by one command. `stress` judges times, so it is
//! alone; what builds the server again, with other features and in the place of the first, is last.

use std::time::Duration;

use super::limit;

/// Calls of `cargo xtask` that pass or fail together.
pub struct Stage {
    pub name: &'static str,
    pub calls: &'static [&'static str],
    /// Time for each call.
    pub limit: Duration,
    /// Exit code of a call that is made once more: what was late may be the machine's doing.
    pub late_code: Option<i32>,
    /// After its failure, no other stage of its lane begins.
    pub others_need_it: bool,
    /// Makes only one of the calls, drawn by the commit's hash; `--all` makes all.
    pub one_is_drawn: bool,
}

const fn stage(name: &'static str, limit: Duration, calls: &'static [&'static str]) -> Stage {
    Stage { name, calls, limit, late_code: None, others_need_it: false, one_is_drawn: false }
}

const HOUSE: Stage = stage("house", limit(300), &["check format tidy licences"]);

const BUILD: Stage = Stage { others_need_it: true, ..stage("build", limit(2400), &["build"]) };
pub const TESTS: Stage = stage("tests", limit(2400), &["test --simulations-elsewhere"]);

const LINTS: Stage = stage("lints", limit(1200), &["check lints"]);
const FUZZ: Stage = stage("fuzz", limit(1500), &["fuzz --seconds 10"]);
const MIRI: Stage = stage("miri", limit(1200), &["miri arena page"]);
/// Layouts above the pages, minutes each.
const LAYOUTS: Stage = Stage {
    one_is_drawn: true,
    ..stage("miri-layouts", limit(1200), &["miri zset", "miri list", "miri stream"])
};
/// Interleavings of the locks and of the log.
const LOCKS: Stage = stage("locks", limit(600), &["locks"]);

/// Everything at once, from printed seeds, of 48 clients, so that two cores are enough for them: nothing
/// hangs, nothing is lost. Exit code 2: something was late and nothing else. A loss, a malformed reply or an
/// ended server fails at once. Then new connections during everything that one client may do.
const STRESS: Stage = Stage {
    late_code: Some(2),
    ..stage("stress", limit(1200), &["stress --seeds 6 --seconds 300 --clients 48", "stress liveness"])
};

/// Persistence on a simulated disk: 1,000 seeds, and a crash at each call.
const SIM: Stage = stage("sim", limit(900), &["sim --seeds 0..1000"]);
/// Random commands to both Isotherm and Valkey; then with every value out of memory as soon as it may, and
/// with small keys too; then by five connections in a fixed order.
const DIFFERENTIAL: Stage = stage(
    "differential",
    limit(600),
    &[
        "conformance --if-possible differential --commands 100000",
        "conformance --if-possible differential --commands 60000 --seed 7 --swap-chaos yes",
        "conformance --if-possible differential --commands 60000 --seed 8 --swap-chaos yes --ours-arg --swap-freeze --ours-arg yes",
        "conformance --if-possible interleave --steps 20000",
    ],
);
/// Descriptions of commands by both servers, and where they find the keys of requests.
const DECLARED: Stage = stage("declared", limit(300), &["conformance --if-possible declared"]);
/// Values dumped by each server and restored by the other.
const TRANSFER: Stage = stage("transfer", limit(300), &["conformance --if-possible transfer --with-redis"]);

/// kill -9 under load: what was answered is there after the restart.
const KILLS: Stage =
    stage("kills", limit(300), &["stress kills --rounds 20", "stress kills --rounds 10 --policy everysec"]);
/// Memory and the disk of values are short: nothing is lost or refused before its turn, and all work
/// continues.
const PRESSURE: Stage = stage("pressure", limit(300), &["stress pressure"]);
/// kill -9 of a primary: what was answered is at the replica that Valkey's sentinels promote.
const SENTINEL: Stage = stage("sentinel", limit(300), &["stress --if-possible sentinel --rounds 5"]);
/// Primaries and replicas of each make and version.
const FOLLOW: Stage =
    stage("follow", limit(300), &["conformance --if-possible follow --all --commands 5000"]);
/// Common clients; those that cannot be installed are skipped.
const CLIENTS: Stage = stage("clients", limit(600), &["clients"]);
/// Libraries that work by scripts, compared with Valkey: those that take seconds.
const SCRIPTS: Stage = stage("scripts", limit(600), &["clients scripts --quick yes"]);
/// Slots that move in a cluster while libraries write: no key lost, doubled or stale.
const SLOTS: Stage = stage("slots", limit(400), &["clients cluster --quick yes"]);

/// The server under its other allocators.
const ALLOCATORS: Stage = Stage {
    one_is_drawn: true,
    ..stage("allocators", limit(900), &["allocators mimalloc", "allocators tcmalloc", "allocators system"])
};

type Lanes = &'static [&'static [Stage]];

pub const PHASES: &[Lanes] = &[
    &[&[HOUSE]],
    &[&[BUILD, TESTS], &[LINTS, FUZZ, MIRI, LAYOUTS, LOCKS]],
    &[&[STRESS]],
    &[
        &[KILLS, PRESSURE, SENTINEL, FOLLOW, CLIENTS, SCRIPTS, SLOTS],
        &[SIM, DIFFERENTIAL, DECLARED, TRANSFER],
    ],
    &[&[ALLOCATORS]],
];

fn all() -> impl Iterator<Item = &'static Stage> {
    PHASES.iter().flat_map(|phase| phase.iter()).flat_map(|lane| lane.iter())
}

pub fn is_known(name: &str) -> bool {
    all().any(|stage| stage.name == name)
}

/// The stages and their calls, for people.
pub fn list() -> String {
    let mut text = String::new();
    for stage in all() {
        let drawn = if stage.one_is_drawn {
            "  (one of them is drawn by the commit's hash; all with --all)"
        } else {
            ""
        };
        text.push_str(&format!("{}{drawn}\n", stage.name));
        stage.calls.iter().for_each(|call| text.push_str(&format!("    cargo xtask {call}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_short() {
        let mut names: Vec<&str> = all().map(|stage| stage.name).collect();
        assert!(names.iter().all(|name| name.len() <= 12));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
