//! A node of a Valkey cluster as a state machine: which nodes there are, which of them fails, which node owns
//! a slot.
//!
//! ```text
//!   cluster bus  <-- bytes -->   wire   <-- messages -->   machine   --> topology      (what clients are answered)
//!   nodes.conf   <-- text  -->   conf   <-- records  -->      |      --> flips         (which slots commands may run on)
//!                                                             <--- requests            (CLUSTER MEET, ADDSLOTS, ...)
//! ```
//! The machine is a function `step(input, now) -> outputs`; threads, sockets and files are the server's. So a
//! seed can run fifty nodes in one thread, with links that lose messages and disks that are slow.
//!
//! **Architecture invariant:** `cluster` knows ids, epochs, addresses, slots and bytes. It knows no sockets,
//! no files, no threads, no clock, no keys and no commands.

pub mod conf;
mod flags;
mod id;
pub mod machine;
mod slot_ranges;
mod slot_set;
mod text;
pub mod topology;
pub mod wire;

pub use flags::Flags;
pub use id::NodeId;
pub use isotherm_stdx::slot::Slot;
pub use slot_ranges::SlotRanges;
pub use slot_set::SlotSet;
