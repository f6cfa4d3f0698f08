//! All members in many small steps: ZSCAN.

use super::read::read_zset;
use crate::call::is_word;
use crate::element::reply_element;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Encoding, TextRoom};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::float::{format_f64, format_f64_17g};
use isotherm_stdx::number::{I64_BYTES_MAX, write_u64};
use isotherm_stdx::{glob_match, parse_i64, parse_u64};

pub const ZSCAN: Command<Handler> = Command::new(
    Spec {
        name: "zscan",
        summary: "Returns some members with their scores, and the cursor of the next call.",
        since: "2.8.0",
        group: Group::SortedSet,
        complexity: "O(1) for each call with a small COUNT, O(N) for all calls until the cursor is 0 again, N the elements",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        history: &[("8.0.0", "New option `NOSCORES`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("cursor"),
            Argument::pattern("pattern").token("MATCH").optional(),
            Argument::integer("count").token("COUNT").optional(),
            Argument::pure_token("noscores", "NOSCORES").optional(),
        ],
        ..Spec::BASE
    },
    zscan,
);

const COUNT_DEFAULT: u64 = 10;

struct Options<'a> {
    count: u64,
    pattern: Option<&'a [u8]>,
    scores: bool,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, &'static str> {
        let mut options = Options { count: COUNT_DEFAULT, pattern: None, scores: true };
        let mut at = 0;
        while let Some(word) = args.try_get(at) {
            match args.try_get(at + 1) {
                Some(text) if is_word(word, "COUNT") => {
                    let count = parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
                    options.count =
                        u64::try_from(count).ok().filter(|count| *count > 0).ok_or(errors::SYNTAX)?;
                    at += 2;
                }
                Some(pattern) if is_word(word, "MATCH") => {
                    options.pattern = Some(pattern).filter(|pattern| *pattern != b"*");
                    at += 2;
                }
                _ if is_word(word, "NOVALUES") => {
                    return Err("ERR NOVALUES option can only be used in HSCAN");
                }
                _ if is_word(word, "NOSCORES") => {
                    options.scores = false;
                    at += 1;
                }
                _ => return Err(errors::SYNTAX),
            }
        }
        Ok(options)
    }
}

fn zscan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(cursor) = parse_u64(call.args.get(2)) else {
        return call.fail(errors::INVALID_CURSOR);
    };
    let args = call.args.from(3);
    let absent = |reply: &mut Reply| {
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
    };
    // Options are looked at only if there is something to scan.
    read_zset(call, absent, |reply, view| match Options::parse(args) {
        Err(error) => reply.error(error),
        Ok(options) => {
            // The next cursor stands before the members and is known after them.
            let mut members = Reply::new(reply.proto);
            let mut found = 0;
            let is_listpack = view.encoding() == Encoding::Listpack;
            let mut room = TextRoom::default();
            let next = view.scan(cursor, options.count, |member, score| {
                let wanted =
                    options.pattern.is_none_or(|pattern| glob_match(pattern, member.text(&mut room), false));
                if wanted {
                    reply_element(&mut members, member);
                    found += 1;
                    if options.scores {
                        // A listpack keeps scores as the texts that other replies show.
                        let text = if is_listpack { format_f64(score) } else { format_f64_17g(score) };
                        members.bulk(text.as_bytes());
                        found += 1;
                    }
                }
            });
            reply.array(2);
            reply.bulk(write_u64(next, &mut [0; I64_BYTES_MAX]));
            reply.array(found);
            reply.raw(&members.out);
        }
    })
}
