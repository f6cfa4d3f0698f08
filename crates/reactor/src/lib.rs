//! The event loop: sockets, timers, and mailboxes between threads.
//!
//! **Architecture invariant:** `reactor` knows no RESP and no commands. A connection is a number with bytes.
//!
//! Reading order: what can be waited for (`events`), what may be asked by other threads (`hangups`), how
//! threads talk (`mailbox`), one connection's bytes (`stream`, `tls`), where connections come from
//! (`listen`), and when something is due (`timers`).

pub mod connect;
pub mod events;
pub mod hangups;
pub mod mailbox;

pub mod listen;
pub mod stream;
pub mod tls;

pub mod timers;

pub mod signals;

pub use events::{Events, Ready, Token};
pub use hangups::Hangups;
pub use listen::{FileRights, Listener};
pub use mailbox::{Mailbox, Sender};
pub use stream::Stream;
pub use timers::Timers;
pub use tls::TlsStream;
