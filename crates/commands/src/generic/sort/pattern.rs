//! Patterns of SORT: where the value of an element is found.
//!
//! ```text
//! #              the element itself
//! weight_*       the string under the key that the element makes of the first asterisk
//! object_*->age  the field `age` of the hash under such a key
//! ```

use crate::Call;
use crate::call::ColdKey;
use crate::spec::Need;
use crate::text;
use isotherm_keyspace::{Lookup, Value, Whereabouts};
use isotherm_stdx::{Slot, hash_tag};

/// Returns the place of the first asterisk. Bytes after a NUL are ignored.
pub fn asterisk(pattern: &[u8]) -> Option<usize> {
    pattern.iter().take_while(|byte| **byte != 0).position(|byte| *byte == b'*')
}

/// The slot of all keys that a pattern can mean, where it shows one: a hash tag stands in front of what it
/// leaves open.
pub fn slot(pattern: &[u8]) -> Option<Slot> {
    let open = pattern.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    let fixed = &pattern[..open.unwrap_or(pattern.len())];
    let has_tag = hash_tag(fixed).len() < fixed.len();
    (open.is_none() || has_tag).then(|| Slot::of_key(fixed))
}

/// The key that `pattern` finds for an element, and the field.
fn name_of<'p>(pattern: &'p [u8], element: &[u8]) -> Option<(Vec<u8>, Option<&'p [u8]>)> {
    let at = asterisk(pattern)?;
    let (behind, field) = split_field(&pattern[at + 1..]);
    Some(([&pattern[..at], element, behind].concat(), field))
}

/// Adds the key that `pattern` finds for an element if its value is not in memory. False if it could not be
/// read.
pub fn add_cold(
    call: &mut Call<'_, '_, '_>,
    pattern: &[u8],
    element: &[u8],
    cold: &mut Vec<ColdKey>,
) -> bool {
    let Some((name, _)) = name_of(pattern, element) else { return true };
    let key = call.txn.key(&name);
    match call.txn.whereabouts(call.db, &key) {
        Whereabouts::Here => true,
        Whereabouts::Unreadable => false,
        Whereabouts::Away(_) | Whereabouts::Frozen(..) => {
            cold.push(ColdKey::of(call.db, &name, Need::All, false));
            true
        }
    }
}

/// The value that `pattern` finds for an element.
pub fn look_up(call: &mut Call<'_, '_, '_>, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
    if pattern == b"#" {
        return Some(element.to_vec());
    }
    let (name, field) = name_of(pattern, element)?;
    let key = call.txn.key(&name);
    let entry = call.txn.find(call.db, &key, Lookup::Read)?;
    match (entry.value, field) {
        (Value::Hash(hash), Some(field)) => hash.get(field).map(|value| value.to_vec()),
        (_, Some(_)) => None,
        (value, None) => text::text(value, &mut text::NO_TEXT.clone()).map(<[u8]>::to_vec),
    }
}

/// Splits the part after the asterisk into the rest of the key and the field. An arrow with nothing after it
/// is part of the key.
fn split_field(behind: &[u8]) -> (&[u8], Option<&[u8]>) {
    let end = behind.iter().position(|byte| *byte == 0).unwrap_or(behind.len());
    let arrow = behind[..end].windows(2).position(|pair| pair == b"->");
    match arrow {
        Some(at) if at + 2 < end => (&behind[..at], Some(&behind[at + 2..])),
        _ => (behind, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        assert_eq!(split_field(b""), (&b""[..], None));
        assert_eq!(split_field(b"_x->name"), (&b"_x"[..], Some(&b"name"[..])));
        assert_eq!(split_field(b"->a->b"), (&b""[..], Some(&b"a->b"[..])));
        assert_eq!(split_field(b"x->"), (&b"x->"[..], None));
        assert_eq!(split_field(b"x\0->f"), (&b"x\0->f"[..], None));
        assert_eq!(asterisk(b"a*b*"), Some(1));
        assert_eq!(asterisk(b"a\0*"), None);
    }

    #[test]
    fn a_pattern_shows_its_slot_by_a_tag() {
        for (pattern, tag) in [
            (&b"{a}*"[..], Some(&b"a"[..])),
            (b"x{a}y*->z", Some(b"a")),
            (b"*{a}", None),
            (b"{a*}", None),
            (b"{}a*", None),
            (b"{a\\}*", None),
            (b"plain", Some(b"plain")),
            (b"{}plain", Some(b"{}plain")),
        ] {
            assert_eq!(slot(pattern), tag.map(Slot::of_key), "{}", pattern.escape_ascii());
        }
    }
}
