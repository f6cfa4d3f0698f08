//! Memory of the prefixes of keys: `user`, `user:7`, `user:7:cart` of the key `user:7:cart:3`.
//!
//! ```text
//!   small keys   one of 16, by its tag, for 16         large ones (64 KB and more)   each for itself, to 3 %
//!                                       \               /
//!   depth 1, 2, 3    [line] x 96 each: prefixes that are counted              [bare]  keys with too few separators
//!                      ^  the smallest makes room for what has become larger
//!                    [sketch] one for all: what has no line                                57 KB together
//!   pinned           [keys][volatile][bytes] each, exact
//! ```
//! A key is in the sample or not by its name, so its coming and its going are both seen or both not. A prefix
//! that had a line from its first key on has only the error of the sample; one that got its line later also
//! has the error of the sketch at that time. Both are reported as one error: two standard deviations of the
//! sample, three of the sketch.

use super::largest::{grade, grade_bytes};
use super::sketch::{SKETCH_BYTES, Sketch};
use super::{Change, Counted};
use crate::layout::key::KeyHasher;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Separators in a prefix, at most, the one after it counted.
pub const PREFIX_DEPTH_MAX: usize = 3;
pub const PREFIX_PINS_MAX: usize = 16;
/// Lines of a depth.
const LINES_MAX: usize = 96;
/// Bytes of a prefix that are kept, from its beginning.
const TEXT_BYTES_MAX: usize = 46;
/// Bytes of a key within which a prefix ends, or is none.
const PREFIX_BYTES_MAX: usize = 256;
const STATE_BYTES_MAX: usize = 64 << 10;

// COMPAT(observability): MEMORY PREFIXES (Isotherm only) counts one of 16 keys, and every key of 64 KB and
// more, so each figure comes with its error. A prefix that has grown among very many small ones is listed
// late, with a larger error. Keys that are only read have no effect. Why: exact counts of all prefixes would
// cost memory per prefix.
/// Number of small keys for each one that is counted: those whose tag ends in the bits of `SAMPLE_TAG`.
const SAMPLE: i64 = 16;
const SAMPLE_TAG: u8 = 5;
/// A key that takes this much is always counted.
pub(super) const LARGE_BYTES: u64 = 64 << 10;
/// The unit of squares, so that their sums stay within 63 bits.
const SQUARE_BYTES: i64 = 64;

const _: () = assert!(
    PREFIX_DEPTH_MAX * LINES_MAX * (size_of::<Line>() + size_of::<u64>()) + SKETCH_BYTES + size_of::<State>()
        <= STATE_BYTES_MAX
);

/// Separator at which keys are cut, and the prefixes that are counted exactly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrefixSettings {
    pub separator: u8,
    /// Beginnings of keys, whatever follows them.
    pub pinned: Vec<Box<[u8]>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrefixError {
    TooManyPins,
    /// Keys are there already that have not been counted.
    HasKeys,
}

/// Sums over the keys that were counted, each for as many as it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sums {
    pub keys: i64,
    pub volatile: i64,
    pub bytes: i64,
    /// Keys that stand for others too, and the sum of the squares of their bytes.
    sampled: i64,
    squares: i64,
}

/// Returns whether a small key with this tag is counted.
#[inline]
fn is_sampled(tag: u8) -> bool {
    tag % SAMPLE as u8 == SAMPLE_TAG
}

impl Sums {
    /// Makes sums from keys, volatile keys and bytes alone: the rest is estimated.
    pub fn estimated(keys: i64, volatile: i64, bytes: i64) -> Sums {
        let sampled = keys / SAMPLE;
        let mean = bytes / keys.max(1) / SQUARE_BYTES + 1;
        Sums { keys, volatile, bytes, sampled, squares: sampled.saturating_mul(mean.saturating_mul(mean)) }
    }

