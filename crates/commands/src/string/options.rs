//! The options that SET, GETEX and MSETEX share: a condition, the old value, and what becomes of the expiry.

use crate::call::{Call, is_word};
use isotherm_keyspace::UnixMs;
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;

/// The commands that take them; each takes only some.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Set,
    GetEx,
    MSetEx,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition<'a> {
    Always,
    /// NX
    Absent,
    /// XX
    Present,
    /// IFEQ
    Equals(&'a [u8]),
    /// IFNE
    Differs(&'a [u8]),
}

#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    pub condition: Condition<'a>,
    pub get: bool,
    pub keep_ttl: bool,
    pub persist: bool,
    pub time: Option<Time<'a>>,
}

/// A moment as it was written.
#[derive(Clone, Copy)]
pub(super) struct Time<'a> {
    pub unit: Unit,
    pub text: &'a [u8],
    /// Place of the word (EX, PX, ...) of the option.
    pub at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl Unit {
    fn of_word(word: &[u8]) -> Option<Unit> {
        const WORDS: [(&str, Unit); 4] = [
            ("EX", Unit::Seconds),
            ("PX", Unit::Milliseconds),
            ("EXAT", Unit::UnixSeconds),
            ("PXAT", Unit::UnixMilliseconds),
        ];
        WORDS.iter().find(|(name, _)| is_word(word, name)).map(|(_, unit)| *unit)
    }

    /// Returns whether the word names a moment rather than a duration.
    pub(super) fn is_absolute(self) -> bool {
        matches!(self, Unit::UnixSeconds | Unit::UnixMilliseconds)
    }

    fn is_seconds(self) -> bool {
        matches!(self, Unit::Seconds | Unit::UnixSeconds)
    }
}

impl<'a> Options<'a> {
    /// Reads the arguments from `from` on. Any that does not fit is a syntax error.
    pub(super) fn parse(args: Args<'a>, from: usize, family: Family) -> Result<Options<'a>, &'static str> {
        let mut options =
            Options { condition: Condition::Always, get: false, keep_ttl: false, persist: false, time: None };
        let mut at = from;
        while at < args.len() {
            let taken = options.take(args.get(at), args.try_get(at + 1), at, family);
            at += taken.ok_or(errors::SYNTAX)?;
        }
        Ok(options)
    }

    /// Takes one option; returns how many arguments it has, `None` if it is not allowed here.
    fn take(&mut self, word: &[u8], next: Option<&'a [u8]>, at: usize, family: Family) -> Option<usize> {
        let writes = family != Family::GetEx;
        if let Some(unit) = Unit::of_word(word) {
            let other = self.time.is_some_and(|time| time.unit != unit);
            let allowed = !other && !self.keep_ttl && !self.persist;
            self.time = Some(Time { unit, text: next.filter(|_| allowed)?, at });
            return Some(2);
        }
        let condition = self.condition;
        if writes && is_word(word, "NX") && matches!(condition, Condition::Always | Condition::Absent) {
            self.condition = Condition::Absent;
        } else if writes && is_word(word, "XX") && matches!(condition, Condition::Always | Condition::Present)
        {
            self.condition = Condition::Present;
        } else if family == Family::Set && is_word(word, "IFEQ") && condition == Condition::Always {
            self.condition = Condition::Equals(next?);
            return Some(2);
        } else if family == Family::Set && is_word(word, "IFNE") && condition == Condition::Always {
            self.condition = Condition::Differs(next?);
            return Some(2);
        } else if family == Family::Set && is_word(word, "GET") {
            self.get = true;
        } else if writes && is_word(word, "KEEPTTL") && self.time.is_none() {
            self.keep_ttl = true;
        } else if family == Family::GetEx && is_word(word, "PERSIST") && self.time.is_none() {
            self.persist = true;
        } else {
            return None;
        }
        Some(1)
    }
}

/// The moment that an option (or an argument of SETEX) names. `command` is for the error's text.
pub(super) fn moment(unit: Unit, text: &[u8], now: UnixMs, command: &'static str) -> Result<UnixMs, String> {
    let number = parse_i64(text).ok_or_else(|| errors::NOT_AN_INTEGER.to_string())?;
    let ms = if unit.is_seconds() { number.checked_mul(1000) } else { Some(number) };
    let moment = ms
        .filter(|ms| *ms > 0)
        .and_then(|ms| if unit.is_absolute() { Some(UnixMs(ms)) } else { now.checked_add_ms(ms) });
    moment.ok_or_else(|| errors::invalid_expire(command))
}

impl Call<'_, '_, '_> {
    /// The moment of an option, if there is one.
    pub(super) fn moment_of(
        &self,
        time: Option<Time<'_>>,
        command: &'static str,
    ) -> Result<Option<UnixMs>, String> {
        time.map(|time| moment(time.unit, time.text, self.txn.now(), command)).transpose()
    }
}
