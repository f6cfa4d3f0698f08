//! Members are added and get other scores: ZADD ZINCRBY.

use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, EventClass, Full, Lookup, Value, ZsetEdit};
use isotherm_resp::{Args, errors};
use isotherm_stdx::{parse_f64, steps};

const XX_AND_NX: &str = "ERR XX and NX options at the same time are not compatible";
const GT_LT_NX: &str = "ERR GT, LT, and/or NX options at the same time are not compatible";
const INCR_SEVERAL: &str = "ERR INCR option supports a single increment-element pair";
const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

pub const ZADD: Command<Handler> = Command::new(
    Spec {
        name: "zadd",
        summary: "Sets the scores of members, which are added as needed. Returns how many are new.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(log N) for each member, N the size of the sorted set",
        arity: -4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))],
        history: &[
            ("2.4.0", "Several members in one call."),
            ("3.0.2", "New options `XX`, `NX`, `CH` and `INCR`."),
            ("6.2.0", "New options `GT` and `LT`."),
        ],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "condition",
                &[Argument::pure_token("nx", "NX"), Argument::pure_token("xx", "XX")],
            )
            .since("3.0.2")
            .optional(),
            Argument::one_of(
                "comparison",
                &[Argument::pure_token("gt", "GT"), Argument::pure_token("lt", "LT")],
            )
            .since("6.2.0")
            .optional(),
            Argument::pure_token("change", "CH").since("3.0.2").optional(),
            Argument::pure_token("increment", "INCR").since("3.0.2").optional(),
            Argument::block("data", &[Argument::double("score"), Argument::string("member")]).multiple(),
        ],
        ..Spec::BASE
    },
    zadd,
);

fn zadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    add(call, false)
}

pub const ZINCRBY: Command<Handler> = Command::new(
    Spec {
        name: "zincrby",
        summary: "Adds to the score of a member and returns it. An absent member counts as 0.",
        since: "1.2.0",
        group: Group::SortedSet,
        complexity: "O(log N), N the size of the sorted set",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::SORTEDSET,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("increment"), Argument::string("member")],
        ..Spec::BASE
    },
    zincrby,
);

fn zincrby(call: &mut Call<'_, '_, '_>) -> Outcome {
    add(call, true)
}

/// Options of a request, valid for all its members.
#[derive(Clone, Copy, Default)]
pub(crate) struct AddOptions {
    pub nx: bool,
    pub xx: bool,
    pub gt: bool,
    pub lt: bool,
    pub changes: bool,
    pub increment: bool,
    /// Place of the first argument of the members. The score or position of a member comes before it.
    pub members_at: usize,
}

