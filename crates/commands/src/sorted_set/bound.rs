//! Ends of a range, as a client writes them.

use isotherm_keyspace::ZsetBound;
use isotherm_stdx::{parse_f64_rounded, parse_i64};

pub(super) const NOT_A_SCORE_RANGE: &str = "ERR min or max is not a float";
pub(super) const NOT_A_LEX_RANGE: &str = "ERR min or max not valid string range item";

/// Two boundaries: what lies between them is the range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Between<'a> {
    pub start: ZsetBound<'a>,
    pub end: ZsetBound<'a>,
}

impl<'a> Between<'a> {
    /// `1.5`, `(1.5`, `-inf`.
    pub fn scores(min: &[u8], max: &[u8]) -> Option<Between<'a>> {
        let ((min, above_min), (max, below_max)) = (score(min)?, score(max)?);
        let start = if above_min { ZsetBound::AfterScore(min) } else { ZsetBound::BeforeScore(min) };
        let end = if below_max { ZsetBound::BeforeScore(max) } else { ZsetBound::AfterScore(max) };
        Some(Between { start, end })
    }

    /// `[a`, `(a`, `-`, `+`.
    pub fn members(min: &'a [u8], max: &'a [u8]) -> Option<Between<'a>> {
        let start = member(min, ZsetBound::BeforeMember, ZsetBound::AfterMember)?;
        let end = member(max, ZsetBound::AfterMember, ZsetBound::BeforeMember)?;
        Some(Between { start, end })
    }
}

/// A score, and whether it is left out itself.
fn score(text: &[u8]) -> Option<(f64, bool)> {
    match text {
        [b'(', rest @ ..] => Some((range_number(rest)?, true)),
        text => Some((range_number(text)?, false)),
    }
}

/// A number as ranges read one: nothing at all is 0, and what is too large for a double is infinite.
fn range_number(text: &[u8]) -> Option<f64> {
    // Valkey stops at a NUL.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    parse_f64_rounded(text)
}

type Make<'a> = fn(&'a [u8]) -> ZsetBound<'a>;

fn member<'a>(text: &'a [u8], with: Make<'a>, without: Make<'a>) -> Option<ZsetBound<'a>> {
    match text {
        [b'-'] | [b'-', 0, ..] => Some(ZsetBound::Start),
        [b'+'] | [b'+', 0, ..] => Some(ZsetBound::End),
        [b'[', rest @ ..] => Some(with(rest)),
        [b'(', rest @ ..] => Some(without(rest)),
        _ => None,
    }
}

/// A range of ranks with Valkey's negative ones; (first, count), or `None` if nothing lies in it.
pub(super) fn ranks(start: i64, stop: i64, len: u64) -> Option<(u64, u64)> {
    let len = len as i64;
    let from_end = |rank: i64| if rank < 0 { len.saturating_add(rank) } else { rank };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(len - 1));
    (start <= stop).then(|| (start as u64, (stop - start + 1) as u64))
}

/// Two ranks, parsed.
pub(super) fn parse_ranks(start: &[u8], stop: &[u8]) -> Option<(i64, i64)> {
    Some((parse_i64(start)?, parse_i64(stop)?))
}
