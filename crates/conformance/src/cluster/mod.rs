//! Clusters whose slots move while libraries write: is a key lost, doubled or stale?
//!
//! ```text
//!   nodes     3 Isotherm, or 2 Isotherm and 2 Valkey, put together by `valkey-cli --cluster create`
//!   writers   redis-py, go-redis, Jedis: each keeps a model of its keys and compares what it reads      the whole time
//!   a loop    reshard, rebalance, add-node, reshard, reshard, del-node                                   by valkey-cli
//!             all writers stop and read all of their keys; as many keys as they have are on the nodes; `check` is clean
//! ```
//! A library may lose its way where nodes come and go, with Valkey's too: the writer makes a new client then,
//! as a user's program would, and says how often; more than once a loop is a failure. A library that cannot
//! be installed is a reported skip. All of it is bounded in time.
//!
//! Reading order: nodes and the tool that moves slots (`world`), a writer (`writer`), the loops (`loops`),
//! how often libraries load the topology anew (`reloads`).

mod loops;
mod reloads;
mod world;
mod writer;

pub use loops::{CLUSTERS, Options, VALKEY, run};
pub use reloads::run as reloads;

use std::path::PathBuf;

/// Paths of the programs, and of the folder for installed libraries.
pub struct Places {
    pub server: PathBuf,
    /// valkey-server and valkey-cli.
    pub bin: PathBuf,
    /// Folder in which libraries are installed.
    pub folder: PathBuf,
}
