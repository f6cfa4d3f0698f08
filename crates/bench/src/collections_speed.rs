//! CPU per operation on collections: one worker on one core, the load on another, both servers in turns, as
//! for strings.
//!
//! Each command is measured on many small collections (the key's look-up weighs most) and on one of a million
//! elements (the structure's own does). Commands that make a collection grow or shrink begin each round with
//! the same elements; the others leave as many as they found.

use crate::Fallible;
use crate::elements::{Deed, Deeds, Element, Kind, Make, Score};
use crate::load::{Load, Until, fill_in_order};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting};
use crate::report::Table;
use crate::speed::{Cost, HEAD, best, cells, cost_of, in_turns};

pub struct Row {
    pub name: &'static str,
    what: &'static str,
    make: Make,
    deed: Deed,
    commands: u64,
}

const M: u64 = 1_000_000;
/// Small collections, and the elements of one.
const MANY: u64 = 100_000;
const FEW: u64 = 10;

pub fn rows() -> Vec<Row> {
    use Deed::{Add, Change, Pop, Range, Read};
    use Element::{Bytes, Field};
    let many = |kind, element| Make {
        kind,
        keys: MANY,
        each: FEW,
        element,
        value_bytes: 8,
        score: Score::Random,
        hexadecimal_keys: false,
    };
    let one = |kind| Make { keys: 1, each: M, value_bytes: 16, ..many(kind, Bytes(16)) };
    let lists = many(Kind::List, Bytes(8));
    let hashes = many(Kind::Hash, Field);
    let sets = many(Kind::Set, Bytes(8));
    let zsets = many(Kind::Zset, Bytes(8));
    let hundreds = Make { keys: MANY / 10, each: 10 * FEW, ..zsets };
    // Long enough that none is emptied, which would be a key's removal.
    let longer = Make { each: 2 * FEW, ..lists };
    let streams = Make { value_bytes: 16, ..many(Kind::Stream, Field) };
    let row = |name, what, make, deed, commands| Row { name, what, make, deed, commands };
    vec![
        row("lpush-many", "LPUSH to 100 k lists of 10 x 8 B", lists, Add, M),
        row("lpush-one", "LPUSH to a list of 1 M x 16 B", one(Kind::List), Add, M),
        row("rpop-many", "RPOP from 100 k lists of 20 x 8 B, to half", longer, Pop, M),
        row("rpop-one", "RPOP from a list of 1 M x 16 B, to half", one(Kind::List), Pop, M / 2),
        row("hset-many", "HSET, 100 k hashes of 10 fields, 6 B -> 8 B", hashes, Change, 2 * M),
        row("hget-many", "HGET, the same", hashes, Read, 2 * M),
        row("hset-new-many", "HSET of new fields, the same, to 20", hashes, Add, M),
        row("hset-one", "HSET, a hash of 1 M fields, 16 B -> 16 B", one(Kind::Hash), Change, 2 * M),
        row("hget-one", "HGET, the same", one(Kind::Hash), Read, 2 * M),
        row("hset-new-one", "HSET of new fields, the same, to 2 M", one(Kind::Hash), Add, M),
        row("sismember-many", "SISMEMBER, 100 k sets of 10 x 8 B", sets, Read, 2 * M),
        row("sadd-new-many", "SADD of new members, the same, to 20", sets, Add, M),
        row("sismember-one", "SISMEMBER, a set of 1 M x 16 B", one(Kind::Set), Read, 2 * M),
        row("sadd-one", "SADD of members that are there, the same", one(Kind::Set), Change, 2 * M),
        row("sadd-new-one", "SADD of new members, the same, to 2 M", one(Kind::Set), Add, M),
        row("zadd-many", "ZADD of other scores, 100 k sorted sets of 10 x 8 B", zsets, Change, 2 * M),
        row("zscore-many", "ZSCORE, the same", zsets, Read, 2 * M),
        row("zadd-new-many", "ZADD of new members, the same, to 20", zsets, Add, M),
        row("zadd-one", "ZADD of other scores, a sorted set of 1 M x 16 B", one(Kind::Zset), Change, M),
        row("zscore-one", "ZSCORE, the same", one(Kind::Zset), Read, 2 * M),
        row("zrange-one", "ZRANGE 0 99, the same", one(Kind::Zset), Range, M / 5),
        row("zadd-new-one", "ZADD of new members, the same, to 2 M", one(Kind::Zset), Add, M),
        row("zrange-many", "ZRANGE 0 99, 10 k sorted sets of 100 x 8 B", hundreds, Range, M / 5),
        row("xadd-many", "XADD to 100 k streams of 10 entries, 2 x (6 B + 16 B)", streams, Add, M),
        row("xadd-one", "XADD to a stream of 1 M entries, the same", one(Kind::Stream), Add, M),
    ]
}

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let title = format!("CPU per operation on collections, one worker, one core{}", options.scale_note());
    let mut table = Table::new("collections-speed", title, &HEAD);
    table.note(format!(
        "50 connections, pipelined 32, {} rounds A B; random members and values, scores are random doubles. \
         The ratio is Isotherm over Valkey: below 1, Isotherm needs less.",
        options.rounds
    ));
    let wanted: Vec<Row> = rows().into_iter().filter(|row| options.wants(row.name)).collect();
    if wanted.is_empty() {
        return Ok(vec![table]);
    }
    let [first, second] = SIDES.map(|side| Server::start(side, &Setting::one_core(), options));
    let servers = [first?, second?];
    let mut held: [Option<Make>; 2] = [None, None];
    let mut ratios = Vec::new();
    for row in &wanted {
        let costs = in_turns(&servers, row.name, options.rounds, |server, round| {
            let held = &mut held[server.side as usize];
            run_once(row, server, held, round, options)
        })?;
        ratios.push(best(&costs[1]).cpu_us / best(&costs[0]).cpu_us);
        table.row(cells(row.what, &costs));
    }
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let mut cells = ["geometric mean", "", "", "", "", "", "", ""].map(str::to_string);
    cells[3] = format!("{mean:.2}");
    table.row(cells);
    Ok(vec![table])
}

