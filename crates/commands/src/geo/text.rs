//! Positions, lengths and distances as a client writes and reads them.

use super::hash::Position;
use isotherm_resp::{Args, Protocol, Reply, errors};
use isotherm_stdx::{parse_f64, push_i64, push_u64};

const UNSUPPORTED_UNIT: &str = "ERR unsupported unit provided. please use M, KM, FT, MI";

/// Metres in a unit.
pub(super) fn parse_unit(text: &[u8]) -> Result<f64, &'static str> {
    use crate::call::is_word;
    match text {
        _ if is_word(text, "m") => Ok(1.0),
        _ if is_word(text, "km") => Ok(1000.0),
        _ if is_word(text, "ft") => Ok(0.3048),
        _ if is_word(text, "mi") => Ok(1609.34),
        _ => Err(UNSUPPORTED_UNIT),
    }
}

/// A longitude and a latitude, the first two of `args`.
pub(super) fn parse_position(args: Args<'_>) -> Result<Position, Vec<u8>> {
    let number = |at| parse_f64(args.get(at)).ok_or(errors::NOT_A_FLOAT);
    let position = Position { longitude: number(0)?, latitude: number(1)? };
    if position.is_valid() {
        return Ok(position);
    }
    let Position { longitude, latitude } = position;
    Err(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into_bytes())
}

/// A distance with four decimals.
pub(super) fn write_distance(reply: &mut Reply, distance: f64) {
    let scaled = (distance * 10_000.0).round_ties_even() as i64;
    let mut text = Vec::with_capacity(24);
    push_i64(&mut text, scaled / 10_000);
    text.push(b'.');
    let fraction = scaled.unsigned_abs() % 10_000;
    for tens in [1000, 100, 10] {
        if fraction < tens {
            text.push(b'0');
        }
    }
    push_u64(&mut text, fraction);
    reply.bulk(&text);
}

/// Two coordinates with up to 17 decimals.
pub(super) fn write_position(reply: &mut Reply, position: Position) {
    reply.array(2);
    for degree in [position.longitude, position.latitude] {
        let long = format!("{degree:.17}");
        let text = match long.trim_end_matches('0').trim_end_matches('.') {
            "-0" => "0",
            text => text,
        };
        match reply.proto {
            Protocol::Resp2 => reply.bulk(text.as_bytes()),
            Protocol::Resp3 => reply.raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}
