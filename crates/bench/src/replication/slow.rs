//! A replica that reads more slowly than the primary writes: is it dropped, does it start over, and what does
//! it cost the primary?
//!
//! ```text
//!   SETs of 100 B, 100 k/s for 60 s ---> primary ---> brake, 5 MB/s ---> a new replica
//!   |------------- 60 s -------------|------ brake off -----> in sync
//!                                     '------- measured ----'
//! ```
//! Limits are those that the servers have by themselves. Memory is the primary's and that of what it forks
//! (PSS), every quarter of a second, over what it was before the replica came. On disk is what it has in
//! files without a name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::brake::Brake;
use super::cut::equal;
use super::pair::{Syncs, count, digest, is_in_sync, limits};
use crate::load::fill;
use crate::open_loop::OpenLoop;
use crate::options::Options;
use crate::process::{SIDES, Server, Side};
use crate::report::Table;
use crate::shape::{Order, Shape, Values, Verb};
use crate::{Fallible, progress};

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 100;
const PER_SECOND: f64 = 100_000.0;
const SECONDS: u64 = 60;
const READ_PER_SECOND: u64 = 5_000_000;
const CONNECTIONS: usize = 4;
/// After the brake is off; a replica that needs longer is not in sync.
const PATIENCE: Duration = Duration::from_secs(240);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
const BETWEEN_SAMPLES: Duration = Duration::from_millis(250);

#[derive(Default, Clone, Copy)]
struct Peak {
    memory_bytes: u64,
    disk_bytes: u64,
}

struct Outcome {
    sets_per_second: f64,
    log_bytes: u64,
    full: u64,
    in_sync_s: Option<f64>,
    /// Over what it was before.
    memory_bytes: u64,
    disk_bytes: u64,
    are_equal: bool,
}

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let seconds = options.scaled(SECONDS).max(5);
    let mut outcomes = Vec::new();
    for side in SIDES {
        let of = slow(side, seconds, options)?;
        progress(&format!(
            "slow {}: {:.1} k/s, {} of log, {} full syncs, in sync after {}, memory +{}, on disk {}, data {}",
            side.name(),
            of.sets_per_second / 1e3,
            megabytes(of.log_bytes),
            of.full,
            after(of.in_sync_s),
            megabytes(of.memory_bytes),
            megabytes(of.disk_bytes),
            equal(of.are_equal)
        ));
        outcomes.push(of);
    }
    let mut row = |what: &str, show: &dyn Fn(&Outcome) -> String, aim: &str| {
        table.row([what.into(), show(&outcomes[0]), show(&outcomes[1]), "-".into(), aim.into()]);
    };
    let what = format!(
        "SETs of {VALUE_BYTES} B, {:.0} k/s for {seconds} s, a new replica that reads {} MB/s: done",
        PER_SECOND / 1e3,
        READ_PER_SECOND / 1_000_000
    );
    row(&what, &|of| format!("{:.1} k/s, {}", of.sets_per_second / 1e3, megabytes(of.log_bytes)), "-");
    row("full syncs", &|of| of.full.to_string(), "1");
    row("brake off to in sync", &|of| after(of.in_sync_s), "<= 30 s");
    row(
        "peak memory of the primary, over before",
        &|of| format!("+{}", megabytes(of.memory_bytes)),
        "<= +128 MB",
    );
    row("in its files without a name, peak", &|of| megabytes(of.disk_bytes), "-");
    row("data of both", &|of| equal(of.are_equal).to_string(), "equal");
    Ok(())
}

