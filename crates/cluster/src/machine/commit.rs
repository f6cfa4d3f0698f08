//! Changes that must be on disk, and in the words of the slots, before others hear of them.
//!
//! ```text
//!   a step changes  -->  todo  --settle-->  commit n:   Save(n) .. Saved(n)   Apply(n) .. Applied(n)   -->  stands
//!                        (the next commit gathers meanwhile)   DeleteKeys .. Deleted
//! ```
//! A commit that gives this node a slot is saved before it is applied. Slots that are taken away are applied
//! at once, whatever the disk does and whatever commit is under way: commands must stop. Their keys are
//! deleted when the commit is through; a slot that is gained again meanwhile is applied when its old keys are
//! gone, which no client is to see. That the cluster is down is shown whatever commit waits. When a commit is
//! through, `Standing` is what it was when the commit began, and what waited for it (answers, votes, a
//! broadcast) leaves.
//!
//! A node whose slots are taken and that becomes a replica learns of the slots first: the role refuses writes
//! (READONLY), the words send clients on (MOVED).
//!
//! Invariants: messages show `Standing`, which is never ahead of the file; one commit is under way at most; a
//! change of role leaves in the step that made it, after the slots that this step takes away.

use super::{Machine, Now, Output};
use crate::topology::State;
use crate::{Slot, SlotSet};
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CommitNumber(pub u64);

/// Shortest time between two saves of changes that no commit waits for, in milliseconds.
const LAZY_SAVE_MS: u64 = 1000;

/// State of this node as messages show it.
#[derive(Clone, Default)]
pub(super) struct Standing {
    pub current_epoch: u64,
    pub config_epoch: u64,
    pub claims: Box<SlotSet>,
}

/// Work that the steps so far have left to be done.
#[derive(Default)]
pub(super) struct Todo {
    pub update_state: bool,
    /// Others must not hear of it before it is on disk.
    durable: bool,
    lazy: bool,
    /// Clients see a difference.
    pub view: bool,
    /// The words of some slots may differ.
    pub slots: bool,
    pub broadcast: bool,
    /// `Follow` or `Lead`, the last one of this step.
    pub role: Option<Output>,
    /// Address that the last `Follow` named.
    pub followed: Option<(String, u16)>,
    /// Outputs that are sent once the next commit is complete.
    held: Vec<Output>,
}

impl Todo {
    pub fn at_start() -> Todo {
        Todo { update_state: true, view: true, ..Todo::default() }
    }

    /// Marks the file as out of date, which it may be for a second.
    pub fn save(&mut self) {
        self.lazy = true;
        self.view = true;
    }

    /// The file has to come first.
    pub fn save_first(&mut self) {
        self.durable = true;
        self.view = true;
    }

    /// An owner, or a slot's being open, has changed.
    pub fn slots(&mut self) {
        self.slots = true;
        self.update_state = true;
        self.save();
    }

    pub fn hold(&mut self, output: Output) {
        self.held.push(output);
    }

    fn needs_commit(&self) -> bool {
        self.durable || self.slots || self.broadcast || !self.held.is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Save,
    /// Slots that are gained have keys from an earlier time.
    Delete,
    Apply,
}

struct Commit {
    number: CommitNumber,
    /// Phases still to be done; the first is under way.
    phases: VecDeque<Phase>,
    standing: Standing,
    gained: Vec<Slot>,
    others: Vec<Slot>,
    held: Vec<Output>,
    broadcast: bool,
}

/// Content of a slot's routing word: the owner of the slot, and whether the slot is migrating or importing.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    owner: Owner,
    migrating: bool,
    importing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    None,
    Myself,
    MyPrimary,
    Other,
}

impl Word {
    const NONE: Word = Word { owner: Owner::None, migrating: false, importing: false };

    /// Returns whether this word lets commands run that `old` would not have let run.
    fn gains_over(self, old: Word) -> bool {
        let serves = |word: Word| matches!(word.owner, Owner::Myself | Owner::MyPrimary);
        (serves(self) && !serves(old)) || (self.importing && !old.importing)
    }
}

pub(super) struct Commits {
    pub standing: Standing,
    under_way: Option<Commit>,
    last: CommitNumber,
    /// The last losses that no commit has, if they are not applied yet: later losses stand behind them.
    ahead: Option<CommitNumber>,
    /// Routing words as they are, or as they will be when the commit under way is complete.
    words: Box<[Word; Slot::COUNT]>,
    /// Slots whose keys are being deleted.
    deleting: Box<SlotSet>,
    /// State of the cluster that clients are answered from.
    pub(super) shown: State,
    saved_ms: u64,
}

