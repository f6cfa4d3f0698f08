//! LCS: the longest common subsequence of two strings.
//!
//! Valkey fills a table of numbers, 4 bytes a cell. Two parts of it are needed afterwards: one bit a cell -
//! where two bytes differ, whether the longer rest lies above or to the left - and the last row of numbers:
//!
//! ```text
//!         b1 b2 b3 ...          steps: one bit a cell, row by row: 1 = go up, 0 = go left
//!      0  0  0  0
//!  a1  0  .  .  .               lengths: the row under work, and what it held before
//!  a2  0  .  .  .
//! ```
//! Two strings of 11 KB: Valkey takes 512 MB, this 16 MB. Both refuse larger ones by the same rule and text.

use super::value;
use crate::call::{Call, is_word};
use crate::spec::*;
use crate::{Handler, Outcome};
use isotherm_keyspace::{Key, Lookup};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::parse_i64;

pub const LCS: Command<Handler> = Command::new(
    Spec {
        name: "lcs",
        summary: "Returns the longest common subsequence of two strings, or its length or places.",
        since: "7.0.0",
        group: Group::String,
        complexity: "O(N*M), N and M the lengths of the strings",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::STRING,
        key_specs: &[KeySpec::range(1, 1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[
            Argument::key("key1", 0),
            Argument::key("key2", 0),
            Argument::pure_token("len", "LEN").optional(),
            Argument::pure_token("idx", "IDX").optional(),
            Argument::integer("min-match-len").token("MINMATCHLEN").optional(),
            Argument::pure_token("withmatchlen", "WITHMATCHLEN").optional(),
        ],
        ..Spec::BASE
    },
    lcs,
);

#[derive(Clone, Copy, Default)]
struct Options {
    len: bool,
    idx: bool,
    with_match_len: bool,
    match_len_min: i64,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, &'static str> {
        let mut options = Options::default();
        let mut at = 3;
        while at < args.len() {
            let word = args.get(at);
            at += 1;
            if is_word(word, "IDX") {
                options.idx = true;
            } else if is_word(word, "LEN") {
                options.len = true;
            } else if is_word(word, "WITHMATCHLEN") {
                options.with_match_len = true;
            } else if is_word(word, "MINMATCHLEN") && at < args.len() {
                options.match_len_min = parse_i64(args.get(at)).ok_or(errors::NOT_AN_INTEGER)?;
                at += 1;
            } else {
                return Err(errors::SYNTAX);
            }
        }
        if options.len && options.idx { Err(errors::LCS_LEN_AND_IDX) } else { Ok(options) }
    }
}

fn lcs(call: &mut Call<'_, '_, '_>) -> Outcome {
    let keys = [call.key(1), call.key(2)];
    // Lengths first: nothing is copied before it is known to be small enough.
    let mut wrong_type = false;
    let lens = keys.map(|key| {
        let found = call.txn.find(call.db, &key, Lookup::Read);
        let len = value::string(found).map(|found| found.map_or(0, value::len));
        wrong_type |= len.is_err();
        len.unwrap_or(0)
    });
    if wrong_type {
        return call.fail(errors::LCS_NOT_STRINGS);
    }
    let options = match Options::parse(call.args) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let cells = (lens[0] as u128 + 1) * (lens[1] as u128 + 1);
    if cells * size_of::<u32>() as u128 > call.settings.bulk_bytes_max as u128 {
        return call.fail(errors::LCS_OUT_OF_MEMORY);
    }
    let [a, b] = keys.map(|key| copy_of(call, &key));
    if options.len {
        let len = lengths(&a, &b, |_, _, _| {}).last().copied().unwrap_or(0);
        call.reply.integer(i64::from(len));
        return Outcome::Done;
    }
    let table = Table::fill(&a, &b);
    if options.idx {
        write_matches(call.reply, &table, &a, &b, &options);
    } else {
        let mut common: Vec<u8> = table.walk(&a, &b).map(|(i, _)| a[i]).collect();
        common.reverse();
        call.reply.bulk(&common);
    }
    Outcome::Done
}

fn copy_of(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Vec<u8> {
    let found = call.txn.find(call.db, key, Lookup::Silent);
    found.map(|entry| value::text(entry.value, &mut value::NO_TEXT.clone()).to_vec()).unwrap_or_default()
}

/// The last row of lengths. `step` hears of every cell whose bytes differ, whether the way goes up.
fn lengths(a: &[u8], b: &[u8], mut step: impl FnMut(usize, usize, bool)) -> Vec<u32> {
    let mut row = vec![0u32; b.len() + 1];
    for (i, byte) in a.iter().enumerate() {
        let mut above_left = 0;
        for j in 0..b.len() {
            let (above, left) = (row[j + 1], row[j]);
            row[j + 1] = if *byte == b[j] {
                above_left + 1
            } else {
                step(i, j, above > left);
                above.max(left)
            };
            above_left = above;
        }
    }
    row
}

struct Table {
    /// Bit `i * b.len() + j`: at bytes a[i] and b[j], which differ, the way goes up.
    ups: Vec<u64>,
    width: usize,
    len: u32,
}

impl Table {
    fn fill(a: &[u8], b: &[u8]) -> Table {
        let width = b.len();
        let mut ups = vec![0u64; (a.len() * width).div_ceil(64)];
        let row = lengths(a, b, |i, j, up| {
            let bit = i * width + j;
            ups[bit / 64] |= u64::from(up) << (bit % 64);
        });
        Table { ups, width, len: row.last().copied().unwrap_or(0) }
    }

    fn goes_up(&self, i: usize, j: usize) -> bool {
        let bit = i * self.width + j;
        self.ups[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// The pairs of positions that make the subsequence, from its end to its start.
    fn walk<'a>(&'a self, a: &'a [u8], b: &'a [u8]) -> impl Iterator<Item = (usize, usize)> + 'a {
        let (mut i, mut j) = (a.len(), b.len());
        std::iter::from_fn(move || {
            while i > 0 && j > 0 {
                if a[i - 1] == b[j - 1] {
                    i -= 1;
                    j -= 1;
                    return Some((i, j));
                } else if self.goes_up(i - 1, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
            }
            None
        })
    }
}

/// A run of pairs that follow each other in both strings.
#[derive(Clone, Copy)]
struct Match {
    a: usize,
    b: usize,
    len: usize,
}

fn write_matches(reply: &mut Reply, table: &Table, a: &[u8], b: &[u8], options: &Options) {
    reply.map(2);
    reply.bulk(b"matches");
    let open = reply.defer();
    let mut count = 0;
    let mut write = |reply: &mut Reply, found: Match| {
        if options.match_len_min <= 0 || found.len as i64 >= options.match_len_min {
            write_match(reply, found, options.with_match_len);
            count += 1;
        }
    };
    let mut current: Option<Match> = None;
    for (i, j) in table.walk(a, b) {
        match &mut current {
            Some(run) if run.a == i + 1 && run.b == j + 1 => *run = Match { a: i, b: j, len: run.len + 1 },
            other => {
                if let Some(run) = other.replace(Match { a: i, b: j, len: 1 }) {
                    write(reply, run);
                }
            }
        }
    }
    if let Some(run) = current {
        write(reply, run);
    }
    reply.close_array(open, count);
    reply.bulk(b"len");
    reply.integer(i64::from(table.len));
}

fn write_match(reply: &mut Reply, found: Match, with_len: bool) {
    reply.array(if with_len { 3 } else { 2 });
    for start in [found.a, found.b] {
        reply.array(2);
        reply.integer(start as i64);
        reply.integer((start + found.len - 1) as i64);
    }
    if with_len {
        reply.integer(found.len as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    /// Valkey's own way: the whole table of numbers.
    fn table(a: &[u8], b: &[u8]) -> Vec<Vec<u32>> {
        let mut table = vec![vec![0u32; b.len() + 1]; a.len() + 1];
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                table[i][j] = if a[i - 1] == b[j - 1] {
                    table[i - 1][j - 1] + 1
                } else {
                    table[i - 1][j].max(table[i][j - 1])
                };
            }
        }
        table
    }

    fn walk(table: &[Vec<u32>], a: &[u8], b: &[u8]) -> Vec<(usize, usize)> {
        let (mut i, mut j, mut pairs) = (a.len(), b.len(), Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                pairs.push((i, j));
            } else if table[i - 1][j] > table[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        pairs
    }

    #[test]
    fn one_bit_a_cell_finds_the_same_way() {
        let mut prng = Prng::new(7);
        for round in 0..300 {
            let characters = 1 + round % 5;
            let text = |prng: &mut Prng| -> Vec<u8> {
                (0..prng.below(40)).map(|_| b'a' + prng.below(characters) as u8).collect()
            };
            let (a, b) = (text(&mut prng), text(&mut prng));
            let (full, ours) = (table(&a, &b), Table::fill(&a, &b));
            assert_eq!(ours.len, full[a.len()][b.len()]);
            assert_eq!(ours.walk(&a, &b).collect::<Vec<_>>(), walk(&full, &a, &b), "{a:?} {b:?}");
        }
    }
}
