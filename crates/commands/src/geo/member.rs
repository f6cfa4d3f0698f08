//! Positions of members: GEOADD GEOPOS GEOHASH GEODIST.

use super::hash::{Position, text_of};
use super::shape::distance_m;
use super::text::{parse_position, parse_unit, write_distance, write_position};
use crate::call::is_word;
use crate::sorted_set::{AddOptions, add_members, read_zset};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::ZsetView;
use isotherm_resp::{Reply, errors};

pub const GEOADD: Command<Handler> = Command::new(
    Spec {
        name: "geoadd",
        summary: "Adds members with their coordinates, or moves them. Returns how many are new.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(log N) for each member, N the size of the sorted set",
        arity: -5,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::GEO,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[("6.2.0", "New options `CH`, `NX` and `XX`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "condition",
                &[Argument::pure_token("nx", "NX"), Argument::pure_token("xx", "XX")],
            )
            .since("6.2.0")
            .optional(),
            Argument::pure_token("change", "CH").since("6.2.0").optional(),
            Argument::block(
                "data",
                &[Argument::double("longitude"), Argument::double("latitude"), Argument::string("member")],
            )
            .multiple(),
        ],
        ..Spec::BASE
    },
    geoadd,
);

fn geoadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let mut options = AddOptions::default();
    let mut at = 2;
    while let Some(word) = call.args.try_get(at) {
        match word {
            _ if is_word(word, "NX") => options.nx = true,
            _ if is_word(word, "XX") => options.xx = true,
            _ if is_word(word, "CH") => options.changes = true,
            _ => break,
        }
        at += 1;
    }
    let triples = call.args.from(at);
    if !triples.len().is_multiple_of(3) || options.nx && options.xx {
        return call.fail(errors::SYNTAX);
    }
    let mut scores = Vec::with_capacity(triples.len() / 3);
    for first in (0..triples.len()).step_by(3) {
        match parse_position(triples.from(first)) {
            Ok(position) => scores.push(position.score() as f64),
            Err(error) => return call.fail(error),
        }
    }
    if scores.is_empty() {
        return call.fail(errors::SYNTAX);
    }
    options.members_at = at;
    add_members(call, &options, &scores, 3)
}

pub const GEOPOS: Command<Handler> = Command::new(
    Spec {
        name: "geopos",
        summary: "Returns the coordinates of each member; null for absent ones.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(1) for each member",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        need: NeedFrom::Stated(Need::Elements),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("member").optional().multiple()],
        ..Spec::BASE
    },
    geopos,
);

fn geopos(call: &mut Call<'_, '_, '_>) -> Outcome {
    for_each_member(call, Reply::null_array, write_position)
}

pub const GEOHASH: Command<Handler> = Command::new(
    Spec {
        name: "geohash",
        summary: "Returns the geohash of each member, 11 characters long; null for absent ones.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(1) for each member",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        need: NeedFrom::Stated(Need::Elements),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::string("member").optional().multiple()],
        ..Spec::BASE
    },
    geohash,
);

fn geohash(call: &mut Call<'_, '_, '_>) -> Outcome {
    for_each_member(call, Reply::null, |reply, position| reply.bulk(&text_of(position)))
}

/// Replies one item for each requested member.
fn for_each_member(
    call: &mut Call<'_, '_, '_>,
    absent: fn(&mut Reply),
    write: fn(&mut Reply, Position),
) -> Outcome {
    let members = call.args.from(2);
    let none = |reply: &mut Reply| {
        reply.array(members.len());
        members.iter().for_each(|_| absent(reply));
    };
    read_zset(call, none, |reply, view| {
        reply.array(members.len());
        for member in members.iter() {
            match view.score(member) {
                Some(score) => write(reply, Position::of_score(score)),
                None => absent(reply),
            }
        }
    })
}

pub const GEODIST: Command<Handler> = Command::new(
    Spec {
        name: "geodist",
        summary: "Returns how far two members are apart; null when one of them is absent.",
        since: "3.2.0",
        group: Group::Geo,
        complexity: "O(1)",
        arity: -4,
        flags: Flags::READONLY,
        acl: AclCategories::GEO,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("member1"),
            Argument::string("member2"),
            Argument::one_of(
                "unit",
                &[
                    Argument::pure_token("m", "M"),
                    Argument::pure_token("km", "KM"),
                    Argument::pure_token("ft", "FT"),
                    Argument::pure_token("mi", "MI"),
                ],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    geodist,
);

fn geodist(call: &mut Call<'_, '_, '_>) -> Outcome {
    let unit_m = match call.args.len() {
        4 => 1.0,
        5 => match parse_unit(call.args.get(4)) {
            Ok(unit_m) => unit_m,
            Err(error) => return call.fail(error),
        },
        _ => return call.fail(errors::SYNTAX),
    };
    let (from, to) = (call.args.get(2), call.args.get(3));
    read_zset(call, Reply::null, |reply, view: ZsetView<'_>| {
        let position = |member| view.score(member).map(Position::of_score);
        match (position(from), position(to)) {
            (Some(from), Some(to)) => write_distance(reply, distance_m(from, to) / unit_m),
            _ => reply.null(),
        }
    })
}
