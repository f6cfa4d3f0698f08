//! Options and reply of HSCAN, SSCAN and ZSCAN.

use crate::call::is_word;
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_u64};
use isotherm_stdx::{glob_match, parse_i64};

const COUNT_DEFAULT: u64 = 10;

/// Type of the scanned value; each has its own error texts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanKind {
    Hash,
    Set,
}

#[derive(Clone, Copy)]
pub(crate) struct ScanOptions<'a> {
    pub count: u64,
    pattern: Option<&'a [u8]>,
    /// Not NOVALUES.
    pub values: bool,
}

impl<'a> ScanOptions<'a> {
    /// Reads the arguments after `key cursor`.
    pub fn parse(args: Args<'a>, kind: ScanKind) -> Result<ScanOptions<'a>, &'static str> {
        let mut options = ScanOptions { count: COUNT_DEFAULT, pattern: None, values: true };
        let mut at = 3;
        while at < args.len() {
            let (word, next) = (args.get(at), args.try_get(at + 1));
            if is_word(word, "COUNT") && next.is_some() {
                let count = next.and_then(parse_i64).ok_or(errors::NOT_AN_INTEGER)?;
                options.count = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(errors::SYNTAX)?;
                at += 2;
            } else if is_word(word, "MATCH") && next.is_some() {
                options.pattern = next.filter(|pattern| *pattern != b"*");
                at += 2;
            } else if is_word(word, "NOVALUES") {
                if kind != ScanKind::Hash {
                    return Err("ERR NOVALUES option can only be used in HSCAN");
                }
                options.values = false;
                at += 1;
            } else if is_word(word, "NOSCORES") {
                return Err("ERR NOSCORES option can only be used in ZSCAN");
            } else {
                return Err(errors::SYNTAX);
            }
        }
        Ok(options)
    }

    pub fn takes(&self, text: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob_match(pattern, text, false))
    }
}

/// The next cursor, and what was found, written already.
pub(crate) fn write_scan(reply: &mut Reply, next: u64, count: usize, found: &[u8]) {
    reply.array(2);
    reply.bulk(write_u64(next, &mut [0; I64_BYTES_MAX]));
    reply.array(count);
    reply.raw(found);
}
