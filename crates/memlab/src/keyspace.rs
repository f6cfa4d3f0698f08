//! Document 5's table with ours: bytes a key of 16 B with a value of 16 B, and how they go with the number of
//! keys.
//!
//! The document sets 10 M times a random one of 10 M keys; 63 % (1 - 1/e) of them are met. Bytes a key are
//! those above the empty server, after its memory has stood still; the document divided all of `used_memory`,
//! which is shown as well.

use isotherm_probe::{Fallible, Server};
use isotherm_stdx::Prng;

use crate::Subject;
use crate::course::Course;
use crate::figures::Figures;
use crate::options::Options;
use crate::output::{Cell, Chart, Table};
use crate::servers::{Contender, KEY_BYTES, Weight, ahead, set_all};
use crate::variants::Variants;

const WRITES: u64 = 10_000_000;
const VALUE_BYTES: usize = 16;
const SEED: u64 = 42;
/// Points of the curve.
const STEPS: u64 = 40;
/// Bounds of what a key takes: 62 B here under the C library, twice that where a table doubles elsewhere.
const OURS_BYTES_MAX: u64 = 80;
const PEERS_BYTES_MAX: u64 = 200;

/// Keys, used_memory a key, of document 5.
const PUBLISHED: [(&str, u64, u64); 3] = [
    ("Valkey 7.2, published", 6_318_941, 727_339_288),
    ("with a table a slot, published", 6_318_941, 627_851_888),
    ("Valkey 8.0, published", 6_318_941, 577_300_952),
];

pub const SUBJECT: Subject =
    Subject { name: "keyspace", tables: &["keyspace", "growth"], need_bytes, make: tables };

fn need_bytes(options: &Options) -> u64 {
    let most = options.keys.iter().copied().max().unwrap_or(0).max(options.scale.of(WRITES));
    most.saturating_mul(if options.peers { PEERS_BYTES_MAX } else { OURS_BYTES_MAX })
}

fn tables(options: &Options) -> Fallible<Vec<Table>> {
    let variants = Variants::of_server(options)?;
    let mut notes = variants.notes();
    let (mut contenders, mut peers) = (Contender::ours(&variants)?, 0);
    if options.peers {
        let (found, missing) = Contender::peers()?;
        peers = found.len();
        contenders.extend(found);
        notes.extend(missing);
    }
    let mut tables = Vec::new();
    if options.wants("keyspace") {
        tables.push(per_key(&variants, &contenders, options)?);
    }
    if options.wants("growth") {
        // The allocators differ by less than the lines are thick: the first stands for all.
        let ours = contenders.len() - peers;
        contenders.drain(1..ours);
        tables.push(growth(&variants, &contenders, options)?);
    }
    tables[0].notes.extend(notes);
    Ok(tables)
}

/// Method to fill a server.
#[derive(Clone, Copy)]
enum Fill {
    /// Number of SETs, on random keys out of the same number.
    Random(u64),
    /// Number of keys, each written once.
    Exactly(u64),
}

impl Fill {
    fn all(options: &Options) -> Vec<Fill> {
        if options.keys.is_empty() {
            return vec![Fill::Random(options.scale.of(WRITES))];
        }
        options.keys.iter().map(|keys| Fill::Exactly(*keys)).collect()
    }

    fn words(self) -> String {
        match self {
            Fill::Random(writes) => format!("{writes} random writes"),
            Fill::Exactly(keys) => format!("{keys} keys"),
        }
    }

    fn run(self, server: &Server) -> Fallible {
        let mut ahead = ahead(server)?;
        match self {
            Fill::Random(writes) => {
                let mut prng = Prng::new(SEED);
                set_all(&mut ahead, (0..writes).map(|_| prng.below(writes)), |_| VALUE_BYTES)?;
            }
            Fill::Exactly(keys) => _ = set_all(&mut ahead, 0..keys, |_| VALUE_BYTES)?,
        }
        Ok(())
    }
}

fn per_key(variants: &Variants, contenders: &[Contender], options: &Options) -> Fallible<Table> {
    let title = format!("Bytes a key: keys of 16 B, values of 16 B{}", options.scale.note());
    let head = [
        "server",
        "keys",
        "used MB",
        "used B/key",
        "above the empty server: used",
        "RSS",
        "RSS beyond the 32 B",
    ];
    let mut table = Table::new("keyspace", title, &head);
    table.chart = Some(Chart::Bars("bytes a key"));
    table.notes = vec![
        format!(
            "`{}`. One worker, all slots; used B/key is all of used_memory, as the document has it.",
            options.command()
        ),
        "Document 5: `valkey-benchmark -t set -n 10000000 -r 10000000 -d 16`, a node of a cluster.".into(),
    ];
    let fills = Fill::all(options);
    if options.keys.is_empty() {
        PUBLISHED.iter().for_each(|published| table.row(published_row(published)));
    }
    let mut course = Course::new("keyspace", fills.len() * contenders.len());
    for fill in fills {
        let mut resident = Vec::new();
        for contender in contenders {
            course.step(&format!("{}, {}", contender.label(), fill.words()))?;
            let words = format!("keyspace {} {}", contender.label(), fill.words());
            let reported = variants.kept.figures(&contender.program, &words, || weigh(contender, fill))?;
            let rss = reported.get("rss")?;
            if contender.name == "Isotherm" {
                resident.push(rss);
            }
            table.row(vec![
                Cell::text(contender.label()),
                Cell::Number(reported.get("keys")?, 0),
                Cell::Number(reported.get("used_memory")? / 1e6, 1),
                Cell::Number(reported.get("used_memory")? / reported.get("keys")?, 1),
                Cell::Number(reported.get("used")?, 2),
                Cell::Number(rss, 2),
                Cell::Number(rss - (KEY_BYTES + VALUE_BYTES) as f64, 1),
            ]);
        }
        table.notes.extend(spread(&resident, fill));
    }
    course.end();
    Ok(table)
}

