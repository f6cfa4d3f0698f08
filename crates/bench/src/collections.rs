//! The memory of lists, hashes, sets, sorted sets and streams: many small ones, some of a thousand elements,
//! one of a million.
//!
//! Bytes are, as for strings, those above the empty server, over the keys (of small collections) or the
//! elements (of large ones); every figure comes from a fresh process; Valkey is a one-node cluster that owns
//! all slots. The elements come over one connection, so that what only rises does rise.

use std::time::Duration;

use isotherm_resp::reply_parse::Value;

use crate::elements::{Deed, Deeds, Element, Kind, Make, Score, goes};
use crate::load::fill_in_order;
use crate::memory::{Weight, above};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting};
use crate::report::Table;
use crate::{Fallible, progress};

pub struct Row {
    pub name: &'static str,
    what: &'static str,
    make: Make,
    /// Payload of a key where collections are small, and of an element where they are not.
    payload_bytes: f64,
    /// A random half of the elements leaves, and memory is read 30 s later.
    halved: bool,
}

const M: u64 = 1_000_000;
/// Time that the active work of a server may take to give memory back.
const AFTER_REMOVAL: Duration = Duration::from_secs(30);
/// Number of elements up to which the bytes of a row are those of a key.
const SMALL: u64 = 5;

pub fn rows() -> Vec<Row> {
    use Element::{Bytes, Digits, Field, Integer};
    use Kind::{Hash, List, Set, Stream, Zset};
    let make = |kind, keys, each, element, value_bytes, score| Make {
        kind,
        keys,
        each,
        element,
        value_bytes,
        score,
        hexadecimal_keys: false,
    };
    let small = |kind, element, value_bytes| make(kind, M, SMALL, element, value_bytes, Score::Whole);
    let large = |kind, value_bytes| make(kind, 1, M, Bytes(16), value_bytes, Score::Random);
    let middle = |kind, value_bytes| make(kind, 1000, 1000, Bytes(16), value_bytes, Score::Random);
    let document = Make { hexadecimal_keys: true, ..make(Hash, 15 * M, 1, Digits(28), 1, Score::Whole) };
    let rising = Make { score: Score::Rising, ..large(Zset, 0) };
    let row = |name, what, make, payload_bytes| Row { name, what, make, payload_bytes, halved: false };
    vec![
        row("document-1", "hash of one field of 28 B -> 1, key of 32 hexadecimal digits", document, 61.0),
        // 16 B for the key; five integers below a million have 5.9 digits each.
        row("small-sets", "set of 5 integers", small(Set, Integer, 0), 45.4),
        row("small-lists", "list of 5 x 8 B", small(List, Bytes(8), 0), 56.0),
        row("small-zsets", "sorted set of 5 x 8 B, whole scores", small(Zset, Bytes(8), 0), 96.0),
        row("small-hashes", "hash of 5 fields, 6 B -> 8 B", small(Hash, Field, 8), 86.0),
        row("zset-1m", "one sorted set, 16 B, random double scores", large(Zset, 0), 24.0),
        row("zset-rising", "the same, scores that only rise", rising, 24.0),
        row("hash-1m", "one hash, 16 B -> 16 B", large(Hash, 16), 32.0),
        row("set-1m", "one set, 16 B", large(Set, 0), 16.0),
        row("list-1m", "one list, 16 B", large(List, 0), 16.0),
        row("stream-1m", "one stream, 2 fields, 6 B -> 16 B", large(Stream, 16), 44.0),
        row("hashes-1000", "1000 hashes, 16 B -> 16 B", middle(Hash, 16), 32.0),
        row("sets-1000", "1000 sets, 16 B", middle(Set, 0), 16.0),
        row("zsets-1000", "1000 sorted sets, 16 B, random double scores", middle(Zset, 0), 24.0),
        Row {
            halved: true,
            ..row("zset-half", "one sorted set, a random half removed 30 s ago", large(Zset, 0), 24.0)
        },
    ]
}

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let head = [
        "what",
        "bytes are per",
        "of them",
        "payload B",
        "Valkey used",
        "RSS",
        "Isotherm used",
        "RSS",
        "RSS, Isotherm / Valkey",
    ];
    let title = format!("Bytes per collection, or per element{}", options.scale_note());
    let mut table = Table::new("collections-memory", title, &head);
    table.note("Above the empty server. Valkey as a one-node cluster with all slots; Isotherm with one worker. Members and values are random bytes; keys have 16 B where nothing else is said; a score counts as 8 B of payload.");
    for row in rows().iter().filter(|row| options.wants(row.name)) {
        let make = scaled(row.make, options);
        let mut taken = Vec::new();
        for side in SIDES {
            let server = Server::start(side, &Setting::slots(1), options)?;
            taken.push(fill_and_weigh(&server, row, make)?);
        }
        let (of, count) = counted(row, make);
        table.row([
            row.what.to_string(),
            of.to_string(),
            count.to_string(),
            format!("{:.0}", row.payload_bytes),
            format!("{:.1}", taken[0].used),
            format!("{:.1}", taken[0].resident),
            format!("{:.1}", taken[1].used),
            format!("{:.1}", taken[1].resident),
            format!("{:.2}", taken[1].resident / taken[0].resident),
        ]);
    }
    Ok(vec![table])
}

