use super::*;
use crate::Prng;

#[track_caller]
fn check(pattern: &str, text: &str, expected: bool) {
    assert_eq!(glob_match(pattern.as_bytes(), text.as_bytes(), false), expected, "{pattern:?} on {text:?}");
}

#[test]
fn plain_and_wild() {
    check("hello", "hello", true);
    check("hello", "hell", false);
    check("hello", "helloo", false);
    check("h?llo", "hallo", true);
    check("h?llo", "hllo", false);
    check("h*llo", "hllo", true);
    check("h*llo", "heeeello", true);
    check("h*llo", "heeeellox", false);
    check("*", "anything", true);
    check("***", "anything", true);
    check("a*", "a", true);
    check("a**", "a", true);
    check("*a", "a", true);
    check("*ab", "aab", true);
    check("*ab*cd", "abxabcd", true);
    check("a*b*c", "abcbd", false);
    check("?*", "x", true);
    check("*?", "x", true);
    check("a*a*b", "aab", true);
}

#[test]
fn the_empty_text_matches_only_the_empty_pattern() {
    check("", "", true);
    check("*", "", false);
    check("", "a", false);
    check("?", "", false);
}

#[test]
fn classes() {
    check("h[ae]llo", "hello", true);
    check("h[ae]llo", "hillo", false);
    check("h[^e]llo", "hallo", true);
    check("h[^e]llo", "hello", false);
    check("h[a-b]llo", "hbllo", true);
    check("h[b-a]llo", "hbllo", true);
    check("h[a-b]llo", "hcllo", false);
    check("[\\]]", "]", true);
    check("[\\^]", "^", true);
    check("[a", "a", true);
    check("[", "[", false);
    check("[^", "x", true);
    check("[]a]", "a]", false);
    check("[]", "]", false);
    check("[a-]", "-", false);
    check("[a-]", "^", true);
    check("[a-]x", "-x", false);
    check("[a-", "-", true);
    check("[\\", "\\", true);
}

#[test]
fn escapes() {
    check("\\*", "*", true);
    check("\\*", "a", false);
    check("a\\", "a\\", true);
    check("\\a", "a", true);
    check("\\\\", "\\", true);
}

#[test]
fn case_is_folded_except_behind_a_backslash_in_a_class() {
    let check = |pattern: &str, text: &str, expected| {
        assert_eq!(
            glob_match(pattern.as_bytes(), text.as_bytes(), true),
            expected,
            "{pattern:?} on {text:?}"
        );
    };
    check("HeLLo", "hEllO", true);
    check("[a-c]", "B", true);
    check("[A-C]", "b", true);
    check("[x]", "X", true);
    check("[\\x]", "X", false);
    check("\\x", "X", true);
}

#[test]
fn ranges_compare_signed_bytes() {
    assert!(glob_match(b"[\x80-\xff]", b"\x90", false));
    assert!(glob_match(b"[\xf0-\x10]", b"\x05", false), "-16 to 16 holds 5");
    assert!(!glob_match(b"[\xf0-\x10]", b"\x80", false), "-128 lies outside");
}

#[test]
fn abusive_patterns_end_quickly() {
    let pattern = [b"a*".repeat(500), b"b".to_vec()].concat();
    assert!(!glob_match(&pattern, &b"a".repeat(100_000), false));
    let few = [b"*a".repeat(1000), b"".to_vec()].concat();
    assert!(glob_match(&few, &b"a".repeat(2000), false));
    let many = b"*a".repeat(1001);
    assert!(!glob_match(&many, &b"a".repeat(2000), false), "beyond 1000 stars nothing matches");
}

/// Valkey's recursive matcher, transcribed; slow on purpose.
fn reference(mut p: &[u8], mut t: &[u8], nocase: bool, skip: &mut bool, nesting: usize) -> bool {
    if nesting > 1000 {
        return false;
    }
    while !p.is_empty() && !t.is_empty() {
        match p[0] {
            b'*' => {
                while p.get(1) == Some(&b'*') {
                    p = &p[1..];
                }
                if p.len() == 1 {
                    return true;
                }
                while !t.is_empty() {
                    if reference(&p[1..], t, nocase, skip, nesting + 1) {
                        return true;
                    }
                    if *skip {
                        return false;
                    }
                    t = &t[1..];
                }
                *skip = true;
                return false;
            }
            _ => match match_element(p, t[0], nocase) {
                (false, _) => return false,
                (true, width) => {
                    p = &p[width..];
                    t = &t[1..];
                }
            },
        }
        if t.is_empty() {
            while p.first() == Some(&b'*') {
                p = &p[1..];
            }
            break;
        }
    }
    p.is_empty() && t.is_empty()
}

#[test]
fn the_loop_agrees_with_the_recursion() {
    let mut prng = Prng::new(7);
    let mut matches = 0;
    for round in 0..200_000 {
        let alphabet: &[u8] = if round % 2 == 0 { b"ab*?" } else { b"aAb*?[]^-\\" };
        let text_alphabet: &[u8] = b"aAb-";
        let pattern: Vec<u8> =
            (0..prng.below(9)).map(|_| alphabet[prng.below(alphabet.len() as u64) as usize]).collect();
        let text: Vec<u8> = (0..prng.below(8)).map(|_| text_alphabet[prng.below(4) as usize]).collect();
        let nocase = prng.below(2) == 0;
        let expected = reference(&pattern, &text, nocase, &mut false, 0);
        matches += u32::from(expected);
        assert_eq!(glob_match(&pattern, &text, nocase), expected, "{pattern:?} on {text:?} nocase {nocase}");
    }
    assert!(matches > 10_000, "the test must see matches too: {matches}");
}

/// Without a bound each of these takes hours.
#[test]
fn stars_that_fail_again_and_again_come_to_an_end() {
    const BYTES: usize = 1 << 20;
    let text = vec![b'a'; 2 * BYTES];
    let behind_star = |middle: &[u8], times: usize| [b"*", &middle.repeat(times)[..], b"b"].concat();
    let class = [&b"*["[..], &vec![b'x'; BYTES], b"]b"].concat();
    for pattern in
        [behind_star(b"a", BYTES), behind_star(b"a?", BYTES / 2), behind_star(b"[a]", BYTES / 3), class]
    {
        assert!(!glob_match(&pattern, &text, false));
    }
    // The steps that a long text needs with a short pattern are not too many, and neither is a long pattern
    // that fits.
    let found = [&text[..], b"bc"].concat();
    assert!(glob_match(b"*aaaaaaaaaaaaaaaab*", &found, false));
    assert!(glob_match(&[b"*", &text[..], b"b*"].concat(), &found, false));
}
