//! Layer 3 of 7: values of each type, small ones as packed bytes, large ones as objects of nodes or pages.
//!
//! Each type has a view to read it, an edit to change it, and a structure for its large form. Nothing here knows which
//! key a value belongs to.

pub(crate) mod collection;
pub(crate) mod cut;
pub(crate) mod fields;
pub(crate) mod hash;
pub(crate) mod list;
pub(crate) mod object;
pub(crate) mod parts;
pub(crate) mod set;
pub(crate) mod stream;
pub(crate) mod value;
pub(crate) mod zset;
