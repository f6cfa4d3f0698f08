use super::*;
use crate::Prng;

fn shown(number: LongDouble) -> String {
    String::from_utf8(number.to_human()).unwrap()
}

fn parsed(text: &str) -> LongDouble {
    LongDouble::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} must be accepted"))
}

#[test]
fn read_and_printed() {
    let check = |text: &str, expected: &str| assert_eq!(shown(parsed(text)), expected, "{text:?}");
    check("0", "0");
    check("-0", "0");
    check("-0.0000000000000000001", "0");
    check("+1.5", "1.5");
    check("3.", "3");
    check(".5", "0.5");
    check("1e3", "1000");
    check("5.0e3", "5000");
    check("1e-17", "0.00000000000000001");
    check("1e-18", "0");
    check("0.1", "0.1");
    check("3.141592653589793238", "3.14159265358979324");
    check("18446744073709551615", "18446744073709551615");
    check("18446744073709551617", "18446744073709551616");
    check("123456789012345678901234567890", "123456789012345678899921813504");
    check("0x10", "16");
    check("0X1.8p1", "3");
    check("0x.8", "0.5");
    check("-0x1p-2", "-0.25");
    check("inf", "inf");
    check("-Infinity", "-inf");
    check("0e9999999999999999999999", "0");
}

#[test]
fn refused() {
    let long = "1".repeat(TEXT_BYTES_MAX);
    for text in [
        "",
        " ",
        " 1",
        "1 ",
        "+",
        "-",
        ".",
        "e5",
        "1e",
        "1e+",
        "1.5.2",
        "--1",
        "0x",
        "0x.",
        "0x1p",
        "0x1p+",
        "0xg",
        "0x1.8.1",
        "nan",
        "-nan",
        "nan(1)",
        "infinit",
        "1\0",
        "1e4933",
        "-1e4933",
        "1e-4952",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "0x1p16384",
        "0x1p-16447",
        &long,
    ] {
        assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn the_edges_of_the_range() {
    let finite = |significand, exponent| LongDouble {
        negative: false,
        magnitude: Magnitude::Finite { significand, exponent },
    };
    let largest = finite(u64::MAX, EXPONENT_MAX);
    let smallest = finite(1, EXPONENT_MIN);
    assert_eq!(parsed("1.18973149535723176502126385303097021e4932"), largest);
    assert_eq!(parsed("0xffffffffffffffffp16320"), largest);
    assert_eq!(parsed("3.64519953188247460253e-4951"), smallest);
    assert_eq!(parsed("0x1p-16445"), smallest);
    assert_eq!(parsed("0x1.8p-16446"), smallest, "rounds up from three quarters");
    assert_eq!(LongDouble::parse(b"0x1p-16446"), None, "half of the smallest rounds to zero");
    assert_eq!(
        parsed("3.36210314311209350626e-4932"),
        finite(1 << 63, EXPONENT_MIN),
        "the smallest normal number"
    );
    assert!(!(largest + largest).is_finite());
    assert_eq!(largest + smallest, largest);
    assert_eq!(shown(largest + -largest), "0");
    assert_eq!(smallest + smallest, finite(2, EXPONENT_MIN));
    assert_eq!(shown(parsed("inf") + parsed("-inf")), "nan");
    assert_eq!(shown(parsed("inf") + parsed("1")), "inf");
    assert!(shown(largest).starts_with("118973149535723176502126385303097"));
    assert_eq!(shown(largest).len(), 4933);
}

/// Sums as a real server gave them (INCRBYFLOAT on x86-64).
#[test]
fn sums_of_a_real_server() {
    let golden = include_str!("incrbyfloat.golden");
    let mut cases = 0;
    for line in golden.lines().filter(|line| !line.starts_with('#')) {
        let [start, increment, sum] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}");
        };
        assert_eq!(shown(parsed(start) + parsed(increment)), sum, "{start} + {increment}");
        cases += 1;
    }
    assert!(cases >= 200, "{cases}");
}

#[test]
fn both_ways_of_reading_agree() {
    let mut prng = Prng::new(80);
    for _ in 0..20_000 {
        let digits = prng.next_u64() >> prng.below(64);
        let decimals = prng.below(19) as u32;
        if digits == 0 || digits >= 10u64.pow(19) {
            continue;
        }
        let fast = text::parse(format!("{digits}e-{decimals}").as_bytes());
        // One more digit than the fast way takes, and the same number.
        let slow = text::parse(format!("{digits}.{}e-{decimals}", "0".repeat(20)).as_bytes());
        assert_eq!(fast, slow, "{digits}e-{decimals}");
    }
}

#[test]
fn whole_numbers_are_exact() {
    let mut prng = Prng::new(81);
    for _ in 0..20_000 {
        let (a, b) = (prng.next_u64() as i64 >> 2, prng.next_u64() as i64 >> 2);
        let sum = LongDouble::from_i64(a) + LongDouble::from_i64(b);
        assert_eq!(shown(sum), (a + b).to_string());
        assert_eq!(parsed(&(a + b).to_string()), sum);
    }
}

#[test]
fn addition_agrees_with_integers_of_128_bits() {
    // Significands of 64 bits at distances up to 60: the exact sum fits 128 bits and is rounded by `round`
    // alone.
    let mut prng = Prng::new(82);
    for _ in 0..20_000 {
        let (a, b) = (prng.next_u64() | 1 << 63, prng.next_u64() | 1 << 63);
        let distance = prng.below(60) as i32;
        let (large, small) = (u128::from(a) << distance, u128::from(b));
        let number = |value: u128, negative| round(negative, value, 0, false);
        assert_eq!(number(large, false) + number(small, false), number(large + small, false));
        if large > small {
            assert_eq!(number(large, false) + number(small, true), number(large - small, false));
            assert_eq!(number(small, false) + number(large, true), number(large - small, true));
        }
    }
}

#[test]
fn seconds_as_milliseconds() {
    let cases: [(&str, Option<i64>); 18] = [
        ("0", Some(0)),
        ("1", Some(1000)),
        ("0.1", Some(100)),
        ("0.0001", Some(1)),
        ("1e-4000", Some(1)),
        ("0.01", Some(10)),
        ("-1", Some(-1000)),
        ("-0.0001", Some(0)),
        ("-0.0015", Some(-1)),
        ("9223372036854775.807", Some(i64::MAX)),
        ("9223372036854775.8085", None),
        ("9223372036854776", None),
        ("-9223372036854776", Some(i64::MIN)),
        ("1e4000", None),
        ("-1e4000", Some(i64::MIN)),
        ("inf", None),
        ("-inf", Some(i64::MIN)),
        ("2147483.6471", Some(2_147_483_648)),
    ];
    for (text, expected) in cases {
        assert_eq!(LongDouble::parse(text.as_bytes()).unwrap().ceil_thousandfold(), expected, "{text}");
    }
}
