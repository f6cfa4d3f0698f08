//! Patterns of keys with what they permit, and of channels; sorted by kind, so that most are a comparison.
//!
//! ```text
//! ~*           all          every name but the empty one (a glob does not match that; `allkeys` is a mark of the selector)
//! ~app:1       exact        looked up
//! ~app:*       prefix       compared                             prefixes
//! ~a?p[0-9]    glob         matched, in at most text x pattern steps
//! ```

use isotherm_stdx::glob_match;
use std::collections::HashMap;
use std::sync::Arc;

use crate::prefixes::Prefixes;

/// Permitted access to keys: R, W, or both.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Access(u8);

impl Access {
    pub const NONE: Access = Access(0);
    pub const READ: Access = Access(1);
    pub const WRITE: Access = Access(2);
    pub const ALL: Access = Access(3);

    pub const fn or(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    pub const fn when(self, is_so: bool) -> Access {
        if is_so { self } else { Access::NONE }
    }

    #[inline]
    pub const fn covers(self, asked: Access) -> bool {
        self.0 & asked.0 == asked.0
    }

    /// Returns the sign in front of a pattern.
    const fn sign(self) -> &'static [u8] {
        match self {
            Access::READ => b"%R~",
            Access::WRITE => b"%W~",
            _ => b"~",
        }
    }
}

#[derive(Clone, Default, Debug)]
pub struct KeyPatterns {
    /// Patterns in the order in which they were given.
    shown: Vec<(Arc<[u8]>, Access)>,
    /// Each with its place in `shown`.
    places: HashMap<Arc<[u8]>, usize>,
    compiled: Compiled,
}

#[derive(Clone, Default, Debug)]
struct Compiled {
    /// Accesses that lone stars permit. Each is checked by itself: one pattern has to permit the whole
    /// access.
    all: Vec<Access>,
    exact: HashMap<Arc<[u8]>, Access>,
    prefixes: Prefixes,
    globs: Vec<(Arc<[u8]>, Access)>,
}

impl KeyPatterns {
    /// Adds a pattern. If it was given before, it permits both accesses.
    pub fn add(&mut self, pattern: &[u8], access: Access) {
        match self.places.get(pattern) {
            Some(&at) => self.shown[at].1 = self.shown[at].1.or(access),
            None => {
                let pattern: Arc<[u8]> = pattern.into();
                self.places.insert(Arc::clone(&pattern), self.shown.len());
                self.shown.push((pattern, access));
            }
        }
    }

    /// After changes.
    pub fn compile(&mut self) {
        let (mut compiled, mut prefixes) = (Compiled::default(), Vec::new());
        for (pattern, access) in &self.shown {
            match kind_of(pattern) {
                Kind::All => compiled.all.push(*access),
                Kind::Exact => drop(compiled.exact.insert(Arc::clone(pattern), *access)),
                Kind::Prefix(prefix) => prefixes.push((prefix, *access)),
                Kind::Glob => compiled.globs.push((Arc::clone(pattern), *access)),
            }
        }
        compiled.prefixes = Prefixes::new(prefixes.into_iter());
        self.compiled = compiled;
    }

    #[inline]
    pub fn permit(&self, key: &[u8], asked: Access) -> bool {
        self.compiled.prefixes.permit(key, asked) || self.permit_otherwise(key, asked)
    }

    /// Returns whether a prefix permits the access. False does not mean that it is denied.
    #[inline]
    pub fn permit_by_prefix(&self, key: &[u8], asked: Access) -> bool {
        self.compiled.prefixes.permit(key, asked)
    }

    #[inline(never)]
    fn permit_otherwise(&self, key: &[u8], asked: Access) -> bool {
        let Compiled { all, exact, globs, .. } = &self.compiled;
        !exact.is_empty() && exact.get(key).is_some_and(|access| access.covers(asked))
            || !key.is_empty() && all.iter().any(|access| access.covers(asked))
            || globs.iter().any(|(glob, access)| access.covers(asked) && glob_match(glob, key, false))
    }

