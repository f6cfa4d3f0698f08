//! Rules for values that come back to memory: whether a value that is only read may (`swap-load-upper-limit`,
//! `swap-load-rule`), and a count of the values that came back soon after they had left.
//!
//! ```text
//!   rule    [seconds, hits]     met when values on disk were used so often within so many seconds, until as long has passed without that
//!   marks   [from, to, second]  a stretch of the log, and when it was written; of the last minute, one for each second and segment
//! ```
//! A key remembers nothing of this: the place of a value says when it was written. For values that the
//! cleaner has moved meanwhile that is not known, and they do not count as soon.

use isotherm_keyspace::ColdRef;
use isotherm_tier::{ADDRESS_UNIT_BYTES, BLOCK_BYTES, Place, Record};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Time within which a value that has left memory should not come back.
const SOON_S: u64 = 60;

pub struct Homes {
    began: Instant,
    /// Memory has room for them.
    has_room: AtomicBool,
    is_rule_met: AtomicBool,
    /// Uses of values on disk.
    hits: AtomicU64,
    rules: Mutex<Rules>,
    recent: Mutex<Recent>,
    pub regrets: AtomicU64,
}

impl Default for Homes {
    fn default() -> Homes {
        Homes {
            began: Instant::now(),
            has_room: AtomicBool::new(true),
            is_rule_met: AtomicBool::new(true),
            hits: AtomicU64::new(0),
            rules: Mutex::default(),
            recent: Mutex::default(),
            regrets: AtomicU64::new(0),
        }
    }
}

impl Homes {
    /// `hits`: uses since this was last asked.
    pub fn takes_home(&self, hits: u64) -> bool {
        if hits > 0 {
            self.hits.fetch_add(hits, Relaxed);
        }
        self.has_room.load(Relaxed) && self.is_rule_met.load(Relaxed)
    }

    pub fn set_rules(&self, pairs: &[(u64, u64)]) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if !rules.is_of(pairs) {
            *rules = Rules::new(pairs, self.hits.load(Relaxed), self.began.elapsed().as_millis() as u64);
            self.is_rule_met.store(pairs.is_empty(), Relaxed);
        }
    }

    /// Notes whether memory has room, and judges the rules as of now. Called some times a second.
    pub fn judge(&self, has_room: bool) {
        self.has_room.store(has_room, Relaxed);
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let is_met = rules.are_met(self.hits.load(Relaxed), self.began.elapsed().as_millis() as u64);
        self.is_rule_met.store(is_met, Relaxed);
    }

    /// Values have just left memory: those of a group of the log.
    pub fn note_left(&self, records: &[(Place, Record<'_>, Option<Place>)]) {
        let Some(((from, ..), (last, record, before))) = records.first().zip(records.last()) else { return };
        if before.is_some() {
            // They were moved.
            return;
        }
        let end_bytes = record.bytes() as u64;
        let to = last.address() + end_bytes.div_ceil(ADDRESS_UNIT_BYTES);
        let second = self.began.elapsed().as_secs();
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).note(from.address(), to, second);
    }

    /// Notes that a value has come back to memory from there.
    pub fn note_home(&self, reference: ColdRef) {
        let (place, second) = (Place::from_raw(reference.raw()), self.began.elapsed().as_secs());
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.has(place.address(), second) {
            self.regrets.fetch_add(1, Relaxed);
        }
    }
}

/// Rules. One that is met is enough; without a rule all values come back to memory.
#[derive(Default)]
struct Rules(Vec<Rule>);

struct Rule {
    seconds: u64,
    hits: u64,
    /// Beginning of the stretch of time under way; `hits_before` is the number of hits until then.
    since_ms: u64,
    hits_before: u64,
    is_met: bool,
}

