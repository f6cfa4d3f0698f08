//! The group `sorted_set`.

mod bound;
mod reply;

mod add;
mod read;
mod remove;

mod range;
mod store;

mod block;
mod combine;
mod pop;
mod random;
mod scan;

use crate::Handler;
use crate::spec::Command;

pub(crate) use add::{AddOptions, add_members};
pub(crate) use read::read_zset;
pub(crate) use store::{Scored, store_members};

pub const COMMANDS: &[Command<Handler>] = &[
    block::BZMPOP,
    block::BZPOPMAX,
    block::BZPOPMIN,
    add::ZADD,
    read::ZCARD,
    read::ZCOUNT,
    combine::ZDIFF,
    combine::ZDIFFSTORE,
    add::ZINCRBY,
    combine::ZINTER,
    combine::ZINTERCARD,
    combine::ZINTERSTORE,
    read::ZLEXCOUNT,
    pop::ZMPOP,
    read::ZMSCORE,
    pop::ZPOPMAX,
    pop::ZPOPMIN,
    random::ZRANDMEMBER,
    range::ZRANGE,
    range::ZRANGEBYLEX,
    range::ZRANGEBYSCORE,
    range::ZRANGESTORE,
    read::ZRANK,
    remove::ZREM,
    remove::ZREMRANGEBYLEX,
    remove::ZREMRANGEBYRANK,
    remove::ZREMRANGEBYSCORE,
    range::ZREVRANGE,
    range::ZREVRANGEBYLEX,
    range::ZREVRANGEBYSCORE,
    read::ZREVRANK,
    scan::ZSCAN,
    read::ZSCORE,
    combine::ZUNION,
    combine::ZUNIONSTORE,
];
