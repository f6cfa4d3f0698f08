//! Values of the configuration that every command looks at, as plain fields of the worker. They are refreshed
//! between batches when the configuration has changed.

use isotherm_commands::call::{CallSettings, RefusedPayload, TransferSettings};
use isotherm_persist::dump::Checks;
use isotherm_persist::rdb::RdbError;
use isotherm_persist::rdb::file::FileCause;
use isotherm_resp::Limits;

use crate::request::clock::CommandClock;
use isotherm_config::{Config, Id, OutputLimit, id};
use isotherm_node::Node;
use isotherm_node::effects::events::Events;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::observe::command_log::Kind;
use isotherm_node::observe::holds::LONG_HOLD;
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::request::reply_gate::Part;
use isotherm_runtime::log;

/// The first replies that wait are not counted against the limit: in Valkey they lie in a buffer that every
/// client has.
pub const OUTPUT_BYTES_FREE: usize = 16 << 10;
/// The others lie in blocks there, which count whole.
const OUTPUT_BLOCK_BYTES: usize = 20 << 10;

/// Returns the bytes that unsent replies count as.
pub fn counted_output_bytes(unsent_bytes: usize) -> u64 {
    let beyond = unsent_bytes.saturating_sub(OUTPUT_BYTES_FREE);
    beyond.next_multiple_of(OUTPUT_BLOCK_BYTES) as u64
}

/// Returns the bytes at which a reply is more than `limit_bytes`, however it lies.
pub fn reply_bytes_limit(limit_bytes: u64) -> usize {
    usize::try_from(limit_bytes).unwrap_or(usize::MAX).saturating_add(OUTPUT_BYTES_FREE)
}

/// Maximum of unsent reply bytes of an unauthenticated client.
pub const UNAUTHENTICATED_OUTPUT_BYTES_MAX: usize = 1024;

/// Bytes that are answered before they are written, and one reply more, without a limit of the configuration.
const REPLY_BYTES_MAX: usize = 64 << 10;
// COMPAT(protocol): Commands of a client that does not read its replies stop running once 16 MB of replies
// wait, or 1 MB while all clients together use more than 64 MB or 1/16 of `maxmemory`; a larger
// `client-output-buffer-limit` raises both. Further requests are kept, up to `client-query-buffer-limit`, and
// run when the client reads. Valkey runs every command and keeps all replies. Why: one client that sends
// without reading cannot fill the memory of the server.
/// Bytes that a client leaves unread, in addition to those that its socket holds. They are a quarter of a
/// million times `+OK`, for clients that send a whole load before they read anything.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Maximum of unsent bytes of a client while all clients together take little, in absolute terms and as a
/// part of `maxmemory`. It is not worth many keys then.
const UNSENT_GENEROUS_BYTES_MAX: usize = 16 << 20;
const LITTLE_BYTES_MAX: u64 = 64 << 20;
const LITTLE_OF_MAXMEMORY: u64 = 16;

/// Time after which a script takes long. Most are over in some microseconds, and releasing their partitions
/// costs more than that.
const SCRIPT_HOLD_MICROS: u64 = 1_000;
/// Time by which another client's reply may come later than without a script on its worker.
const SCRIPT_SLICE_MICROS: u64 = 100;

#[derive(Clone, Debug)]
pub struct Hot {
    generation: u64,
    /// Limits on requests of sessions that have authenticated.
    pub limits: Limits,
    /// Times that replies which waited for replicas were given up, as a role was taken.
    pub quorums_given_up: u64,
    pub query_bytes_max: usize,
    /// Output limits of normal clients, and of those that listen to channels.
    pub output: OutputLimit,
    pub output_of_subscribers: OutputLimit,
    /// Bytes of replies at which they are written.
    pub reply_bytes_max: usize,
    /// Unread reply bytes of a client at which no further request of it runs.
    pub unsent_bytes_max: usize,
    /// Larger limit on unread reply bytes. It holds while all clients together take less than
    /// `clients_little_bytes`.
    pub unsent_generous_bytes_max: usize,
    pub clients_little_bytes: u64,
    /// A reply may be too much before it is written: what a client of the class normal may leave, or any
    /// unauthenticated client.
    pub judges_replies: bool,
    /// An unauthenticated client's reply is too much in any case (DEBUG CLIENT-ENFORCE-REPLY-LIST).
    pub reply_lists: bool,
    /// See [`isotherm_config::Config::memory_target_bytes`].
    pub memory_target_bytes: u64,
    /// Maximum of the bytes of all clients together.
    pub client_bytes_max: u64,
    /// The gates that stand between sessions and their commands because of the configuration.
    pub gates: Gates,
    /// Seconds after which idle connections are closed; 0 for never.
    pub timeout_seconds: u64,
    pub import_mode: bool,
    /// The node follows another, as it was when this was made.
    pub is_replica: bool,
    /// Ticks from which on a hold of a lock is long.
    pub long_hold_ticks: u64,
    /// Ticks for which a script may hold the partitions of its keys; and ticks for which it may run, once it
    /// holds none, before others have their turn.
    pub script_hold_ticks: u64,
    pub script_slice_ticks: u64,
    /// The times of commands are recorded.
    pub tracks_latency: bool,
    pub notable: Notable,
    /// True if the costs of the commands of each slot are counted.
    pub counts_slots: bool,
    /// Sampling rate for the keys that are used most: one command in `hot_keys_ratio` is looked at; 0 for
    /// none.
    pub hot_keys_ratio: u32,
    pub events: Events,
    /// Settings that data commands ask for.
    pub settings: CallSettings,
}