/// Fewer keys; or, where there is one, fewer elements.
fn scaled(make: Make, options: &Options) -> Make {
    match make.keys {
        1 => Make { each: options.scaled(make.each), ..make },
        keys => Make { keys: options.scaled(keys), ..make },
    }
}

/// Returns the unit by which the bytes of a row are divided, and how many there are.
fn counted(row: &Row, make: Make) -> (&'static str, u64) {
    let elements = make.keys * make.each;
    match row.make.each {
        ..=SMALL => ("key", make.keys),
        _ if row.halved => ("element", (0..elements).filter(|number| !goes(*number)).count() as u64),
        _ => ("element", elements),
    }
}

/// Bytes of one key or element.
struct Taken {
    used: f64,
    resident: f64,
}

fn fill_and_weigh(server: &Server, row: &Row, make: Make) -> Fallible<Taken> {
    let empty = Weight::of(server)?;
    let at_once = if make.each <= SMALL { make.each } else { 1 };
    let elements = make.keys * make.each;
    let fill = Deed::Fill { at_once };
    fill_in_order(server, &mut Deeds::new(make, fill, 1), elements / at_once, row.name)?;
    let (of, count) = counted(row, make);
    if row.halved {
        let gone = elements - count;
        fill_in_order(server, &mut Deeds::new(make, Deed::Remove, 1), gone, "removed")?;
        std::thread::sleep(AFTER_REMOVAL);
    }
    let full = Weight::of(server)?;
    check_outcome(server, make, if of == "element" { count / make.keys } else { make.each })?;
    let taken = Taken {
        used: above(full.used_bytes, empty.used_bytes, count),
        resident: above(full.resident_bytes, empty.resident_bytes, count),
    };
    progress(&format!(
        "{} {}: {count} x used {:.1} B, RSS {:.1} B",
        row.name,
        server.side.name(),
        taken.used,
        taken.resident
    ));
    Ok(taken)
}

/// A server that has lost or refused something would win otherwise.
fn check_outcome(server: &Server, make: Make, each: u64) -> Fallible {
    let mut client = server.client()?;
    let keys = client.dbsize()?;
    if keys != make.keys {
        return Err(format!("{} has {keys} keys, {} expected", server.side.name(), make.keys));
    }
    if make.hexadecimal_keys {
        return Ok(());
    }
    let length = ["LLEN", "HLEN", "SCARD", "ZCARD", "XLEN"][make.kind as usize];
    match client.call(&[length, "key:000000000000"])? {
        Value::Integer(there) if there as u64 == each => Ok(()),
        other => Err(format!("{length} on {} is {other:?}, {each} expected", server.side.name())),
    }
}
