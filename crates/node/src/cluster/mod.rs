//! A member of a cluster, as its commands see it: which slots they may run on, and where the others are.
//!
//! ```text
//!                   +--> words     a word a slot: may a command run on it?       written under the lock of the slot's partition
//!  bus thread ------+
//!                   +--> topology  an immutable value behind a generation        compared by each worker once a batch
//!                                 with the replies that show it, ready-made (`shown`)
//!                                 and `herald`, which sends clients that ask for it what leaves
//!   ^
//!   +--- requests: what CLUSTER commands ask of it
//! ```
//! A command runs only if the word of its slot, read under the lock that it runs under, lets it; so from the
//! moment when a slot is flipped no command runs on it any more. A word that is read without the lock is a
//! hint, which is good enough for MOVED.
//!
//! **Order.** A loss: the topology is published, then the slots are flipped. A gain: the slots are flipped,
//! then the topology is published. So a thread that reads that a slot is not this node's finds its owner in
//! the newest topology.

pub mod herald;
pub mod requests;
pub mod shown;
pub mod state;
pub mod words;

pub use state::ClusterState;