    /// Returns whether one pattern permits every key that begins so. A pattern that ends in a star and
    /// matches the beginning matches whatever follows it. Of a glob with a class or an escape, whose last
    /// star may stand for itself, this is not said.
    pub fn permit_beginning(&self, beginning: &[u8], asked: Access) -> bool {
        let is_open = |glob: &[u8]| glob.ends_with(b"*") && !glob.iter().any(|byte| b"[\\".contains(byte));
        let Compiled { all, prefixes, globs, .. } = &self.compiled;
        prefixes.permit(beginning, asked)
            || all.iter().any(|access| access.covers(asked))
            || globs.iter().any(|(glob, access)| {
                access.covers(asked) && is_open(glob) && glob_match(glob, beginning, false)
            })
    }

    /// Returns whether a lone star permits this access.
    pub fn permit_all(&self, asked: Access) -> bool {
        self.shown.iter().any(|(pattern, access)| access.covers(asked) && **pattern == *b"*")
    }

    /// "~app:* %R~log:*"
    pub fn show(&self, out: &mut Vec<u8>) {
        for (at, (pattern, access)) in self.shown.iter().enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            out.extend_from_slice(access.sign());
            out.extend_from_slice(pattern);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

enum Kind<'a> {
    All,
    Exact,
    Prefix(&'a [u8]),
    Glob,
}

fn kind_of(pattern: &[u8]) -> Kind<'_> {
    let stars = pattern.iter().rev().take_while(|&&byte| byte == b'*').count();
    let stem = &pattern[..pattern.len() - stars];
    let is_plain = !stem.iter().any(|byte| b"*?[\\".contains(byte));
    match (is_plain, stars, stem) {
        (false, ..) => Kind::Glob,
        (true, 0, _) => Kind::Exact,
        (true, _, []) => Kind::All,
        (true, ..) => Kind::Prefix(stem),
    }
}

/// Patterns of channels.
#[derive(Clone, Default, Debug)]
pub struct ChannelPatterns {
    shown: Vec<Arc<[u8]>>,
    known: std::collections::HashSet<Arc<[u8]>>,
}

impl ChannelPatterns {
    pub fn add(&mut self, pattern: &[u8]) {
        let pattern: Arc<[u8]> = pattern.into();
        if self.known.insert(Arc::clone(&pattern)) {
            self.shown.push(pattern);
        }
    }

    // COMPAT(users): The pattern of PSUBSCRIBE has to be one of the user's channel patterns to its last byte;
    // Valkey compares up to the first NUL. Why: what stands behind it could be anything, and is part of the
    // pattern.
    /// `is_pattern`: what is asked for is a pattern itself (PSUBSCRIBE), and has to be one of these to the
    /// byte.
    pub fn permit(&self, channel: &[u8], is_pattern: bool) -> bool {
        match is_pattern {
            true => self.known.contains(channel),
            false => self.shown.iter().any(|pattern| glob_match(pattern, channel, false)),
        }
    }

    pub fn has(&self, pattern: &[u8]) -> bool {
        self.known.contains(pattern)
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.shown.iter().map(|pattern| &**pattern)
    }

