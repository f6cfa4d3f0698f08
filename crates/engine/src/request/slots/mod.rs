//! Slots of a cluster, as commands meet them: whether a request runs here, what its client is sent else, and
//! how the keys of a slot are deleted.
//!
//! ```text
//! route      the words of slots (`cluster::words`) and the topology --> here, or a refusal
//! refusal    the refusals, as errors of Valkey
//! endpoint   the name under which a client is shown a node
//! deleting   keys of a slot that is flushed, or that is another node's
//! ```

pub mod deleting;
pub mod endpoint;
pub mod refusal;
pub mod route;
