//! Entry of a command in the form that dispatch needs: derived from the command's declaration.
//!
//! ```text
//! key specs ---> which partitions it locks, where its first key is, what it may do to its keys (prefetch)
//! flags -------> which gates can matter, whether its holds are measured
//! ```
//! All of it is derived once, at start.

use isotherm_commands::spec::{Begin, Find, Flags, Group, KeyFlags, KeySpec, Need, Reach, Spec};
use isotherm_keyspace::{Intent, OnCold};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::request::gate_bits::{Gates, gates_of};

#[derive(Clone, Copy)]
pub enum Handler {
    Data(isotherm_commands::Handler),
    /// Command of the session or the server. Its handler is in its table, under the command's index
    /// (`Commands::table`).
    Admin,
}

/// Partitions that a command locks, as its declaration says, in the form that dispatch needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locks {
    None,
    /// The partition of the key at `first_key`.
    One,
    /// The partitions of its keys, which are several or not easily found.
    Keys,
    All,
    /// No partitions in advance: the handler locks one after the other.
    Each,
    /// The partitions that the commands of the session's queue need, and those of the watched keys.
    Queue,
    /// The partitions of its keys, and then those that its script asks for.
    Script,
}

/// A command or a subcommand.
pub struct Entry {
    /// Index of the command in the statistics.
    pub index: u16,
    /// "get", "config|get".
    pub name: Box<str>,
    pub spec: &'static Spec,
    /// Handler of the command; `None` only for a container that cannot be called by itself.
    pub handler: Option<Handler>,
    /// Subcommands in the order of their declaration; empty for a command that is no container.
    pub subcommands: Vec<&'static Entry>,
    pub parent: Option<&'static str>,
    pub locks: Locks,
    /// The argument that is its first key, if that is known without looking; else 0.
    pub first_key: u16,
    /// Step from key to key, if its keys are all arguments from `first_key` on at this step (DEL, MGET: 1;
    /// MSET: 2); else 0.
    pub key_step: u16,
    /// Changes that the command may make to its keys.
    pub intent: Intent,
    /// Each of its holds is measured: it is not among those that are over in a moment.
    pub is_measured: bool,
    /// The argument that is the first field or member which it names of its one key's collection; else 0.
    pub element: u16,
    /// The most that it needs of the value of one of its keys.
    pub need: Need,
    /// View that the command gets of a value that is not in memory.
    pub on_cold: OnCold,
    /// The gates that can matter for it.
    pub gates: Gates,
    /// CLIENT CACHING holds beyond it.
    pub keeps_caching: bool,
    /// A subcommand that a parameter has switched off: no request finds it, and no list names it. Rules of
    /// users do.
    is_hidden: AtomicBool,
}

impl Entry {
    /// Allocates an entry that lives as long as the process.
    pub(super) fn leak(
        index: usize,
        name: String,
        spec: &'static Spec,
        handler: Option<Handler>,
        subcommands: Vec<&'static Entry>,
        parent: Option<&'static Spec>,
    ) -> &'static Entry {
        let (locks, first_key) = locks_of(spec);
        let key_step = step_of(spec);
        let element = if locks == Locks::One { element_of(spec) } else { 0 };
        let index = u16::try_from(index).expect("some hundreds of commands");
        let name = name.into();
        Box::leak(Box::new(Entry {
            index,
            name,
            spec,
            handler,
            subcommands,
            parent: parent.map(|parent| parent.name),
            locks,
            first_key,
            key_step,
            intent: intent_of(spec),
            is_measured: is_measured(spec, locks),
            element,
            need: spec.need_max(),
            on_cold: on_cold(spec),
            gates: gates_of(spec, first_key > 0 && (locks == Locks::One || key_step > 0)),
            keeps_caching: parent.is_some_and(|parent| parent.flags.has(Flags::KEEPS_CACHING)),
            is_hidden: AtomicBool::new(false),
        }))
    }

    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Entry> {
        self.any_subcommand(name).filter(|entry| !entry.is_hidden())
    }

    fn any_subcommand(&self, name: &[u8]) -> Option<&'static Entry> {
        self.subcommands.iter().copied().find(|entry| entry.spec.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Subcommands that are known at this moment.
    pub fn known_subcommands(&self) -> Vec<&'static Entry> {
        self.subcommands.iter().copied().filter(|entry| !entry.is_hidden()).collect()
    }

    pub fn is_hidden(&self) -> bool {
        self.is_hidden.load(Ordering::Relaxed)
    }

    /// Makes a subcommand known, or unknown, to requests that come from now on.
    pub fn hide_subcommand(&self, name: &[u8], is_hidden: bool) {
        let subcommand = self.any_subcommand(name).expect("it is declared");
        subcommand.is_hidden.store(is_hidden, Ordering::Relaxed);
    }

    pub fn is_container(&self) -> bool {
        !self.subcommands.is_empty()
    }

    /// Returns whether a call with `arguments` arguments has one key, the one at `first_key`.
    #[inline]
    pub fn has_one_key(&self, arguments: usize) -> bool {
        self.locks == Locks::One || arguments <= usize::from(self.first_key + self.key_step)
    }
}

