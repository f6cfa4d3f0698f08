//! Members in a shape: GEOSEARCH GEOSEARCHSTORE and the older GEORADIUS family.

use super::hash::{Cell, Position};
use super::shape::{Search, Shape};
use super::text::{parse_position, parse_unit, write_distance, write_position};
use crate::call::is_word;
use crate::sorted_set::{Scored, store_members};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Key, Lookup, TextRoom, Value, ZsetBound, ZsetView};
use isotherm_resp::{Args, errors};
use isotherm_stdx::{parse_f64, parse_i64};

const COUNT_POSITIVE: &str = "ERR COUNT must be > 0";
const ANY_WITHOUT_COUNT: &str = "ERR the ANY argument requires COUNT argument";
const RADIUS_NOT_NUMERIC: &str = "ERR need numeric radius";
const RADIUS_NEGATIVE: &str = "ERR radius cannot be negative";
const WIDTH_NOT_NUMERIC: &str = "ERR need numeric width";
const HEIGHT_NOT_NUMERIC: &str = "ERR need numeric height";
const BOX_NEGATIVE: &str = "ERR height or width cannot be negative";
const VERTICES_INVALID: &str = "ERR invalid number of vertices";
const TOO_FEW_VERTICES: &str = "ERR GEOSEARCH BYPOLYGON must have at least 3 vertices";
const STORE_WITH: &str = " is not compatible with WITHDIST, WITHHASH and WITHCOORD options";