impl Commits {
    pub fn new(standing: Standing) -> Commits {
        let words = Box::new([Word::NONE; Slot::COUNT]);
        Commits {
            standing,
            under_way: None,
            last: CommitNumber(0),
            ahead: None,
            words,
            deleting: Box::default(),
            shown: State::Ok,
            saved_ms: 0,
        }
    }

    /// Shows an epoch that was learned from others at once: forgetting it in a crash does no harm.
    pub fn show_epoch(&mut self, epoch: u64) {
        self.standing.current_epoch = self.standing.current_epoch.max(epoch);
    }

    /// Returns whether the commit under way is still being saved and will show the topology when it is
    /// applied.
    fn is_apply_ahead(&self) -> bool {
        let phases = self.under_way.as_ref().map(|commit| &commit.phases);
        phases.is_some_and(|phases| phases.iter().skip(1).any(|phase| *phase == Phase::Apply))
    }
}

impl Machine {
    /// The end of each step.
    pub(super) fn settle(&mut self, now: Now) {
        if self.todo.update_state {
            self.update_state(now);
        }
        if self.todo.slots && self.commits.under_way.is_some() {
            self.apply_losses(now);
        }
        while self.commits.under_way.is_none() && self.todo.needs_commit() {
            self.begin_commit(now);
        }
        self.outputs.extend(self.todo.role.take());
        if self.todo.lazy && now.ms.0 >= self.commits.saved_ms + LAZY_SAVE_MS {
            self.commits.saved_ms = now.ms.0;
            self.todo.lazy = false;
            let conf = Box::new(self.conf(now));
            self.outputs.push(Output::Save { number: None, conf });
        }
        // A slot that is gained is not shown before its word says so: a client would be sent nowhere. But the
        // file that it waits for may hang, and a node that is cut off must stop.
        let has_new_state = self.commits.shown != self.health.state;
        if self.todo.view && (has_new_state || !self.todo.slots && !self.commits.is_apply_ahead()) {
            self.todo.view = false;
            let topology = self.topology(now);
            self.outputs.push(Output::Publish(topology));
        }
    }

    /// Begins with the words as nodes.conf has them: what this node claims there is on disk, and commands are
    /// routed by it from the start.
    pub(super) fn take_words_of_file(&mut self) {
        for slot in Slot::all() {
            self.commits.words[slot.index()] = self.word(slot);
        }
    }

    fn begin_commit(&mut self, now: Now) {
        let (gained, mut others) = if self.todo.slots { self.changed_words() } else { Default::default() };
        if !gained.is_empty() && !others.is_empty() {
            // The file that what is gained waits for may hang.
            self.apply_at_once(std::mem::take(&mut others), now);
        }
        let applies = !gained.is_empty() || !others.is_empty() || self.commits.ahead.is_some();
        let saves = self.todo.durable || !gained.is_empty();
        let mut phases = VecDeque::new();
        if applies {
            phases.push_back(Phase::Apply);
        }
        if saves {
            // Gained slots stand on disk first.
            let place = if gained.is_empty() { phases.len() } else { 0 };
            phases.insert(place, Phase::Save);
        }
        if !gained.is_empty() {
            phases.insert(1, Phase::Delete);
        }
        self.commits.last.0 += 1;
        self.commits.under_way = Some(Commit {
            number: self.commits.last,
            phases,
            standing: self.present(),
            gained,
            others,
            held: std::mem::take(&mut self.todo.held),
            broadcast: std::mem::take(&mut self.todo.broadcast),
        });
        self.todo.durable = false;
        self.todo.slots = false;
        self.begin_phase(now);
    }

    /// Stops serving slots that this node has lost while a commit is under way: the disk may hang. All else
    /// waits for the next commit.
    fn apply_losses(&mut self, now: Now) {
        let mut others = Vec::new();
        for slot in Slot::all() {
            let (word, old) = (self.word(slot), self.commits.words[slot.index()]);
            if word != old && !word.gains_over(old) {
                self.commits.words[slot.index()] = word;
                others.push(slot);
            }
        }
        if !others.is_empty() {
            self.apply_at_once(others, now);
        }
    }

    fn apply_at_once(&mut self, others: Vec<Slot>, now: Now) {
        // No commit has this number: that it is applied ends none.
        self.commits.last.0 += 1;
        let number = self.commits.last;
        self.commits.ahead = Some(number);
        let topology = self.topology(now);
        self.outputs.push(Output::Apply { number, topology, gained: Vec::new(), others });
    }

