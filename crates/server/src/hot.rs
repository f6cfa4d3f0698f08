//! What every command looks at of the configuration, as plain fields of the worker: refreshed between batches when the
//! configuration has changed.

use isotherm_commands::call::CallSettings;
use isotherm_resp::Limits;

use crate::config::{Id, OutputLimit, id};
use crate::node::Node;

#[derive(Clone, Debug)]
pub struct Hot {
    generation: u64,
    /// For sessions that have authenticated.
    pub limits: Limits,
    pub query_bytes_max: usize,
    /// Of normal clients.
    pub output: OutputLimit,
    pub maxmemory_bytes: u64,
    /// There should be replicas, and there are none yet: nothing may be written.
    pub lacks_replicas: bool,
    /// Nothing in the configuration stands between a session and its command.
    pub calm: bool,
    /// Idle connections are closed after so many seconds; 0 for never.
    pub timeout_seconds: u64,
    pub import_mode: bool,
    /// What data commands ask for.
    pub settings: CallSettings,
}

impl Hot {
    pub fn new(node: &Node) -> Hot {
        let config = &node.config;
        const MIN_REPLICAS: [Id; 2] = [id("min-replicas-to-write"), id("min-replicas-max-lag")];
        let lacks_replicas = MIN_REPLICAS.iter().all(|id| config.number(*id) > 0);
        Hot {
            // Read first: what changes meanwhile is read again.
            generation: config.generation(),
            limits: Limits { bulk_bytes_max: config.bulk_bytes_max(), ..Limits::default() },
            query_bytes_max: config.query_buffer_bytes_max(),
            output: config.output_limits()[0],
            maxmemory_bytes: config.maxmemory_bytes(),
            lacks_replicas,
            calm: config.maxmemory_bytes() == 0 && !lacks_replicas,
            timeout_seconds: config.idle_timeout_seconds(),
            import_mode: config.import_mode(),
            settings: CallSettings {
                bulk_bytes_max: config.bulk_bytes_max(),
                hll_sparse_bytes_max: config.number(id("hll-sparse-max-bytes")) as usize,
                lfu: config.eviction_policy().is_lfu(),
                import_mode: config.import_mode(),
                limits: config.collection_limits(),
            },
        }
    }

    /// Takes over what was changed since.
    #[inline]
    pub fn refresh(&mut self, node: &Node) {
        if node.config.generation() != self.generation {
            *self = Hot::new(node);
        }
    }
}
