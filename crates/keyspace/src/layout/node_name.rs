//! Name of a node, which is the key of its record: by it the node is found again, wherever the collection's
//! key has gone meanwhile.
//!
//! ```text
//!   [object u32][index u32]      the number of the collection in its partition, and of the page in the collection
//! ```
//! Numbers are given out again. The address of a record, which the node's stub has, shows that this record is
//! still meant.

use isotherm_stdx::Slot;
use isotherm_stdx::format::{FormatPart, number};

const NAME_BYTES: usize = 8;
/// The form of nodes, for their keeper: no value has it.
pub(crate) const FORM_OF_NODES: u8 = 14;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart =
    ("node", &[("name", number(NAME_BYTES)), ("form of nodes", number(FORM_OF_NODES as usize))]);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeName([u8; NAME_BYTES]);

impl NodeName {
    pub(crate) fn new(object: u32, index: u32) -> NodeName {
        let ([a, b, c, d], [e, f, g, h]) = (object.to_le_bytes(), index.to_le_bytes());
        NodeName([a, b, c, d, e, f, g, h])
    }

    /// The name that these bytes are; `None` if they are none.
    pub fn of_bytes(bytes: &[u8]) -> Option<NodeName> {
        bytes.try_into().ok().map(NodeName)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn object(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }

    pub(crate) fn index(self) -> u32 {
        let [_, _, _, _, e, f, g, h] = self.0;
        u32::from_le_bytes([e, f, g, h])
    }
}

/// A node, and a slot of its partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeAt {
    pub slot: Slot,
    pub name: NodeName,
}