impl AddOptions {
    fn parse(args: Args<'_>, increment: bool) -> Result<AddOptions, &'static str> {
        let mut options = AddOptions { increment, members_at: 2, ..AddOptions::default() };
        while let Some(word) = args.try_get(options.members_at) {
            match word {
                _ if is_word(word, "NX") => options.nx = true,
                _ if is_word(word, "XX") => options.xx = true,
                _ if is_word(word, "CH") => options.changes = true,
                _ if is_word(word, "INCR") => options.increment = true,
                _ if is_word(word, "GT") => options.gt = true,
                _ if is_word(word, "LT") => options.lt = true,
                _ => break,
            }
            options.members_at += 1;
        }
        let left = args.len() - options.members_at;
        match options {
            _ if left == 0 || left % 2 == 1 => Err(errors::SYNTAX),
            AddOptions { nx: true, xx: true, .. } => Err(XX_AND_NX),
            AddOptions { gt: true, nx: true, .. }
            | AddOptions { lt: true, nx: true, .. }
            | AddOptions { gt: true, lt: true, .. } => Err(GT_LT_NX),
            AddOptions { increment: true, .. } if left > 2 => Err(INCR_SEVERAL),
            _ => Ok(options),
        }
    }

    /// The score that a member gets: `Ok(None)` leaves it as it is, an error says that it would be none.
    fn choose(&self, old: Option<f64>, score: f64) -> Result<Option<f64>, ()> {
        let Some(old) = old else { return Ok((!self.xx).then_some(score)) };
        if self.nx {
            return Ok(None);
        }
        let score = if self.increment { old + score } else { score };
        if score.is_nan() {
            return Err(());
        }
        let refused = self.lt && score >= old || self.gt && score <= old;
        Ok((!refused).then_some(score))
    }
}

/// Result of a request.
#[derive(Default)]
struct Done {
    added: u64,
    updated: u64,
    /// Members that were looked at: memory may have ended after them.
    tried: usize,
    /// The score of the last member that was not passed over.
    score: Option<f64>,
    not_a_number: bool,
}

fn add(call: &mut Call<'_, '_, '_>, increment: bool) -> Outcome {
    let options = match AddOptions::parse(call.args, increment) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let pairs = call.args.from(options.members_at);
    let mut scores = Vec::with_capacity(pairs.len() / 2);
    for text in pairs.iter().step_by(2) {
        match parse_f64(text) {
            Some(score) => scores.push(score),
            None => return call.fail(errors::NOT_A_FLOAT),
        }
    }
    add_members(call, &options, &scores, 2)
}

/// Gives scores to the members that end every `stride` arguments: 2 for scores, 3 for positions, which the
/// log gets as scores.
pub(crate) fn add_members(
    call: &mut Call<'_, '_, '_>,
    options: &AddOptions,
    scores: &[f64],
    stride: usize,
) -> Outcome {
    let key = call.key(1);
    if options.xx {
        match call.txn.find(call.db, &key, Lookup::Write).map(|entry| entry.value) {
            None => return reply(call, options, &Done::default()),
            Some(Value::Zset(_)) => {}
            Some(_) => return call.fail(errors::WRONG_TYPE),
        }
    }
    let members = call.args.from(options.members_at + stride - 1);
    let edited = call.txn.edit_zset(call.db, &key, &call.settings.limits, |edit| {
        let done = add_each(edit, || members.iter().step_by(stride), scores, options);
        (done.0, done.1.is_err())
    });
    let edited = match edited {
        Ok(edited) => edited,
        Err(EditError::WrongType) => return call.fail(errors::WRONG_TYPE),
        Err(EditError::Full) => return call.out_of_memory(),
    };
    let (done, full) = edited.result;
    let changes = done.added + done.updated;
    if changes > 0 {
        let name = if options.increment { "zincr" } else { "zadd" };
        // Of an increment that ends in an error nothing is counted.
        call.wrote(EventClass::Zset, name, &key, if done.not_a_number { 0 } else { changes });
        if stride == 3 && !done.not_a_number {
            record_scores(call, options, &scores[..done.tried], stride);
        } else if full {
            call.record_first(options.members_at + done.tried * stride);
        }
    }
    if full { call.out_of_memory() } else { reply(call, options, &done) }
}

/// Adds one member after the other, until one fails; what was done, and whether memory was enough.
fn add_each<'m, M: Iterator<Item = &'m [u8]>>(
    edit: &mut ZsetEdit<'_, '_>,
    members: impl Fn() -> M,
    scores: &[f64],
    options: &AddOptions,
) -> (Done, Result<(), Full>) {
    let mut done = Done::default();
    let longest = members().map(<[u8]>::len).max().unwrap_or(0);
    if edit.expect(scores.len(), longest).is_err() {
        return (done, Err(Full));
    }
    for (member, &score) in members().zip(scores) {
        steps::note(1);
        let (mut passed_over, mut not_a_number) = (false, false);
        let updated = edit.update(member, |old| {
            let chosen = options.choose(old, score);
            (passed_over, not_a_number) = (chosen == Ok(None), chosen.is_err());
            chosen.ok().flatten()
        });
        let Ok(updated) = updated else { return (done, Err(Full)) };
        if not_a_number {
            done.not_a_number = true;
            break;
        }
        done.tried += 1;
        done.added += u64::from(updated.is_added());
        done.updated += u64::from(updated.is_changed());
        done.score = if passed_over { None } else { updated.new };
    }
    (done, Ok(()))
}

/// The log gets ZADD with the options as they came, and scores in the place of positions.
fn record_scores(call: &mut Call<'_, '_, '_>, options: &AddOptions, scores: &[f64], stride: usize) {
    let mut texts = Vec::with_capacity(scores.len());
    if call.records.is_wanted() {
        texts.extend(scores.iter().map(|score| isotherm_stdx::format_f64(*score)));
    }
    let args = call.args;
    call.record_words(|words| {
        words.push(b"ZADD");
        words.extend(args.iter().skip(1).take(options.members_at - 1));
        let members = args.iter().skip(options.members_at + stride - 1).step_by(stride);
        for (score, member) in texts.iter().zip(members) {
            words.extend([score.as_bytes(), member]);
        }
    });
}

fn reply(call: &mut Call<'_, '_, '_>, options: &AddOptions, done: &Done) -> Outcome {
    match done.score {
        _ if done.not_a_number => return call.fail(NOT_A_NUMBER),
        Some(score) if options.increment => call.reply.double(score),
        None if options.increment => call.reply.null(),
        _ if options.changes => call.reply.integer((done.added + done.updated) as i64),
        _ => call.reply.integer(done.added as i64),
    }
    Outcome::Done
}
