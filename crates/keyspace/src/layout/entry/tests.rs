//! Entries in every shape that they can have.

use super::*;

#[test]
fn integers_take_the_bytes_they_need() {
    let check = |int: i64, bytes: usize| {
        assert_eq!(int_bytes(int), bytes, "{int}");
        assert_eq!(read_int(&int.to_le_bytes()[..bytes]), int);
    };
    check(0, 1);
    check(-1, 1);
    check(127, 1);
    check(-128, 1);
    check(128, 2);
    check(-129, 2);
    check(32_767, 2);
    check(32_768, 3);
    check(1 << 31, 5);
    check(i64::MAX, 8);
    check(i64::MIN, 8);
}

#[test]
fn expiries_are_exact_in_every_form() {
    for at in
        [i64::MIN, -1, 0, 1, EPOCH_MS - 1, EPOCH_MS, EPOCH_MS + (1 << 40) - 1, EPOCH_MS + (1 << 40), i64::MAX]
    {
        let draft = Draft::inline(b"key", NewValue::Bytes(b"value"), Some(UnixMs(at)));
        let entry = EntryBytes(draft.as_bytes());
        assert_eq!(entry.expiry(), Some(UnixMs(at)));
        assert_eq!((entry.inline_key(), entry.tail()), (Some(&b"key"[..]), &b"value"[..]));
        let draft = Draft::with_expiry(entry, None);
        assert_eq!(draft.as_bytes(), [&[SHORT_HEAD + 3], &b"keyvalue"[..]].concat());
        let entry = EntryBytes(draft.as_bytes());
        assert_eq!((entry.expiry(), entry.tail()), (None, &b"value"[..]));
        let draft = Draft::with_expiry(entry, Some(UnixMs(at)));
        let entry = EntryBytes(draft.as_bytes());
        assert_eq!((entry.expiry(), entry.tail()), (Some(UnixMs(at)), &b"value"[..]));
    }
}

/// Every length of a key on both sides of what is short, with values that are and are not plain.
#[test]
fn an_entry_is_short_if_it_can_be() {
    let key = [b'k'; INLINE_KEY_BYTES_MAX];
    let values: [(NewValue<'_>, &[u8], Form); 4] = [
        (NewValue::Bytes(b""), b"", Form::Bytes),
        (NewValue::Bytes(b"value"), b"value", Form::Bytes),
        (NewValue::Raw(b"value"), b"value", Form::Raw),
        (NewValue::Int(-2), &[254], Form::Int),
    ];
    for (klen, (value, bytes, form)) in (0..=key.len()).flat_map(|klen| values.map(|value| (klen, value))) {
        for (width, expiry) in [None, Some(UnixMs(EPOCH_MS)), Some(UnixMs(0))].into_iter().enumerate() {
            let draft = Draft::inline(&key[..klen], value, expiry);
            let entry = EntryBytes(draft.as_bytes());
            assert_eq!((entry.inline_key(), entry.tail()), (Some(&key[..klen]), bytes));
            assert_eq!((entry.form(), entry.place(), entry.expiry()), (form, Place::Inline, expiry));
            let short = form == Form::Bytes && width < 2 && klen <= SHORT_KEY_BYTES_MAX;
            let head = if short { 1 } else { 2 } + [0, 5, 8][width];
            assert_eq!(entry.0.len(), head + klen + bytes.len());
            for other in [Form::Bytes, Form::Raw, Form::Int] {
                let may = width == 2 || klen > SHORT_KEY_BYTES_MAX;
                let both_long = form != Form::Bytes && other != Form::Bytes;
                assert_eq!(entry.keeps_head(other), may || both_long || form == other, "{klen} {other:?}");
            }
        }
    }
}

/// A reference lies where it does in every entry of a value that is not in memory; the bound of a hash's
/// fields follows it.
#[test]
fn an_entry_knows_when_fields_are_due() {
    let reference = ColdRef::new(400 << 40 | 7);
    for (form, due) in [(Form::TimedHash, 77), (Form::TableHash, NEVER), (Form::Bytes, NEVER)] {
        let value = ColdValue { form, reference, due };
        for expiry in [None, Some(UnixMs(EPOCH_MS + 256 * 50)), Some(UnixMs(i64::MAX))] {
            let draft = Draft::cold(b"key", value, expiry);
            let entry = EntryBytes(draft.as_bytes());
            assert_eq!(entry.cold_value(), Some(value));
            assert_eq!(entry.expiry(), expiry);
            assert_eq!(entry.0[entry.cold_at()..][..8], reference.raw().to_le_bytes());
            let body = entry.body().expect("it lies elsewhere");
            assert_eq!((body.place, body.timed, body.cold()), (Place::Cold, due != NEVER, Some(reference)));
            assert_eq!(entry.bound(), due.min(expiry.map_or(NEVER, bound_of)));
            let draft = Draft::with_expiry(entry, None);
            assert_eq!(EntryBytes(draft.as_bytes()).cold_value(), Some(value));
            assert_eq!(EntryBytes(draft.as_bytes()).bound(), due);
        }
    }
}
