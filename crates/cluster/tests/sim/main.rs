//! 5 to 50 nodes in one thread, on a network that delays, cuts and loses, with disks that are slow, from one
//! seed.
//!
//! ```sh
//! SEEDS=0..500 MINUTES=30 cargo test -p isotherm-cluster --test sim
//! ```
//! After each run there is a quiet time of four node timeouts; then all nodes have one view of the cluster:
//! each slot has one owner (a move that was cut is mended first, as `--cluster fix` does it), no two
//! primaries with slots have one configuration epoch, and all nodes know each other.

mod world;

use world::World;

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("SEEDS").unwrap_or_else(|_| "0..4".to_string());
    let (from, to) = text.split_once("..").expect("SEEDS=from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn minutes() -> u64 {
    std::env::var("MINUTES").map_or(1, |text| text.parse().expect("a number"))
}

#[test]
fn one_view_after_any_trouble() {
    for seed in seeds() {
        let mut world = World::new(seed);
        world.create();
        world.trouble(minutes() * 60_000);
        world.quiet();
        if let Err(why) = world.check_agreement() {
            panic!("seed {seed}: {why}\n{}", world.report());
        }
        // Shown with --nocapture, for runs of many seeds.
        println!("seed {seed}: {} nodes, clean", world.size());
    }
}

/// The node acts as if it were a member, and tries to be one again.
#[test]
fn a_node_that_all_others_have_forgotten_stays_out_until_it_is_met() {
    const NODES: usize = 5;
    let mut world = World::of_size(1, NODES);
    world.create();
    let out = NODES - 1;
    world.forget(out);
    for second in 0..60 {
        world.run(1000);
        assert_eq!(world.knowers(out), 0, "second {second}: {}", world.report());
    }
    world.meet(0, out);
    world.run(20_000);
    world.check_agreement().unwrap_or_else(|why| panic!("{why}: {}", world.report()));
    // It is the one that an administrator talks to.
    world.forget(out);
    world.run(20_000);
    assert_eq!(world.knowers(out), 0);
    world.meet(out, 1);
    world.run(20_000);
    world.check_agreement().unwrap_or_else(|why| panic!("{why}: {}", world.report()));
}

#[test]
fn a_seed_gives_the_same_run() {
    let run = || {
        let mut world = World::new(3);
        world.create();
        world.trouble(60_000);
        world.fingerprint()
    };
    assert_eq!(run(), run());
}
