//! Faults on purpose: what shows that the tester can fail. Each changes what one side is sent, so that a
//! server with a bug is imitated by a server without.

use crate::grammar::Command;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// SET forgets that it was to keep the time to live: seen only by a later TTL, or by the audit.
    KeepTtlIgnored,
    /// GETRANGE stops one byte early.
    RangeEndsEarly,
    /// EXPIRE with conditions does as if there were none.
    ConditionsIgnored,
    /// DISCARD runs the transaction.
    DiscardRuns,
}

pub const FAULTS: [(&str, Fault); 4] = [
    ("keepttl-ignored", Fault::KeepTtlIgnored),
    ("range-ends-early", Fault::RangeEndsEarly),
    ("conditions-ignored", Fault::ConditionsIgnored),
    ("discard-runs", Fault::DiscardRuns),
];

impl Fault {
    pub fn apply(self, command: &Command) -> Command {
        let mut changed = command.clone();
        let is = |i: usize, word: &[u8]| command.get(i).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
        match self {
            Fault::KeepTtlIgnored if is(0, b"SET") => {
                changed.retain(|arg| !arg.eq_ignore_ascii_case(b"KEEPTTL"));
            }
            Fault::RangeEndsEarly if is(0, b"GETRANGE") && command.len() == 4 => {
                if let Some(end @ 1..1000) = isotherm_stdx::parse_i64(&command[3]) {
                    changed[3] = (end - 1).to_string().into_bytes();
                }
            }
            Fault::ConditionsIgnored if is(0, b"EXPIREAT") => changed.truncate(3),
            Fault::DiscardRuns if is(0, b"DISCARD") && command.len() == 1 => changed[0] = b"EXEC".to_vec(),
            _ => {}
        }
        changed
    }
}
