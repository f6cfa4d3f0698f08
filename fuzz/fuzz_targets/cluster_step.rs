//! Any sequence of ticks, links, messages that were turned over on their way, requests, late disks and
//! restarts: no panic, the machine's invariants after each step, files that can be read, and no vote before
//! it is on disk. `node` is what the seeds of the stable tests run, too.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cluster/tests/traffic/node.rs"]
mod node;

fuzz_target!(|input: &[u8]| node::play(input));
