//! Memory that it costs to find the keys of a slot: documents 1 and 5, for random ids of 32 digits.
//!
//! Each map is built alone, or with and without it if it lies in the entries; its cost is the difference.
//! Isotherm has no such map: a slot's record and directory are the way to find any key.

mod ids;
mod nodes;
mod radix_tree;
mod skip_list;
mod tables;

use isotherm_probe::Fallible;
use isotherm_stdx::Slot;

use crate::Subject;
use crate::course::Course;
use crate::figures::Figures;
use crate::meter;
use crate::options::Options;
use crate::output::{Cell, Chart, Table};
use crate::variants::Variants;
use ids::{FIRST_THIRD, Ids, SlotsBy, in_first_third};
use nodes::Nodes;
use radix_tree::{RadixTree, expected_nodes};
use skip_list::SkipList;
use tables::{Kind, Tables};

/// Keys of a primary in document 1.
const KEYS: u64 = 15_000_000;
/// Ids that were drawn for its tree. A third of them is kept.
const DRAWN: u64 = 45_000_000;
const SEED: u64 = 20_171_121;
/// A record for each slot; crates/keyspace/src/layout/record.rs has the drawing.
const RECORD_BYTES: u64 = 32;

struct Map {
    name: &'static str,
    case: &'static str,
    /// Case whose bytes are subtracted from those of this case.
    less: Option<&'static str>,
    published: Option<f64>,
    keys: u64,
    /// A bound of what one key takes while it is measured, the table of nodes with it.
    bytes_max: u64,
}

const MAPS: [Map; 5] = [
    Map {
        name: "skip list (Redis 3.2)",
        case: "skip-list",
        less: None,
        published: Some(95.3),
        keys: KEYS,
        bytes_max: 190,
    },
    Map {
        name: "radix tree (Redis 4.0)",
        case: "radix-tree",
        less: None,
        published: Some(67.0),
        keys: KEYS,
        bytes_max: 200,
    },
    Map {
        name: "radix tree, slots to 5460",
        case: "radix-third",
        less: None,
        published: Some(69.4),
        keys: KEYS,
        bytes_max: 200,
    },
    Map {
        name: "links in entries (Valkey 7.2)",
        case: "linked",
        less: Some("one-table"),
        published: Some(16.0),
        keys: KEYS,
        bytes_max: 100,
    },
    Map {
        name: "table a slot (Valkey 8.0)",
        case: "per-slot",
        less: Some("one-table"),
        published: None,
        keys: KEYS,
        bytes_max: 100,
    },
];

pub const SUBJECT: Subject = Subject { name: "slot-index", tables: &["slot-index"], need_bytes, make: table };

/// Returns the need of the largest map: there is one map at a time.
fn need_bytes(options: &Options) -> u64 {
    MAPS.iter().map(|map| options.scale.of(map.keys) * map.bytes_max).max().unwrap_or_default()
}

