//! Course of everything that persistence does, with a crash at each of its disk calls.

use isotherm_disk::{Call, Damage, Disk, Fault, Mode, Plan, RandomFault, write_all_at};
use std::path::Path;

use super::machine::{Machine, Violation};
use super::process::Process;
use super::state::State;
use isotherm_runtime::log::{self, Level};
use isotherm_runtime::time::simulated as clock;

const COURSES: [&str; 4] = [
    "--appendfsync always",
    "--appendfsync everysec --aof-use-rdb-preamble no",
    "--appendfsync always --aof-prepare-bytes 32kb --aof-timestamp-enabled yes",
    "--appendfsync no",
];

/// More than any course makes.
const CALLS_MAX: u64 = 1000;

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn parameters(text: &str) -> Vec<String> {
    ["--appendonly", "yes"].into_iter().chain(text.split(' ')).map(String::from).collect()
}

/// Runs the course: commits, EXEC, a rotation by a failed sync, a rewrite, saves.
fn go(machine: &mut Machine, process: &mut Process) -> Result<(), Violation> {
    let long = format!("APPEND k1 {}", "x".repeat(2000));
    let round = [
        "SET k0 1",
        &long,
        "MULTI",
        "INCR k0",
        "SELECT 1",
        "FLUSHDB",
        "RPUSH k2 a b",
        "EXEC",
        "PEXPIRE k2 700",
        "GET k0",
        "BGREWRITEAOF",
        "SET k3 v",
        "BGSAVE",
        "SAVE",
        "SWAPDB 0 1",
        "SELECT 0",
        "HSET k4 f v",
    ];
    for text in round.iter().chain(&round) {
        machine.request_of(process, &words(text))?;
        machine.settle(process, 150)?;
        if !machine.is_alive() {
            return Ok(());
        }
    }
    machine.settle(process, 1500)
}

/// Returns whether the course ended before the crash.
fn crash_at((course, seed): (&str, u64), call: u64) -> Result<bool, Violation> {
    let mut machine = Machine::new(seed);
    machine.starts_fail = false;
    let parameters = parameters(course);
    let random_faults = vec![RandomFault { call: Call::Sync, fault: Fault::Io, one_in: 9 }];
    let plan = Plan { crash_at: Some(call), random_faults, damage: Damage::ALL, ..Plan::default() };
    let is_over = match machine.start_under(plan, &parameters)? {
        None => false,
        Some(mut process) => {
            go(&mut machine, &mut process)?;
            let is_over = !machine.disk.is_stopped();
            machine.end(process)?;
            is_over
        }
    };
    let mut process = machine.start(&parameters)?;
    process = machine.check_again(process, &parameters)?;
    machine.heal(&mut process)?;
    machine.end(process)?;
    machine.check_rdb(&parameters)?;
    machine.start(&parameters)?;
    clock::set(None);
    Ok(is_over)
}

#[test]
fn a_crash_at_every_call() {
    log::set_level(Level::Nothing);
    for course in COURSES {
        // One in which no sync fails at the start: that would be all of its calls.
        let seed = (0..100).find(|seed| crash_at((course, *seed), u64::MAX) == Ok(true)).expect("a seed");
        let mut calls = 0;
        while !crash_at((course, seed), calls).unwrap_or_else(|why| panic!("{course}, call {calls}: {why}")) {
            calls += 1;
            assert!(calls < CALLS_MAX, "{course} does not come to its end");
        }
        println!("{course}: {calls} calls");
        assert!(calls > 100, "{course} has {calls} calls");
    }
}

/// The single file of versions before 7.0 becomes the base, whatever happens meanwhile.
fn upgrade(call: u64) -> Result<bool, Violation> {
    let mut machine = Machine::new(call);
    machine.starts_fail = false;
    let folder = std::env::current_dir().expect("a folder");
    let text = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$2\r\nk0\r\n$3\r\nold\r\n";
    let file = machine.disk.open(&folder.join("appendonly.aof"), Mode::Create).expect("no fault");
    write_all_at(&*file, text, 0).expect("no fault");
    file.sync_all().expect("no fault");
    machine.disk.sync_dir(Path::new(&folder)).expect("no fault");
    let parameters = parameters("--appendfsync always");
    let plan = Plan { crash_at: Some(call), damage: Damage::ALL, ..Plan::default() };
    machine.disk.set_plan(plan);
    let has_all = |state: &State| state.keys().any(|(_, key)| key == b"k0");
    let mut is_over = false;
    if let Ok(mut process) = Process::start(&machine.disk, &parameters, call) {
        if !has_all(&process.state()) {
            return Err("the first start has not loaded it".to_string());
        }
        machine.adopt(&process);
        machine.request_of(&mut process, &words("SET k1 new"))?;
        machine.settle(&mut process, 300)?;
        is_over = !machine.disk.is_stopped();
        machine.end(process)?;
    } else {
        machine.disk.restart(Plan::default());
    }
    for _ in 0..2 {
        let process = machine.start(&parameters)?;
        if !has_all(&process.state()) {
            return Err("a start behind the crash has lost it".to_string());
        }
        machine.end(process)?;
    }
    clock::set(None);
    Ok(is_over)
}

#[test]
fn a_crash_at_every_call_of_an_upgrade() {
    log::set_level(Level::Nothing);
    let mut calls = 0;
    while !upgrade(calls).unwrap_or_else(|why| panic!("call {calls}: {why}")) {
        calls += 1;
    }
    assert!(calls > 15, "{calls} calls");
}