    pub fn show(&self, out: &mut Vec<u8>) {
        for (at, pattern) in self.shown.iter().enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            out.push(b'&');
            out.extend_from_slice(pattern);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn kinds_decide_as_the_matcher_does() {
        let mut random = Prng::new(17);
        let alphabet = b"ab*?[]\\^-";
        let mut word = |max: u64| -> Vec<u8> {
            let len = random.below(max);
            (0..len).map(|_| alphabet[random.below(alphabet.len() as u64) as usize]).collect()
        };
        for _ in 0..200_000 {
            let (pattern, key) = (word(6), word(5));
            let mut patterns = KeyPatterns::default();
            patterns.add(&pattern, Access::READ);
            patterns.compile();
            let expected = glob_match(&pattern, &key, false);
            assert_eq!(patterns.permit(&key, Access::READ), expected, "{pattern:?} {key:?}");
            assert!(!patterns.permit(&key, Access::WRITE));
        }
    }

    /// With few of them and with many, short and long ones.
    #[test]
    fn prefixes_decide_as_the_matcher_does() {
        let mut random = Prng::new(3);
        let mut word = |max: u64| -> Vec<u8> {
            let len = random.below(max);
            (0..len).map(|_| b"ab\0"[random.below(3) as usize]).collect()
        };
        let mut permitted = 0;
        for round in 0..20_000 {
            let given: Vec<(Vec<u8>, Access)> = (0..[1, 4, 5, 30][round % 4])
                .map(|at| {
                    ([word(13), b"*".to_vec()].concat(), if at % 2 == 0 { Access::READ } else { Access::ALL })
                })
                .collect();
            let mut patterns = KeyPatterns::default();
            given.iter().for_each(|(pattern, access)| patterns.add(pattern, *access));
            patterns.compile();
            for asked in [Access::NONE, Access::READ, Access::WRITE, Access::ALL] {
                let key = word(16);
                let expected = patterns
                    .shown
                    .iter()
                    .any(|(pattern, access)| access.covers(asked) && glob_match(pattern, &key, false));
                permitted += u32::from(expected);
                assert_eq!(patterns.permit(&key, asked), expected, "{given:?} {key:?}");
                assert!(expected || !patterns.permit_by_prefix(&key, asked));
            }
        }
        assert!(permitted > 10_000, "{permitted}");
    }

    /// A beginning that is permitted is permitted with everything that may follow it.
    #[test]
    fn a_beginning_stands_for_all_that_follows_it() {
        let mut random = Prng::new(23);
        let alphabet = b"ab*?[]\\^-";
        let mut word = |max: u64, alphabet: &[u8]| -> Vec<u8> {
            let len = random.below(max);
            (0..len).map(|_| alphabet[random.below(alphabet.len() as u64) as usize]).collect()
        };
        let mut permitted = 0;
        for _ in 0..100_000 {
            let (pattern, beginning) = (word(6, alphabet), word(4, b"ab-]*"));
            let mut patterns = KeyPatterns::default();
            patterns.add(&pattern, Access::READ);
            patterns.compile();
            assert!(!patterns.permit_beginning(&beginning, Access::WRITE));
            if beginning.is_empty() || !patterns.permit_beginning(&beginning, Access::READ) {
                continue;
            }
            permitted += 1;
            let key = [&beginning[..], &word(4, b"ab-]*")].concat();
            assert!(patterns.permit(&key, Access::READ), "{pattern:?} {beginning:?} {key:?}");
        }
        assert!(permitted > 1000, "{permitted}");
        let mut patterns = KeyPatterns::default();
        for pattern in ["app:*", "exact:", "t?g:*", "[x]y:*", "odd:\\*"] {
            patterns.add(pattern.as_bytes(), Access::READ);
        }
        patterns.compile();
        let permits = |beginning: &str| patterns.permit_beginning(beginning.as_bytes(), Access::NONE);
        assert!(permits("app:") && permits("app:x:") && permits("tag:"));
        assert!(!permits("ap") && !permits("exact:") && !permits("xy:") && !permits("odd:*") && !permits(""));
    }

    #[test]
    fn one_pattern_has_to_permit_all_that_is_asked() {
        let mut patterns = KeyPatterns::default();
        patterns.add(b"a*", Access::READ);
        patterns.add(b"*a", Access::WRITE);
        patterns.compile();
        assert!(patterns.permit(b"aa", Access::READ) && patterns.permit(b"aa", Access::WRITE));
        assert!(!patterns.permit(b"aa", Access::ALL));
        patterns.add(b"a*", Access::WRITE);
        patterns.compile();
        assert!(patterns.permit(b"aa", Access::ALL));
        let mut shown = Vec::new();
        patterns.show(&mut shown);
        assert_eq!(shown, b"~a* %W~*a");
    }
}
