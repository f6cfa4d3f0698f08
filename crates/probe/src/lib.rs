//! Tools that every measurement of a server needs: to start one, to ask it, and to look at it from outside.
//!
//! ```text
//!   Server   a process in a folder of its own, on a port of its own; both end with the value
//!      |  resident bytes, CPU time: from /proc, the same for every program
//!      v
//!   Client   one connection that asks and waits
//!      |
//!      v
//!   Ahead    the same, with requests sent before the replies to earlier ones have come
//! ```
//!
//! A program is a path and arguments here. The tools that use this crate know whose program it is, and what
//! is measured.

mod client;
mod fresh;
mod port;
mod prose;
mod scale;
mod server;

pub use client::{Ahead, Client, command, info_field};
pub use fresh::check_fresh;
pub use port::free_port;
pub use prose::wrapped;
pub use scale::Scale;
pub use server::{Server, Thread};

/// Why a measurement did not come about; `Display` is what the user reads.
pub type Fallible<T = ()> = Result<T, String>;
