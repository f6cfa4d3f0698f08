//! Position of the first bit that is set or clear: BITPOS.
//!
//! Zeros follow the end of a string. They are found only if the request does not say where to stop.

use super::place::Part;
use crate::spec::*;
use crate::text;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::Lookup;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

pub const BITPOS: Command<Handler> = Command::new(
    Spec {
        name: "bitpos",
        summary: "Returns the offset of the first bit with the given value, -1 when no bit has it.",
        since: "2.8.7",
        group: Group::Bitmap,
        complexity: "O(N)",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::BITMAP,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[("7.0.0", "New options `BYTE` and `BIT`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::integer("bit"),
            Argument::block(
                "range",
                &[
                    Argument::integer("start"),
                    Argument::block(
                        "end-unit-block",
                        &[
                            Argument::integer("end"),
                            Argument::one_of(
                                "unit",
                                &[Argument::pure_token("byte", "BYTE"), Argument::pure_token("bit", "BIT")],
                            )
                            .since("7.0.0")
                            .optional(),
                        ],
                    )
                    .optional(),
                ],
            )
            .optional(),
        ],
        ..Spec::BASE
    },
    bitpos,
);

fn bitpos(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(wanted) = parse_i64(call.args.get(2)) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    if !matches!(wanted, 0 | 1) {
        return call.fail("ERR The bit argument must be 1 or 0.");
    }
    let part = match Part::read(call, 3) {
        Ok(part) => part,
        Err(error) => return call.fail(error),
    };
    let (key, wanted) = (call.key(1), wanted == 1);
    let found = call.txn.find(call.db, &key, Lookup::Read).map(|entry| {
        let mut room = text::NO_TEXT;
        text::text(entry.value, &mut room).map(|text| position_in(text, wanted, part))
    });
    let position = match found {
        None => {
            if wanted {
                None
            } else {
                Some(0)
            }
        }
        Some(Some(position)) => position,
        Some(None) => return call.fail(errors::WRONG_TYPE),
    };
    call.reply.integer(position.map_or(-1, |position| position as i64));
    Outcome::Done
}

fn position_in(text: &[u8], wanted: bool, part: Part) -> Option<u64> {
    let range = part.bits(text.len());
    if range.is_empty() {
        return None;
    }
    let behind = (!wanted && part.end.is_none()).then_some(range.end);
    first(text, range, wanted).or(behind)
}

/// The first bit in `range`, which is not empty, that is `wanted`.
fn first(bytes: &[u8], range: std::ops::Range<u64>, wanted: bool) -> Option<u64> {
    let none = if wanted { 0 } else { 0xff };
    let (head, last) = ((range.start >> 3) as usize, ((range.end - 1) >> 3) as usize);
    // A bit of these is set where the string's is as wanted.
    let head_hits = (bytes[head] ^ none) & 0xff >> (range.start & 7);
    let (at, hits) = if head_hits != 0 {
        (head, head_hits)
    } else {
        let at = head + 1 + bytes[head + 1..=last].iter().position(|byte| *byte != none)?;
        (at, bytes[at] ^ none)
    };
    let position = at as u64 * 8 + u64::from(hits.leading_zeros());
    (position < range.end).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bitmap::place::bit_at;

    #[test]
    fn every_range_of_some_bytes() {
        for bytes in [&[0u8, 0, 0x10, 0, 0xff][..], &[0xff, 0xff, 0xfb, 0xff, 0], &[0], &[0xff], &[0x18, 0]] {
            let total = bytes.len() as u64 * 8;
            for start in 0..total {
                for end in start + 1..=total {
                    for wanted in [false, true] {
                        let expected = (start..end).find(|at| bit_at(bytes, *at) == wanted);
                        assert_eq!(first(bytes, start..end, wanted), expected, "{start}..{end} {wanted}");
                    }
                }
            }
        }
    }
}
