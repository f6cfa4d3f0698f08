//! Nodes of large collections leave memory, move where they are kept, and come back, one at a time, under the
//! lock of their partition.
//!
//! ```text
//!   a page, leaf or block    --chill_node: its bytes are those that were written out-->  a stub
//!   a stub at a              --move_node: the keeper has it at b now-->                  a stub at b
//!   a stub                   --give_node: its record was read-->                         a page, leaf or block
//! ```
//! Moves of nodes change no data and use no key. The collection keeps its entry and what leads
//! to its nodes; what else lies in it stays where it is. A command finds nothing of what is away, and notes
//! it (`Cold::note_missed`); one that changes a collection has what it names read before (`away_nodes`), or
//! says what it wants before it changes anything (`Cold::note_wanted`).

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::access::terms::{Missing, OnCold};
use crate::access::txn::Txn;
use crate::layout::cold::ColdRef;
use crate::layout::entry::EntryBytes;
use crate::layout::key::{Key, slot_of_blob_head};
use crate::layout::kind::{Db, Full};
use crate::layout::node_name::{NodeAt, NodeName};
use crate::values::lent::Lent;
use crate::values::nodewise::Nodewise;
use crate::values::store::Store;
use isotherm_stdx::UnixMs;

/// Nodes of a collection that a command needs.
#[derive(Clone, Copy, Debug)]
pub enum NodeNeed<'n> {
    All,
    /// The nodes of these elements. A command that adds or removes elements needs others too, to grow or to
    /// shrink.
    Of {
        elements: &'n [&'n [u8]],
        reshapes: bool,
    },
}

impl Held<'_> {
    /// Returns whether anything refers to the record of a node: the node is away, or it has come back and was
    /// not changed since.
    pub fn refers_to_node(&mut self, at: NodeAt, reference: ColdRef) -> bool {
        let store = &self.partition(at.slot).store;
        let Some(collection) = nodewise_at(store, at.name) else { return false };
        let away = collection.away_at(store, at.name.index());
        [away, store.cold.clean(at.name)].contains(&Some(reference))
    }

    /// Returns the references to the records of nodes that have come back and were not changed since, in the
    /// held partitions.
    pub fn clean_nodes(&mut self) -> Vec<ColdRef> {
        self.partitions().flat_map(|partition| partition.store.cold.all_clean()).collect()
    }

    /// A node leaves again that was not changed since it came back. Returns whether it did.
    pub fn chill_clean_node(&mut self, at: NodeAt, now: UnixMs) -> bool {
        self.partition(at.slot).chill_clean_node(at.name, now)
    }

    /// Returns the reference to a node, if it is not in memory.
    pub fn node_reference(&mut self, at: NodeAt) -> Option<ColdRef> {
        let store = &self.partition(at.slot).store;
        nodewise_at(store, at.name)?.away_at(store, at.name.index())
    }

    /// Returns whether a read of a node was tried without success.
    pub fn is_node_unreadable(&mut self, at: NodeAt) -> bool {
        let Some(reference) = self.node_reference(at) else { return false };
        self.partition(at.slot).store.cold.lent(reference).is_some_and(|lent| lent.value.is_none())
    }

    /// A node leaves memory whose payload was written out, if it is still as it was. Returns whether it did;
    /// else the reference goes back.
    pub fn chill_node(&mut self, at: NodeAt, payload: &[u8], reference: ColdRef, now: UnixMs) -> bool {
        let partition = self.partition(at.slot);
        let chilled = partition
            .change_nodes(at.name, |collection, store| {
                collection.chill(store, at.name.index(), payload, reference, now)
            })
            .unwrap_or(false);
        if !chilled {
            partition.store.cold.give_back(reference);
        }
        chilled
    }

    /// The keeper has a node elsewhere now. Returns whether anything refers to it; else the new place goes
    /// back.
    pub fn move_node(&mut self, at: NodeAt, from: ColdRef, to: ColdRef) -> bool {
        let partition = self.partition(at.slot);
        let moved = partition
            .change_nodes(at.name, |collection, store| collection.move_node(store, at.name.index(), from, to))
            .unwrap_or(false);
        if !moved {
            partition.store.cold.give_back(to);
        }
        moved
    }

    /// A node comes back to memory that was read, or could not be (`None`): then the next command that meets
    /// it fails. Nothing happens if it is elsewhere by now. `keeps`: its record stays until it changes, so
    /// that it can leave again without being written.
    pub fn give_node(&mut self, at: NodeAt, payload: Option<&[u8]>, from: ColdRef, keeps: bool, now: UnixMs) {
        let partition = self.partition(at.slot);
        let is_home = payload.is_some_and(|payload| {
            let warm = |collection: &mut dyn Nodewise, store: &mut Store| {
                collection.warm(store, at.name.index(), payload, from, keeps, now).is_ok()
            };
            partition.change_nodes(at.name, warm).unwrap_or(true)
        });
        match is_home {
            true => partition.store.cold.note_given(at.name, now),
            // Without memory for it its command fails, as if it could not be read.
            false if self.node_reference(at) == Some(from) => {
                self.partition(at.slot).store.cold.lend(from, Lent::new(Db(0), &[], None, now));
            }
            false => {}
        }
    }

    /// The next command tries to read it again.
    pub fn forget_node_failure(&mut self, at: NodeAt) {
        if let Some(reference) = self.node_reference(at) {
            self.partition(at.slot).store.cold.forget_failure(reference);
        }
    }

    /// The nodes that a command needs of the collection under a key and that are not in memory, `nodes_max`
    /// at most.
    pub fn away_nodes(&mut self, db: Db, key: &Key<'_>, need: NodeNeed<'_>, nodes_max: usize) -> Vec<NodeAt> {
        let partition = self.partition(key.slot);
        let store = &partition.store;
        let found = partition.find(db, key);
        let number = found.and_then(|(page, spot)| EntryBytes(store.heap.page(page).entry(spot)).object());
        let root = number.map(|number| (number, &store.objects.get(number).body));
        let root = root.filter(|(_, body)| body.structure().away_nodes() > 0);
        let Some((number, collection)) = root.map(|(number, body)| (number, body.nodewise())) else {
            return Vec::new();
        };
        let at = |index| NodeAt { slot: key.slot, name: NodeName::new(number, index) };
        let is_away = |index: &u32| collection.away_at(store, *index).is_some();
        match need {
            NodeNeed::All => (0..collection.node_count()).filter(is_away).take(nodes_max).map(at).collect(),
            NodeNeed::Of { elements, reshapes } => {
                let mut nodes = collection.needed(store, elements, reshapes);
                nodes.sort_unstable();
                nodes.dedup();
                nodes.into_iter().filter(is_away).take(nodes_max).map(at).collect()
            }
        }
    }

    pub(crate) fn has_missed_nodes(&self) -> bool {
        self.guarded().any(|partition| partition.store.cold.has_missed())
    }

    /// Takes the nodes that the current command has met and that are not in memory, and adds them to
    /// `missing`.
    pub(crate) fn take_missed_nodes(&mut self, missing: &mut Vec<Missing>) {
        let has_missed = |partition: &&Partition| partition.store.cold.has_missed();
        let numbers: Vec<u16> = self.guarded().filter(has_missed).map(|partition| partition.number).collect();
        for number in numbers {
            let partition = self.numbered(number);
            for (name, is_readable) in partition.store.cold.take_missed() {
                let root = partition.store.objects.find(name.object());
                let node = root.map(|root| NodeAt { slot: slot_of_blob_head(root.home), name });
                // Of one that the command itself has removed nothing can be read any more.
                let is_readable = is_readable && node.is_some();
                missing.push(Missing { db: Db(0), key: Box::default(), node, is_readable });
            }
        }
    }
}

