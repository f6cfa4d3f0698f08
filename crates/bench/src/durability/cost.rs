//! The cost that the log adds to a pipelined SET: CPU time of all threads, with `appendfsync everysec` and
//! without a log.

use super::folder::Folder;
use super::{Best, Figures, logged, two_workers};
use crate::load::{Load, Until, fill};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, Side};
use crate::report::Table;
use crate::shape::{Order, Shape, Verb};
use crate::{Fallible, progress};

const KEYS: u64 = 1_000_000;
const SETS: u64 = 4_000_000;
const PIPELINE: u64 = 32;

struct Case<'o> {
    server: Server,
    name: String,
    options: &'o Options,
    costs: Vec<f64>,
}

impl<'o> Case<'o> {
    fn start(side: Side, name: &str, setting: &Setting, options: &'o Options) -> Fallible<Case<'o>> {
        let server = Server::start(side, setting, options)?;
        let keys = options.scaled(KEYS);
        fill(&server, &mut Shape::new(Verb::Set, keys), keys, name)?;
        Ok(Case { server, name: format!("{} {name}", side.name()), options, costs: Vec::new() })
    }

    fn measure(&mut self, round: usize) -> Fallible {
        let (keys, sets) = (self.options.scaled(KEYS), self.options.scaled(SETS));
        let mut shape = Shape::new(Verb::Set, keys).order(Order::Uniform).seed(round as u64);
        let before = self.server.cpu_ns()?;
        let ran = Load::fifty(self.server.port, PIPELINE).run(&mut shape, Until::Commands(sets))?;
        let cost = (self.server.cpu_ns()? - before) as f64 / 1e3 / ran.commands as f64;
        progress(&format!("log-cpu round {round} {}: {cost:.3} us", self.name));
        self.costs.push(cost);
        Ok(())
    }
}

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let mut cases = Vec::new();
    let mut folders = Vec::new();
    for side in SIDES {
        cases.push(Case::start(side, "off", &two_workers(options), options)?);
        let folder = Folder::new(options, &format!("cost-{}", side.name()))?;
        let setting = logged(options, "everysec").with("dir", folder.text());
        cases.push(Case::start(side, "everysec", &setting, options)?);
        folders.push(folder);
    }
    if let Some(program) = &options.peer_server {
        let old = Setting { program: Some(program.clone()), ..two_workers(options) };
        cases.push(Case::start(Side::Isotherm, "off, the other build", &old, options)?);
    }
    for round in 1..=options.rounds {
        cases.iter_mut().try_for_each(|case| case.measure(round))?;
    }
    let figures = |valkey: usize, isotherm: usize| Figures {
        valkey: cases[valkey].costs.clone(),
        isotherm: cases[isotherm].costs.clone(),
    };
    let show = |us: f64| format!("{us:.3} us");
    figures(0, 2).row(table, "CPU of a pipelined SET (32): log off", Best::Least, show, "-");
    figures(1, 3).row(table, "everysec", Best::Least, show, "<= 0.65");
    let over = |log: usize, off: usize| -> Vec<f64> {
        cases[log].costs.iter().zip(&cases[off].costs).map(|(log, off)| log / off).collect()
    };
    let added = Figures { valkey: over(1, 0), isotherm: over(3, 2) };
    added.row(table, "everysec over off", Best::Least, super::ratio, "<= 1.15 x");
    if cases.len() > 4 {
        let builds = Figures { valkey: Vec::new(), isotherm: over(2, 4) };
        builds.row(table, "log off over the other build", Best::Least, super::ratio, "<= 1.02 x");
    }
    Ok(())
}
