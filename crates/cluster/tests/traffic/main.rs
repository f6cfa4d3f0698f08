//! Random bytes as what happens to a node: the same harness as that of the fuzz target `cluster_step`, by
//! seeds.
//!
//! ```sh
//! SEEDS=0..100000 cargo test --profile fast -p isotherm-cluster --test traffic
//! ```

mod node;

use isotherm_stdx::prng::Prng;

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("SEEDS").unwrap_or_else(|_| "0..300".to_string());
    let (from, to) = text.split_once("..").expect("SEEDS=from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn a_node_stands_whatever_others_send() {
    for seed in seeds() {
        let mut random = Prng::new(seed);
        let bytes: Vec<u8> = (0..4000).map(|_| random.below(256) as u8).collect();
        let played = std::panic::catch_unwind(|| node::play(&bytes));
        assert!(played.is_ok(), "seed {seed}");
    }
}
