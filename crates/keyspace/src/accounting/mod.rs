//! Layer 2 of 7: counters that every change of an entry keeps up to date, so that a report reads them and
//! walks nothing.

pub(crate) mod attribution;
pub(crate) mod lazy;
pub(crate) mod sizes;
pub(crate) mod tally;
