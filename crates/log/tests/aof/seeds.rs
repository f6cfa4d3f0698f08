//! Crashes and faults at any call: after each start the files hold a prefix of the log, and all that was
//! announced as durable.

use crate::machine::Run;
use crate::recovery::{Recovered, recover};
use isotherm_disk::{Call, Damage, Disk, Fault, FullDisk, Plan, RandomFault, SimDisk};
use isotherm_log::LogOffset;
use isotherm_log::writer::{FsyncPolicy, Input, Ms};
use isotherm_persist::aof::commit::Lines;
use isotherm_stdx::Prng;
use std::io;
use std::path::Path;

const POLICIES: [FsyncPolicy; 3] = [FsyncPolicy::Always, FsyncPolicy::EverySecond, FsyncPolicy::No];

fn random_plan(prng: &mut Prng) -> Plan {
    let mut random_faults = Vec::new();
    let rare = [Call::SetLen, Call::Open, Call::Rename, Call::SyncDir, Call::Remove];
    for _ in 0..prng.below(4) {
        let fault = *prng.pick(&[Fault::Io, Fault::NoSpace, Fault::Short]);
        let call = if prng.one_in(3) { *prng.pick(&rare) } else { *prng.pick(&[Call::Write, Call::Sync]) };
        random_faults.push(RandomFault { call, fault, one_in: 1 + prng.below(8) });
    }
    let damage = Damage { torn: prng.one_in(2), reordered: prng.one_in(2), old_blocks: prng.one_in(2) };
    Plan {
        crash_at: prng.one_in(2).then(|| prng.below(120)),
        random_faults,
        quota_bytes: prng.one_in(5).then(|| prng.below(200_000)),
        full_disk: if prng.one_in(2) { FullDisk::AtWrite } else { FullDisk::AtSync },
        damage,
        writeback_one_in: prng.below(5),
        ..Plan::default()
    }
}

/// A start may crash too: it is repeated.
fn start(disk: &SimDisk, lines: Lines, prng: &mut Prng) -> io::Result<Option<Recovered>> {
    while prng.one_in(3) {
        disk.set_plan(Plan { crash_at: Some(prng.below(20)), ..Plan::default() });
        let is_stopped = recover(disk, lines).is_err();
        disk.restart(Plan::default());
        if !is_stopped {
            break;
        }
    }
    recover(disk, lines)
}

fn step(run: &mut Run, number: u64, prng: &mut Prng) {
    match prng.below(16) {
        0..5 => {
            let len = if prng.one_in(20) { prng.below(60_000) } else { prng.below(300) };
            let bytes = vec![b'a' + (number % 26) as u8; len as usize + 1];
            run.append(&bytes, prng.one_in(5));
        }
        5..7 => run.collect(),
        7..10 => run.make_call(),
        10..12 => run.move_sync(prng),
        12 => run.pass(prng.below(700)),
        13 if prng.one_in(2) => run.cut(),
        14 => run.save_base(),
        15 if prng.one_in(20) => run.input(Input::Flush),
        15 if prng.one_in(20) => run.input(Input::Policy(*prng.pick(&POLICIES))),
        _ => {}
    }
}

/// Checks that everything that the run before has left is there.
fn check(found: Option<&Recovered>, run: &Run, seed: u64) {
    let Some(found) = found else {
        assert_eq!(run.durable, LogOffset(0), "seed {seed}: nothing was durable");
        return;
    };
    assert!(found.end() >= run.durable, "seed {seed}: durable to {}, found {}", run.durable, found.end());
    assert!(found.end() <= run.end(), "seed {seed}");
    let from = found.start.max(LogOffset(0));
    assert!(run.slice(from, found.end()) == found.bytes, "seed {seed}: other bytes than the log's");
}

