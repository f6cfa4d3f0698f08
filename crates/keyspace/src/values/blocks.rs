//! Blocks of large lists and streams that leave memory one by one, and come back.
//!
//! ```text
//!   payload   the bytes of the block, laid out anew, without what its node begins with
//!   stub      see `nodes`; what the collection knows of the block (its chain) stays
//! ```
//! A reader that meets a stub notes it, is shown elements without meaning in its place, or none, and runs
//! again when it was read. A change of blocks looks first whether they are in memory, and changes nothing if
//! not (`reading_to_change`).
//!
//! Both ends leave as the others do: of a list that no one has used they are up to a quarter.

use crate::layout::cold::ColdRef;
use crate::layout::kind::Full;
use crate::layout::node_name::NodeName;
use crate::values::nodes::{Nodes, Reading, Room};
use crate::values::nodewise::Nodewise;
use crate::values::store::Store;
use isotherm_stdx::UnixMs;

/// A smaller block saves too little: it may be one that is about to grow.
const PAYLOAD_BYTES_MIN: usize = 256;

/// Returns access to the blocks of a partition, to change them.
pub(crate) fn room_of(store: &mut Store, now: UnixMs) -> Room<'_> {
    let Store { heap, large, cold, snapshot, .. } = store;
    Room { heap, large, cold, now, epoch: snapshot.version() }
}

/// Returns access to the blocks of a partition, to read them.
pub(crate) fn reading_of(store: &Store) -> Reading<'_> {
    Reading { heap: &store.heap, large: &store.large, cold: &store.cold, wants: false }
}

/// Returns access to the blocks of a partition for a command that is about to change what it reads.
pub(crate) fn reading_to_change(store: &Store) -> Reading<'_> {
    Reading { wants: true, ..reading_of(store) }
}

/// Operations on the blocks of a collection, by its type.
pub(crate) trait Blocks {
    fn nodes(&self) -> &Nodes;
    fn nodes_mut(&mut self) -> &mut Nodes;
    /// The whole node of a block that is in memory, and its stub's.
    fn node<'a>(&self, store: &'a Store, id: u32) -> &'a [u8];
    /// Bytes of its payload.
    fn payload_bytes(node: &[u8]) -> usize;
    fn write_payload(node: &[u8], into: &mut Vec<u8>);
    /// Writes the node of a payload, but for its head; the node has room for it.
    fn restore(payload: &[u8], node: &mut [u8], now: UnixMs);
    /// Seconds since a block was changed or came.
    fn idle_seconds(node: &[u8], now: UnixMs) -> u32;
}

impl<T: Blocks> Nodewise for T {
    fn node_count(&self) -> u32 {
        self.nodes().numbers()
    }

    fn name(&self, index: u32) -> NodeName {
        self.nodes().name(index)
    }

    fn away_at(&self, store: &Store, index: u32) -> Option<ColdRef> {
        self.nodes().reference_at(&store.heap, index)
    }

    /// Returns no blocks: a command that changes something says itself what it needs, by positions and ids.
    fn needed(&self, _: &Store, _: &[&[u8]], _: bool) -> Vec<u32> {
        Vec::new()
    }

    fn leaving(&self, store: &Store, index: u32, now: UnixMs) -> Option<(usize, u32)> {
        self.nodes().find(index)?;
        let snapshot = &store.snapshot;
        let is_to_be_seen =
            snapshot.is_active() && self.nodes().version(&store.heap, index) != snapshot.version();
        if is_to_be_seen || self.away_at(store, index).is_some() {
            return None;
        }
        let node = self.node(store, index);
        let bytes = T::payload_bytes(node);
        (bytes >= PAYLOAD_BYTES_MIN).then(|| (bytes, T::idle_seconds(node, now)))
    }

    fn write_payload(&self, store: &Store, index: u32, into: &mut Vec<u8>) {
        into.clear();
        T::write_payload(self.node(store, index), into);
    }

    fn leave(&mut self, store: &mut Store, index: u32, reference: ColdRef) -> bool {
        let size = self.node(store, index).len();
        self.nodes_mut().put_stub(&mut room_of(store, UnixMs(0)), index, size, reference)
    }

    fn set_reference(&self, store: &mut Store, index: u32, to: ColdRef) {
        self.nodes().set_reference(&mut store.heap, index, to);
    }

    fn warm(
        &mut self,
        store: &mut Store,
        index: u32,
        payload: &[u8],
        from: ColdRef,
        keeps: bool,
        now: UnixMs,
    ) -> Result<bool, Full> {
        let fill = |node: &mut [u8]| T::restore(payload, node, now);
        self.nodes_mut().take_stub(&mut room_of(store, now), index, (from, keeps), payload.len(), fill)
    }
}
