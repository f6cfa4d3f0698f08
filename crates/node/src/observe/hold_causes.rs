//! The names of what holds locks: commands, and the kinds of work that no command asked for.

use crate::observe::hold_table::{HoldCause, WORK_NAMES};
use crate::request::registry::Commands;

pub fn cause_name(commands: &Commands, cause: HoldCause) -> &str {
    let (cause, commands) = (usize::from(cause), commands.all());
    commands.get(cause).map_or_else(|| WORK_NAMES[cause - commands.len()], |entry| &entry.name)
}

/// Returns whether the time of the holder is bounded: that of work always is, that of a command if its
/// documentation says so.
pub fn is_bounded_cause(commands: &Commands, cause: HoldCause) -> bool {
    commands.all().get(usize::from(cause)).is_none_or(|entry| entry.spec.is_constant_time())
}
