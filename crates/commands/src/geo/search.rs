//! Members in a shape: GEOSEARCH GEOSEARCHSTORE and the older GEORADIUS family.

use super::hash::{Cell, Position};
use super::query::{Query, Variant};
use super::text::{write_distance, write_position};
use crate::call::is_word;
use crate::sorted_set::{Scored, store_members};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Key, Lookup, TextRoom, Value, ZsetBound, ZsetView};
use isotherm_resp::{Args, errors};

/// Unit of lengths in GEOSEARCH and the older commands.
const UNIT: Argument = Argument::one_of(
    "unit",
    &[
        Argument::pure_token("m", "M"),
        Argument::pure_token("km", "KM"),
        Argument::pure_token("ft", "FT"),
        Argument::pure_token("mi", "MI"),
    ],
);
const FROM: Argument = Argument::one_of(
    "from",
    &[
        Argument::string("member").token("FROMMEMBER"),
        Argument::block("fromlonlat", POSITION).token("FROMLONLAT"),
    ],
)
.optional();
const POSITION: &[Argument] = &[Argument::double("longitude"), Argument::double("latitude")];
const BY: Argument = Argument::one_of(
    "by",
    &[
        Argument::block("circle", &[Argument::double("radius").token("BYRADIUS"), UNIT]),
        Argument::block("box", &[Argument::double("width").token("BYBOX"), Argument::double("height"), UNIT]),
        Argument::block(
            "polygon",
            &[
                Argument::integer("num-vertices").token("BYPOLYGON"),
                Argument::block("vertices", POSITION).multiple(),
            ],
        )
        .since("9.0.0"),
    ],
);
const ORDER: Argument =
    Argument::one_of("order", &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")])
        .optional();
const COUNT: Argument = Argument::block(
    "count-block",
    &[Argument::integer("count").token("COUNT"), Argument::pure_token("any", "ANY").optional()],
)
.optional();
/// COUNT with ANY, for commands that got ANY in a later version.
const COUNT_THEN_ANY: Argument = Argument::block(
    "count-block",
    &[
        Argument::integer("count").token("COUNT"),
        Argument::pure_token("any", "ANY").since("6.2.0").optional(),
    ],
)
.optional();
const STORE: Argument = Argument::one_of(
    "store",
    &[
        Argument::key("storekey", 1).token("STORE").display("key"),
        Argument::key("storedistkey", 2).token("STOREDIST").display("key"),
    ],
)
.optional();
const WITHCOORD: Argument = Argument::pure_token("withcoord", "WITHCOORD").optional();
const WITHDIST: Argument = Argument::pure_token("withdist", "WITHDIST").optional();
const WITHHASH: Argument = Argument::pure_token("withhash", "WITHHASH").optional();

const SEARCH_COMPLEXITY: &str =
    "O(N+log(M)), N the members in the cells around the shape, M those in the shape";
const RADIUS_COMPLEXITY: &str =
    "O(N+log(M)), N the members in the circle's bounding box, M the size of the index";
const SEARCH_HISTORY: &[(&str, &str)] =
    &[("7.0.0", "Units may be in capitals."), ("9.0.0", "New option `BYPOLYGON`.")];
const RADIUS_HISTORY: &[(&str, &str)] =
    &[("6.2.0", "New option `ANY` of `COUNT`."), ("7.0.0", "Units may be in capitals.")];

pub const GEOSEARCH: Command<Handler> = Command::new(
    Spec {
        name: "geosearch",
        summary: "Returns the members in a circle, a box or a polygon.",
        since: "6.2.0",
        group: Group::Geo,
        complexity: SEARCH_COMPLEXITY,
        arity: -7,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: SEARCH_HISTORY,
        arguments: &[Argument::key("key", 0), FROM, BY, ORDER, COUNT, WITHCOORD, WITHDIST, WITHHASH],
        ..Spec::BASE
    },
    geosearch,
);

fn geosearch(call: &mut Call<'_, '_, '_>) -> Outcome {
    search(call, Variant::Search)
}

pub const GEOSEARCHSTORE: Command<Handler> = Command::new(
    Spec {
        name: "geosearchstore",
        summary: "Stores the members in a circle, a box or a polygon under another key. Returns how many they are.",
        since: "6.2.0",
        group: Group::Geo,
        complexity: SEARCH_COMPLEXITY,
        arity: -8,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::GEO,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS)),
        ],
        history: SEARCH_HISTORY,
        arguments: &[
            Argument::key("destination", 0),
            Argument::key("source", 1),
            FROM,
            BY,
            ORDER,
            COUNT,
            Argument::pure_token("storedist", "STOREDIST").optional(),
        ],
        ..Spec::BASE
    },
    geosearchstore,
);

