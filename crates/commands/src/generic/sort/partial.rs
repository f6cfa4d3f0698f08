//! A part of a sorted order: BY with LIMIT puts only those places in order that are answered.
//!
//! The algorithm is Valkey's quicksort (Bentley and McIlroy, "Engineering a sort function", 1993), step by
//! step: where weights are equal, the order is whatever this algorithm leaves, and a client sees it.

use std::cmp::Ordering;
use std::ops::Range;

/// Puts the places of `wanted` in order; the others hold what does not belong there.
pub fn sort_part<T>(items: &mut [T], wanted: Range<usize>, compare: &impl Fn(&T, &T) -> Ordering) {
    sort_from(items, 0, &wanted, compare);
}

/// Sorts a part of the whole that begins at `base`, as far as `wanted` needs it.
fn sort_from<T>(
    mut items: &mut [T],
    mut base: usize,
    wanted: &Range<usize>,
    compare: &impl Fn(&T, &T) -> Ordering,
) {
    const SMALL: usize = 7;
    loop {
        let len = items.len();
        if len < SMALL {
            return insert_each(items, compare);
        }
        items.swap(0, middle(items, compare));
        let (less, greater) = partition(items, compare);
        let is_wanted =
            |from: usize, len: usize| len > 1 && wanted.end > base + from && wanted.start < base + from + len;
        if is_wanted(0, less) {
            sort_from(&mut items[..less], base, wanted, compare);
        }
        if !is_wanted(len - greater, greater) {
            return;
        }
        base += len - greater;
        items = &mut items[len - greater..];
    }
}

fn insert_each<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) {
    for last in 1..items.len() {
        let mut at = last;
        while at > 0 && compare(&items[at - 1], &items[at]).is_gt() {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// The place of an element that is likely to lie in the middle: the median of three, or of three medians.
fn middle<T>(items: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    const LARGE: usize = 40;
    let len = items.len();
    let (mut low, mut middle, mut high) = (0, len / 2, len - 1);
    if len == 7 {
        return middle;
    }
    let median = |a: usize, b: usize, c: usize| {
        let less = |a: usize, b: usize| compare(&items[a], &items[b]).is_lt();
        match (less(a, b), less(b, c), less(c, b), less(a, c)) {
            (true, true, ..) | (false, _, true, _) => b,
            (true, .., true) => c,
            (true, ..) => a,
            (false, .., true) => a,
            (false, ..) => c,
        }
    };
    if len > LARGE {
        let step = len / 8;
        low = median(low, low + step, low + 2 * step);
        middle = median(middle - step, middle, middle + step);
        high = median(high - 2 * step, high - step, high);
    }
    median(low, middle, high)
}

/// Sorts around the first element: less, equal, greater. How many are less, and how many greater.
fn partition<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) -> (usize, usize) {
    let len = items.len();
    // Equal ones are gathered at both ends: before `a`, and after `d`. `c` and `d` stand one after their
    // element.
    let (mut a, mut b, mut c, mut d) = (1, 1, len, len);
    loop {
        while b < c && compare(&items[b], &items[0]).is_le() {
            if compare(&items[b], &items[0]).is_eq() {
                items.swap(a, b);
                a += 1;
            }
            b += 1;
        }
        while b < c && compare(&items[c - 1], &items[0]).is_ge() {
            if compare(&items[c - 1], &items[0]).is_eq() {
                items.swap(c - 1, d - 1);
                d -= 1;
            }
            c -= 1;
        }
        if b >= c {
            break;
        }
        items.swap(b, c - 1);
        b += 1;
        c -= 1;
    }
    // The equal ones go to the middle.
    let before = a.min(b - a);
    swap_runs(items, 0, b - before, before);
    let behind = (d - c).min(len - d);
    swap_runs(items, b, len - behind, behind);
    (b - a, d - c)
}

fn swap_runs<T>(items: &mut [T], a: usize, b: usize, len: usize) {
    (0..len).for_each(|at| items.swap(a + at, b + at));
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn the_wanted_part_is_in_order() {
        let mut prng = Prng::new(11);
        for _ in 0..3000 {
            let len = prng.below(150) as usize;
            let different = 1 + prng.below(200);
            let items: Vec<u64> = (0..len).map(|_| prng.below(different)).collect();
            let start = prng.below(len as u64 + 1) as usize;
            let end = start + prng.below((len - start) as u64 + 1) as usize;
            let mut sorted = items.clone();
            sorted.sort_unstable();
            let mut part = items.clone();
            sort_part(&mut part, start..end, &u64::cmp);
            assert_eq!(part[start..end], sorted[start..end], "{items:?} {start}..{end}");
            part.sort_unstable();
            assert_eq!(part, sorted);
        }
    }
}
