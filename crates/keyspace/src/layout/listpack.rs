//! Size that the same elements would have in Valkey's own packed format.
//!
//! `*-max-listpack-size`, `stream-node-max-bytes` and the encodings that OBJECT ENCODING reports are defined
//! by the bytes of a listpack. No value is stored as a listpack here, so its size is counted along.
//!
//! ```text
//!   [total u32][count u16][entry][entry] ... [end u8]               7 B around the entries
//!   entry   [what and how long, 1 to 9 B][string][length again, 1 to 5 B]
//! ```

use crate::layout::packed::Element;

/// Head and end.
pub(crate) const LISTPACK_EMPTY_BYTES: u64 = 7;

/// Bytes of an element's entry.
#[inline]
pub(crate) fn entry_bytes(element: Element<'_>) -> u64 {
    let encoded = match element {
        Element::Int(int) => int_bytes(int),
        Element::Bytes(text) => string_bytes(text.len() as u64),
    };
    encoded + length_bytes(encoded)
}

fn int_bytes(int: i64) -> u64 {
    match int {
        0..=127 => 1,
        -4096..=4095 => 2,
        -32_768..=32_767 => 3,
        -8_388_608..=8_388_607 => 4,
        -2_147_483_648..=2_147_483_647 => 5,
        _ => 9,
    }
}

fn string_bytes(len: u64) -> u64 {
    match len {
        0..=63 => 1 + len,
        64..=4095 => 2 + len,
        _ => 5 + len,
    }
}

/// Bytes of the length after an entry of `encoded` bytes: 7 bits each.
fn length_bytes(encoded: u64) -> u64 {
    match encoded {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        2_097_152..=268_435_455 => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_take_what_the_field_takes() {
        let check = |text: &[u8], bytes: u64| assert_eq!(entry_bytes(Element::of(text)), bytes, "{text:?}");
        check(b"", 2);
        check(b"0", 2);
        check(b"127", 2);
        check(b"-1", 3);
        check(b"128", 3);
        check(b"4096", 4);
        check(b"40000", 5);
        check(b"10000000", 6);
        check(b"9223372036854775807", 10);
        check(b"92233720368547758070", 22);
        check(&[b'a'; 63], 65);
        check(&[b'a'; 64], 67);
        check(&[b'a'; 125], 128);
        check(&[b'a'; 126], 130);
        check(&[b'a'; 4096], 4103);
    }
}
