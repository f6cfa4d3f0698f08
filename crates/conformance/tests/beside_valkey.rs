//! The tools against a real Valkey: it agrees with itself, each fault on purpose is found and explained in a
//! few steps, and its replication stream is the one that the golden file holds. Needs `ISOTHERM_PEER_BIN`; a
//! reported skip without.

use std::path::PathBuf;
use std::time::Duration;

use isotherm_conformance::differential::{Options, Report, Target, attach, run};
use isotherm_conformance::effects::{differences, golden, observe};
use isotherm_conformance::faults::{FAULTS, Fault};
use isotherm_conformance::interleave;

fn valkey() -> Option<PathBuf> {
    match std::env::var_os("ISOTHERM_PEER_BIN") {
        Some(folder) => Some(PathBuf::from(folder).join("valkey-server")),
        None => {
            eprintln!("skipped: ISOTHERM_PEER_BIN does not say where Valkey's programs are");
            None
        }
    }
}

const FAULTY_GROUPS: [&str; 3] = ["string", "generic", "transactions"];

fn compare_with_itself(valkey: PathBuf, fault: Option<Fault>, commands: u64) -> Report {
    let target = Target::Binary(valkey, Vec::new());
    let options = Options {
        ours: target.clone(),
        theirs: target,
        commands,
        seed: 7,
        session: None,
        // The faults are in commands of these; among those of all groups they would be met too seldom.
        groups: if fault.is_some() { FAULTY_GROUPS.map(String::from).to_vec() } else { Vec::new() },
        fault,
        shown_max: 1,
        swap_chaos: false,
    };
    run(&options).unwrap()
}

#[test]
fn valkey_agrees_with_itself() {
    let Some(valkey) = valkey() else { return };
    let report = compare_with_itself(valkey, None, 3000);
    assert!(report.compared >= 3000);
    assert_eq!(report.differences.len(), 0, "{:?}", report.differences);
}

#[test]
fn every_fault_is_found_and_explained() {
    for (name, fault) in FAULTS {
        let Some(valkey) = valkey() else { return };
        let report = compare_with_itself(valkey, Some(fault), 10_000);
        assert!(!report.differences.is_empty(), "{name}");
        assert!((1..=6).contains(&report.transcript_len), "{name}: {} steps", report.transcript_len);
    }
}

/// Compares a Valkey with `more` arguments with another one, in two sessions.
fn interleave(valkey: PathBuf, more: &[&str], patience: Duration) -> interleave::Report {
    let args = |more: &[&str]| {
        [&["--enable-debug-command", "yes"], more].concat().into_iter().map(String::from).collect()
    };
    let options = interleave::Options {
        ours: Target::Binary(valkey.clone(), args(more)),
        theirs: Target::Binary(valkey, args(&[])),
        steps: 600,
        seed: 7,
        session: None,
        shown_max: 0,
        patience,
    };
    interleave::run(&options).unwrap()
}

#[test]
fn valkey_agrees_with_itself_whatever_meets() {
    let Some(valkey) = valkey() else { return };
    let report = interleave(valkey, &[], interleave::PATIENCE);
    assert!(report.steps >= 600);
    assert_eq!(report.differences.len(), 0, "{:?}", report.differences);
}

#[test]
fn databases_that_are_missing_are_a_difference() {
    let Some(valkey) = valkey() else { return };
    let report = interleave(valkey, &["--databases", "1"], Duration::from_millis(200));
    assert!(!report.differences.is_empty());
}

#[test]
fn the_replication_stream_is_the_golden_one() {
    let Some(valkey) = valkey() else { return };
    let debug = ["--enable-debug-command", "yes"].map(String::from).to_vec();
    let server = attach(&Target::Binary(valkey, debug)).unwrap();
    let expected = golden().unwrap();
    let observed = observe(server.port, &expected).unwrap();
    assert_eq!(differences(&expected, &observed), Vec::<String>::new());
}
