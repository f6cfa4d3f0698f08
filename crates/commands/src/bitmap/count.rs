//! Number of set bits: BITCOUNT.

use super::place::Part;
use crate::spec::*;
use crate::text;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::Lookup;
use isotherm_resp::errors;

pub const BITCOUNT: Command<Handler> = Command::new(
    Spec {
        name: "bitcount",
        summary: "Returns the number of one bits in a string or in a range of it; 0 for an absent key.",
        since: "2.6.0",
        group: Group::Bitmap,
        complexity: "O(N)",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::BITMAP,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        history: &[
            ("7.0.0", "New options `BYTE` and `BIT`."),
            ("8.0.0", "The argument `end` may be left out: the range goes to the last byte."),
        ],
        arguments: &[
            Argument::key("key", 0),
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
    bitcount,
);

fn bitcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let part = match Part::read(call, 2) {
        Ok(part) => part,
        Err(error) => return call.fail(error),
    };
    let key = call.key(1);
    let found = call.txn.find(call.db, &key, Lookup::Read).map(|entry| {
        let mut room = text::NO_TEXT;
        text::text(entry.value, &mut room).map(|text| count_part(text, part))
    });
    let count = match found {
        None => 0,
        Some(Some(count)) => count,
        Some(None) => return call.fail(errors::WRONG_TYPE),
    };
    call.reply.integer(count as i64);
    Outcome::Done
}

fn count_part(text: &[u8], part: Part) -> u64 {
    // Two places before the first bit in the wrong order are nothing, though both would be cut to the first.
    let is_reversed = part.start < 0 && part.end.is_some_and(|end| end < 0 && part.start > end);
    if is_reversed { 0 } else { count(text, part.bits(text.len())) }
}

/// The bits of `range` that are set.
fn count(bytes: &[u8], range: std::ops::Range<u64>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let (first, last) = ((range.start >> 3) as usize, ((range.end - 1) >> 3) as usize);
    let before = bytes[first] & !(0xff >> (range.start & 7));
    let behind = bytes[last] & (0x7f >> ((range.end - 1) & 7));
    let outside = before.count_ones() + behind.count_ones();
    count_bytes(&bytes[first..=last]) - u64::from(outside)
}

fn count_bytes(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest: u64 = words.remainder().iter().map(|byte| u64::from(byte.count_ones())).sum();
    let whole: u64 = words
        .map(|word| u64::from(u64::from_ne_bytes(word.try_into().expect("eight bytes")).count_ones()))
        .sum();
    whole + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bitmap::place::bit_at;

    #[test]
    fn every_range_of_some_bytes() {
        let bytes: Vec<u8> = (0..21u32).map(|at| (at * 73 + 11) as u8).collect();
        let total = bytes.len() as u64 * 8;
        for start in 0..total {
            for end in start..=total {
                let expected = (start..end).filter(|at| bit_at(&bytes, *at)).count() as u64;
                assert_eq!(count(&bytes, start..end), expected, "{start}..{end}");
            }
        }
    }
}
