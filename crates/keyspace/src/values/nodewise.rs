//! Operations of every large collection whose nodes leave memory one by one: pages of a hash or set, leaves
//! of a sorted set, blocks of a list or stream.
//!
//! ```text
//!   a node  --chill: its bytes are those that were written out-->           a stub
//!           --chill_clean: it was not changed since it was read-->          the same
//!   a stub  --warm: its record was read-->  a node    --move_node: its record is elsewhere now-->  a stub
//! ```
//! A node has a number (`index`) in its collection, which it keeps while it is away.

use crate::layout::cold::ColdRef;
use crate::layout::kind::Full;
use crate::layout::node_name::NodeName;
use crate::values::store::Store;
use isotherm_stdx::UnixMs;

pub(crate) trait Nodewise {
    /// Numbers that nodes may have: all below it.
    fn node_count(&self) -> u32;
    fn name(&self, index: u32) -> NodeName;
    /// Returns the reference to a node, if it is not in memory.
    fn away_at(&self, store: &Store, index: u32) -> Option<ColdRef>;
    /// Nodes that a command needs for these elements, in memory or not; `reshapes`: it may add or remove
    /// some.
    fn needed(&self, store: &Store, elements: &[&[u8]], reshapes: bool) -> Vec<u32>;
    /// Returns the bytes of a node's payload and the seconds since the node was changed or came, if it may
    /// leave.
    fn leaving(&self, store: &Store, index: u32, now: UnixMs) -> Option<(usize, u32)>;
    /// Writes the payload of a node that may leave.
    fn write_payload(&self, store: &Store, index: u32, into: &mut Vec<u8>);
    /// Puts a stub in the place of a node. Returns whether there was memory for it.
    fn leave(&mut self, store: &mut Store, index: u32, reference: ColdRef) -> bool;
    /// Changes where a stub refers to.
    fn set_reference(&self, store: &mut Store, index: u32, to: ColdRef);
    /// A node comes back, if it still is where its payload was read. Returns whether it did. `keeps`: its
    /// record stays until it changes.
    fn warm(
        &mut self,
        store: &mut Store,
        index: u32,
        payload: &[u8],
        from: ColdRef,
        keeps: bool,
        now: UnixMs,
    ) -> Result<bool, Full>;

    /// A node leaves whose payload was written out, if it is still as it was. Returns whether it did.
    fn chill(
        &mut self,
        store: &mut Store,
        index: u32,
        payload: &[u8],
        reference: ColdRef,
        now: UnixMs,
    ) -> bool {
        if index >= self.node_count() || self.leaving(store, index, now).is_none() {
            return false;
        }
        let mut bytes = std::mem::take(&mut store.scratch_bytes);
        self.write_payload(store, index, &mut bytes);
        let is_same = bytes == payload;
        store.scratch_bytes = bytes;
        is_same && self.leave(store, index, reference)
    }

    /// A node leaves that was not changed since it came back: its record is still there. Returns whether it
    /// did.
    fn chill_clean(&mut self, store: &mut Store, index: u32, now: UnixMs) -> bool {
        if index >= self.node_count() || self.leaving(store, index, now).is_none() {
            return false;
        }
        let Some(reference) = store.cold.take_clean(self.name(index)) else { return false };
        let has_left = self.leave(store, index, reference);
        if !has_left {
            store.cold.give_back(reference);
        }
        has_left
    }

    /// The keeper has a node elsewhere now. Returns whether anything referred to where it was.
    fn move_node(&self, store: &mut Store, index: u32, from: ColdRef, to: ColdRef) -> bool {
        if self.away_at(store, index) != Some(from) {
            return store.cold.move_clean(self.name(index), from, to);
        }
        self.set_reference(store, index, to);
        store.cold.note_node(to);
        store.cold.retire_node(from);
        true
    }
}
