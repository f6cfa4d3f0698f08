//! The wire: requests in, replies out, in RESP2 and RESP3.
//!
//! **Architecture invariant:** `resp` knows no socket, no key and no command. It turns bytes into arguments
//! and values into bytes; the reading, the caller and the meaning are matters of the crates above.
//!
//! Reading order: what may come in (`limits`), one request as spans (`request`), how it is found in a stream
//! (`parser`), what goes out (`reply`, `shared`), the texts of errors (`errors`), and the client's side
//! (`reply_parse`).

pub mod limits;
pub mod request;

pub mod parser;

pub mod errors;
pub mod reply;
pub mod shared;

pub mod reply_parse;

pub use limits::Limits;
pub use parser::{Parsed, Parser, ProtocolError};
pub use reply::{Deferred, ErrorCode, Protocol, Reply};
pub use request::{Args, ArgsBuf, Span};
pub use shared::{SharedAccount, SharedBytes};