fn table(options: &Options) -> Fallible<Vec<Table>> {
    let keys = options.scale.of(KEYS);
    let variants = Variants::of_cases(options)?;
    check_digits(&variants)?;
    let mut head = vec!["map from slots to keys".to_string(), "published".to_string()];
    for name in variants.names() {
        head.extend([format!("{name} used"), format!("{name} RSS")]);
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let title = format!("Slot to keys: bytes a key, {keys} random 32-digit ids{}", options.scale.note());
    let mut table = Table::new("slot-index", title, &head);
    table.chart = Some(Chart::Bars("bytes a key"));
    table.notes.push(format!(
        "`{}`. Used: at the sizes that the allocator takes; RSS: as the kernel has it.",
        options.command()
    ));
    let mut course = Course::new("slot-index", MAPS.len() * variants.names().len());
    for map in &MAPS {
        let published = map.published.map_or(Cell::Empty, |bytes| Cell::Number(bytes, 1));
        let mut row = vec![Cell::text(map.name), published];
        for allocator in variants.names() {
            course.step(&format!("{}, {allocator}", map.name))?;
            let (used, rss, nodes) = measure(&variants, allocator, map, options)?;
            row.extend([used, rss].map(bytes));
            if map.case == "radix-third" && allocator == variants.names()[0] {
                table.notes.push(nodes_note(nodes, options));
            }
        }
        table.row(row);
    }
    course.end();
    let ours = (Slot::COUNT as u64 * RECORD_BYTES) as f64 / keys as f64;
    let mut row = vec![Cell::text("none (Isotherm): records of slots, by arithmetic"), Cell::Empty];
    variants.names().iter().for_each(|_| row.extend([ours, ours].map(bytes)));
    table.row(row);
    table.notes.extend(explanations());
    table.notes.extend(variants.notes());
    Ok(vec![table])
}

/// Returns a cell of bytes, with decimals that show less than a byte.
fn bytes(value: f64) -> Cell {
    Cell::Number(value, if value.abs() < 10.0 { 2 } else { 1 })
}

/// Used and resident bytes a key, and nodes.
fn measure(variants: &Variants, allocator: &str, map: &Map, options: &Options) -> Fallible<(f64, f64, f64)> {
    let keys = options.scale.of(map.keys);
    let run = |case: &str| {
        let drawn = if case == "radix-third" { options.scale.of(DRAWN) } else { keys };
        variants.run(allocator, &["slot-index".into(), case.into(), drawn.to_string()], "")
    };
    let with = run(map.case)?;
    let (mut used, mut rss) = (with.get("allocated")?, with.get("rss")?);
    if let Some(less) = map.less {
        let without = run(less)?;
        used -= without.get("allocated")?;
        rss -= without.get("rss")?;
    }
    Ok((used, rss, with.get("nodes")?))
}

/// The tree is right if a million numbers make exactly the published nodes.
fn check_digits(variants: &Variants) -> Fallible {
    let names = variants.names();
    let digits = variants.run(names[0], &["slot-index".into(), "digits".into(), "1000000".into()], "")?;
    match digits.get("nodes")? {
        1_111_111.0 => Ok(()),
        other => {
            Err(format!("000000..999999 made {other} nodes, not 1,111,111: the model of the tree is wrong"))
        }
    }
}

fn nodes_note(nodes: f64, options: &Options) -> String {
    let keys = in_first_third(options.scale.of(DRAWN));
    let slots = u64::from(FIRST_THIRD) + 1;
    let expected = expected_nodes(slots, keys / slots);
    format!(
        "000000..999999 made 1,111,111 nodes, as published. {keys} ids in slots 0 to {FIRST_THIRD} made {nodes} nodes; \
         {expected:.0} are expected by the formula; 35,066,975 were published for 15,001,367 ids."
    )
}

fn explanations() -> Vec<String> {
    [
        "Redis builds its jemalloc with classes in steps of 8 B: 40 and 52 B take 40 and 56 there, and 48 and 64 in a build \
         with the usual steps of 16, as here. That is what the skip list has above 101.8. The tree's tails have some 40 B, which take 48 here: 72 B a key, and 66.7 with \
         Redis' own jemalloc.",
        "Published 95.3: 1.43 GiB divided as if it were 1.43 x 10^9; with its units put right it is 102.2.",
        "Published 69.4 for the tree of the slots to 5460: 992.5 \"MB\" there are MiB of RSS; the 67 of the line above is what INFO said. Under the C library \
         it was 1.482 \"GB\" (GiB), 106.1 B a key.",
        "Published 16 for the links: document 5. A table a slot was said to be about 1 MB a node, whatever it holds: \
         0.1 B a key at 15 M.",
    ]
    .map(str::to_string)
    .to_vec()
}

/// Builds one map; `args` are its name and how many ids are drawn.
pub fn work(args: &[String]) -> Fallible<Figures> {
    let [case, count] = args else { return Err("a case and a count, please".to_string()) };
    let count: u64 = count.parse().map_err(|_| format!("'{count}' is no count"))?;
    let mut figures = Figures::default();
    match case.as_str() {
        "skip-list" => {
            let mut list = SkipList::new(count);
            let before = meter::held();
            Ids::new(SEED, count, SlotsBy::Crc).for_each(|(slot, id)| list.insert(slot, &id));
            meter::held().add_since(before, count, &mut figures);
            figures.add("nodes", list.len() as f64);
        }
        "radix-tree" | "radix-third" => {
            let slots = if case == "radix-tree" { SlotsBy::Crc } else { SlotsBy::Turn };
            let kept = if case == "radix-tree" { count } else { in_first_third(count) };
            // 2.34 nodes an id, and the upper levels where ids are few.
            let mut tree = RadixTree::new((kept * 5 / 2) as usize + 200_000);
            let before = meter::held();
            for (slot, id) in Ids::new(SEED, count, slots) {
                let mut key = [0; 2 + ids::ID_BYTES];
                key[..2].copy_from_slice(&slot.to_be_bytes());
                key[2..].copy_from_slice(&id);
                tree.insert(&key);
            }
            meter::held().add_since(before, tree.keys(), &mut figures);
            figures.add("nodes", tree.nodes() as f64);
        }
        "digits" => {
            let mut tree = RadixTree::new(count as usize * 5 / 4);
            let before = meter::held();
            (0..count).for_each(|number| tree.insert(format!("{number:06}").as_bytes()));
            meter::held().add_since(before, tree.keys(), &mut figures);
            figures.add("nodes", tree.nodes() as f64);
        }
        "one-table" | "linked" | "per-slot" => {
            let kind = match case.as_str() {
                "one-table" => Kind::One,
                "linked" => Kind::OneLinked,
                _ => Kind::PerSlot,
            };
            let entries = Nodes::new(count as usize + 1);
            let before = meter::held();
            let mut tables = Tables::new(kind, entries);
            for (slot, id) in Ids::new(SEED, count, SlotsBy::Crc) {
                let hash = u64::from_le_bytes(id[..8].try_into().expect("8 of 32 bytes"));
                tables.insert(slot, scramble(hash));
            }
            meter::held().add_since(before, count, &mut figures);
            figures.add("nodes", tables.len() as f64);
        }
        other => return Err(format!("no map called '{other}'")),
    }
    Ok(figures)
}

/// Digits make poor hashes.
fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}