    /// Returns the state that messages may show once all changes so far are on disk.
    pub(super) fn present(&mut self) -> Standing {
        let claims = Box::new(self.slots.of(self.nodes.me, &self.nodes).to_set());
        Standing { current_epoch: self.epochs.current, config_epoch: self.nodes.my().config_epoch, claims }
    }

    fn begin_phase(&mut self, now: Now) {
        let commit = self.commits.under_way.as_mut().expect("a commit is under way");
        let number = commit.number;
        match commit.phases.front() {
            Some(Phase::Save) => {
                self.todo.lazy = false;
                let conf = Box::new(self.conf(now));
                self.outputs.push(Output::Save { number: Some(number), conf });
            }
            Some(Phase::Delete) => {
                let is_deletion = |output: &mut Output| matches!(output, Output::DeleteKeys(_));
                let deletions = commit.held.extract_if(.., is_deletion).collect();
                self.emit(deletions);
                self.end_deletion(now);
            }
            Some(Phase::Apply) => {
                let (gained, others) =
                    (std::mem::take(&mut commit.gained), std::mem::take(&mut commit.others));
                let topology = self.topology(now);
                self.todo.view = self.todo.slots;
                self.outputs.push(Output::Apply { number, topology, gained, others });
            }
            None => self.finish_commit(now),
        }
    }

    pub(super) fn saved(&mut self, number: CommitNumber, now: Now) {
        self.end_phase(number, Phase::Save, now);
    }

    pub(super) fn applied(&mut self, number: CommitNumber, now: Now) {
        if self.commits.ahead == Some(number) {
            self.commits.ahead = None;
        }
        self.end_phase(number, Phase::Apply, now);
    }

    pub(super) fn deleted(&mut self, slots: &[Slot], now: Now) {
        slots.iter().for_each(|slot| _ = self.commits.deleting.remove(*slot));
        self.end_deletion(now);
    }

    /// Goes on with a commit that waits for old keys, if these are gone.
    fn end_deletion(&mut self, now: Now) {
        let Some(commit) = &self.commits.under_way else { return };
        if commit.gained.iter().all(|slot| !self.commits.deleting.has(*slot)) {
            self.end_phase(commit.number, Phase::Delete, now);
        }
    }

    /// Says what has waited for a commit.
    fn emit(&mut self, outputs: Vec<Output>) {
        for output in &outputs {
            if let Output::DeleteKeys(slots) = output {
                slots.iter().for_each(|slot| _ = self.commits.deleting.insert(*slot));
            }
        }
        self.outputs.extend(outputs);
    }

    fn end_phase(&mut self, number: CommitNumber, phase: Phase, now: Now) {
        let Some(commit) = &mut self.commits.under_way else { return };
        if commit.number != number || commit.phases.front() != Some(&phase) {
            return;
        }
        commit.phases.pop_front();
        self.begin_phase(now);
    }

    fn finish_commit(&mut self, now: Now) {
        let commit = self.commits.under_way.take().expect("a commit is under way");
        // An epoch that was learned from others meanwhile stands at once.
        let learned = self.commits.standing.current_epoch;
        self.commits.standing = commit.standing;
        self.commits.standing.current_epoch = self.commits.standing.current_epoch.max(learned);
        self.emit(commit.held);
        if commit.broadcast {
            self.broadcast_pong(now);
        }
    }

    /// The slots whose words have to change, in two parts: those that let more commands run, and the others.
    fn changed_words(&mut self) -> (Vec<Slot>, Vec<Slot>) {
        let (mut gained, mut others) = (Vec::new(), Vec::new());
        for slot in Slot::all() {
            let word = self.word(slot);
            let old = std::mem::replace(&mut self.commits.words[slot.index()], word);
            match word {
                _ if word == old => {}
                _ if word.gains_over(old) => gained.push(slot),
                _ => others.push(slot),
            }
        }
        (gained, others)
    }

    fn word(&self, slot: Slot) -> Word {
        let owner = match self.slots.owner(slot) {
            None => Owner::None,
            Some(owner) if owner == self.nodes.me => Owner::Myself,
            Some(owner) if Some(owner) == self.nodes.my().primary => Owner::MyPrimary,
            Some(_) => Owner::Other,
        };
        let (migrating, importing) =
            (self.slots.migrating.contains_key(&slot), self.slots.importing.contains_key(&slot));
        Word { owner, migrating, importing }
    }
}
