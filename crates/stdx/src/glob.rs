//! Glob patterns as KEYS, SCAN, PSUBSCRIBE and CONFIG GET have them: `*`, `?`, `[a-z]`, `[^x]`, `\` before a
//! literal.
//!
//! Valkey's matcher is recursive: one level for each star. Only the last star met ever needs to be tried
//! further (every element after it takes exactly one byte, so an earlier star can win nothing), which makes
//! one loop with one place to go back to: at most `text x pattern` steps, whatever the pattern; `a*a*a*...b`
//! is no attack. Where both are long even that is too much (minutes for 100 KB and 200 KB), so what stars
//! have tried to no end is counted, and bounded.
//!
//! Faithful in its corners, because clients see them:
//! * a pattern never matches the empty text, except the empty pattern (callers treat a lone `*` apart);
//! * an unclosed class ends with the pattern; `[^` at the end matches any byte;
//! * ranges compare bytes as signed numbers and may be written backwards;
//! * an escaped byte in a class keeps its case even when `nocase`;
//! * beyond 1000 stars (runs of stars count once) nothing matches.

const STARS_MAX: usize = 1000;

// COMPAT(keys): A glob pattern gives up, and matches nothing, once 16 million bytes of it, and 32 for each
// byte of the text, were compared behind its stars without a match; 4 KB of both never come to that. Why: a
// star and 100 KB of `a` would keep a worker busy for minutes with a key or a channel of 200 KB.
const FAILED_BYTES_MAX: usize = 16 << 20;
const FAILED_BYTES_PER_TEXT_BYTE: usize = 32;

/// Place to continue at when an element fails: the element after the last star, and the byte after its last
/// attempt.
#[derive(Clone, Copy)]
struct Retry {
    after_star: usize,
    next: usize,
}

pub fn glob_match(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut stars = 0;
    let mut retry: Option<Retry> = None;
    let mut failed_bytes_left =
        FAILED_BYTES_MAX.saturating_add(FAILED_BYTES_PER_TEXT_BYTE.saturating_mul(text.len()));

    while p < pattern.len() && t < text.len() {
        if pattern[p] == b'*' {
            p += 1 + leading_stars(&pattern[p + 1..]);
            if p == pattern.len() {
                return true;
            }
            stars += 1;
            if stars > STARS_MAX {
                return false;
            }
            retry = Some(Retry { after_star: p, next: t + 1 });
            continue;
        }
        let (matches, width) = match_element(&pattern[p..], text[t], nocase);
        p += width;
        if matches {
            t += 1;
            if t == text.len() {
                p += leading_stars(&pattern[p..]);
                if p == pattern.len() {
                    return true;
                }
                // A text that ran out is too short for every later start as well.
                return false;
            }
            if p < pattern.len() {
                continue;
            }
        }
        // The star takes one more byte: after a mismatch, or because a pattern that ran out may still fit
        // further to the right.
        let Some(Retry { after_star, next }) = retry else { return false };
        let Some(left) = failed_bytes_left.checked_sub(p - after_star) else { return false };
        failed_bytes_left = left;
        (p, t) = (after_star, next);
        retry = Some(Retry { after_star, next: next + 1 });
    }
    p == pattern.len() && t == text.len()
}

fn leading_stars(pattern: &[u8]) -> usize {
    pattern.iter().take_while(|&&byte| byte == b'*').count()
}

/// Compares the element at the front of `pattern` (not a star) with one byte: whether it matches, and the
/// element's width.
#[inline]
fn match_element(pattern: &[u8], byte: u8, nocase: bool) -> (bool, usize) {
    match pattern[0] {
        b'?' => (true, 1),
        b'[' => match_class(pattern, byte, nocase),
        b'\\' if pattern.len() >= 2 => (same(pattern[1], byte, nocase), 2),
        literal => (same(literal, byte, nocase), 1),
    }
}

fn match_class(pattern: &[u8], byte: u8, nocase: bool) -> (bool, usize) {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    let width = loop {
        match &pattern[at..] {
            [] => break at,
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => break at + 1,
            [start, b'-', end, ..] => {
                found |= in_range(*start, *end, byte, nocase);
                at += 3;
            }
            [literal, ..] => {
                found |= same(*literal, byte, nocase);
                at += 1;
            }
        }
    };
    (found != negated, width)
}

fn in_range(start: u8, end: u8, byte: u8, nocase: bool) -> bool {
    // The bounds are put in order first and folded afterwards; both as signed bytes.
    let (low, high) = if (start as i8) <= (end as i8) { (start, end) } else { (end, start) };
    let fold = |byte: u8| if nocase { byte.to_ascii_lowercase() as i8 } else { byte as i8 };
    (fold(low)..=fold(high)).contains(&fold(byte))
}

#[inline]
fn same(a: u8, b: u8, nocase: bool) -> bool {
    a == b || (nocase && a.eq_ignore_ascii_case(&b))
}

#[cfg(test)]
mod tests;
