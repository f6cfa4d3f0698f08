//! Layer 7 of 7: reports about the keyspace, made partition by partition without stopping it.

pub(crate) mod breakdown;
pub(crate) mod idle;
pub(crate) mod prefixes;
pub(crate) mod slot_size;
pub(crate) mod survey;
