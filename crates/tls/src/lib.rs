//! TLS without sockets: one side of a connection as a state machine of bytes, and the files that it needs.
//!
//! **Architecture invariant:** `tls` knows no sockets, no RESP and no configuration. Cipher text in, plain
//! text out, and back.
//!
//! Reading order: one side of a connection (`session`), what both sides are set up by (`settings`, then
//! `context`), which certificates are believed (`trust`), how a session is taken up again (`resumption`),
//! names of versions and suites (`suites`), and what is read of certificates and keys (`certificate`, `key`,
//! `der`).

pub mod certificate;
pub mod context;
mod der;
pub mod key;
mod resumption;
pub mod session;
pub mod settings;
mod suites;
mod trust;

pub use certificate::Facts;
pub use context::{Contexts, Failure};
pub use session::{Failed, Session};
pub use settings::Settings;

// Types of rustls that the callers name.
pub use rustls::ClientConfig;
pub use rustls::pki_types::ServerName;