pub const GEOSEARCH: Command<Handler> = Command::new(
    Spec {
        name: "geosearch",
        summary: "Queries a geospatial index for members inside an area of a box, circle, or a polygon.",
        since: "6.2.0",
        group: Group::Geo,
        complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
        arity: -7,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[
            ("7.0.0", "Added support for uppercase unit names."),
            ("9.0.0", "Added support for the BYPOLYGON option."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "from",
                &[
                    Argument::string("member").token("FROMMEMBER"),
                    Argument::block(
                        "fromlonlat",
                        &[Argument::double("longitude"), Argument::double("latitude")],
                    )
                    .token("FROMLONLAT"),
                ],
            )
            .optional(),
            Argument::one_of(
                "by",
                &[
                    Argument::block(
                        "circle",
                        &[
                            Argument::double("radius").token("BYRADIUS"),
                            Argument::one_of(
                                "unit",
                                &[
                                    Argument::pure_token("m", "m"),
                                    Argument::pure_token("km", "km"),
                                    Argument::pure_token("ft", "ft"),
                                    Argument::pure_token("mi", "mi"),
                                ],
                            ),
                        ],
                    ),
                    Argument::block(
                        "box",
                        &[
                            Argument::double("width").token("BYBOX"),
                            Argument::double("height"),
                            Argument::one_of(
                                "unit",
                                &[
                                    Argument::pure_token("m", "m"),
                                    Argument::pure_token("km", "km"),
                                    Argument::pure_token("ft", "ft"),
                                    Argument::pure_token("mi", "mi"),
                                ],
                            ),
                        ],
                    ),
                    Argument::block(
                        "polygon",
                        &[
                            Argument::integer("num-vertices").token("BYPOLYGON"),
                            Argument::block(
                                "vertices",
                                &[Argument::double("longitude"), Argument::double("latitude")],
                            )
                            .multiple(),
                        ],
                    )
                    .since("9.0.0"),
                ],
            ),
            Argument::one_of(
                "order",
                &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
            )
            .optional(),
            Argument::block(
                "count-block",
                &[Argument::integer("count").token("COUNT"), Argument::pure_token("any", "ANY").optional()],
            )
            .optional(),
            Argument::pure_token("withcoord", "WITHCOORD").optional(),
            Argument::pure_token("withdist", "WITHDIST").optional(),
            Argument::pure_token("withhash", "WITHHASH").optional(),
        ],
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
        summary: "Queries a geospatial index for members inside an area of a box, a circle, or a polygon, optionally stores the result.",
        since: "6.2.0",
        group: Group::Geo,
        complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
        arity: -8,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::GEO,
        key_specs: &[
            KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE)),
            KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS)),
        ],
        history: &[
            ("7.0.0", "Added support for uppercase unit names."),
            ("9.0.0", "Added support for the BYPOLYGON option."),
        ],
        arguments: &[
            Argument::key("destination", 0),
            Argument::key("source", 1),
            Argument::one_of(
                "from",
                &[
                    Argument::string("member").token("FROMMEMBER"),
                    Argument::block(
                        "fromlonlat",
                        &[Argument::double("longitude"), Argument::double("latitude")],
                    )
                    .token("FROMLONLAT"),
                ],
            )
            .optional(),
            Argument::one_of(
                "by",
                &[
                    Argument::block(
                        "circle",
                        &[
                            Argument::double("radius").token("BYRADIUS"),
                            Argument::one_of(
                                "unit",
                                &[
                                    Argument::pure_token("m", "m"),
                                    Argument::pure_token("km", "km"),
                                    Argument::pure_token("ft", "ft"),
                                    Argument::pure_token("mi", "mi"),
                                ],
                            ),
                        ],
                    ),
                    Argument::block(
                        "box",
                        &[
                            Argument::double("width").token("BYBOX"),
                            Argument::double("height"),
                            Argument::one_of(
                                "unit",
                                &[
                                    Argument::pure_token("m", "m"),
                                    Argument::pure_token("km", "km"),
                                    Argument::pure_token("ft", "ft"),
                                    Argument::pure_token("mi", "mi"),
                                ],
                            ),
                        ],
                    ),
                    Argument::block(
                        "polygon",
                        &[
                            Argument::integer("num-vertices").token("BYPOLYGON"),
                            Argument::block(
                                "vertices",
                                &[Argument::double("longitude"), Argument::double("latitude")],
                            )
                            .multiple(),
                        ],
                    )
                    .since("9.0.0"),
                ],
            ),
            Argument::one_of(
                "order",
                &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
            )
            .optional(),
            Argument::block(
                "count-block",
                &[Argument::integer("count").token("COUNT"), Argument::pure_token("any", "ANY").optional()],
            )
            .optional(),
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
        summary: "Queries a geospatial index for members within a distance from a coordinate, optionally stores the result.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        arity: -6,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::GEO,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
            KeySpec {
                notes: "",
                flags: KeyFlags::OW.or(KeyFlags::UPDATE).or(KeyFlags::VARIABLE_FLAGS),
                begin: Begin::Keyword { keyword: "STORE", start_from: 6 },
                find: Find::Range { last: 0, step: 1, limit: 0 },
            },
            KeySpec {
                notes: "",
                flags: KeyFlags::OW.or(KeyFlags::UPDATE).or(KeyFlags::VARIABLE_FLAGS),
                begin: Begin::Keyword { keyword: "STOREDIST", start_from: 6 },
                find: Find::Range { last: 0, step: 1, limit: 0 },
            },
        ],
        key_positions: Some(source_and_target),
        variable_key_flags: Some(stored_key_flags),
        history: &[
            ("6.2.0", "Added the `ANY` option for `COUNT`."),
            ("7.0.0", "Added support for uppercase unit names."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::double("longitude"),
            Argument::double("latitude"),
            Argument::double("radius"),
            Argument::one_of(
                "unit",
                &[
                    Argument::pure_token("m", "m"),
                    Argument::pure_token("km", "km"),
                    Argument::pure_token("ft", "ft"),
                    Argument::pure_token("mi", "mi"),
                ],
            ),
            Argument::pure_token("withcoord", "WITHCOORD").optional(),
            Argument::pure_token("withdist", "WITHDIST").optional(),
            Argument::pure_token("withhash", "WITHHASH").optional(),
            Argument::block(
                "count-block",
                &[
                    Argument::integer("count").token("COUNT"),
                    Argument::pure_token("any", "ANY").since("6.2.0").optional(),
                ],
            )
            .optional(),
            Argument::one_of(
                "order",
                &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
            )
            .optional(),
            Argument::one_of(
                "store",
                &[
                    Argument::key("storekey", 1).token("STORE").display("key"),
                    Argument::key("storedistkey", 2).token("STOREDIST").display("key"),
                ],
            )
            .optional(),
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
        summary: "Queries a geospatial index for members within a distance from a member, optionally stores the result.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        arity: -5,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::GEO,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
            KeySpec {
                notes: "",
                flags: KeyFlags::OW.or(KeyFlags::UPDATE).or(KeyFlags::VARIABLE_FLAGS),
                begin: Begin::Keyword { keyword: "STORE", start_from: 5 },
                find: Find::Range { last: 0, step: 1, limit: 0 },
            },
            KeySpec {
                notes: "",
                flags: KeyFlags::OW.or(KeyFlags::UPDATE).or(KeyFlags::VARIABLE_FLAGS),
                begin: Begin::Keyword { keyword: "STOREDIST", start_from: 5 },
                find: Find::Range { last: 0, step: 1, limit: 0 },
            },
        ],
        key_positions: Some(source_and_target),
        variable_key_flags: Some(stored_key_flags),
        history: &[
            ("6.2.0", "Added the `ANY` option for `COUNT`."),
            ("7.0.0", "Added support for uppercase unit names."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            Argument::double("radius"),
            Argument::one_of(
                "unit",
                &[
                    Argument::pure_token("m", "m"),
                    Argument::pure_token("km", "km"),
                    Argument::pure_token("ft", "ft"),
                    Argument::pure_token("mi", "mi"),
                ],
            ),
            Argument::pure_token("withcoord", "WITHCOORD").optional(),
            Argument::pure_token("withdist", "WITHDIST").optional(),
            Argument::pure_token("withhash", "WITHHASH").optional(),
            Argument::block(
                "count-block",
                &[Argument::integer("count").token("COUNT"), Argument::pure_token("any", "ANY").optional()],
            )
            .optional(),
            Argument::one_of(
                "order",
                &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
            )
            .optional(),
            Argument::one_of(
                "store",
                &[
                    Argument::key("storekey", 1).token("STORE").display("key"),
                    Argument::key("storedistkey", 2).token("STOREDIST").display("key"),
                ],
            )
            .optional(),
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
        summary: "Returns members from a geospatial index that are within a distance from a coordinate.",
        since: "3.2.10",
        group: Group::Geo,
        complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        arity: -6,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[
            ("6.2.0", "Added the `ANY` option for `COUNT`."),
            ("7.0.0", "Added support for uppercase unit names."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::double("longitude"),
            Argument::double("latitude"),
            Argument::double("radius"),
            Argument::one_of(
                "unit",
                &[
                    Argument::pure_token("m", "m"),
                    Argument::pure_token("km", "km"),
                    Argument::pure_token("ft", "ft"),
                    Argument::pure_token("mi", "mi"),
                ],
            ),
            Argument::pure_token("withcoord", "WITHCOORD").optional(),
            Argument::pure_token("withdist", "WITHDIST").optional(),
            Argument::pure_token("withhash", "WITHHASH").optional(),
            Argument::block(
                "count-block",
                &[
                    Argument::integer("count").token("COUNT"),
                    Argument::pure_token("any", "ANY").since("6.2.0").optional(),
                ],
            )
            .optional(),
            Argument::one_of(
                "order",
                &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
            )
            .optional(),
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
        summary: "Returns members from a geospatial index that are within a distance from a member.",
        since: "3.2.10",
        group: Group::Geo,
        complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        arity: -5,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[
            ("6.2.0", "Added the `ANY` option for `COUNT`."),
            ("7.0.0", "Added support for uppercase unit names."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member"),
            Argument::double("radius"),
            Argument::one_of(
                "unit",
                &[
                    Argument::pure_token("m", "m"),
                    Argument::pure_token("km", "km"),
                    Argument::pure_token("ft", "ft"),
                    Argument::pure_token("mi", "mi"),
                ],
            ),
            Argument::pure_token("withcoord", "WITHCOORD").optional(),
            Argument::pure_token("withdist", "WITHDIST").optional(),
            Argument::pure_token("withhash", "WITHHASH").optional(),
            Argument::block(
                "count-block",
                &[Argument::integer("count").token("COUNT"), Argument::pure_token("any", "ANY").optional()],
            )
            .optional(),
            Argument::one_of(
                "order",
                &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    georadiusbymember_ro,
);

fn georadiusbymember_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    search(call, Variant::RadiusByMemberReadOnly)
}

/// Of several targets the last one counts, as the handler has it.
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Search,
    SearchStore,
    Radius,
    RadiusByMember,
    RadiusReadOnly,
    RadiusByMemberReadOnly,
}

impl Variant {
    /// GEOSEARCH and GEOSEARCHSTORE, which say in words what they search.
    fn is_search(self) -> bool {
        matches!(self, Variant::Search | Variant::SearchStore)
    }

    fn may_store(self) -> bool {
        matches!(self, Variant::Radius | Variant::RadiusByMember)
    }

    fn source_at(self) -> usize {
        if self == Variant::SearchStore { 2 } else { 1 }
    }
}

/// What is asked for.
struct Query {
    search: Search,
    with_distance: bool,
    with_hash: bool,
    with_position: bool,
    any: bool,
    descending: Option<bool>,
    /// 0: all.
    count: usize,
    /// The argument that names the target.
    store_at: Option<usize>,
    store_distance: bool,
    /// Where the search is from, and what it is by: each may be said once, in one way.
    from_member: bool,
    from_position: bool,
    by: Option<By>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Radius,
    Box,
    Polygon,
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

/// Whether the source is there; `None` if it is no sorted set.
fn look_up(call: &mut Call<'_, '_, '_>, source: &Key<'_>) -> Option<bool> {
    match call.txn.find(call.db, source, Lookup::Read).map(|entry| entry.value) {
        Some(Value::Zset(_)) => Some(true),
        Some(_) => None,
        None => {
            call.missed(source);
            Some(false)
        }
    }
}

impl Query {
    /// Without a source (`view`) members are not looked for, and all else is checked.
    fn parse(args: Args<'_>, variant: Variant, view: Option<ZsetView<'_>>) -> Result<Query, Vec<u8>> {
        let nowhere = Position { longitude: 0.0, latitude: 0.0 };
        let search = Search { shape: Shape::Circle { radius: 0.0 }, centre: nowhere, unit_m: 1.0 };
        let mut query = Query {
            search,
            with_distance: false,
            with_hash: false,
            with_position: false,
            any: false,
            descending: None,
            count: 0,
            store_at: (variant == Variant::SearchStore).then_some(1),
            store_distance: false,
            from_member: false,
            from_position: false,
            by: None,
        };
        let options_at = query.parse_fixed(args, variant, view)?;
        query.parse_options(args, options_at, variant, view)?;
        query.check(args, variant)?;
        query.search.settle();
        Ok(query)
    }

    /// The arguments that stand in fixed places; where the options begin.
    fn parse_fixed(
        &mut self,
        args: Args<'_>,
        variant: Variant,
        view: Option<ZsetView<'_>>,
    ) -> Result<usize, Vec<u8>> {
        let options_at = match variant {
            Variant::Search => return Ok(2),
            Variant::SearchStore => return Ok(3),
            Variant::Radius | Variant::RadiusReadOnly => {
                self.search.centre = parse_position(args.from(2))?;
                6
            }
            Variant::RadiusByMember | Variant::RadiusByMemberReadOnly => {
                let Some(view) = view else { return Ok(5) };
                self.search.centre = position_of(view, args.get(2))?;
                5
            }
        };
        self.parse_radius(args.from(options_at - 2))?;
        Ok(options_at)
    }

    fn parse_radius(&mut self, args: Args<'_>) -> Result<(), Vec<u8>> {
        let radius = parse_f64(args.get(0)).ok_or(RADIUS_NOT_NUMERIC)?;
        if radius < 0.0 {
            return Err(RADIUS_NEGATIVE.into());
        }
        self.search.unit_m = parse_unit(args.get(1))?;
        self.search.shape = Shape::Circle { radius };
        Ok(())
    }

    fn parse_box(&mut self, args: Args<'_>) -> Result<(), Vec<u8>> {
        let width = parse_f64(args.get(0)).ok_or(WIDTH_NOT_NUMERIC)?;
        let height = parse_f64(args.get(1)).ok_or(HEIGHT_NOT_NUMERIC)?;
        if width < 0.0 || height < 0.0 {
            return Err(BOX_NEGATIVE.into());
        }
        self.search.unit_m = parse_unit(args.get(2))?;
        self.search.shape = Shape::Box { width, height };
        Ok(())
    }

    /// `count longitude latitude ...`; how many arguments that was.
    fn parse_polygon(&mut self, args: Args<'_>) -> Result<usize, Vec<u8>> {
        let count = parse_i64(args.get(0)).and_then(|count| i32::try_from(count).ok());
        let count = count.ok_or(VERTICES_INVALID)?;
        if count < 3 || (args.len() - 1) / 2 < count as usize {
            return Err(TOO_FEW_VERTICES.into());
        }
        let corners = (0..count as usize).map(|corner| parse_position(args.from(1 + 2 * corner)));
        self.search.unit_m = 1.0;
        self.search.shape = Shape::Polygon(corners.collect::<Result<_, _>>()?);
        Ok(1 + 2 * count as usize)
    }

    fn parse_options(
        &mut self,
        args: Args<'_>,
        options_at: usize,
        variant: Variant,
        view: Option<ZsetView<'_>>,
    ) -> Result<(), Vec<u8>> {
        let (searches, by_polygon) = (variant.is_search(), Some(By::Polygon));
        let mut at = options_at;
        while let Some(word) = args.try_get(at) {
            at += 1;
            let rest = args.from(at);
            let more = rest.len();
            let is = |name| is_word(word, name);
            match word {
                _ if is("WITHDIST") => self.with_distance = true,
                _ if is("WITHHASH") => self.with_hash = true,
                _ if is("WITHCOORD") => self.with_position = true,
                _ if is("ANY") => self.any = true,
                _ if is("ASC") => self.descending = Some(false),
                _ if is("DESC") => self.descending = Some(true),
                _ if is("COUNT") && more >= 1 => {
                    let count = parse_i64(rest.get(0)).ok_or(errors::NOT_AN_INTEGER)?;
                    self.count =
                        usize::try_from(count).ok().filter(|count| *count > 0).ok_or(COUNT_POSITIVE)?;
                    at += 1;
                }
                _ if (is("STORE") || is("STOREDIST")) && more >= 1 && variant.may_store() => {
                    (self.store_at, self.store_distance) = (Some(at), is("STOREDIST"));
                    at += 1;
                }
                _ if is("STOREDIST") && variant == Variant::SearchStore => self.store_distance = true,
                _ if is("FROMMEMBER")
                    && more >= 1
                    && searches
                    && !self.from_position
                    && self.by != by_polygon =>
                {
                    if let Some(view) = view {
                        self.search.centre = position_of(view, rest.get(0))?;
                    }
                    self.from_member = true;
                    at += 1;
                }
                _ if is("FROMLONLAT")
                    && more >= 2
                    && searches
                    && !self.from_member
                    && self.by != by_polygon =>
                {
                    self.search.centre = parse_position(rest)?;
                    self.from_position = true;
                    at += 2;
                }
                _ if is("BYRADIUS") && more >= 2 && searches && self.may_be(By::Radius) => {
                    self.parse_radius(rest)?;
                    self.by = Some(By::Radius);
                    at += 2;
                }
                _ if is("BYBOX") && more >= 3 && searches && self.may_be(By::Box) => {
                    self.parse_box(rest)?;
                    self.by = Some(By::Box);
                    at += 3;
                }
                _ if is("BYPOLYGON") && more >= 2 && searches && self.may_be_polygon() => {
                    at += self.parse_polygon(rest)?;
                    self.by = by_polygon;
                }
                _ => return Err(errors::SYNTAX.into()),
            }
        }
        Ok(())
    }

    fn may_be(&self, by: By) -> bool {
        self.by.is_none_or(|said| said == by)
    }

    fn may_be_polygon(&self) -> bool {
        !matches!(self.by, Some(By::Radius | By::Box)) && !self.from_member && !self.from_position
    }

    /// What has to be said, and what excludes what.
    fn check(&mut self, args: Args<'_>, variant: Variant) -> Result<(), Vec<u8>> {
        if self.store_at.is_some() && (self.with_distance || self.with_hash || self.with_position) {
            let what =
                if variant == Variant::SearchStore { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(format!("ERR {what}{STORE_WITH}").into_bytes());
        }
        let is_placed = self.from_member || self.from_position || self.by == Some(By::Polygon);
        if variant.is_search() && !is_placed {
            let before = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
            return Err(errors::with_bytes(before, args.get(0), ""));
        }
        if variant.is_search() && self.by.is_none() {
            let before = "ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for ";
            return Err(errors::with_bytes(before, args.get(0), ""));
        }
        if self.any && self.count == 0 {
            return Err(ANY_WITHOUT_COUNT.into());
        }
        // The first so many are the nearest so many, unless any will do.
        if self.count > 0 && !self.any && self.descending.is_none() {
            self.descending = Some(false);
        }
        Ok(())
    }
}

fn position_of(view: ZsetView<'_>, member: &[u8]) -> Result<Position, Vec<u8>> {
    let score = view.score(member);
    score.map(Position::of_score).ok_or_else(|| errors::with_bytes("ERR member ", member, " does not exist"))
}

fn find_members(call: &mut Call<'_, '_, '_>, source: &Key<'_>, query: &Query) -> Vec<Found> {
    let mut found = Vec::new();
    let Some(Value::Zset(view)) = call.txn.find(call.db, source, Lookup::Silent).map(|entry| entry.value)
    else {
        return found;
    };
    let limit = if query.any { query.count } else { usize::MAX };
    let cells = query.search.cells();
    // Around the poles, and where cells are as large as the world, neighbours can be one and the same. (Two that are
    // equal to the centre are not noticed: the field looks from the second cell on.)
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
