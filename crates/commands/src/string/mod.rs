//! The group `string`.

mod value;

mod get;
mod options;
mod set;
mod several;

mod counter;
mod range;

mod lcs;

use crate::Handler;
use crate::spec::Command;

pub const COMMANDS: &[Command<Handler>] = &[
    range::APPEND,
    counter::DECR,
    counter::DECRBY,
    get::DELIFEQ,
    get::DELEX,
    get::GET,
    get::GETDEL,
    get::GETEX,
    range::GETRANGE,
    set::GETSET,
    counter::INCR,
    counter::INCRBY,
    counter::INCRBYFLOAT,
    lcs::LCS,
    several::MGET,
    several::MSET,
    several::MSETEX,
    several::MSETNX,
    set::PSETEX,
    set::SET,
    set::SETEX,
    set::SETNX,
    range::SETRANGE,
    range::STRLEN,
    range::SUBSTR,
];
