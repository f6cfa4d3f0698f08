//! Ids as clients write them.

use isotherm_keyspace::StreamId;
use isotherm_stdx::parse_u64;

pub(super) const INVALID: &str = "ERR Invalid stream ID specified as stream command argument";

/// `ms-seq`, or `ms` alone, whose number is `missing`; `ms-*` leaves it open (`None`).
fn parse_open(text: &[u8], missing: u64) -> Option<(u64, Option<u64>)> {
    const BYTES_MAX: usize = 127;
    if text.len() > BYTES_MAX {
        return None;
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match text.iter().position(|byte| *byte == b'-') {
        None => Some((parse_u64(text)?, Some(missing))),
        Some(at) if &text[at + 1..] == b"*" => Some((parse_u64(&text[..at])?, None)),
        Some(at) => Some((parse_u64(&text[..at])?, Some(parse_u64(&text[at + 1..])?))),
    }
}

/// An id of XADD, whose number may be left to the stream (`None`).
pub(super) fn parse_new(text: &[u8]) -> Result<(u64, Option<u64>), &'static str> {
    parse_open(text, 0).ok_or(INVALID)
}

/// An id that names an entry: neither "-" nor "+".
pub(super) fn parse_strict(text: &[u8], missing: u64) -> Result<StreamId, &'static str> {
    match parse_open(text, missing) {
        Some((ms, Some(seq))) => Ok(StreamId { ms, seq }),
        _ => Err(INVALID),
    }
}

/// An id, "-" or "+".
pub(super) fn parse(text: &[u8], missing: u64) -> Result<StreamId, &'static str> {
    match text.split(|byte| *byte == 0).next().unwrap_or_default() {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => parse_strict(text, missing),
    }
}

/// The lower end of a range: "(" in front of it leaves the id itself out.
pub(super) fn parse_start(text: &[u8]) -> Result<StreamId, &'static str> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            parse_strict(rest, 0)?.next().ok_or("ERR invalid start ID for the interval")
        }
        _ => parse(text, 0),
    }
}

/// The upper end of a range.
pub(super) fn parse_end(text: &[u8]) -> Result<StreamId, &'static str> {
    match text {
        [b'(', rest @ ..] if !rest.is_empty() => {
            parse_strict(rest, u64::MAX)?.previous().ok_or("ERR invalid end ID for the interval")
        }
        _ => parse(text, u64::MAX),
    }
}
