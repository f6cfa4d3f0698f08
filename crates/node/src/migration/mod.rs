//! State of slot jobs and MIGRATE that all threads see, and their sockets.

pub mod flights;
pub mod job;
pub mod request;
pub mod sockets;
pub mod state;
