//! Replicas that the next cut serves, and the time at which it is due.
//!
//! One cut serves all that wait and want the same bytes: the same parts, in the same version of the format.
//! The first that waits decides. A snapshot that is streamed is delayed a while, for those that come a moment
//! later.

use super::{Announced, Capabilities, Filter, Transfer};
use crate::Ms;

/// Requirements of a replica for its snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub since: Ms,
    capabilities: Capabilities,
    /// Version 80 of the format, else 11.
    is_80: bool,
    filter: Filter,
}

impl Waiting {
    pub fn new(announced: &Announced, since: Ms) -> Waiting {
        let capabilities = announced.capabilities;
        // One that reads no mark gets the file on disk, whose version depends on nothing.
        let is_80 = !capabilities.has(Capabilities::EOF) || announced.reads_version_80();
        Waiting { since, capabilities, is_80, filter: announced.filter }
    }

    fn wants_the_same(&self, other: &Waiting) -> bool {
        self.is_80 == other.is_80 && self.filter == other.filter
    }
}

/// The configuration, as far as it decides.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// `repl-diskless-sync`
    pub streams: bool,
    /// `repl-diskless-sync-delay`
    pub delay_ms: u64,
    /// `repl-diskless-sync-max-replicas`; 0 for any number.
    pub replicas_max: usize,
}

/// Replicas that one cut serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Their numbers among those that wait.
    pub members: Vec<usize>,
    pub transfer: Transfer,
    pub is_80: bool,
    pub filter: Filter,
}

/// `waiting`: in the order in which they came. `None` if none waits, or not long enough.
pub fn next_group(waiting: &[Waiting], terms: &Terms, now: Ms) -> Option<Group> {
    let first = waiting.first()?;
    let members: Vec<usize> = (0..waiting.len()).filter(|at| waiting[*at].wants_the_same(first)).collect();
    let all = |of: Capabilities| members.iter().all(|at| waiting[*at].capabilities.has(of));
    let reads_mark = all(Capabilities::EOF);
    let is_special = first.filter != Filter::default() || !first.is_80;
    let streams = reads_mark && (terms.streams || is_special);
    let longest_ms = members.iter().map(|at| now.0.saturating_sub(waiting[*at].since.0)).max()?;
    let is_full = terms.replicas_max > 0 && members.len() >= terms.replicas_max;
    let is_due = !terms.streams || !streams || is_full || longest_ms >= terms.delay_ms;
    is_due.then_some(Group {
        transfer: if streams { Transfer::Stream } else { Transfer::File },
        is_80: first.is_80,
        filter: first.filter,
        members,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { streams: true, delay_ms: 5000, replicas_max: 0 };

    fn waiting(version: u32, since_ms: u64) -> Waiting {
        let announced = Announced { capabilities: Capabilities::EOF, version, ..Announced::default() };
        Waiting::new(&announced, Ms(since_ms))
    }

    const NEW: u32 = 0x09_01_02;

    fn members(waiting: &[Waiting], terms: &Terms, now_ms: u64) -> Option<Vec<usize>> {
        next_group(waiting, terms, Ms(now_ms)).map(|group| group.members)
    }

    #[test]
    fn those_that_come_a_moment_later_are_served_too() {
        assert_eq!(members(&[], &TERMS, 0), None);
        let all = [waiting(NEW, 0), waiting(0, 10), waiting(NEW, 4000)];
        assert_eq!(members(&all, &TERMS, 4999), None);
        assert_eq!(members(&all, &TERMS, 5000), Some(vec![0, 2]), "the old one wants another version");
        assert_eq!(members(&all, &Terms { replicas_max: 2, ..TERMS }, 4000), Some(vec![0, 2]));
        assert_eq!(members(&all, &Terms { replicas_max: 3, ..TERMS }, 4000), None);
    }

    #[test]
    fn files_and_streams() {
        let transfer = |waiting: &Waiting, terms: &Terms| {
            let group = next_group(&[*waiting], terms, Ms(1 << 30)).unwrap();
            (group.transfer, group.is_80)
        };
        let on_disk = Terms { streams: false, ..TERMS };
        assert_eq!(transfer(&waiting(NEW, 0), &TERMS), (Transfer::Stream, true));
        assert_eq!(transfer(&waiting(NEW, 0), &on_disk), (Transfer::File, true));
        assert_eq!(
            transfer(&waiting(0, 0), &on_disk),
            (Transfer::Stream, false),
            "dump.rdb is of one version"
        );
        let bare = Waiting::new(&Announced::default(), Ms(0));
        assert_eq!(transfer(&bare, &TERMS), (Transfer::File, true));
        assert!(next_group(&[Waiting { since: Ms(1 << 30), ..bare }], &TERMS, Ms(1 << 30)).is_some());
    }
}
