//! Primaries and replicas on a simulated network: both sides of the link as they run in the server, in one
//! thread, by a seed.
//!
//! ```text
//!   seed --> who moves next, how long a packet takes, what breaks
//!
//!   clients --> [node 0: primary] ~~ link ~~ [node 1] ~~ link ~~ [node 3]      links delay, are cut, fall silent in one direction
//!                     ~~ link ~~ [node 2]                                      nodes stop, and start again with what they had on disk
//! ```
//! A node's data is the list of writes that it has applied. Checked after each step: two nodes with the same
//! name of a history and the same offset have the same list. With a quorum of one, each write that was
//! answered is in the list of every later primary: the operator promotes the node that is furthest. When all
//! faults are over, all nodes come to have the same list.
//!
//! `SEEDS=0..10000 cargo test -p isotherm-replication --test sim` runs other seeds than the usual ones; one
//! that fails is named.

mod data;
mod net;
mod node;
mod world;

use std::ops::Range;

/// The seeds of a usual run.
const SEEDS: Range<u64> = 0..500;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else { return SEEDS };
    let bounds = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    bounds.expect("SEEDS is a range, like 0..10000")
}

#[test]
fn histories_agree_and_answered_writes_stay() {
    let mut total = world::Counts::default();
    for seed in seeds() {
        let counts = std::panic::catch_unwind(|| world::run(seed)).unwrap_or_else(|_| {
            panic!("seed {seed}: repeat it by SEEDS={seed}..{}", seed + 1);
        });
        total.add(&counts);
    }
    println!("{total:?}");
    total.check_breadth();
}

/// The checks can fail: the operator promotes a replica that is not the furthest.
#[test]
#[should_panic(expected = "was answered, and is lost")]
fn a_promotion_of_any_replica_is_found() {
    (0..500).for_each(|seed| {
        world::run_promoting_any(seed);
    });
}
