//! INFO: what the server says of itself.
//!
//! ```text
//! fields     one declaration per field: its section, its name, and how its value is found
//! sections   which sections there are, which are shown without being asked for, and those whose lines are counted
//! snapshot   the figures of one INFO, each looked up once and only if a field asks for it
//! ```
//! A field of Valkey that cannot be told truthfully yet is not there; one that is there is true, also when it is 0.

mod fields;
mod sections;
mod snapshot;

pub use snapshot::{ArenaSums, Snapshot, database_sizes, memory_rss_bytes};

use crate::memory_map::Moment;
use isotherm_keyspace::Txn;
use sections::{Body, SECTIONS, Section};
use snapshot::DatabaseBins;

/// The answer to INFO with these arguments.
pub fn text(snapshot: &Snapshot<'_>, asked: &[&[u8]]) -> String {
    let mut out = String::new();
    for section in SECTIONS.iter().filter(|section| is_wanted(section, asked)) {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        out.push_str(&format!("# {}\r\n", section.title));
        match section.body {
            Body::Fields(fields) => {
                for (name, value) in fields {
                    out.push_str(&format!("{name}:{}\r\n", value(snapshot)));
                }
            }
            Body::Lines(write) => write(snapshot, &mut out),
        }
    }
    out
}

/// Looks up what the keyspace must stand still for, as far as it will be shown; `txn` makes it do so.
pub fn look_up<'t, 'k: 't>(snapshot: &mut Snapshot<'_>, asked: &[&[u8]], txn: impl FnOnce() -> Txn<'t, 'k>) {
    let wants = |name| SECTIONS.iter().any(|section| section.name == name && is_wanted(section, asked));
    let (keyspace, map) = (wants("keyspace"), wants("memorymap"));
    let (sizes, idle) = (wants("keysizes"), wants("idletimes"));
    if !keyspace && !map && !sizes && !idle {
        return;
    }
    let mut txn = txn();
    if keyspace {
        snapshot.databases = database_sizes(snapshot.node, &mut txn);
    }
    if sizes || idle {
        snapshot.bins = DatabaseBins::all(snapshot.node, &mut txn, idle);
    }
    if map {
        snapshot.moment.set(Some(Moment::new(snapshot.node, &txn)));
    }
}

fn is_wanted(section: &Section, asked: &[&[u8]]) -> bool {
    let names = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    if asked.is_empty() {
        return section.by_default;
    }
    asked.iter().any(|word| {
        names(word, section.name)
            || !section.is_hidden && (names(word, "all") || names(word, "everything"))
            || (section.by_default && names(word, "default"))
    })
}