impl Rules {
    fn new(pairs: &[(u64, u64)], hits_before: u64, since_ms: u64) -> Rules {
        let rule = |(seconds, hits): &(u64, u64)| {
            let (seconds, hits) = (*seconds, *hits);
            Rule { seconds, hits, since_ms, hits_before, is_met: false }
        };
        Rules(pairs.iter().map(rule).collect())
    }

    fn is_of(&self, pairs: &[(u64, u64)]) -> bool {
        self.0.iter().map(|rule| (rule.seconds, rule.hits)).eq(pairs.iter().copied())
    }

    fn are_met(&mut self, hits: u64, now_ms: u64) -> bool {
        self.0.iter_mut().for_each(|rule| rule.judge(hits, now_ms));
        self.0.is_empty() || self.0.iter().any(|rule| rule.is_met)
    }
}

impl Rule {
    fn judge(&mut self, hits: u64, now_ms: u64) {
        let is_reached = hits - self.hits_before >= self.hits;
        if is_reached || now_ms - self.since_ms >= self.seconds * 1000 {
            self.is_met = is_reached;
            (self.since_ms, self.hits_before) = (now_ms, hits);
        }
    }
}

/// Stretches of the log that were written lately, the newest last.
#[derive(Default)]
struct Recent(VecDeque<Mark>);

struct Mark {
    from: u64,
    to: u64,
    second: u64,
}

impl Recent {
    fn note(&mut self, from: u64, to: u64, second: u64) {
        while self.0.front().is_some_and(|mark| mark.second + SOON_S < second) {
            self.0.pop_front();
        }
        // Groups of a second lie one after the other, while they are of one segment.
        match self
            .0
            .back_mut()
            .filter(|mark| mark.second == second && mark.to <= from && is_near(mark.to, from))
        {
            Some(mark) => mark.to = to,
            None => self.0.push_back(Mark { from, to, second }),
        }
    }

    fn has(&self, address: u64, second: u64) -> bool {
        let is_recent = |mark: &&Mark| mark.second + SOON_S >= second;
        self.0.iter().rev().take_while(is_recent).any(|mark| (mark.from..=mark.to).contains(&address))
    }
}

/// Returns whether nothing but the end of a group lies between two places.
fn is_near(to: u64, from: u64) -> bool {
    (from - to) * ADDRESS_UNIT_BYTES <= 2 * BLOCK_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_rule_all_come_home() {
        assert!(Rules::default().are_met(0, 0));
    }

    #[test]
    fn a_rule_is_met_until_its_time_has_passed_without_hits() {
        let mut rules = Rules::new(&[(1, 100), (10, 500)], 1000, 0);
        assert!(!rules.are_met(1000, 0) && !rules.are_met(1099, 900));
        assert!(rules.are_met(1100, 950), "a hundred in a second");
        assert!(rules.are_met(1150, 1900), "that second is not over");
        assert!(!rules.are_met(1199, 1951));
        // Slower, but for long.
        for second in 2..9 {
            assert!(!rules.are_met(1200 + second * 30, second * 1000 + 1), "{second}");
        }
        assert!(rules.are_met(1501, 9500), "five hundred in ten seconds");
        assert!(rules.are_met(1501, 19_000));
        assert!(!rules.are_met(1501, 19_600));
    }

    #[test]
    fn what_was_written_within_a_minute_is_known() {
        let mut recent = Recent::default();
        recent.note(100, 150, 5);
        recent.note(160, 180, 5);
        assert_eq!(recent.0.len(), 1, "one for a second");
        recent.note(1 << 30, (1 << 30) + 5, 5);
        recent.note(200, 210, 40);
        assert!(recent.has(155, 40) && recent.has(210, 40) && recent.has(1 << 30, 65));
        assert!(!recent.has(99, 40) && !recent.has(190, 40));
        assert!(!recent.has(155, 66) && recent.has(200, 100) && !recent.has(200, 101));
        recent.note(300, 310, 70);
        assert_eq!(recent.0.len(), 2, "older ones are forgotten");
    }
}