/// Thresholds of a command. A command that reaches one of them is looked at more closely: it may belong in a
/// log of commands, or be an event.
#[derive(Clone, Copy, Debug)]
pub struct Notable {
    pub ticks: u64,
    pub request_bytes: usize,
    pub reply_bytes: usize,
}

impl Notable {
    fn new(config: &Config, clock: &CommandClock) -> Notable {
        let threshold = |kind: Kind| kind.threshold(config);
        let bytes =
            |kind| threshold(kind).map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let event_us = config.latency_threshold_ms().map(|ms| ms.saturating_mul(1000));
        let slow_us = threshold(Kind::Slow).into_iter().chain(event_us).min();
        Notable {
            ticks: slow_us.map_or(u64::MAX, |us| clock.ticks_of_micros(us)),
            request_bytes: bytes(Kind::LargeRequest),
            reply_bytes: bytes(Kind::LargeReply),
        }
    }
}

impl Hot {
    pub fn new(node: &Node, clock: &CommandClock) -> Hot {
        let config = &node.config;
        // Read first: what changes meanwhile is read again.
        let generation = config.generation();
        let is_replica = node.mail.tasks().has(Tasks::REPLICA);
        const MIN_REPLICAS: [Id; 2] = [id("min-replicas-to-write"), id("min-replicas-max-lag")];
        let lacks_replicas = !is_replica
            && MIN_REPLICAS.iter().all(|id| config.number(*id) > 0)
            && (node.replication.primary.count_good(config) as i64) < config.number(MIN_REPLICAS[0]);
        let [output, _, output_of_subscribers] = config.output_limits();
        let reply_lists = node.debug.reply_lists.is_on();
        Hot {
            generation,
            limits: Limits { bulk_bytes_max: config.bulk_bytes_max(), ..Limits::default() },
            quorums_given_up: node.gate.given_up()[Part::Quorum as usize],
            query_bytes_max: config.query_buffer_bytes_max(),
            output,
            output_of_subscribers,
            reply_bytes_max: bound(REPLY_BYTES_MAX, output.hard_bytes),
            unsent_bytes_max: bound(UNSENT_BYTES_MAX, output.hard_bytes.max(output.soft_bytes)),
            unsent_generous_bytes_max: bound(
                UNSENT_GENEROUS_BYTES_MAX,
                output.hard_bytes.max(output.soft_bytes),
            ),
            clients_little_bytes: match config.maxmemory_bytes() {
                0 => LITTLE_BYTES_MAX,
                maxmemory => LITTLE_BYTES_MAX.min(maxmemory / LITTLE_OF_MAXMEMORY),
            },
            judges_replies: output.hard_bytes > 0 || reply_lists,
            reply_lists,
            memory_target_bytes: config.memory_target_bytes(),
            client_bytes_max: config.client_memory_bytes_max().unwrap_or(u64::MAX),
            gates: Gates::PROTECTION
                .or(Gates::REPLICAS.when(lacks_replicas))
                .or(Gates::READ_ONLY.when(is_replica && config.flag(const { id("replica-read-only") })))
                .or(Gates::STALE.when(is_replica && node.replication.refuses_stale_reads(config)))
                .or(Gates::GROWTH.when(config.memory_target_bytes() > 0 && !node.leaves_memory_to_primary())),
            timeout_seconds: config.idle_timeout_seconds(),
            import_mode: config.import_mode(),
            is_replica,
            long_hold_ticks: clock.ticks_of_micros(LONG_HOLD.as_micros() as u64),
            script_hold_ticks: clock.ticks_of_micros(SCRIPT_HOLD_MICROS),
            script_slice_ticks: clock.ticks_of_micros(SCRIPT_SLICE_MICROS),
            tracks_latency: config.tracks_latency(),
            notable: Notable::new(config, clock),
            counts_slots: config.flag(const { id("cluster-slot-stats-enabled") }),
            hot_keys_ratio: config.number(const { id("hotkeys-sample-ratio") }) as u32,
            events: Events::chosen(config),
            settings: CallSettings {
                bulk_bytes_max: config.bulk_bytes_max(),
                hll_sparse_bytes_max: config.number(const { id("hll-sparse-max-bytes") }) as usize,
                lfu: config.evicts_by_lfu(),
                import_mode: config.import_mode(),
                in_cluster: node.cluster.is_enabled(),
                unlinks: config.flag(const { id("lazyfree-lazy-server-del") }),
                limits: config.collection_limits(),
                transfer: TransferSettings {
                    compress: config.flag(const { id("rdbcompression") }),
                    checks: Checks {
                        version: config.number(const { id("rdb-version-check") }) == 0,
                        checksum: !node.debug.skip_checksums.is_on(),
                    },
                    refused: RefusedPayload(Some(log_refused_payload)),
                },
            },
        }
    }

    /// Takes over what was changed since. Whether there was something.
    #[inline]
    pub fn refresh(&mut self, node: &Node, clock: &CommandClock) -> bool {
        let changed = node.config.generation() != self.generation;
        if changed {
            *self = Hot::new(node, clock);
        }
        changed
    }
}

/// A client that is to be closed for leaving `limit_bytes` unread has to be able to reach them.
fn bound(usual_bytes: usize, limit_bytes: u64) -> usize {
    if limit_bytes > 0 { usual_bytes.max(reply_bytes_limit(limit_bytes)) } else { usual_bytes }
}

/// Logs why RESTORE has refused a payload, in Valkey's words.
fn log_refused_payload(why: &RdbError) {
    let why = FileCause::Value(why.clone());
    log::verbose(format!("Internal error in RDB reading offset 0, function at restore -> {why}"));
}