fn geosearchstore(call: &mut Call<'_, '_, '_>) -> Outcome {
    search(call, Variant::SearchStore)
}

pub const GEORADIUS: Command<Handler> = Command::new(
    Spec {
        name: "georadius",
        summary: "Returns or stores the members within a distance of a point.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: RADIUS_COMPLEXITY,
        arity: -6,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::GEO,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
            target_key("STORE", 6),
            target_key("STOREDIST", 6),
        ],
        key_positions: Some(source_and_target),
        variable_key_flags: Some(stored_key_flags),
        history: RADIUS_HISTORY,
        arguments: &[
            Argument::key("key", 0),
            Argument::double("longitude"),
            Argument::double("latitude"),
            Argument::double("radius"),
            UNIT,
            WITHCOORD,
            WITHDIST,
            WITHHASH,
            COUNT_THEN_ANY,
            ORDER,
            STORE,
        ],
        ..Spec::BASE
    },
    georadius,
);

fn georadius(call: &mut Call<'_, '_, '_>) -> Outcome {
    search(call, Variant::Radius)
}

pub const GEORADIUSBYMEMBER: Command<Handler> = Command::new(
    Spec {
        name: "georadiusbymember",
        summary: "Returns or stores the members within a distance of another member.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: RADIUS_COMPLEXITY,
        arity: -5,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::GEO,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
            target_key("STORE", 5),
            target_key("STOREDIST", 5),
        ],
        key_positions: Some(source_and_target),
        variable_key_flags: Some(stored_key_flags),
        history: RADIUS_HISTORY,
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            Argument::double("radius"),
            UNIT,
            WITHCOORD,
            WITHDIST,
            WITHHASH,
            COUNT,
            ORDER,
            STORE,
        ],
        ..Spec::BASE
    },
    georadiusbymember,
);

fn georadiusbymember(call: &mut Call<'_, '_, '_>) -> Outcome {
    search(call, Variant::RadiusByMember)
}

pub const GEORADIUS_RO: Command<Handler> = Command::new(
    Spec {
        name: "georadius_ro",
        summary: "Returns the members within a distance of a point.",
        since: "3.2.10",
        group: Group::Geo,
        complexity: RADIUS_COMPLEXITY,
        arity: -6,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: RADIUS_HISTORY,
        arguments: &[
            Argument::key("key", 0),
            Argument::double("longitude"),
            Argument::double("latitude"),
            Argument::double("radius"),
            UNIT,
            WITHCOORD,
            WITHDIST,
            WITHHASH,
            COUNT_THEN_ANY,
            ORDER,
        ],
        ..Spec::BASE
    },
    georadius_ro,
);

fn georadius_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    search(call, Variant::RadiusReadOnly)
}

pub const GEORADIUSBYMEMBER_RO: Command<Handler> = Command::new(
    Spec {
        name: "georadiusbymember_ro",
        summary: "Returns the members within a distance of another member.",
        since: "3.2.10",
        group: Group::Geo,
        complexity: RADIUS_COMPLEXITY,
        arity: -5,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: RADIUS_HISTORY,
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            Argument::double("radius"),
            UNIT,
            WITHCOORD,
            WITHDIST,
            WITHHASH,
            COUNT,
            ORDER,
        ],
        ..Spec::BASE
    },
    georadiusbymember_ro,
);

fn georadiusbymember_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    search(call, Variant::RadiusByMemberReadOnly)
}

/// The key after `keyword`.
const fn target_key(keyword: &'static str, start_from: i32) -> KeySpec {
    KeySpec {
        notes: "",
        flags: KeyFlags::OW.or(KeyFlags::UPDATE).or(KeyFlags::VARIABLE_FLAGS),
        begin: Begin::Keyword { keyword, start_from },
        find: Find::Range { last: 0, step: 1, limit: 0 },
    }
}

/// Appends the positions of the source and of the target. If several targets are given the last one counts,
/// as in the handler.
fn source_and_target(args: Args<'_>, out: &mut Vec<(usize, KeyFlags)>) {
    const OPTIONS_AT: usize = 5;
    out.push((1, KeyFlags::RO.or(KeyFlags::ACCESS)));
    let mut target = None;
    let mut at = OPTIONS_AT;
    while at + 1 < args.len() {
        if is_word(args.get(at), "STORE") || is_word(args.get(at), "STOREDIST") {
            at += 1;
            target = Some(at);
        }
        at += 1;
    }
    out.extend(target.map(|at| (at, stored_key_flags(args))));
}