    /// Returns the sums that an entry counts for; `None` for most entries.
    #[inline]
    fn of(bytes: u64, is_volatile: bool, tag: u8) -> Option<Sums> {
        if bytes >= LARGE_BYTES {
            // The middle of its grade: a list that grows comes here only when it has grown by a 32nd.
            let grade = grade(bytes);
            let bytes = (grade_bytes(grade) + grade_bytes(grade + 1)) / 2;
            let volatile = i64::from(is_volatile);
            return Some(Sums { keys: 1, volatile, bytes: bytes as i64, sampled: 0, squares: 0 });
        }
        if !is_sampled(tag) {
            return None;
        }
        let (bytes, volatile) = (bytes as i64, i64::from(is_volatile) * SAMPLE);
        let unit = (bytes + SQUARE_BYTES - 1) / SQUARE_BYTES;
        Some(Sums { keys: SAMPLE, volatile, bytes: bytes * SAMPLE, sampled: 1, squares: unit * unit })
    }

    fn add(&mut self, other: &Sums, times: i64) {
        self.keys += other.keys * times;
        self.volatile += other.volatile * times;
        self.bytes += other.bytes * times;
        self.sampled += other.sampled * times;
        self.squares = self.squares.saturating_add(other.squares.saturating_mul(times));
    }

    /// Two standard deviations of a sample that has every key with probability 1 in SAMPLE.
    fn sample_error(&self) -> [u64; 2] {
        let times = (SAMPLE * (SAMPLE - 1)) as f64;
        let error = |squares: f64| (2.0 * (times * squares.max(0.0)).sqrt()).ceil() as u64;
        [error(self.sampled as f64), error(self.squares as f64) * SQUARE_BYTES as u64]
    }

    fn share(&self, name: Vec<u8>, name_bytes: usize, spread: [u64; 2]) -> PrefixShare {
        let of_sample = self.sample_error();
        PrefixShare {
            name,
            name_bytes,
            keys: self.keys.max(0) as u64,
            volatile: self.volatile.clamp(0, self.keys.max(0)) as u64,
            bytes: self.bytes.max(0) as u64,
            keys_error: of_sample[0] + spread[0],
            bytes_error: of_sample[1] + spread[1],
        }
    }
}

/// Keys under a prefix, and the memory that they take.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PrefixShare {
    /// Name of the prefix, or its beginning if it is longer than is kept.
    pub name: Vec<u8>,
    pub name_bytes: usize,
    pub keys: u64,
    /// Number of keys with an expiry.
    pub volatile: u64,
    /// Entries and bodies; the free room of pages belongs to no entry.
    pub bytes: u64,
    /// Error of `keys`: in 19 of 20 cases the true figure is this near. `bytes_error` is that of `bytes`.
    pub keys_error: u64,
    pub bytes_error: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrefixReport {
    /// The byte that follows a prefix in its keys; not one of those that are pinned.
    pub separator: u8,
    /// Prefixes that have lines, the largest first.
    pub prefixes: Vec<PrefixShare>,
    /// All that have none.
    pub other: PrefixShare,
    /// Keys with too few separators.
    pub bare: PrefixShare,
    pub pinned: Vec<PrefixShare>,
}

#[derive(Clone)]
struct Line {
    sums: Sums,
    /// Possible error of the sketch when the line was made: keys, bytes.
    spread: [u64; 2],
    text_bytes: u16,
    text: [u8; TEXT_BYTES_MAX],
}

#[derive(Default)]
struct Depth {
    /// The hashes of the lines' prefixes: they are looked through.
    hashes: Vec<u64>,
    lines: Vec<Line>,
    /// No line has fewer bytes.
    least_bytes: i64,
    total: Sums,
    bare: Sums,
    /// Sums of this depth that are in the sketch.
    sketched: Sums,
}

#[derive(Default)]
struct State {
    depths: [Depth; PREFIX_DEPTH_MAX],
    sketch: Sketch,
}

struct Pin {
    name: Box<[u8]>,
    keys: AtomicI64,
    volatile: AtomicI64,
    bytes: AtomicI64,
}

struct Plan {
    separator: u8,
    pins: Box<[Pin]>,
}

pub(crate) struct Prefixes {
    hasher: KeyHasher,
    /// Settings of the count. Without them no prefix is counted.
    plan: OnceLock<Plan>,
    has_pins: AtomicBool,
    state: Mutex<State>,
}

impl Prefixes {
    pub fn new(hasher: KeyHasher) -> Prefixes {
        let (plan, has_pins, state) = (OnceLock::new(), AtomicBool::new(false), Mutex::default());
        Prefixes { hasher, plan, has_pins, state }
    }

