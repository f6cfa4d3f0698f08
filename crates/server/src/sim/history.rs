//! Data at each offset of the log, and the part of it that a start must not lose.
//!
//! ```text
//!   log     |----step----|--step--|---------step of several frames---------|
//!   digest  d0           d1       d2       d2 ^ share of the keys named so far  ^ d3
//! ```
//! A step is one command, one EXEC, or one round of the cron. Within a step of several frames each frame
//! stands for the keys that it names.

use super::state::{self, Name, State};
use isotherm_log::LogOffset;
use isotherm_persist::aof::stream::{Item, StreamParser};
use isotherm_resp::limits;
use std::collections::{BTreeMap, BTreeSet};

use isotherm_node::effects::change_log::ChangeLog;

/// Changes of one step.
struct Step {
    from: LogOffset,
    to: LogOffset,
    digest: u64,
    /// The keys whose shares are others, with both.
    changed: Vec<(Name, u64, u64)>,
}

pub struct History {
    start: LogOffset,
    start_digest: u64,
    steps: Vec<Step>,
    pub state: State,
    /// Offset at which each key was last changed.
    changed_at: BTreeMap<Name, LogOffset>,
    /// Offset up to which no crash may lose anything: a reply that left under `always` has shown it, or it
    /// was announced as durable.
    pub required: LogOffset,
}

impl History {
    pub fn new(start: LogOffset, state: State) -> History {
        let start_digest = state::digest(&state);
        History {
            start,
            start_digest,
            steps: Vec::new(),
            state,
            changed_at: BTreeMap::new(),
            required: start,
        }
    }

    pub fn end(&self) -> LogOffset {
        self.steps.last().map_or(self.start, |step| step.to)
    }

    /// A step is over: the log ends at `end`, and this is the data.
    /// `is_round`: it may be of several frames, and which key is in which is not known yet.
    pub fn note(&mut self, end: LogOffset, now: State, is_round: bool) -> Result<(), String> {
        let from = self.end();
        let before = std::mem::replace(&mut self.state, now);
        let names: BTreeSet<&Name> = before.keys().chain(self.state.keys()).collect();
        let share = |state: &State, name: &Name| state.get(name).map_or(0, |key| state::share(name, key));
        let shares = names.into_iter().map(|name| (name, share(&before, name), share(&self.state, name)));
        let changed: Vec<(Name, u64, u64)> = shares
            .filter(|(_, before, after)| before != after)
            .map(|(name, before, after)| (name.clone(), before, after))
            .collect();
        if end == from {
            return match changed.is_empty() {
                true => Ok(()),
                false => Err(format!("{changed:?} changed, and the log says nothing of it")),
            };
        }
        // At least something is after it.
        let place = if is_round && changed.len() > 1 { LogOffset(from.0 + 1) } else { end };
        for (name, _, _) in &changed {
            self.changed_at.insert(name.clone(), place);
        }
        self.steps.push(Step { from, to: end, digest: state::digest(&self.state), changed });
        Ok(())
    }

    /// Returns the offset of the log that a client sees by looking at this key. A look at a missing key
    /// counts too.
    pub fn seen(&self, name: &Name) -> LogOffset {
        self.changed_at.get(name).copied().unwrap_or(self.start)
    }

    /// Returns the offset of the log that a client sees by looking at any key of a database.
    pub fn seen_in(&self, db: u16) -> LogOffset {
        let of_db = self.changed_at.iter().filter(|((of, _), _)| *of == db).map(|(_, at)| *at);
        of_db.max().unwrap_or(self.start)
    }

    /// The digest at a place of the log, whose bytes are in memory.
    pub fn digest_at(&self, offset: LogOffset, log: &ChangeLog) -> Result<u64, String> {
        if offset < self.start || offset > self.end() {
            return Err(format!("{offset} is no place of the log {}..{}", self.start, self.end()));
        }
        let at = self.steps.partition_point(|step| step.to <= offset);
        let before = at.checked_sub(1).map_or(self.start_digest, |last| self.steps[last].digest);
        match self.steps.get(at) {
            Some(step) if step.from < offset => {
                let named = self.named(step.from, offset, log)?;
                let changed = step.changed.iter().filter(|(name, _, _)| named.contains(name));
                Ok(changed.fold(before, |digest, (_, old, new)| digest ^ old ^ new))
            }
            _ => Ok(before),
        }
    }
}

fn read(log: &ChangeLog, from: LogOffset, to: LogOffset) -> Result<Vec<u8>, String> {
    let pieces = log.read(from, to).map_err(|gone| format!("{from}..{to} is not in memory: {gone:?}"))?;
    Ok(pieces.iter().flat_map(|piece| piece.to_vec()).collect())
}

impl History {
    /// The keys that the whole commands between two places name; an error if the second is within a command
    /// or a transaction.
    fn named(&self, from: LogOffset, to: LogOffset, log: &ChangeLog) -> Result<BTreeSet<Name>, String> {
        // The database is that of the last SELECT, wherever it was.
        let bytes = read(log, self.start, to)?;
        let begins = (from - self.start) as usize;
        let mut parser = StreamParser::new(0, limits::REQUEST_BYTES_MAX);
        let (mut names, mut at, mut db) = (BTreeSet::new(), 0, 0);
        while at < bytes.len() {
            let (item, len) = parser.next(&bytes[at..]).map_err(|error| format!("{error:?}"))?;
            if item == Item::NeedMore {
                return Err("the log goes on within a command".to_string());
            }
            let words: Vec<&[u8]> = parser.args().iter().map(|range| &bytes[at..][range.clone()]).collect();
            match (words.first(), words.get(1)) {
                (Some(word), Some(number)) if word.eq_ignore_ascii_case(b"SELECT") => {
                    db = String::from_utf8_lossy(number).parse().map_err(|_| "no number of a database")?;
                }
                (Some(_), Some(name)) if at >= begins => _ = names.insert((db, name.to_vec())),
                _ => {}
            }
            at += len;
        }
        match parser.end_of_valid() == parser.position() {
            true => Ok(names),
            false => Err("the log goes on within a transaction".to_string()),
        }
    }
}
