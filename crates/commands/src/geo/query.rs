//! Query of a search, parsed from its arguments in all the forms that Valkey has.

use super::hash::Position;
use super::shape::{Search, Shape};
use super::text::{parse_position, parse_unit};
use crate::call::is_word;
use isotherm_keyspace::ZsetView;
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

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    Search,
    SearchStore,
    Radius,
    RadiusByMember,
    RadiusReadOnly,
    RadiusByMemberReadOnly,
}

impl Variant {
    /// GEOSEARCH and GEOSEARCHSTORE, which say in words what they search.
    pub fn is_search(self) -> bool {
        matches!(self, Variant::Search | Variant::SearchStore)
    }

    pub fn may_store(self) -> bool {
        matches!(self, Variant::Radius | Variant::RadiusByMember)
    }

    pub fn source_at(self) -> usize {
        if self == Variant::SearchStore { 2 } else { 1 }
    }
}

/// Options of a geo query.
pub struct Query {
    pub search: Search,
    pub with_distance: bool,
    pub with_hash: bool,
    pub with_position: bool,
    pub any: bool,
    pub descending: Option<bool>,
    /// 0: all.
    pub count: usize,
    /// The argument that names the target.
    pub store_at: Option<usize>,
    pub store_distance: bool,
    /// Forms in which the centre and the shape were given: each may be given once, in one form.
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

impl Query {
    /// Without a source (`view`) members are not looked for, and all else is checked.
    pub fn parse(args: Args<'_>, variant: Variant, view: Option<ZsetView<'_>>) -> Result<Query, Vec<u8>> {
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

    /// Checks for missing options and for options that exclude each other.
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
        // The first `count` members are the nearest ones, unless any will do.
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