    /// Said once, before the first key comes.
    pub fn plan(&self, settings: PrefixSettings) -> Result<(), PrefixError> {
        if settings.pinned.len() > PREFIX_PINS_MAX {
            return Err(PrefixError::TooManyPins);
        }
        let pin = |name| Pin { name, keys: 0.into(), volatile: 0.into(), bytes: 0.into() };
        let pins: Box<[Pin]> = settings.pinned.into_iter().map(pin).collect();
        self.has_pins.store(!pins.is_empty(), Relaxed);
        self.plan.set(Plan { separator: settings.separator, pins }).map_err(|_| PrefixError::HasKeys)
    }

    /// Returns whether a change of a small key with this tag is to be noted.
    #[inline]
    pub fn counts_small(&self, tag: u8) -> bool {
        is_sampled(tag) || self.has_pins.load(Relaxed)
    }

    #[inline]
    pub fn note(&self, change: &Change<'_>) {
        let bytes = |size: Option<super::Size>| size.map_or(0, |size| size.bytes);
        let is_large = bytes(change.old).max(bytes(change.new)) >= LARGE_BYTES;
        if is_sampled(change.tag) || is_large {
            self.change(change);
        }
        if self.has_pins.load(Relaxed) {
            self.change_pins(change);
        }
    }