fn slow(side: Side, seconds: u64, options: &Options) -> Fallible<Outcome> {
    let setting = limits(options).with("enable-debug-command", "yes");
    let keys = options.scaled(KEYS);
    let primary = Server::start(side, &setting, options)?;
    let replica = Server::start(side, &setting, options)?;
    let sets = || Shape::new(Verb::Set, keys).values(Values::Fixed(VALUE_BYTES));
    fill(&primary, &mut sets(), keys, "keys")?;
    primary.settle(Duration::from_secs(20))?;
    let before_bytes = primary.proportional_bytes()?;
    let first_offset = count(&primary, "master_repl_offset")?;
    let brake = Brake::start(primary.port, READ_PER_SECOND)?;
    let over = AtomicBool::new(false);
    let (sets_per_second, in_sync_s, peak) = thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(&primary, &over));
        let measured = write_and_release(&primary, &replica, &brake, sets(), seconds);
        over.store(true, Relaxed);
        let peak = sampler.join().map_err(|_| "the sampler panicked".to_string())??;
        let (sets_per_second, in_sync_s) = measured?;
        Fallible::Ok((sets_per_second, in_sync_s, peak))
    })?;
    Ok(Outcome {
        sets_per_second,
        log_bytes: count(&primary, "master_repl_offset")?.saturating_sub(first_offset),
        full: Syncs::of(&primary)?.full,
        in_sync_s,
        memory_bytes: peak.memory_bytes.saturating_sub(before_bytes),
        disk_bytes: peak.disk_bytes,
        are_equal: digest(&primary)? == digest(&replica)?,
    })
}

/// Writes while the brake is on, takes it off, and waits. Returns what was written a second, and the seconds
/// until both were in sync.
fn write_and_release(
    primary: &Server,
    replica: &Server,
    brake: &Brake,
    shape: Shape,
    seconds: u64,
) -> Fallible<(f64, Option<f64>)> {
    replica.client()?.call(&["REPLICAOF", "127.0.0.1", &brake.port.to_string()])?;
    let load = OpenLoop { port: primary.port, connections: CONNECTIONS, per_second: PER_SECOND };
    let begun = Instant::now();
    let times = load.run_for(&mut shape.order(Order::Uniform), Duration::from_secs(seconds))?;
    let per_second = times.count() as f64 / begun.elapsed().as_secs_f64();
    brake.take_off();
    let begun = Instant::now();
    let (mut of_primary, mut of_replica) = (primary.client()?, replica.client()?);
    while begun.elapsed() < PATIENCE {
        if is_in_sync(&mut of_primary, &mut of_replica)? {
            return Ok((per_second, Some(begun.elapsed().as_secs_f64())));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok((per_second, None))
}

fn sample(primary: &Server, over: &AtomicBool) -> Fallible<Peak> {
    let mut peak = Peak::default();
    while !over.load(Relaxed) {
        peak.memory_bytes = peak.memory_bytes.max(primary.proportional_bytes()?);
        peak.disk_bytes = peak.disk_bytes.max(nameless_bytes(primary.id())?);
        thread::sleep(BETWEEN_SAMPLES);
    }
    Ok(peak)
}

/// Returns the disk space of those open files of a process that have no name.
fn nameless_bytes(process: u32) -> Fallible<u64> {
    let folder = format!("/proc/{process}/fd");
    let files = fs::read_dir(&folder).map_err(|why| format!("cannot read {folder}: {why}"))?.flatten();
    let nameless = files.filter(|file| {
        fs::read_link(file.path()).is_ok_and(|target| is_nameless_file(&target.to_string_lossy()))
    });
    // One that is closed by now has nothing. A block of `stat` is 512 B.
    Ok(nameless.filter_map(|file| fs::metadata(file.path()).ok()).map(|file| file.blocks() * 512).sum())
}

/// Returns whether the target that the kernel shows for an open file is a file without a name, and not
/// memory.
fn is_nameless_file(target: &str) -> bool {
    target.starts_with('/') && target.ends_with(" (deleted)") && !target.starts_with("/memfd:")
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn after(seconds: Option<f64>) -> String {
    seconds.map_or(format!("not in {} s", PATIENCE.as_secs()), |seconds| format!("{seconds:.1} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_without_a_name_are_found_and_weighed() {
        assert!(is_nameless_file("/data/#1234 (deleted)"));
        assert!(!is_nameless_file("/memfd:x (deleted)"));
        assert!(!is_nameless_file("/data/dump.rdb"));
        assert!(!is_nameless_file("socket:[1]"));
        let path = std::env::temp_dir().join(format!("isotherm-bench-nameless-{}", std::process::id()));
        let mut file = fs::File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        assert!(nameless_bytes(std::process::id()).unwrap() >= 1 << 20);
    }

    #[test]
    fn one_that_is_not_in_sync_says_so() {
        assert_eq!(after(Some(1.25)), "1.2 s");
        assert_eq!(after(None), "not in 240 s");
    }
}
