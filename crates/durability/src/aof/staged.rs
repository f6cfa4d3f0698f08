//! The strings that a log sets while there is nothing else: gathered by slot, and their pages built at once.
//!
//! ```text
//!   SET a 1 | SET b 2 | SET a 3 PXAT .. | SADD c x | SET a 4 | ...         a, c: in one group of slots; b in another one
//!   gathered  gathered  gathered          built: a 3, run    run
//! ```
//! An insert by itself misses the cache four times, and its page is copied with each step of its growth
//! (`Staging`). SETs of different keys may change places, so only the other commands of a key see that its
//! SETs wait: the first one that comes for a slot has what was gathered for its group built, and the group
//! closed: from then on its commands are run as they come.
//!
//! **What this module does not know:** threads. Each has its own gathering, of its own partitions, and holds
//! none of them when it calls.

use isotherm_keyspace::{BuildError, Builder, Db, NewString, Repeats, STAGED_GROUPS, Slot, Staging, UnixMs};
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;

use super::applier::Refused;
use isotherm_node::Node;
use isotherm_node::request::entry::Entry;
use isotherm_runtime::time::unix_now;

/// Freed memory is given back to the system once it is this much: what is gathered goes as the pages come.
const RETURNED_BYTES_MIN: u64 = 16 << 20;

pub struct Staged {
    node: &'static Node,
    /// SET.
    set: Option<&'static Entry>,
    now: UnixMs,
    /// Gathered strings, all of one database; `None` before the first string.
    staging: Option<Staging>,
    builder: Builder,
    is_closed: Box<[bool; STAGED_GROUPS]>,
    /// Groups that were closed, and are to be built.
    to_build: Vec<usize>,
    /// Since memory was given back.
    freed_bytes: u64,
}

impl Staged {
    /// Makes one for an empty keyspace.
    pub fn new(node: &'static Node) -> Staged {
        Staged {
            node,
            set: node.commands.find_original(b"set"),
            now: unix_now(),
            staging: None,
            builder: Builder::default(),
            is_closed: Box::new([false; STAGED_GROUPS]),
            to_build: Vec::new(),
            freed_bytes: 0,
        }
    }

    /// Returns the string that a command sets, if it is to be gathered (`add`). Otherwise the command is to
    /// be run after the next `add`.
    #[inline]
    pub fn string<'a>(
        &mut self,
        command: &Entry,
        db: Db,
        slot: Slot,
        args: Args<'a>,
    ) -> Option<NewString<'a>> {
        let staging = self
            .staging
            .get_or_insert_with(|| Staging::new(&self.node.keyspace, db, self.now, Repeats::LastCounts));
        // Other databases have other pages.
        if staging.db() != db {
            return None;
        }
        let group = Staging::group_of(slot);
        if self.is_closed[group] {
            return None;
        }
        let is_set = self.set.is_some_and(|set| std::ptr::eq(set, command));
        let string = if is_set { new_string(args, self.now) } else { None };
        if string.is_none() {
            self.is_closed[group] = true;
            self.to_build.push(group);
        }
        string
    }

    /// Gathers the strings that came since the last time, in their order; builds what is closed.
    pub fn add(&mut self, strings: &[NewString<'_>]) -> Result<(), Refused> {
        let Some(staging) = &mut self.staging else { return Ok(()) };
        // A group that has far more than its share is of one hash tag.
        for &group in staging.add(strings.len(), |number| strings[number]) {
            self.is_closed[group] = true;
            self.to_build.push(group);
        }
        while let Some(group) = self.to_build.pop() {
            self.build_group(group)?;
        }
        Ok(())
    }

    /// Builds all that was gathered.
    pub fn build(&mut self) -> Result<(), Refused> {
        (0..STAGED_GROUPS).try_for_each(|group| self.build_group(group))
    }

    fn build_group(&mut self, group: usize) -> Result<(), Refused> {
        let Some(staging) = &mut self.staging else { return Ok(()) };
        let strings = staging.take(group);
        if strings.is_empty() {
            return Ok(());
        }
        let built = self.node.keyspace.build(&strings, &mut self.builder, self.now);
        self.freed_bytes += strings.bytes();
        drop(strings);
        if self.freed_bytes >= RETURNED_BYTES_MIN {
            self.freed_bytes = 0;
            isotherm_allocator::purge();
        }
        built.map_err(|error| match error {
            BuildError::Full => Refused::OutOfMemory(errors::NO_MEMORY_FOR_KEY.into()),
            BuildError::Repeated(key) => unreachable!("the last value of '{}' counts", key.escape_ascii()),
        })
    }
}

/// `SET key value [PXAT ms]`, as a log has it, of a value that lies in a page.
#[inline]
fn new_string(args: Args<'_>, now: UnixMs) -> Option<NewString<'_>> {
    let expiry = match args.len() {
        3 => None,
        5 if args.get(3).eq_ignore_ascii_case(b"PXAT") => Some(parse_i64(args.get(4)).map(UnixMs)?),
        _ => return None,
    };
    let (key, text) = (args.get(1), args.get(2));
    let is_ahead = expiry.is_none_or(|at| at > now);
    (is_ahead && Staging::takes(key.len(), text.len())).then_some(NewString { key, text, expiry, note: None })
}
