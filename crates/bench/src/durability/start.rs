//! Time from exec to the first PONG that says that all data is there, the files being in the page cache.

use std::time::Instant;

use super::folder::Folder;
use super::{Best, Figures, KEYS, logged, seconds, two_workers};
use crate::load::fill;
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, Side};
use crate::report::Table;
use crate::shape::{Shape, Verb};
use crate::{Fallible, progress};

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let keys = options.scaled(KEYS);
    let written = Folder::new(options, "start")?;
    {
        let server =
            Server::start(Side::Valkey, &logged(options, "no").with("dir", written.text()), options)?;
        fill(&server, &mut Shape::new(Verb::Set, keys), keys, "keys")?;
        server.client()?.call(&["SAVE"])?;
        // Its end writes what it has of the log.
        server.client()?.call(&["CONFIG", "SET", "appendfsync", "always"])?;
        server.client()?.call(&["SET", "key:000000000000", "written last"])?;
    }
    let own = written.copy(options, "start-own")?;
    {
        let server = Server::start(Side::Isotherm, &two_workers(options).with("dir", own.text()), options)?;
        server.client()?.call(&["SAVE"])?;
    }
    let [mut rdb, mut ours, mut log] = <[Figures; 3]>::default();
    for round in 1..=options.rounds {
        for side in SIDES {
            rdb.add(
                side,
                load_once(side, "Valkey's RDB", &written, two_workers(options), keys, round, options)?,
            );
            let own_files = if side == Side::Valkey { &written } else { &own };
            ours.add(
                side,
                load_once(side, "own RDB", own_files, two_workers(options), keys, round, options)?,
            );
            let copy = written.copy(options, "start-log")?;
            log.add(side, load_once(side, "log", &copy, logged(options, "everysec"), keys, round, options)?);
        }
    }
    let what = format!("exec to first PONG, {keys} keys, cache warm: Valkey's RDB");
    rdb.row(table, &what, Best::Least, seconds, "<= 0.5");
    ours.row(table, "each its own RDB", Best::Least, seconds, "<= 0.4");
    log.row(table, "an append-only file of as many SETs", Best::Least, seconds, "<= 0.5");
    Ok(())
}

fn load_once(
    side: Side,
    what: &str,
    folder: &Folder,
    setting: Setting,
    keys: u64,
    round: usize,
    options: &Options,
) -> Fallible<f64> {
    folder.warm()?;
    let start = Instant::now();
    let server = Server::start(side, &setting.with("dir", folder.text()), options)?;
    let took = start.elapsed().as_secs_f64();
    progress(&format!("start round {round} {}, {what}: {took:.3} s", side.name()));
    match server.client()?.dbsize()? {
        loaded if loaded == keys => Ok(took),
        loaded => Err(format!("{} has loaded {loaded} of {keys} keys from {what}", side.name())),
    }
}
