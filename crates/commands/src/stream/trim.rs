//! Removal of entries by XADD and XTRIM: the options of both, and XTRIM.

use super::id::{parse_new, parse_strict};
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, EventClass, ExpiryMode, StreamEdit, StreamId, Trim};
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;

#[derive(Clone, Copy)]
pub(super) struct Trimming {
    pub keep: Trim,
    /// Place of the number or id; `=` or `~` may stand before it.
    pub at: usize,
    /// `~`: only whole blocks.
    pub whole: bool,
    pub limit: u64,
}

pub(super) struct Options {
    /// The id of XADD: `None` for `*`; its number may be open.
    pub id: Option<(u64, Option<u64>)>,
    pub id_at: usize,
    pub create: bool,
    pub trimming: Option<Trimming>,
}

const TWO_STRATEGIES: &str = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";

const LIMIT_OF_EXACT: &str = "ERR syntax error, LIMIT cannot be used without the special ~ option";

impl Options {
    /// `[MAXLEN|MINID [=|~] threshold [LIMIT count]] [NOMKSTREAM] id` of XADD, the first two parts of XTRIM.
    pub(super) fn parse(call: &Call<'_, '_, '_>, is_add: bool) -> Result<Options, &'static str> {
        let args = call.args;
        let mut options = Options { id: None, id_at: args.len(), create: true, trimming: None };
        let mut limit = None;
        let mut at = 2;
        while at < args.len() {
            let (word, more) = (args.get(at), args.len() - 1 - at);
            if is_add && word == b"*" {
                options.id_at = at;
                break;
            } else if (is_word(word, "MAXLEN") || is_word(word, "MINID")) && more > 0 {
                if options.trimming.is_some() {
                    return Err(TWO_STRATEGIES);
                }
                let trimming = Trimming::parse(args, at, more)?;
                at = trimming.at;
                options.trimming = Some(trimming);
            } else if is_word(word, "LIMIT") && more > 0 {
                let number = parse_i64(args.get(at + 1)).ok_or(errors::NOT_AN_INTEGER)?;
                limit = Some(u64::try_from(number).map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
                at += 1;
            } else if is_add && is_word(word, "NOMKSTREAM") {
                options.create = false;
            } else if is_add {
                options.id = Some(parse_new(word)?);
                options.id_at = at;
                break;
            } else {
                return Err(errors::SYNTAX);
            }
            at += 1;
        }
        options.limit(call, limit, is_add)?;
        Ok(options)
    }

    fn limit(
        &mut self,
        call: &Call<'_, '_, '_>,
        limit: Option<u64>,
        is_add: bool,
    ) -> Result<(), &'static str> {
        let Some(trimming) = &mut self.trimming else {
            if limit.is_some_and(|limit| limit > 0) {
                return Err("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
            }
            if !is_add {
                return Err("ERR syntax error, XTRIM must be called with a trimming strategy");
            }
            return if limit.is_some() && call.txn.conditions.expiry_mode != ExpiryMode::Keep {
                Err(LIMIT_OF_EXACT)
            } else {
                Ok(())
            };
        };
        // The trims that a primary sends are exact already.
        if call.txn.conditions.expiry_mode == ExpiryMode::Keep {
            return Ok(());
        }
        if limit.is_some() && !trimming.whole {
            return Err(LIMIT_OF_EXACT);
        }
        if trimming.whole {
            const BLOCKS: u64 = 100;
            const LIMIT_WITHOUT_BLOCKS: u64 = 10_000;
            const LIMIT_MAX: u64 = 1_000_000;
            let blocks = BLOCKS.saturating_mul(call.settings.limits.stream_node_max_entries as u64);
            let usual = if blocks == 0 { LIMIT_WITHOUT_BLOCKS } else { blocks.min(LIMIT_MAX) };
            trimming.limit = limit.unwrap_or(usual);
        }
        Ok(())
    }
}

impl Trimming {
    /// Parses the options from the word MAXLEN or MINID at `at` on, after which `more` arguments follow.
    fn parse(args: Args<'_>, at: usize, more: usize) -> Result<Trimming, &'static str> {
        let sign = Some(args.get(at + 1)).filter(|sign| more >= 2 && matches!(*sign, b"~" | b"="));
        let number_at = at + 1 + usize::from(sign.is_some());
        let text = args.get(number_at);
        let keep = if is_word(args.get(at), "MAXLEN") {
            let len = parse_i64(text).ok_or(errors::NOT_AN_INTEGER)?;
            Trim::Len(u64::try_from(len).map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
        } else {
            Trim::From(parse_strict(text, 0)?)
        };
        Ok(Trimming { keep, at: number_at, whole: sign == Some(b"~"), limit: 0 })
    }

    /// Returns what to keep, whether only whole blocks are removed, and the maximum number of entries to
    /// remove.
    pub(super) fn terms(&self) -> (Trim, bool, u64) {
        (self.keep, self.whole, self.limit)
    }

    /// Takes away what has to go; how many entries.
    pub(super) fn run(&self, stream: &mut StreamEdit<'_, '_>) -> Result<u64, EditError> {
        Ok(stream.trim(self.keep, self.whole, self.limit)?)
    }

    /// Returns the threshold for the log after the trimming: the log gets exactly what has happened.
    pub(super) fn logged(&self, len: u64, first_of_blocks: StreamId) -> Vec<u8> {
        match self.keep {
            Trim::Len(_) => len.to_string().into_bytes(),
            Trim::From(_) => first_of_blocks.to_text(),
        }
    }
}

/// Appends the words of a request for the log. `id` is put in place of the request's id; an inexact trimming
/// is made exact.
pub(super) fn log_words<'a>(
    args: Args<'a>,
    id: Option<(usize, &'a [u8])>,
    trimming: Option<(&Trimming, &'a [u8])>,
    words: &mut Vec<&'a [u8]>,
) {
    words.extend(args.iter());
    if let Some((at, text)) = id {
        words[at] = text;
    }
    if let Some((trimming, text)) = trimming.filter(|(trimming, _)| trimming.whole) {
        words[trimming.at - 1] = b"=";
        words[trimming.at] = text;
    }
}

pub const XTRIM: Command<Handler> = Command::new(
    Spec {
        name: "xtrim",
        summary: "Removes the oldest entries of a stream beyond a length or below an ID. Returns how many.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N), N the removed entries, with a small constant: whole nodes of entries are freed at once",
        arity: -4,
        flags: Flags::WRITE,
        acl: AclCategories::STREAM,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        tips: &["nondeterministic_output"],
        history: &[("6.2.0", "New options `MINID` and `LIMIT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::block(
                "trim",
                &[
                    Argument::one_of(
                        "strategy",
                        &[
                            Argument::pure_token("maxlen", "MAXLEN"),
                            Argument::pure_token("minid", "MINID").since("6.2.0"),
                        ],
                    ),
                    Argument::one_of(
                        "operator",
                        &[Argument::pure_token("equal", "="), Argument::pure_token("approximately", "~")],
                    )
                    .optional(),
                    Argument::string("threshold"),
                    Argument::integer("count").token("LIMIT").since("6.2.0").optional(),
                ],
            ),
        ],
        ..Spec::BASE
    },
    xtrim,
);

fn xtrim(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = match Options::parse(call, false) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let trimming = options.trimming.expect("XTRIM has one");
    let key = call.key(1);
    match super::kind_of(call, &key) {
        super::Found::Absent => {
            call.reply.integer(0);
            return Outcome::Done;
        }
        super::Found::Other => return call.fail(errors::WRONG_TYPE),
        super::Found::Stream => {}
    }
    let edited = call.txn.edit_stream(call.db, &key, &call.settings.limits, |stream| {
        let gone = trimming.run(stream)?;
        Ok::<_, EditError>((gone, trimming.logged(stream.len(), stream.first_of_blocks())))
    });
    let Ok((gone, text)) = edited.and_then(|edited| edited.result) else { return call.out_of_memory() };
    if gone > 0 {
        call.wrote(EventClass::Stream, "xtrim", &key, gone);
        let args = call.args;
        call.record_words(|words| log_words(args, None, Some((&trimming, &text)), words));
    }
    call.reply.integer(gone as i64);
    Outcome::Done
}
