//! Nodes of large collections leave memory, move where they are kept, and come back, one at a time, under the
//! lock of their partition.
//!
//! ```text
//!   a page, leaf or block    --chill: its bytes are those that were written out-->   a stub
//!   a stub at a              --move_to: the keeper has it at b now-->                a stub at b
//!   a stub                   --give: its record was read-->                          a page, leaf or block
//! ```
//! Moves of nodes change no data and use no key. The collection keeps its entry and what leads
//! to its nodes; what else lies in it stays where it is. A command finds nothing of what is away, and notes
//! it (`Cold::note_missed`); one that changes a collection has what it names read before (`NodeNeed`), or
//! says what it wants before it changes anything (`Cold::note_wanted`).

use crate::access::lock::Held;
use crate::access::partition::Partition;
use crate::access::terms::OnCold;
use crate::access::txn::Txn;
use crate::layout::cold::ColdRef;
use crate::layout::entry::EntryBytes;
use crate::layout::key::Key;
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

impl NodeNeed<'_> {
    /// Returns the nodes that a command needs of the collection under a key, which is held, and that are not
    /// in memory, `nodes_max` at most.
    pub fn away(self, held: &mut Held<'_>, db: Db, key: &Key<'_>, nodes_max: usize) -> Vec<NodeAt> {
        let partition = held.partition(key.slot);
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
        match self {
            NodeNeed::All => (0..collection.node_count()).filter(is_away).take(nodes_max).map(at).collect(),
            NodeNeed::Of { elements, reshapes } => {
                let mut nodes = collection.needed(store, elements, reshapes);
                nodes.sort_unstable();
                nodes.dedup();
                nodes.into_iter().filter(is_away).take(nodes_max).map(at).collect()
            }
        }
    }
}

/// A node of a collection, in a partition that is held.
pub struct HeldNode<'h> {
    partition: &'h mut Partition,
    name: NodeName,
}

impl<'h> HeldNode<'h> {
    pub fn of(held: &'h mut Held<'_>, at: NodeAt) -> HeldNode<'h> {
        HeldNode { partition: held.partition(at.slot), name: at.name }
    }

    pub(crate) fn new(partition: &'h mut Partition, name: NodeName) -> HeldNode<'h> {
        HeldNode { partition, name }
    }

    /// Returns whether anything refers to the record of the node: it is away, or it has come back and was not
    /// changed since.
    pub fn refers_to(&self, reference: ColdRef) -> bool {
        let store = &self.partition.store;
        let Some(collection) = nodewise_at(store, self.name) else { return false };
        let away = collection.away_at(store, self.name.index());
        [away, store.cold.clean(self.name)].contains(&Some(reference))
    }

    /// Returns the reference to the node, if it is not in memory.
    pub fn reference(&self) -> Option<ColdRef> {
        let store = &self.partition.store;
        nodewise_at(store, self.name)?.away_at(store, self.name.index())
    }

    /// Returns whether a read of the node was tried without success.
    pub fn is_unreadable(&self) -> bool {
        let Some(reference) = self.reference() else { return false };
        self.partition.store.cold.lent(reference).is_some_and(|lent| lent.value.is_none())
    }

    /// Lets the node leave memory again that was not changed since it came back, if it may: its record is
    /// there. Returns whether it did.
    pub fn chill_clean(&mut self, now: UnixMs) -> bool {
        let name = self.name;
        self.change(|collection, store| collection.chill_clean(store, name.index(), now)).unwrap_or(false)
    }

    /// Lets the node leave memory whose payload was written out, if it is still as it was. Returns whether it
    /// did; else the reference goes back.
    pub fn chill(&mut self, payload: &[u8], reference: ColdRef, now: UnixMs) -> bool {
        let name = self.name;
        let chilled = self
            .change(|collection, store| collection.chill(store, name.index(), payload, reference, now))
            .unwrap_or(false);
        if !chilled {
            self.partition.store.cold.give_back(reference);
        }
        chilled
    }

    /// The keeper has the node elsewhere now. Returns whether anything refers to it; else the new place goes
    /// back.
    pub fn move_to(&mut self, from: ColdRef, to: ColdRef) -> bool {
        let name = self.name;
        let moved = self
            .change(|collection, store| collection.move_node(store, name.index(), from, to))
            .unwrap_or(false);
        if !moved {
            self.partition.store.cold.give_back(to);
        }
        moved
    }

    /// The node comes back to memory that was read, or could not be (`None`): then the next command that
    /// meets it fails. Nothing happens if it is elsewhere by now. `keeps`: its record stays until it changes,
    /// so that it can leave again without being written.
    pub fn give(&mut self, payload: Option<&[u8]>, from: ColdRef, keeps: bool, now: UnixMs) {
        let name = self.name;
        let is_home = payload.is_some_and(|payload| {
            let warm = |collection: &mut dyn Nodewise, store: &mut Store| {
                collection.warm(store, name.index(), payload, from, keeps, now).is_ok()
            };
            self.change(warm).unwrap_or(true)
        });
        match is_home {
            true => self.partition.store.cold.note_given(name, now),
            // Without memory for it its command fails, as if it could not be read.
            false if self.reference() == Some(from) => {
                self.partition.store.cold.lend(from, Lent::new(Db(0), &[], None, now));
            }
            false => {}
        }
    }

    /// The next command tries to read it again.
    pub fn forget_failure(&mut self) {
        if let Some(reference) = self.reference() {
            self.partition.store.cold.forget_failure(reference);
        }
    }

    /// Changes nodes of the collection, if an entry names it; `None` if there is none.
    fn change<R>(&mut self, change: impl FnOnce(&mut dyn Nodewise, &mut Store) -> R) -> Option<R> {
        let (number, partition) = (self.name.object(), &mut *self.partition);
        nodewise_at(&partition.store, self.name)?;
        let mut root = partition.store.objects.take(number);
        let result = change(root.body.nodewise_mut(), &mut partition.store);
        partition.store.objects.put(number, root);
        if let Some((db, location, _)) = partition.find_object(number) {
            partition.recount(db, &location, number);
        }
        Some(result)
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

/// The collection that a node is of, if there is one and an entry names it.
fn nodewise_at(store: &Store, name: NodeName) -> Option<&dyn Nodewise> {
    let root = store.objects.find(name.object())?;
    (root.references > 0).then(|| root.body.nodewise())
}
