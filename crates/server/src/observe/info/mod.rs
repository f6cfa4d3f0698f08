//! INFO: what the server says of itself.
//!
//! ```text
//! sections             which sections there are, in their order, and which are shown without being asked for
//! server, memory, ..   the rows of each section: one declaration a line
//! row                  what a row declares: a name, how its value is found, its metric
//! snapshot             the figures of one INFO, each looked up once and only if a row asks for it
//! facts                (in `node`) those of them that only the system knows
//! ```
//! INFO stops no other command: what lies in partitions is copied from one after the other
//! (`isotherm_keyspace::Survey`), and the text is made, and /proc is read, while nothing is held. Inside
//! EXEC, where everything is held until its end, /proc is read before.
//!
//! A field of Valkey that cannot be reported truthfully yet is omitted; one that is there is true, also when
//! it is 0.

mod cluster;
mod commands;
mod keyspace;
mod memory;
mod persistence;
mod replication;
pub mod row;
mod sections;
mod server;
mod snapshot;
mod stats;
mod swap;

pub use cluster::CLUSTER_INFO;
pub use server::certificate_days;
pub use snapshot::Snapshot;
pub use swap::SWAP;

use crate::observe::memory_map::Moment;
use isotherm_keyspace::Survey;
use isotherm_stdx::steps;
use row::Row;
use sections::{SECTIONS, Section};
use snapshot::{DatabaseBins, database_sizes};
use std::fmt::Write;

/// The answer to INFO with these arguments.
pub fn text(snapshot: &Snapshot<'_>, asked: &[&[u8]]) -> String {
    let mut out = String::new();
    for section in SECTIONS.iter().filter(|section| is_wanted(section, asked)) {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        out.push_str(&format!("# {}\r\n", section.title));
        out.push_str(&lines(snapshot, section.rows));
    }
    out
}

/// Returns the lines of these rows.
pub fn lines(snapshot: &Snapshot<'_>, rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        for (part, value) in row.lines(snapshot) {
            write!(out, "{}:{value}\r\n", row.name.replace('*', &part)).expect("a String takes anything");
        }
    }
    out
}

/// Returns the rows of all sections.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    SECTIONS.iter().flat_map(|section| section.rows)
}

/// Looks up what lies in the partitions, as far as it will be shown; `survey` is how they are read.
pub fn look_up<'h, 'k: 'h>(
    snapshot: &mut Snapshot<'_>,
    asked: &[&[u8]],
    survey: impl FnOnce() -> Survey<'h, 'k>,
) {
    let (sizes, idle) = (wants("keysizes", asked), wants("idletimes", asked));
    let (keyspace, map) = (wants("keyspace", asked), wants_map(asked));
    let swap =
        snapshot.node.tier().is_some() && ["swap", "redis-ssdb", "stats"].iter().any(|it| wants(it, asked));
    let keyspace = keyspace || swap && wants("redis-ssdb", asked);
    if !keyspace && !map && !sizes && !idle && !swap {
        return;
    }
    let mut survey = survey();
    if keyspace {
        snapshot.databases = database_sizes(&mut survey);
    }
    if sizes || idle {
        snapshot.bins = DatabaseBins::all(&mut survey, snapshot.now, idle);
    }
    if swap {
        snapshot.cold = survey.cold();
    }
    if map {
        snapshot.moment.set(Some(Moment::new(snapshot.node, &mut survey)));
    }
}

fn wants(name: &str, asked: &[&[u8]]) -> bool {
    SECTIONS.iter().any(|section| section.name == name && is_wanted(section, asked))
}

/// Returns whether INFO with these arguments shows the memory map.
pub fn wants_map(asked: &[&[u8]]) -> bool {
    wants("memorymap", asked)
}

fn is_wanted(section: &Section, asked: &[&[u8]]) -> bool {
    let names = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    if asked.is_empty() {
        return section.by_default;
    }
    asked.iter().any(|word| {
        steps::note(1);
        names(word, section.name)
            || !section.is_hidden && (names(word, "all") || names(word, "everything"))
            || (section.by_default && names(word, "default"))
    })
}
