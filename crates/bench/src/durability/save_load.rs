//! BGSAVE while keys are written at a fixed rate: the additional memory, and the delay of the slowest
//! requests.
//!
//! Memory is the proportional share (PSS) of the process and of what it has forked. To read it walks all
//! their pages and holds up the process, so memory and times come from different saves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::folder::Folder;
use super::save::wait_for_save;
use super::{Best, Figures, ratio, two_workers};
use crate::load::{Load, Until, fill};
use crate::open_loop::OpenLoop;
use crate::options::Options;
use crate::process::{SIDES, Server, Side};
use crate::report::Table;
use crate::shape::{Order, Shape, Verb};
use crate::{Fallible, progress};

const KEYS: u64 = 10_000_000;
const SETS_PER_SECOND_MAX: f64 = 200_000.0;
/// Part of the highest rate that Valkey can serve.
const SHARE: f64 = 0.6;
pub const CONNECTIONS: usize = 50;
const BEFORE: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    let (mut memory, mut late) = (Figures::default(), Figures::default());
    let mut per_second = None;
    for side in SIDES {
        let folder = Folder::new(options, "save-load")?;
        let server = Server::start(side, &two_workers(options).with("dir", folder.text()), options)?;
        fill(&server, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
        let rate = match per_second {
            Some(rate) => rate,
            None => *per_second.insert(rate_for(&server, keys)?),
        };
        let load = OpenLoop { port: server.port, connections: CONNECTIONS, per_second: rate };
        for round in 1..=options.rounds {
            let grown = memory_of_a_save(&server, &load, keys)?;
            let (before_us, during_us) = times_of_a_save(&server, &load, keys)?;
            progress(&format!(
                "save-load round {round} {}: memory {grown:.2} x, p99.9 {before_us:.0} us, then {during_us:.0} us",
                side.name()
            ));
            memory.add(side, grown);
            late.add(side, during_us / before_us);
        }
    }
    let rate = per_second.unwrap_or_default() / 1e3;
    let what = format!("BGSAVE of {keys} keys under {rate:.0} k SET/s: peak PSS over before");
    memory.row(table, &what, Best::Least, ratio, "<= 1.15 x");
    late.row(table, "p99.9 of the SETs over before", Best::Least, ratio, "<= 1.5 x");
    Ok(())
}

/// The SETs a second to measure with: what Valkey, asked first, serves to a share, and no more than a limit.
pub fn rate_for(valkey: &Server, keys: u64) -> Fallible<f64> {
    assert_eq!(valkey.side, Side::Valkey, "it comes first");
    let load = Load { port: valkey.port, connections: CONNECTIONS, pipeline: 16 };
    let mut sets = Shape::new(Verb::Set, keys).order(Order::Uniform);
    let ran = load.run(&mut sets, Until::Passed(Duration::from_secs(3)))?;
    Ok((SHARE * ran.per_second()).min(SETS_PER_SECOND_MAX))
}

fn memory_of_a_save(server: &Server, load: &OpenLoop, keys: u64) -> Fallible<f64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let loaded = scope.spawn(|| {
            let mut sets = Shape::new(Verb::Set, keys).order(Order::Uniform).seed(1);
            load.run(&mut sets, || is_over.load(Ordering::Relaxed))
        });
        let peak = peak_of_a_save(server);
        is_over.store(true, Ordering::Relaxed);
        loaded.join().expect("the load does not panic")?;
        peak
    })
}

fn peak_of_a_save(server: &Server) -> Fallible<f64> {
    thread::sleep(Duration::from_secs(1));
    let before = server.proportional_bytes()?;
    let mut client = server.client()?;
    client.call(&["BGSAVE"])?;
    let mut peak = before;
    while client.info("rdb_bgsave_in_progress")? != "0" {
        peak = peak.max(server.proportional_bytes()?);
        thread::sleep(BETWEEN_LOOKS);
    }
    wait_for_save(&mut client)?;
    Ok(peak as f64 / before as f64)
}

/// The 99.9th percentiles before and during a save, in microseconds.
fn times_of_a_save(server: &Server, load: &OpenLoop, keys: u64) -> Fallible<(f64, f64)> {
    let mut sets = Shape::new(Verb::Set, keys).order(Order::Uniform).seed(2);
    let before = load.run_for(&mut sets, BEFORE)?;
    let mut client = server.client()?;
    let is_over = AtomicBool::new(false);
    let during = thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let saved = client.call(&["BGSAVE"]).and_then(|_| wait_for_save(&mut client));
            is_over.store(true, Ordering::Relaxed);
            saved
        });
        let during = load.run(&mut sets, || is_over.load(Ordering::Relaxed));
        waiter.join().expect("the waiter does not panic")?;
        during
    })?;
    Ok((before.quantile_us(0.999), during.quantile_us(0.999)))
}
