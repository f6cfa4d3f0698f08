//! A link that is killed again and again under load, with a replica behind the replica.
//!
//! ```text
//!   INCR --> primary --x--> replica ----> second replica
//!               '-- CLIENT KILL TYPE replica
//! ```
//! Each kill waits until the link is back and some time has passed, so it meets the stream at a random place.

use std::thread;
use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use super::counters;
use super::pair::{Pair, Syncs, check, digest, follow, limits, reach};
use crate::options::Options;
use crate::process::{SIDES, Server, Side};
use crate::report::Table;
use crate::{Fallible, progress};

const CUTS: u64 = 500;
/// Between a link that is back and the next kill: at most this.
const APART_US: u64 = 20_000;

struct Outcome {
    /// Syncs over the link that is killed.
    first: Syncs,
    /// Syncs over the link from the replica to the second replica.
    second: Syncs,
    seconds: f64,
    are_equal: bool,
}

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let times = options.scaled(CUTS).max(10);
    let mut outcomes = Vec::new();
    for side in SIDES {
        let outcome = cut_again(side, times, options)?;
        progress(&format!(
            "cut {}: {times} kills in {:.1} s, {} partial, {} full; behind it {} partial, {} full; data {}",
            side.name(),
            outcome.seconds,
            outcome.first.partial,
            outcome.first.full,
            outcome.second.partial,
            outcome.second.full,
            equal(outcome.are_equal)
        ));
        outcomes.push(outcome);
    }
    let mut row = |what: &str, show: &dyn Fn(&Outcome) -> String, aim: &str| {
        table.row([what.into(), show(&outcomes[0]), show(&outcomes[1]), "-".into(), aim.into()]);
    };
    let what = format!(
        "{times} kills of a link at {:.0} k INCRs/s: continued without a full sync",
        counters::PER_SECOND / 1e3
    );
    row(&what, &|of| percent(of.first.partial.min(times), times), ">= 99 %");
    row("full syncs of the replica behind it, beside its first", &|of| of.second.full.to_string(), "0");
    row("data of all three", &|of| equal(of.are_equal).to_string(), "equal");
    Ok(())
}

fn cut_again(side: Side, times: u64, options: &Options) -> Fallible<Outcome> {
    let setting = limits(options).with("enable-debug-command", "yes");
    let pair = Pair::start_with(side, side, &setting, options)?;
    let behind = Server::start(side, &setting, options)?;
    pair.join()?;
    follow(&behind, pair.replica.port)?;
    let before = (Syncs::of(&pair.primary)?, Syncs::of(&pair.replica)?);
    let begun = Instant::now();
    counters::meanwhile(pair.primary.port, || {
        let mut prng = Prng::new(14);
        (0..times).try_for_each(|_| cut(&pair, prng.below(APART_US)))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    reach(&pair.replica, &pair.primary)?;
    reach(&behind, &pair.primary)?;
    let wanted = digest(&pair.primary)?;
    Ok(Outcome {
        first: Syncs::of(&pair.primary)?.since(before.0),
        second: Syncs::of(&pair.replica)?.since(before.1),
        seconds,
        are_equal: digest(&pair.replica)? == wanted && digest(&behind)? == wanted,
    })
}

/// Kills the link after a while, and waits until it is back.
fn cut(pair: &Pair, after_us: u64) -> Fallible {
    thread::sleep(Duration::from_micros(after_us));
    let mut client = pair.primary.client()?;
    let before = Syncs::of(&pair.primary)?;
    let killed = client.call(&["CLIENT", "KILL", "TYPE", "replica"])?;
    if killed != Value::Integer(1) {
        return Err(format!("CLIENT KILL TYPE replica: {killed:?}, and there is one replica"));
    }
    let begun = Instant::now();
    while Syncs::of(&pair.primary)? == before
        || !client.info("slave0").is_ok_and(|line| line.contains("state=online"))
    {
        check(begun, "the replica has not come back")?;
    }
    Ok(())
}

pub fn equal(is_equal: bool) -> &'static str {
    if is_equal { "equal" } else { "DIFFERS" }
}

pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}