impl Txn<'_, '_> {
    /// A command that changes something only when it has read all that it needs: until then what it meets is
    /// collected, as by one that only reads.
    pub fn read_first(&mut self) {
        if self.on_cold == OnCold::Read {
            self.on_cold = OnCold::Collect;
        }
    }

    /// Begins the changes of a command. Returns whether it was shown everything that it read before. If not
    /// it has to end here, and runs again when the missing nodes were read.
    pub fn begin_changes(&mut self) -> bool {
        if self.on_cold == OnCold::Collect {
            self.on_cold = OnCold::Read;
            return !self.held.has_missed();
        }
        true
    }

    /// A command that could not be shown a part of what it looked at changes nothing: its answer is that it
    /// could not be read.
    #[cold]
    pub(super) fn refuse_failed(&self) -> Result<(), Full> {
        let has_failed = self.held.guarded().any(|partition| partition.store.cold.has_failed());
        if has_failed { Err(Full) } else { Ok(()) }
    }
}

impl Partition {
    /// Lets a node leave memory again that was not changed since it came back, if it may: its record is
    /// there. Returns whether it did.
    pub(crate) fn chill_clean_node(&mut self, name: NodeName, now: UnixMs) -> bool {
        let leave = |collection: &mut dyn Nodewise, store: &mut Store| {
            collection.chill_clean(store, name.index(), now)
        };
        self.change_nodes(name, leave).unwrap_or(false)
    }

    /// Changes nodes of a collection that an entry names; `None` if there is none.
    fn change_nodes<R>(
        &mut self,
        name: NodeName,
        change: impl FnOnce(&mut dyn Nodewise, &mut Store) -> R,
    ) -> Option<R> {
        let number = name.object();
        nodewise_at(&self.store, name)?;
        let mut root = self.store.objects.take(number);
        let result = change(root.body.nodewise_mut(), &mut self.store);
        self.store.objects.put(number, root);
        if let Some((db, location, _)) = self.find_object(number) {
            self.recount(db, &location, number);
        }
        Some(result)
    }
}

/// The collection that a node is of, if there is one and an entry names it.
fn nodewise_at(store: &Store, name: NodeName) -> Option<&dyn Nodewise> {
    let root = store.objects.find(name.object())?;
    (root.references > 0).then(|| root.body.nodewise())
}
