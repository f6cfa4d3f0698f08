//! A full sync while keys are written at a fixed rate: what memory it takes on the primary, and what the
//! slowest requests notice.
//!
//! ```text
//!   SETs of random keys, open loop ---> primary ---> a new replica, from REPLICAOF to the link that is up
//! ```
//! Memory is measured as in a save under load (`durability::save_load`): it is the proportional share (PSS)
//! of the process and of what it has forked, and as reading it holds up the process, memory and times come
//! from different syncs. Limits are those that the servers have by themselves.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::pair::{PATIENCE, Syncs, follow, limits, link_is_up};
use crate::durability::save_load::{CONNECTIONS, rate_for};
use crate::durability::{Best, Figures, KEYS, ratio, seconds};
use crate::load::fill;
use crate::open_loop::OpenLoop;
use crate::options::Options;
use crate::process::{SIDES, Server};
use crate::report::Table;
use crate::shape::{Order, Shape, Verb};
use crate::{Fallible, progress};

/// Before each sync, for the times to compare with.
const BEFORE: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    let (mut memory, mut late, mut took) = (Figures::default(), Figures::default(), Figures::default());
    let mut per_second = None;
    for side in SIDES {
        let primary = Server::start(side, &limits(options), options)?;
        fill(&primary, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
        let rate = match per_second {
            Some(rate) => rate,
            None => *per_second.insert(rate_for(&primary, keys)?),
        };
        let load = OpenLoop { port: primary.port, connections: CONNECTIONS, per_second: rate };
        for round in 1..=options.rounds {
            let started = || Server::start(side, &limits(options), options);
            let full = Syncs::of(&primary)?.full;
            let grown = memory_of_a_sync(&primary, &started()?, &load, keys)?;
            let times = times_of_a_sync(&primary, &started()?, &load, keys)?;
            let more = Syncs::of(&primary)?.full - full - 2;
            progress(&format!(
                "sync-load round {round} {}: memory {grown:.2} x; {:.2} s, p99.9 {:.0} us, then {:.0} us; {more} syncs repeated",
                side.name(),
                times.took_s,
                times.before_us,
                times.during_us
            ));
            memory.add(side, grown);
            late.add(side, times.during_us / times.before_us);
            took.add(side, times.took_s);
        }
    }
    let rate = per_second.unwrap_or_default() / 1e3;
    let what =
        format!("full sync of {keys} keys under {rate:.0} k SET/s: peak PSS of the primary over before");
    memory.row(table, &what, Best::Least, ratio, "<= 1.15 x");
    late.row(table, "p99.9 of the SETs over before", Best::Least, ratio, "<= 1.5 x");
    took.row(table, "until the link is up", Best::Least, seconds, "-");
    Ok(())
}

fn memory_of_a_sync(primary: &Server, replica: &Server, load: &OpenLoop, keys: u64) -> Fallible<f64> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let loaded = scope.spawn(|| {
            let mut sets = Shape::new(Verb::Set, keys).order(Order::Uniform).seed(1);
            load.run(&mut sets, || is_over.load(Relaxed))
        });
        let peak = peak_of_a_sync(primary, replica);
        is_over.store(true, Relaxed);
        loaded.join().map_err(|_| "the load panicked".to_string())??;
        peak
    })
}

fn peak_of_a_sync(primary: &Server, replica: &Server) -> Fallible<f64> {
    thread::sleep(Duration::from_secs(1));
    let before = primary.proportional_bytes()?;
    let mut client = replica.client()?;
    client.call(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()])?;
    let (begun, mut peak) = (Instant::now(), before);
    while !link_is_up(&mut client)? {
        peak = peak.max(primary.proportional_bytes()?);
        if begun.elapsed() > PATIENCE {
            return Err(format!("the link is not up after {PATIENCE:?}"));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(peak as f64 / before as f64)
}

struct Times {
    /// The 99.9th percentiles of the SETs.
    before_us: f64,
    during_us: f64,
    took_s: f64,
}

fn times_of_a_sync(primary: &Server, replica: &Server, load: &OpenLoop, keys: u64) -> Fallible<Times> {
    let mut sets = Shape::new(Verb::Set, keys).order(Order::Uniform).seed(2);
    let before = load.run_for(&mut sets, BEFORE)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let took = follow(replica, primary.port);
            is_over.store(true, Relaxed);
            took
        });
        let during = load.run(&mut sets, || is_over.load(Relaxed))?;
        let took = waiter.join().map_err(|_| "the waiter panicked".to_string())??;
        let (before_us, during_us) = (before.quantile_us(0.999), during.quantile_us(0.999));
        Ok(Times { before_us, during_us, took_s: took.as_secs_f64() })
    })
}