/// Derives the intent of a command. A command that may take memory may add a key. A command that writes and
/// takes no memory removes or shortens, or is about expiry. Among those that take memory, the declared flags
/// distinguish the commands that make a value longer (APPEND) from those that write over it (SET). A small
/// collection changes its length with nearly every change.
fn intent_of(spec: &Spec) -> Intent {
    let (writes, adds) = (spec.flags.has(Flags::WRITE), spec.flags.has(Flags::DENYOOM));
    let declared = |flag| spec.key_specs.iter().any(|key_spec| key_spec.flags.has(flag));
    let collection = matches!(spec.group, Group::List | Group::Hash | Group::Set | Group::SortedSet);
    let longer = collection || declared(KeyFlags::INSERT) || declared(KeyFlags::DELETE);
    Intent { adds, moves: writes && (!adds || longer) }
}

/// PFCOUNT reads, and keeps what it has counted: a value that may be changed is fetched before.
fn on_cold(spec: &Spec) -> OnCold {
    let may_change = spec.key_specs.iter().any(|keys| keys.flags.has(KeyFlags::RW));
    // SCAN, KEYS and RANDOMKEY meet what they did not name.
    let walks = spec.reach == Reach::All && spec.flags.has(Flags::READONLY);
    match () {
        () if walks => OnCold::Collect,
        () if spec.need_max() == Need::Nothing => OnCold::Show,
        () if spec.flags.has(Flags::READONLY) && !may_change => OnCold::Collect,
        () => OnCold::Read,
    }
}

fn is_measured(spec: &Spec, locks: Locks) -> bool {
    match locks {
        // The keyspace reports locks that a handler takes by itself.
        Locks::None | Locks::Each => false,
        Locks::All | Locks::Queue | Locks::Script => true,
        Locks::One | Locks::Keys => !spec.flags.has(Flags::FAST) && !spec.is_constant_time(),
    }
}

/// Returns the specs of the command's keys; the channels of SPUBLISH are not keys.
fn keys_of(spec: &Spec) -> &[KeySpec] {
    let are_keys = spec.key_specs.iter().all(|keys| !keys.flags.has(KeyFlags::NOT_KEY));
    if are_keys { spec.key_specs } else { &[] }
}

fn step_of(spec: &Spec) -> u16 {
    let [KeySpec { begin: Begin::Index(_), find: Find::Range { last: -1, step, limit: 0 }, .. }] =
        keys_of(spec)
    else {
        return 0;
    };
    assert!(matches!(step, 1 | 2), "HashedKeys takes half the distance");
    *step as u16
}

/// Options seldom come in front of it too: callers of this only guess what will be asked for.
fn element_of(spec: &Spec) -> u16 {
    if !matches!(spec.group, Group::Hash | Group::Set | Group::SortedSet) {
        return 0;
    }
    let needed = spec.arguments.iter().filter(|argument| !argument.optional);
    let words = needed.flat_map(|argument| match argument.arguments {
        [] => std::slice::from_ref(argument),
        parts => parts,
    });
    let at = words.map(|word| word.name).position(|name| matches!(name, "field" | "member"));
    at.map_or(0, |at| at as u16 + 1)
}

fn locks_of(spec: &Spec) -> (Locks, u16) {
    let first_key = match keys_of(spec).first().map(|keys| (keys.begin, keys.find)) {
        Some((Begin::Index(at), Find::Range { .. })) => {
            u16::try_from(at).expect("few arguments precede a key")
        }
        _ => 0,
    };
    let single = |spec: &Spec| {
        matches!(keys_of(spec), [only] if matches!(only.find, Find::Range { last: 0, .. })) && first_key > 0
    };
    let locks = match spec.reach {
        Reach::All => Locks::All,
        Reach::Each => Locks::Each,
        Reach::Queue => Locks::Queue,
        Reach::Parts => return (Locks::None, 0),
        Reach::Script => Locks::Script,
        Reach::Keys if keys_of(spec).is_empty() => Locks::None,
        Reach::Keys if single(spec) => Locks::One,
        Reach::Keys => Locks::Keys,
    };
    (locks, first_key)
}