/// Runs a round on one server, which holds the collections of `held`.
fn run_once(
    row: &Row,
    server: &Server,
    held: &mut Option<Make>,
    round: u64,
    options: &Options,
) -> Fallible<Cost> {
    let make = scaled(row.make, options);
    if *held != Some(make) {
        server.client()?.call(&["FLUSHALL", "SYNC"])?;
        // XADD adds one entry.
        let at_once = if make.kind == Kind::Stream { 1 } else { FEW };
        let fill = Deed::Fill { at_once };
        fill_in_order(server, &mut Deeds::new(make, fill, 1), make.keys * make.each / at_once, "preload")?;
        *held = Some(make);
    }
    if matches!(row.deed, Deed::Add | Deed::Pop) {
        *held = None;
    }
    let commands = options.scaled(row.commands);
    let before = server.cpu_ns()?;
    let load = Load::fifty(server.port, 32);
    let ran = load.run(&mut Deeds::new(make, row.deed, round), Until::Commands(commands))?;
    let cost = cost_of(&ran, server.cpu_ns()? - before);
    // A server that answers fast but does not do the work would win otherwise.
    if ran.nulls > 0 {
        return Err(format!("{}: {} found nothing on {}", row.name, ran.nulls, server.side.name()));
    }
    let there = server.client()?.dbsize()?;
    match there == make.keys {
        true => Ok(cost),
        false => Err(format!("{}: {there} keys on {}, not {}", row.name, server.side.name(), make.keys)),
    }
}

fn scaled(make: Make, options: &Options) -> Make {
    // A multiple of what is filled at once.
    match make.keys {
        1 => Make { each: options.scaled(make.each).next_multiple_of(FEW), ..make },
        keys => Make { keys: options.scaled(keys), ..make },
    }
}
