//! Places of a command's keys among its arguments.
//!
//! A key specification has two halves: where the search begins, and how keys are found from there.
//!
//! ```text
//! SET key value              begin index 1, range last 0 step 1         one key
//! MSET k v k v ...           begin index 1, range last -1 step 2        every second argument up to the last
//! MSETEX 2 k v k v EX 10     begin index 1, keynum at 0 first 1 step 2  a count, then as many keys
//! ```

use super::{KeyFlags, Spec};
use isotherm_resp::Args;

/// Key specification of a command (COMMAND INFO, field 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySpec {
    pub notes: &'static str,
    pub flags: KeyFlags,
    pub begin: Begin,
    pub find: Find,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    Index(i32),
    /// The keys after the first argument that is this word, looked for from `start_from` on; negative: from
    /// the end, backwards.
    Keyword {
        keyword: &'static str,
        start_from: i32,
    },
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Find {
    /// `last` is relative to the first key, or if negative to the end; then `limit` (if not 0) says which
    /// part of the rest holds keys: 2 for the first half.
    Range {
        last: i32,
        step: i32,
        limit: i32,
    },
    /// The number of keys stands at `at`, the first key at `first`, both relative to where the search begins.
    KeyNum {
        at: i32,
        first: i32,
        step: i32,
    },
    Unknown,
}

impl KeySpec {
    /// The one key at argument `at`.
    pub const fn one(at: i32, flags: KeyFlags) -> KeySpec {
        KeySpec::range(at, 0, 1, flags)
    }

    /// Keys from argument `first` on, every `step`; `last` as in `Find::Range`.
    pub const fn range(first: i32, last: i32, step: i32, flags: KeyFlags) -> KeySpec {
        KeySpec { notes: "", flags, begin: Begin::Index(first), find: Find::Range { last, step, limit: 0 } }
    }

    pub const fn notes(self, notes: &'static str) -> KeySpec {
        KeySpec { notes, ..self }
    }
}

