//! The thread of the cluster bus, and what it changes of the state that all threads see.

pub mod bus;
pub mod changes;
