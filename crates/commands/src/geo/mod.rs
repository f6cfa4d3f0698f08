//! The group `geo`: sorted sets whose scores are positions.

mod hash;
mod query;
mod shape;
mod text;

mod member;
mod search;

use crate::Handler;
use crate::spec::Command;

pub const COMMANDS: &[Command<Handler>] = &[
    member::GEOADD,
    member::GEODIST,
    member::GEOHASH,
    member::GEOPOS,
    search::GEORADIUS,
    search::GEORADIUSBYMEMBER,
    search::GEORADIUSBYMEMBER_RO,
    search::GEORADIUS_RO,
    search::GEOSEARCH,
    search::GEOSEARCHSTORE,
];