/// Appends the positions of keys that no specification finds.
pub type FindKeys = fn(Args<'_>, &mut Vec<(usize, KeyFlags)>);

/// The arguments cannot be what the key specs say; the command itself will find a better word for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidKeys;

/// Appends the position of every key in `args` (the command's name at 0), with what the command does to it.
/// On an error nothing is appended.
pub fn key_positions(
    spec: &Spec,
    args: Args<'_>,
    out: &mut Vec<(usize, KeyFlags)>,
) -> Result<(), InvalidKeys> {
    positions(spec, args, false, out)
}

/// Appends the positions of the keys and of the shard channels in `args`. A member of a cluster has all of
/// them in one slot.
pub fn slot_positions(
    spec: &Spec,
    args: Args<'_>,
    out: &mut Vec<(usize, KeyFlags)>,
) -> Result<(), InvalidKeys> {
    positions(spec, args, true, out)
}

fn positions(
    spec: &Spec,
    args: Args<'_>,
    with_channels: bool,
    out: &mut Vec<(usize, KeyFlags)>,
) -> Result<(), InvalidKeys> {
    if let Some(find) = spec.key_positions {
        find(args, out);
        return Ok(());
    }
    let before = out.len();
    let is_meant = |key_spec: &&KeySpec| with_channels || !key_spec.flags.has(KeyFlags::NOT_KEY);
    for key_spec in spec.key_specs.iter().filter(is_meant) {
        let flags = match spec.variable_key_flags {
            Some(flags) if key_spec.flags.has(KeyFlags::VARIABLE_FLAGS) => flags(args),
            _ => key_spec.flags,
        };
        let found = match find_first(key_spec, args) {
            First::At(first) => push_keys(key_spec, first, args, flags, out),
            First::NoSuchWord => Ok(()),
            First::Unknown => Err(InvalidKeys),
        };
        if found.is_err() || key_spec.flags.has(KeyFlags::INCOMPLETE) {
            out.truncate(before);
            return Err(InvalidKeys);
        }
    }
    Ok(())
}

enum First {
    At(i64),
    NoSuchWord,
    Unknown,
}

fn find_first(key_spec: &KeySpec, args: Args<'_>) -> First {
    match key_spec.begin {
        Begin::Index(index) => First::At(i64::from(index)),
        Begin::Unknown => First::Unknown,
        Begin::Keyword { keyword, start_from } => {
            // As handlers compare words: up to a NUL.
            let word = |at: usize| args.get(at).split(|byte| *byte == 0).next().unwrap_or_default();
            let is_word = |at: &usize| word(*at).eq_ignore_ascii_case(keyword.as_bytes());
            // Valkey does not look at the last argument (nothing could follow), nor, backwards, at the
            // second.
            let at = if start_from > 0 {
                (start_from as usize..args.len().saturating_sub(1)).find(is_word)
            } else {
                let start = args.len().saturating_sub(start_from.unsigned_abs() as usize);
                (2..=start).rev().filter(|at| *at < args.len()).find(is_word)
            };
            at.map_or(First::NoSuchWord, |at| First::At(at as i64 + 1))
        }
    }
}

fn push_keys(
    key_spec: &KeySpec,
    first: i64,
    args: Args<'_>,
    flags: KeyFlags,
    out: &mut Vec<(usize, KeyFlags)>,
) -> Result<(), InvalidKeys> {
    let len = args.len() as i64;
    let (first, last, step) = match key_spec.find {
        Find::Range { last, step, .. } if last >= 0 => (first, first + i64::from(last), step),
        Find::Range { last, step, limit: 0 } => (first, len + i64::from(last), step),
        Find::Range { last, step, limit } => {
            (first, first + (len - first) / i64::from(limit) + i64::from(last), step)
        }
        Find::KeyNum { at, first: offset, step } => {
            let number = args.try_get((first + i64::from(at)) as usize).and_then(isotherm_stdx::parse_i64);
            // More keys than arguments are refused below; this keeps the product small.
            let number = number.filter(|number| (0..=len).contains(number)).ok_or(InvalidKeys)?;
            let first = first + i64::from(offset);
            (first, first + (number - 1) * i64::from(step), step)
        }
        Find::Unknown => return Err(InvalidKeys),
    };
    // COMPAT(keys): PFMERGE without sources names its target, for rights and slots too. Valkey's key finder
    // finds no keys in it, and the command writes one. Why: rights and slots are those of the key that is
    // written.
    let is_to_the_end = matches!(key_spec.find, Find::Range { last: ..0, limit: 0, .. });
    if is_to_the_end && first == len {
        return Ok(());
    }
    if last >= len || last < first || first >= len {
        return Err(InvalidKeys);
    }
    out.extend((first as usize..=last as usize).step_by(step as usize).map(|at| (at, flags)));
    Ok(())
}

/// First key, last key and step, as COMMAND INFO shows them next to the specifications: of the ranges that
/// are plain and follow each other. `None` shows as 0, 0, 0.
pub fn first_key_range(spec: &Spec) -> Option<(i32, i32, i32)> {
    legacy_range(spec.key_specs).0
}

/// Returns whether the plain range does not describe all keys.
pub(super) fn are_movable(key_specs: &[KeySpec]) -> bool {
    legacy_range(key_specs).1
}

fn legacy_range(key_specs: &[KeySpec]) -> (Option<(i32, i32, i32)>, bool) {
    // The last key counted from the start, or negative from the end.
    let absolute = |first: i32, last: i32| if last >= 0 { first + last } else { last };
    if let [KeySpec { flags, begin: Begin::Index(first), find: Find::Range { last, step, .. }, .. }] =
        key_specs
    {
        return (Some((*first, absolute(*first, *last), *step)), flags.has(KeyFlags::INCOMPLETE));
    }
    let mut range: Option<(i32, i32)> = None;
    let mut movable = false;
    for key_spec in key_specs {
        let (Begin::Index(first), Find::Range { last, step, .. }) = (key_spec.begin, key_spec.find) else {
            movable = true;
            continue;
        };
        if step != 1 || range.is_some_and(|(_, previous)| previous != first - 1) {
            movable = true;
            continue;
        }
        movable |= key_spec.flags.has(KeyFlags::INCOMPLETE);
        range = Some((range.map_or(first, |(start, _)| start), absolute(first, last)));
    }
    (range.map(|(first, last)| (first, last, 1)), movable)
}

#[cfg(test)]
mod tests;