    #[inline(never)]
    fn change(&self, change: &Change<'_>) {
        let of = |size: super::Size| Sums::of(size.bytes, size.is_volatile, change.tag);
        let (key, old, new) = (change.key, change.old.and_then(of), change.new.and_then(of));
        let Some(plan) = self.plan.get().filter(|_| old != new) else { return };
        let mut delta = new.unwrap_or_default();
        delta.add(&old.unwrap_or_default(), -1);
        let mut state = self.lock();
        let State { depths, sketch } = &mut *state;
        let head = &key[..key.len().min(PREFIX_BYTES_MAX)];
        let mut from = 0;
        for depth in depths {
            // After the last separator `from` is past the end: there is no further one.
            let end = head.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == plan.separator));
            depth.total.add(&delta, 1);
            match end.map(|at| from + at) {
                Some(end) => {
                    from = end + 1;
                    depth.add(&head[..end], self.hasher.hash(&head[..end]), &delta, sketch);
                }
                None => {
                    from = head.len() + 1;
                    depth.bare.add(&delta, 1);
                }
            }
        }
    }

    #[cold]
    fn change_pins(&self, change: &Change<'_>) {
        let pins = self.plan.get().map(|plan| &*plan.pins).unwrap_or_default();
        let count = |sign: i64, size: super::Size| {
            [sign, sign * i64::from(size.is_volatile), sign * size.bytes as i64]
        };
        let (old, new) = (change.old.map(|size| count(-1, size)), change.new.map(|size| count(1, size)));
        for pin in pins.iter().filter(|pin| change.key.starts_with(&pin.name)) {
            for part in [old, new].into_iter().flatten() {
                pin.keys.fetch_add(part[0], Relaxed);
                pin.volatile.fetch_add(part[1], Relaxed);
                pin.bytes.fetch_add(part[2], Relaxed);
            }
        }
    }

    /// All keys are gone.
    pub fn clear(&self) {
        *self.lock() = State::default();
        for pin in self.plan.get().map(|plan| &*plan.pins).unwrap_or_default() {
            [&pin.keys, &pin.volatile, &pin.bytes].into_iter().for_each(|sum| sum.store(0, Relaxed));
        }
    }

    /// The prefixes that end before the separator number `depth` of a key, from 1 on. `None` if none are
    /// counted.
    pub fn report(&self, depth: usize) -> Option<PrefixReport> {
        let plan = self.plan.get()?;
        // Some 10 KB are copied under the lock, and put in order outside of it.
        let depth = {
            let state = self.lock();
            let depth = &state.depths[depth - 1];
            Copied { total: depth.total, bare: depth.bare, lines: depth.lines.clone() }
        };
        let mut other = depth.total;
        other.add(&depth.bare, -1);
        depth.lines.iter().for_each(|line| other.add(&line.sums, -1));
        let mut prefixes: Vec<PrefixShare> = depth.lines.iter().map(Line::share).collect();
        prefixes.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let (other, bare) = (other.share(Vec::new(), 0, [0; 2]), depth.bare.share(Vec::new(), 0, [0; 2]));
        let pinned = plan.pins.iter().map(Pin::share).collect();
        Some(PrefixReport { separator: plan.separator, prefixes, other, bare, pinned })
    }

    pub fn memory_bytes(&self) -> usize {
        let state = self.lock();
        let lines: usize = state.depths.iter().map(|depth| depth.lines.capacity()).sum();
        SKETCH_BYTES + lines * (size_of::<Line>() + size_of::<u64>())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Data of a depth that a report needs.
struct Copied {
    total: Sums,
    bare: Sums,
    lines: Vec<Line>,
}

impl Line {
    fn new(prefix: &[u8], sums: Sums, spread: [u64; 2]) -> Line {
        let (kept, mut text) = (prefix.len().min(TEXT_BYTES_MAX), [0; TEXT_BYTES_MAX]);
        text[..kept].copy_from_slice(&prefix[..kept]);
        Line { sums, spread, text_bytes: prefix.len() as u16, text }
    }

    fn share(&self) -> PrefixShare {
        let kept = TEXT_BYTES_MAX.min(self.text_bytes.into());
        self.sums.share(self.text[..kept].to_vec(), self.text_bytes.into(), self.spread)
    }
}

impl Pin {
    fn share(&self) -> PrefixShare {
        let read = |sum: &AtomicI64| sum.load(Relaxed).max(0) as u64;
        PrefixShare {
            name: self.name.to_vec(),
            name_bytes: self.name.len(),
            keys: read(&self.keys),
            volatile: read(&self.volatile),
            bytes: read(&self.bytes),
            keys_error: 0,
            bytes_error: 0,
        }
    }
}

impl Depth {
    fn add(&mut self, prefix: &[u8], hash: u64, delta: &Sums, sketch: &mut Sketch) {
        if let Some(at) = self.hashes.iter().position(|other| *other == hash) {
            self.add_to_line(at, delta, sketch);
        } else if !self.take_line(prefix, hash, delta, sketch) {
            self.put_aside(hash, delta, 1, sketch);
        }
    }

    fn add_to_line(&mut self, at: usize, delta: &Sums, sketch: &mut Sketch) {
        let sums = &mut self.lines[at].sums;
        sums.add(delta, 1);
        self.least_bytes = self.least_bytes.min(sums.bytes);
        if sums.keys <= 0 {
            self.give_up_line(at, sketch);
        }
    }

    /// Removes a line, and puts its sums into the sketch. The sums of an exact line that has lost its last
    /// key are zero.
    fn give_up_line(&mut self, at: usize, sketch: &mut Sketch) {
        let (hash, line) = (self.hashes.swap_remove(at), self.lines.swap_remove(at));
        self.put_aside(hash, &line.sums, 1, sketch);
    }

    fn put_aside(&mut self, hash: u64, sums: &Sums, times: i64, sketch: &mut Sketch) {
        sketch.add(hash, sums, times);
        self.sketched.add(sums, times);
    }

    /// Gives a prefix a line, if one is free or if it has surely become larger than the smallest that has
    /// one. Returns whether it did.
    fn take_line(&mut self, prefix: &[u8], hash: u64, delta: &Sums, sketch: &mut Sketch) -> bool {
        /// Distance that counts as sure, in standard deviations.
        const SURE: i64 = 3;
        if delta.keys <= 0 && delta.bytes <= 0 {
            return false;
        }
        // As long as all of this depth have lines, what the sketch says is about other depths.
        if (self.sketched.keys, self.sketched.bytes) == (0, 0) && self.lines.len() < LINES_MAX {
            self.push(hash, Line::new(prefix, *delta, [0; 2]));
            return true;
        }
        let before = sketch.estimate(hash);
        let (bytes, is_full) = (before.bytes + delta.bytes, self.lines.len() == LINES_MAX);
        if is_full && bytes <= self.least_bytes {
            return false;
        }
        let spread = sketch.spread();
        if is_full {
            let least = (0..LINES_MAX).min_by_key(|&at| self.lines[at].sums.bytes).expect("it is full");
            self.least_bytes = self.lines[least].sums.bytes;
            if bytes - SURE * spread.bytes <= self.least_bytes {
                return false;
            }
            self.give_up_line(least, sketch);
        }
        // It had no less than nothing.
        let keys = before.keys.max(0);
        let mut sums = Sums::estimated(keys, before.volatile.clamp(0, keys), before.bytes.max(0));
        self.put_aside(hash, &sums, -1, sketch);
        sums.add(delta, 1);
        let spread = [spread.keys, spread.bytes].map(|deviation| (SURE * deviation) as u64);
        self.push(hash, Line::new(prefix, sums, spread));
        true
    }

    fn push(&mut self, hash: u64, line: Line) {
        if self.lines.is_empty() {
            self.hashes.reserve_exact(LINES_MAX);
            self.lines.reserve_exact(LINES_MAX);
        }
        self.least_bytes = self.least_bytes.min(line.sums.bytes);
        self.hashes.push(hash);
        self.lines.push(line);
    }
}

// ---- what tests and `check_invariants` ask ----

impl Prefixes {
    /// Asserts that what is counted is what these keys, all there are, count for.
    pub fn check_invariants(&self, all: &[Counted<'_>]) {
        let Some(plan) = self.plan.get() else { return };
        let anew = Prefixes::new(self.hasher);
        let pinned = plan.pins.iter().map(|pin| pin.name.clone()).collect();
        anew.plan(PrefixSettings { separator: plan.separator, pinned }).expect("it has none");
        for &Counted { table, key, tag, size } in all {
            anew.note(&Change { table, key, tag, old: None, new: Some(size) });
        }
        let (state, expected) = (self.lock(), anew.lock());
        for (depth, expected) in state.depths.iter().zip(&expected.depths) {
            assert_eq!((depth.total, depth.bare), (expected.total, expected.bare));
            assert_eq!(depth.hashes.len(), depth.lines.len());
            assert!(depth.lines.iter().all(|line| line.sums.bytes >= depth.least_bytes));
            assert!(depth.lines.capacity() <= LINES_MAX && depth.hashes.capacity() <= LINES_MAX);
            // Where all prefixes have lines in both, the lines are the same.
            for (hash, line) in
                depth.hashes.iter().zip(&depth.lines).filter(|(_, line)| line.spread == [0; 2])
            {
                let at = expected.hashes.iter().position(|other| other == hash);
                let anew = at.map(|at| &expected.lines[at]).filter(|anew| anew.spread == [0; 2]);
                assert!(anew.is_none_or(|anew| anew.sums == line.sums), "{:?}", line.share());
            }
        }
        assert_eq!(self.pins(), anew.pins());
    }

    fn pins(&self) -> Vec<PrefixShare> {
        self.plan.get().map(|plan| plan.pins.iter().map(Pin::share).collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::attribution::Size;
    use isotherm_stdx::Prng;

    fn prefixes(pinned: &[&str]) -> Prefixes {
        let prefixes = Prefixes::new(KeyHasher::new([7; 16]));
        let pinned = pinned.iter().map(|name| name.as_bytes().into()).collect();
        prefixes.plan(PrefixSettings { separator: b':', pinned }).expect("it has none");
        prefixes
    }

    fn note(prefixes: &Prefixes, key: &str, old: Option<u64>, new: Option<u64>) {
        let tag = crate::layout::key::tag_of(prefixes.hasher.hash(key.as_bytes()));
        let size = |bytes| Size { bytes, is_volatile: bytes % 2 == 1 };
        let (old, new) = (old.map(size), new.map(size));
        prefixes.note(&Change { table: 1, key: key.as_bytes(), tag, old, new });
    }

    #[track_caller]
    fn check(name: &str, figure: u64, error: u64, truth: u64) {
        assert!(figure.abs_diff(truth) <= error, "{name}: {figure} +- {error} is {truth}");
    }

    #[test]
    fn shares_are_within_their_error() {
        let prefixes = prefixes(&["user:7", "se"]);
        let count = if cfg!(miri) { 300 } else { 40_000 };
        for number in 0..count {
            note(&prefixes, &format!("user:{}:{number}", number % 10), None, Some(40));
            note(&prefixes, &format!("session:{number}"), None, Some(101));
            note(&prefixes, &format!("bare{number}"), None, Some(30));
        }
        // One that is larger than all others together is not left to chance, nor is its growth reported each
        // time.
        note(&prefixes, "blob:1", None, Some(1 << 30));
        note(&prefixes, "blob:1", Some(1 << 30), Some((1 << 30) + 1000));
        let report = prefixes.report(1).expect("it counts");
        let names: Vec<&[u8]> = report.prefixes.iter().map(|share| &*share.name).collect();
        assert_eq!(names, [&b"blob"[..], b"session", b"user"]);
        let blob = &report.prefixes[0];
        assert_eq!((blob.keys, blob.keys_error, blob.bytes_error), (1, 0, 0));
        assert!(blob.bytes.abs_diff(1 << 30) < (1 << 30) / 32);
        for (share, bytes) in [(&report.prefixes[1], 101), (&report.prefixes[2], 40), (&report.bare, 30)] {
            check("keys", share.keys, 2 * share.keys_error, count);
            check("bytes", share.bytes, 2 * share.bytes_error, count * bytes);
            assert_eq!(share.volatile, if bytes == 101 { share.keys } else { 0 });
        }
        assert_eq!((report.other.keys, report.other.bytes), (0, 0));
        let pinned: Vec<(u64, u64)> = report.pinned.iter().map(|pin| (pin.keys, pin.bytes)).collect();
        assert_eq!(pinned, [(count / 10, count * 4), (count, count * 101)]);
        let second = prefixes.report(2).expect("it counts");
        assert_eq!(second.prefixes.len(), 10);
        assert!(second.prefixes.iter().all(|share| share.name.starts_with(b"user:")));
        // All goes again, and nothing is left.
        for number in 0..count {
            note(&prefixes, &format!("user:{}:{number}", number % 10), Some(40), None);
            note(&prefixes, &format!("session:{number}"), Some(101), None);
            note(&prefixes, &format!("bare{number}"), Some(30), None);
        }
        note(&prefixes, "blob:1", Some((1 << 30) + 1000), None);
        let report = prefixes.report(1).expect("it counts");
        assert_eq!((report.prefixes.len(), report.bare.keys, report.pinned[1].bytes), (0, 0, 0));
        assert!(prefixes.lock().sketch.is_empty());
    }

    /// Very many prefixes: the memory stays what it is, and those that matter are found though they came
    /// last.
    #[test]
    fn many_prefixes_stay_bounded_and_the_large_are_found() {
        let prefixes = prefixes(&[]);
        let (count, mut prng) = (if cfg!(miri) { 2000 } else { 1_000_000 }, Prng::new(1));
        for number in 0..count {
            note(&prefixes, &format!("p{number}:x"), None, Some(50 + prng.below(20)));
        }
        let heavy = count / 20;
        for number in 0..heavy {
            note(&prefixes, &format!("late:{number}"), None, Some(64));
        }
        let state = prefixes.lock();
        let depths = state.depths.iter();
        let lines: usize = depths.map(|depth| depth.lines.capacity() * (size_of::<Line>() + 8)).sum();
        assert!(lines + SKETCH_BYTES + size_of::<State>() <= STATE_BYTES_MAX);
        drop(state);
        if cfg!(miri) {
            return;
        }
        let report = prefixes.report(1).expect("it counts");
        let late = &report.prefixes[0];
        assert_eq!(late.name, b"late", "{:?}", report.prefixes);
        check("keys", late.keys, late.keys_error, heavy);
        check("bytes", late.bytes, late.bytes_error, heavy * 64);
        assert!(late.bytes_error < late.bytes / 4, "{late:?}");
        // A line that is listed for one key says how much of that is noise.
        for share in &report.prefixes[1..] {
            check("one key", share.bytes, share.bytes_error, 60);
        }
        let all = report.other.keys + report.prefixes.iter().map(|share| share.keys).sum::<u64>();
        check("all", all, 2 * report.other.keys_error, count + heavy);
    }
}