fn published_row((name, keys, used_memory): &(&str, u64, u64)) -> Vec<Cell> {
    let used = *used_memory as f64;
    vec![
        Cell::text(*name),
        Cell::Number(*keys as f64, 0),
        Cell::Number(used / 1e6, 1),
        Cell::Number(used / *keys as f64, 1),
        Cell::Empty,
        Cell::Empty,
        Cell::Empty,
    ]
}

/// Returns a note on how far the allocators are apart.
fn spread(resident: &[f64], fill: Fill) -> Option<String> {
    let (least, most) =
        (resident.iter().copied().reduce(f64::min)?, resident.iter().copied().reduce(f64::max)?);
    let apart = (most / least - 1.0) * 100.0;
    (resident.len() > 1).then(|| {
        format!("{}: RSS a key of Isotherm under the allocators is {apart:.1} % apart at most.", fill.words())
    })
}

fn weigh(contender: &Contender, fill: Fill) -> Fallible<Figures> {
    let server = contender.start()?;
    let empty = Weight::at_rest(&server)?;
    fill.run(&server)?;
    let full = Weight::at_rest(&server)?;
    let keys = server.client()?.dbsize()?;
    let mut figures = Figures::default();
    figures.add("keys", keys as f64);
    figures.add("used_memory", full.used_bytes as f64);
    figures.add("used", above(full.used_bytes, empty.used_bytes, keys));
    figures.add("rss", above(full.rss_bytes, empty.rss_bytes, keys));
    Ok(figures)
}

fn above(full: u64, empty: u64, keys: u64) -> f64 {
    (full as f64 - empty as f64) / keys as f64
}

/// Bytes a key at each step of growth: a table that doubles shows its teeth here.
fn growth(variants: &Variants, contenders: &[Contender], options: &Options) -> Fallible<Table> {
    let step = (options.scale.of(WRITES) / STEPS).max(1);
    let title = format!("Bytes a key by the number of keys{}", options.scale.note());
    let mut head = vec!["keys".to_string()];
    contenders.iter().for_each(|contender| {
        head.extend([format!("{} used", contender.label()), format!("{} RSS", contender.label())])
    });
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new("growth", title, &head);
    table.chart = Some(Chart::Lines("bytes a key"));
    table.notes = vec![format!(
        "`{}`. Keys and values of 16 B, above the empty server, each key new; read at every {step} keys.",
        options.command()
    )];
    let mut reported = Vec::new();
    let mut course = Course::new("growth", contenders.len());
    for contender in contenders {
        course.step(&contender.label())?;
        let words = format!("growth {} {step}", contender.label());
        let figures = variants.kept.figures(&contender.program, &words, || grow(contender, step))?;
        table.notes.push(teeth(&contender.label(), &figures)?);
        reported.push(figures);
    }
    course.end();
    for point in 1..=STEPS {
        let mut row = vec![Cell::Number((point * step) as f64, 0)];
        for figures in &reported {
            for name in ["used", "rss"] {
                row.push(Cell::Number(figures.get(&format!("{name} {point}"))?, 1));
            }
        }
        table.row(row);
    }
    Ok(table)
}

fn grow(contender: &Contender, step: u64) -> Fallible<Figures> {
    let server = contender.start()?;
    let empty = Weight::at_rest(&server)?;
    let mut ahead = ahead(&server)?;
    let mut figures = Figures::default();
    for point in 1..=STEPS {
        set_all(&mut ahead, (point - 1) * step..point * step, |_| VALUE_BYTES)?;
        let (now, keys) = (Weight::now(&server)?, point * step);
        figures.add(format!("used {point}"), above(now.used_bytes, empty.used_bytes, keys));
        figures.add(format!("rss {point}"), above(now.rss_bytes, empty.rss_bytes, keys));
    }
    let keys = server.client()?.dbsize()?;
    if keys == STEPS * step {
        Ok(figures)
    } else {
        Err(format!("{} lost keys: {keys} are left", contender.label()))
    }
}

/// Returns a note on the least and the greatest bytes a key, and how far they are apart. The first third, in
/// which fixed costs still count, is left out.
fn teeth(label: &str, figures: &Figures) -> Fallible<String> {
    let used = (STEPS / 3..=STEPS).map(|point| figures.get(&format!("used {point}")));
    let used = used.collect::<Fallible<Vec<f64>>>()?;
    let (least, most) =
        (used.iter().copied().fold(f64::MAX, f64::min), used.iter().copied().fold(0.0, f64::max));
    Ok(format!(
        "{label}: {least:.1} to {most:.1} B of used_memory a key in the last two thirds, {:.0} % apart.",
        (most / least - 1.0) * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_is_what_the_document_says() {
        let bytes: Vec<String> =
            PUBLISHED.iter().map(|(_, keys, used)| format!("{:.1}", *used as f64 / *keys as f64)).collect();
        assert_eq!(bytes, ["115.1", "99.4", "91.4"]);
    }

    #[test]
    fn allocators_are_apart_by_the_larger_over_the_smaller() {
        let said = spread(&[40.0, 42.0, 41.0], Fill::Exactly(7)).unwrap();
        assert_eq!(said, "7 keys: RSS a key of Isotherm under the allocators is 5.0 % apart at most.");
        assert_eq!(spread(&[40.0], Fill::Exactly(7)), None);
    }
}
