//! Plans of changes of a cluster, made without talking to it: state in, steps out. Nodes are numbers.

pub mod create;
pub mod fix;
pub mod rebalance;
pub mod reshard;
pub mod risk;
pub mod weighed;
