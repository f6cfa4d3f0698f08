//! Rows of values, few of them, in which each pair of values of two parameters stands together once at least.
//!
//! Each row begins with a pair that is missing. Then one parameter after the other, in an order by chance,
//! gets the value that brings most pairs which are missing. Of some such rows the best is taken.

use super::Row;
use isotherm_stdx::Prng;

/// Rows that are tried for each that is taken.
const TRIED: usize = 4;

/// A parameter, and its values.
pub type Parameter = (&'static str, &'static [&'static str]);
/// Decides whether two parameters with these values stand in no file together.
pub type AtOdds = fn((&str, &str), (&str, &str)) -> bool;

struct Array {
    parameters: &'static [Parameter],
    at_odds: AtOdds,
    /// Numbers of the values of a parameter begin here.
    first: Vec<usize>,
    /// Pairs without a row, by two numbers of values.
    missing: Vec<bool>,
    left: usize,
}

/// Returns rows with all pairs; others with another seed.
pub fn rows(parameters: &'static [Parameter], at_odds: AtOdds, seed: u64) -> Vec<Row> {
    let mut random = Prng::new(seed);
    let mut array = Array::new(parameters, at_odds);
    let mut rows = Vec::new();
    while array.left > 0 {
        let tried = (0..TRIED).map(|_| array.make(&mut random));
        let (_, row) = tried.max_by_key(|(gain, _)| *gain).expect("some are tried");
        array.take(&row);
        rows.push(row);
    }
    rows
}

impl Array {
    fn new(parameters: &'static [Parameter], at_odds: AtOdds) -> Array {
        let mut first = Vec::new();
        let mut values = 0;
        for (_, levels) in parameters {
            first.push(values);
            values += levels.len();
        }
        let missing = vec![false; values * values];
        let mut array = Array { parameters, at_odds, first, missing, left: 0 };
        for a in 0..parameters.len() {
            for b in a + 1..parameters.len() {
                for (x, y) in
                    (0..parameters[a].1.len()).flat_map(|x| (0..parameters[b].1.len()).map(move |y| (x, y)))
                {
                    if !array.are_at_odds((a, x), (b, y)) {
                        let at = array.index((a, x), (b, y));
                        array.missing[at] = true;
                        array.left += 1;
                    }
                }
            }
        }
        array
    }

    fn are_at_odds(&self, (a, x): (usize, usize), (b, y): (usize, usize)) -> bool {
        let one = |at: usize, level: usize| (self.parameters[at].0, self.parameters[at].1[level]);
        (self.at_odds)(one(a, x), one(b, y)) || (self.at_odds)(one(b, y), one(a, x))
    }

    /// Place of a pair, whichever of both is first.
    fn index(&self, (a, x): (usize, usize), (b, y): (usize, usize)) -> usize {
        let (one, other) = (self.first[a] + x, self.first[b] + y);
        let values = self.first.last().expect("some") + self.parameters.last().expect("some").1.len();
        one.min(other) * values + one.max(other)
    }

    /// A row, and how many missing pairs it has.
    fn make(&self, random: &mut Prng) -> (usize, Row) {
        let (mut row, mut chosen) = (vec![0; self.parameters.len()], Vec::new());
        for pair in self.some_missing(random) {
            row[pair.0] = pair.1;
            chosen.push(pair.0);
        }
        let mut order: Vec<usize> = (0..row.len()).filter(|at| !chosen.contains(at)).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut gain = 1;
        for at in order {
            let levels = 0..self.parameters[at].1.len();
            let fits = levels.filter(|level| {
                !chosen.iter().any(|other| self.are_at_odds((at, *level), (*other, row[*other])))
            });
            let gains = fits.map(|level| {
                let brings = |other: &&usize| self.missing[self.index((at, level), (**other, row[**other]))];
                (chosen.iter().filter(brings).count(), random.below(1 << 20), level)
            });
            let (brought, _, level) =
                gains.max().unwrap_or_else(|| panic!("no value of {} fits", self.parameters[at].0));
            (row[at], gain) = (level, gain + brought);
            chosen.push(at);
        }
        (gain, row)
    }

    fn some_missing(&self, random: &mut Prng) -> [(usize, usize); 2] {
        let values = self.first.last().expect("some") + self.parameters.last().expect("some").1.len();
        let nth = random.below(self.left as u64) as usize;
        let at = (0..self.missing.len()).filter(|at| self.missing[*at]).nth(nth).expect("so many are left");
        [at / values, at % values].map(|number| {
            let parameter = self.first.partition_point(|first| *first <= number) - 1;
            (parameter, number - self.first[parameter])
        })
    }

    fn take(&mut self, row: &[usize]) {
        for a in 0..row.len() {
            for b in a + 1..row.len() {
                let at = self.index((a, row[a]), (b, row[b]));
                self.left -= usize::from(std::mem::replace(&mut self.missing[at], false));
            }
        }
    }
}

#[test]
fn each_pair_stands_in_a_row() {
    const FEW: &[Parameter] =
        &[("a", &["1", "2", "3"]), ("b", &["1", "2"]), ("c", &["1", "2"]), ("d", &["1", "2", "3", "4"])];
    let at_odds: AtOdds = |one, other| one == ("a", "3") && other == ("d", "4");
    let rows = rows(FEW, at_odds, 1);
    assert!((11..=18).contains(&rows.len()), "{}", rows.len());
    for a in 0..FEW.len() {
        for b in a + 1..FEW.len() {
            for (x, y) in (0..FEW[a].1.len()).flat_map(|x| (0..FEW[b].1.len()).map(move |y| (x, y))) {
                let are_together = rows.iter().any(|row| row[a] == x && row[b] == y);
                assert_eq!(are_together, (a, x, b, y) != (0, 2, 3, 3), "{a} {x} {b} {y}");
            }
        }
    }
}
