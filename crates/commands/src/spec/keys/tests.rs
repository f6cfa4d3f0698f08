use super::*;
use isotherm_resp::ArgsBuf;

const KEYNUM: KeySpec = KeySpec {
    notes: "",
    flags: KeyFlags::OW,
    begin: Begin::Index(1),
    find: Find::KeyNum { at: 0, first: 1, step: 2 },
};
const HALF: KeySpec = KeySpec {
    notes: "",
    flags: KeyFlags::RO,
    begin: Begin::Keyword { keyword: "STREAMS", start_from: 1 },
    find: Find::Range { last: -1, step: 1, limit: 2 },
};
const FROM_THE_END: KeySpec = KeySpec {
    notes: "",
    flags: KeyFlags::RO,
    begin: Begin::Keyword { keyword: "KEYS", start_from: -2 },
    find: Find::Range { last: -1, step: 1, limit: 0 },
};
const NOT_KEY: KeySpec = KeySpec::one(1, KeyFlags::NOT_KEY);
const INCOMPLETE: KeySpec = KeySpec::one(1, KeyFlags::RO.or(KeyFlags::INCOMPLETE));
const UNKNOWN: KeySpec =
    KeySpec { notes: "", flags: KeyFlags::RO, begin: Begin::Unknown, find: Find::Unknown };

/// A declaration is static; a test may leak one.
fn spec_of(key_specs: &[KeySpec]) -> Spec {
    Spec { key_specs: key_specs.to_vec().leak(), ..Spec::BASE }
}

#[track_caller]
fn check(key_specs: &[KeySpec], line: &str, expected: Option<&[usize]>) {
    let spec = spec_of(key_specs);
    let args: ArgsBuf = line.split(' ').map(str::as_bytes).collect();
    let mut out = vec![(99, KeyFlags(0))];
    let found = key_positions(&spec, args.args(), &mut out);
    let positions: Vec<usize> = out[1..].iter().map(|(at, _)| *at).collect();
    assert_eq!(found.is_ok(), expected.is_some(), "{line}");
    assert_eq!(positions, expected.unwrap_or_default(), "{line}");
}

#[test]
fn ranges() {
    const ONE: &[KeySpec] = &[KeySpec::one(1, KeyFlags::RO)];
    const ALL: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyFlags::RO)];
    const EVERY_SECOND: &[KeySpec] = &[KeySpec::range(1, -1, 2, KeyFlags::OW)];
    check(&[], "ping k", Some(&[]));
    check(ONE, "get k", Some(&[1]));
    check(ONE, "get k x", Some(&[1]));
    check(ONE, "get", None);
    check(ALL, "del a b c", Some(&[1, 2, 3]));
    check(ALL, "del", Some(&[]));
    check(EVERY_SECOND, "mset a 1 b 2", Some(&[1, 3]));
    check(EVERY_SECOND, "mset a 1 b", Some(&[1, 3]));
    check(&[KeySpec::one(1, KeyFlags::RO), KeySpec::one(2, KeyFlags::OW)], "copy a b", Some(&[1, 2]));
    check(&[KeySpec::one(1, KeyFlags::RO), KeySpec::one(2, KeyFlags::OW)], "copy a", None);
}

#[test]
fn counts() {
    check(&[KEYNUM], "msetex 2 a 1 b 2 EX 10", Some(&[2, 4]));
    check(&[KEYNUM], "msetex 2 a 1 b", Some(&[2, 4]));
    for number in ["0", "3", "-1", "x", "", "9223372036854775807", "4294967298"] {
        check(&[KEYNUM], &format!("msetex {number} a 1 b"), None);
    }
    check(&[KEYNUM], "msetex", None);
}

#[test]
fn keywords() {
    check(&[HALF], "xread count 2 streams a b 0 0", Some(&[4, 5]));
    check(&[HALF], "xread count 2", Some(&[]));
    check(&[HALF], "xread streams", Some(&[]));
    check(&[FROM_THE_END], "migrate h p keys a b", Some(&[4, 5]));
    check(&[FROM_THE_END], "migrate h p keys a", Some(&[4]));
    check(&[FROM_THE_END], "migrate keys a b", Some(&[]));
}

#[test]
fn what_is_no_key_or_not_known() {
    check(&[NOT_KEY], "spublish c m", Some(&[]));
    check(&[INCOMPLETE], "sort k", None);
    check(&[UNKNOWN], "sort k", None);
    check(&[KeySpec::one(1, KeyFlags::RO), UNKNOWN], "sort k", None);
}

#[test]
fn flags_that_depend_on_arguments() {
    const VARIABLE: KeySpec = KeySpec::one(1, KeyFlags::VARIABLE_FLAGS);
    let spec = Spec {
        key_specs: &[VARIABLE],
        variable_key_flags: Some(|args| if args.len() > 2 { KeyFlags::RW } else { KeyFlags::OW }),
        ..Spec::BASE
    };
    for (line, expected) in [("set k", KeyFlags::OW), ("set k get", KeyFlags::RW)] {
        let args: ArgsBuf = line.split(' ').map(str::as_bytes).collect();
        let mut out = Vec::new();
        key_positions(&spec, args.args(), &mut out).unwrap();
        assert_eq!(out, [(1, expected)]);
    }
}

#[test]
fn the_plain_range_that_older_clients_read() {
    let check = |key_specs: &[KeySpec], expected, movable| {
        let spec = spec_of(key_specs);
        assert_eq!(first_key_range(&spec), expected);
        assert_eq!(spec.shown_flags().has(crate::Flags::MOVABLE_KEYS), movable);
    };
    const RO: KeyFlags = KeyFlags::RO;
    check(&[], None, false);
    check(&[KeySpec::one(1, RO)], Some((1, 1, 1)), false);
    check(&[KeySpec::range(1, -1, 2, RO)], Some((1, -1, 2)), false);
    check(&[INCOMPLETE], Some((1, 1, 1)), true);
    check(&[KEYNUM], None, true);
    check(&[KeySpec::one(1, RO), KeySpec::one(2, RO)], Some((1, 2, 1)), false);
    check(&[KeySpec::one(1, RO), KeySpec::one(3, RO)], Some((1, 1, 1)), true);
    check(&[KeySpec::one(2, RO), KeySpec::range(3, -1, 1, RO)], Some((2, -1, 1)), false);
    check(&[KeySpec::one(1, RO), KEYNUM], Some((1, 1, 1)), true);
}