/// The target is overwritten, if there is one.
fn stored_key_flags(_: Args<'_>) -> KeyFlags {
    KeyFlags::OW.or(KeyFlags::UPDATE)
}
/// A member that was found.
struct Found {
    member: Vec<u8>,
    score: f64,
    position: Position,
    distance_m: f64,
}

fn search(call: &mut Call<'_, '_, '_>, variant: Variant) -> Outcome {
    let source = call.key(variant.source_at());
    call.txn.read_first();
    let (args, is_there) = (call.args, look_up(call, &source));
    let Some(is_there) = is_there else { return call.fail(errors::WRONG_TYPE) };
    let parsed = {
        let found = call.txn.find(call.db, &source, Lookup::Silent).map(|entry| entry.value);
        let view = found.and_then(|value| if let Value::Zset(view) = value { Some(view) } else { None });
        Query::parse(args, variant, view)
    };
    let query = match parsed {
        Ok(query) => query,
        Err(error) => return call.fail(error),
    };
    let found = if is_there { find_members(call, &source, &query) } else { Vec::new() };
    match query.store_at {
        Some(at) => store(call, at, variant, &query, found),
        None => reply(call, &query, &found),
    }
}

/// Returns whether the source exists; `None` if it is not a sorted set.
fn look_up(call: &mut Call<'_, '_, '_>, source: &Key<'_>) -> Option<bool> {
    match call.txn.find(call.db, source, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Zset(_)) => Some(true),
        Some(_) => None,
        None => Some(false),
    }
}

fn find_members(call: &mut Call<'_, '_, '_>, source: &Key<'_>, query: &Query) -> Vec<Found> {
    let mut found = Vec::new();
    let Some(Value::Zset(view)) = call.txn.find(call.db, source, Lookup::Silent).map(|entry| entry.value)
    else {
        return found;
    };
    let limit = if query.any { query.count } else { usize::MAX };
    let cells = query.search.cells();
    // Around the poles, and where cells are as large as the world, neighbours can be one and the same. (Two
    // that are equal to the centre are not noticed: Valkey looks from the second cell on.)
    let mut last: Option<Cell> = None;
    for (index, &cell) in cells.iter().enumerate() {
        if last == Some(cell) {
            continue;
        }
        if found.len() >= limit {
            break;
        }
        find_in_cell(view, cell, query, limit, &mut found);
        last = (index > 0).then_some(cell);
    }
    if let Some(descending) = query.descending {
        found.sort_by(|a, b| {
            let order = a.distance_m.total_cmp(&b.distance_m);
            if descending { order.reverse() } else { order }
        });
    }
    if query.count > 0 {
        found.truncate(query.count);
    }
    found
}

fn find_in_cell(view: ZsetView<'_>, cell: Cell, query: &Query, limit: usize, found: &mut Vec<Found>) {
    let (min, max) = cell.scores();
    let start = view.rank_of(ZsetBound::BeforeScore(min));
    let end = view.rank_of(ZsetBound::BeforeScore(max));
    let mut room = TextRoom::default();
    view.for_each_while(start, end.saturating_sub(start), true, |member, score| {
        let position = Position::of_score(score);
        if let Some(distance_m) = query.search.distance_inside_m(position) {
            let member = member.text(&mut room).to_vec();
            found.push(Found { member, score, position, distance_m });
        }
        found.len() < limit
    });
}

fn store(
    call: &mut Call<'_, '_, '_>,
    at: usize,
    variant: Variant,
    query: &Query,
    found: Vec<Found>,
) -> Outcome {
    let score_of = |found: &Found| {
        if query.store_distance { found.distance_m / query.search.unit_m } else { found.score }
    };
    let members: Vec<Scored> = found
        .into_iter()
        .map(|found| (score_of(&found), found.member))
        .map(|(score, member)| (member, score))
        .collect();
    let event = if variant.is_search() { "geosearchstore" } else { "georadiusstore" };
    let target = call.key(at);
    store_members(call, &target, &members, event, members.len() as u64)
}

fn reply(call: &mut Call<'_, '_, '_>, query: &Query, found: &[Found]) -> Outcome {
    let details = [query.with_distance, query.with_hash, query.with_position];
    let details = details.into_iter().filter(|wanted| *wanted).count();
    call.reply.array(found.len());
    for member in found {
        if details > 0 {
            call.reply.array(1 + details);
        }
        call.reply.bulk(&member.member);
        if query.with_distance {
            write_distance(call.reply, member.distance_m / query.search.unit_m);
        }
        if query.with_hash {
            call.reply.integer(member.score as i64);
        }
        if query.with_position {
            write_position(call.reply, member.position);
        }
    }
    Outcome::Done
}
