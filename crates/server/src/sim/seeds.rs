//! Seeds: some lives of a machine each.

use isotherm_stdx::Prng;
use std::panic::AssertUnwindSafe;

use super::counts::Counts;
use super::machine::{Machine, UNREADABLE, Violation};
use isotherm_runtime::log::{self, Level};
use isotherm_runtime::time::simulated as clock;

const LIVES: u64 = 4;

/// The parameters of one life.
fn parameters(prng: &mut Prng, has_lines: bool) -> Vec<String> {
    let policy = *prng.pick(&["always", "always", "everysec", "no"]);
    let mut all = vec!["--appendonly yes".to_string(), format!("--appendfsync {policy}")];
    all.push(format!("--aof-integrity-check {}", if has_lines { "yes" } else { "no" }));
    all.push(format!("--aof-use-rdb-preamble {}", if prng.one_in(3) { "no" } else { "yes" }));
    if prng.one_in(3) {
        all.push("--aof-timestamp-enabled yes".to_string());
    }
    if prng.one_in(2) {
        all.push("--aof-prepare-bytes 32kb".to_string());
    }
    if prng.one_in(3) {
        all.push("--auto-aof-rewrite-min-size 2kb".to_string());
    }
    let mut all: Vec<String> = all.iter().flat_map(|text| text.split(' ').map(String::from)).collect();
    if prng.one_in(4) {
        // FLUSHALL then writes the file too.
        all.extend(["--save", "3600 1", "--stop-writes-on-bgsave-error", "no"].map(String::from));
    }
    all
}

pub fn run_seed(seed: u64) -> Result<Counts, Violation> {
    let mut machine = Machine::new(seed);
    let has_lines = !machine.prng.one_in(6);
    machine.may_lose_power = has_lines;
    for _ in 0..LIVES {
        let parameters = parameters(&mut machine.prng, has_lines);
        let mut process = machine.start(&parameters)?;
        if machine.prng.one_in(4) {
            process = machine.check_again(process, &parameters)?;
        }
        let plan = machine.plan_of_life();
        machine.disk.set_plan(plan);
        for _ in 0..machine.prng.below(250) {
            machine.step(&mut process)?;
            if !machine.is_alive() {
                break;
            }
        }
        if machine.is_alive() && machine.prng.one_in(2) {
            machine.heal(&mut process)?;
        }
        machine.end(process)?;
        if machine.prng.one_in(3) {
            machine.check_rdb(&parameters)?;
        }
    }
    clock::set(None);
    Ok(machine.counts)
}

/// Runs these seeds, or those of `SEEDS`. Of how many a start was refused as it has to be.
pub fn run_all(seeds: &str, mut run: impl FnMut(u64) -> Result<(), Violation>) -> u64 {
    log::set_level(if std::env::var_os("SIM_TRACE").is_some() { Level::Notice } else { Level::Nothing });
    let range = std::env::var("SEEDS").unwrap_or_else(|_| seeds.to_string());
    let (from, to) = range.split_once("..").expect("SEEDS=a..b");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (mut unreadable, mut violations) = (0, Vec::new());
    for seed in number(from)..number(to) {
        let ran = std::panic::catch_unwind(AssertUnwindSafe(|| run(seed)));
        match ran.unwrap_or_else(|_| Err("a panic, see above".to_string())) {
            Ok(()) => {}
            Err(why) if why == UNREADABLE => unreadable += 1,
            Err(why) => violations.push(format!("seed {seed}: {why}")),
        }
    }
    let shown = violations.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(violations.is_empty(), "{} violations:\n{shown}", violations.len());
    unreadable
}

/// `cargo xtask sim --seeds a..b` for others than these; `SIM_TRACE=1` shows what happens in one.
#[test]
fn what_is_durable_survives() {
    let mut all = Counts::default();
    let unreadable = run_all("0..60", |seed| run_seed(seed).map(|counts| all.add(&counts)));
    println!("{all:?}, {unreadable} unreadable");
    assert!(all.rewrites + all.saves + all.crashes > 0);
}