fn run_seed(seed: u64) {
    let mut prng = Prng::new(seed);
    let disk = SimDisk::new(seed, Plan::default());
    disk.create_dir(Path::new("aof")).expect("no fault");
    disk.sync_dir(Path::new("")).expect("no fault");
    let lines = if prng.one_in(2) { Lines::All } else { Lines::WhereNeeded };
    let (mut found, mut now, mut needs_base) = (None, Ms(0), false);
    for _ in 0..4 {
        let policy = *prng.pick(&POLICIES);
        disk.set_plan(Plan::default());
        let awaits_base = prng.one_in(5);
        let mut run = Run::new(disk.clone(), lines, policy, found, awaits_base, now);
        disk.set_plan(random_plan(&mut prng));
        for number in 0..prng.below(400) {
            step(&mut run, number, &mut prng);
            if disk.is_stopped() || run.has_exited {
                break;
            }
        }
        if !disk.is_stopped() && !run.has_exited {
            heal(&mut run, &disk, seed);
        }
        disk.check_invariants();
        if prng.one_in(3) && !disk.is_stopped() {
            disk.kill(Plan::default());
        } else {
            disk.restart(Plan::default());
        }
        needs_base |= run.needs_base;
        found = match start(&disk, lines, &mut prng) {
            // It was asked for, and there was no time to write it.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && needs_base => return,
            found => found.unwrap_or_else(|error| panic!("seed {seed}: {error}")),
        };
        check(found.as_ref(), &run, seed);
        now = run.now;
    }
}

/// The disk works again: so does the writer, without a restart, and all becomes durable.
fn heal(run: &mut Run, disk: &SimDisk, seed: u64) {
    disk.set_plan(Plan::default());
    for _ in 0..4 {
        run.settle();
        run.pass(1100);
    }
    run.append(b"after", false);
    run.cut();
    run.settle();
    run.save_base();
    run.input(Input::Flush);
    run.settle();
    assert!(!run.is_refusing, "seed {seed}: writes are accepted again");
    assert_eq!(run.durable, run.end(), "seed {seed}: all is durable");
}

#[test]
fn what_is_durable_survives() {
    (0..1_000).for_each(run_seed);
}

/// `cargo test -p isotherm-log --test aof more_seeds -- --ignored`, with `SEEDS=a..b` or without.
#[test]
#[ignore = "minutes"]
fn more_seeds() {
    let range = std::env::var("SEEDS").unwrap_or_else(|_| "1000..10000".to_string());
    let (from, to) = range.split_once("..").expect("SEEDS=a..b");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    (number(from)..number(to)).for_each(run_seed);
}

/// A crash at each call of a course of everything that the writer does loses nothing durable.
#[test]
fn a_crash_at_every_call_of_one_course() {
    for policy in POLICIES {
        let mut calls = 0;
        for crash_at in 0..1_000 {
            let disk = SimDisk::new(crash_at, Plan::default());
            disk.create_dir(Path::new("aof")).expect("no fault");
            disk.sync_dir(Path::new("")).expect("no fault");
            let faults = vec![(40, Fault::Io)];
            let plan = Plan { crash_at: Some(crash_at), faults, damage: Damage::ALL, ..Plan::default() };
            disk.set_plan(plan);
            let mut run = Run::new(disk.clone(), Lines::All, policy, None, false, Ms(0));
            for number in 0..12_u8 {
                run.append(&[b'a' + number; 700], number % 4 == 0);
                run.settle();
                if number % 3 == 2 {
                    run.cut();
                    run.append(b"behind the cut", false);
                    run.settle();
                    run.save_base();
                }
                run.pass(600);
                if disk.is_stopped() {
                    break;
                }
            }
            let is_over = !disk.is_stopped();
            calls = disk.calls();
            disk.restart(Plan::default());
            check(recover(&disk, Lines::All).expect("no fault").as_ref(), &run, crash_at);
            if is_over {
                break;
            }
        }
        assert!(calls > 60, "{policy:?}: the course has {calls} calls");
    }
}
