//! Path of a request from the name of its command to its outcome (`request`), and scripts (`scripting`).
//!
//! **What this crate does not know:** sockets and event loops. A reply is bytes, a caller is a session.

pub mod request;
pub mod scripting;
