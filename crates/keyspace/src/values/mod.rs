//! Layer 3 of 7: values of each type, small ones as packed bytes, large ones as objects of nodes or pages.
//!
//! ```text
//!   value                                    an entry to read: what commands see
//!   hash, set, list, stream, zset            each type: a view to read it, an edit to change it
//!   collection                               where a collection is stored, and how one is changed
//!   store, pages, linear, object, nodes, fields   the memory of a partition, its pages and its large objects
//!   cold, lent, nodewise, blocks             what is not in memory, counted; collections that leave it node by node
//!   shown                                    keys outside memory, for commands that only read
//!   parts, receiver, saved, cut              a collection in parts, and what a snapshot under way still needs
//! ```
//!
//! The layer does not know the slot or database of a value.

pub(crate) mod blocks;
pub(crate) mod cold;
pub(crate) mod collection;
pub(crate) mod cut;
pub(crate) mod fields;
pub(crate) mod hash;
pub(crate) mod image;
pub(crate) mod kept;
pub(crate) mod lent;
pub(crate) mod linear;
pub(crate) mod list;
pub(crate) mod nodes;
pub(crate) mod nodewise;
pub(crate) mod object;
pub(crate) mod pages;
pub(crate) mod parts;
pub(crate) mod receiver;
pub(crate) mod saved;
pub(crate) mod set;
pub(crate) mod shown;
pub(crate) mod store;
pub(crate) mod stream;
pub(crate) mod timed;
pub(crate) mod value;
pub(crate) mod zset;
