//! Start of what `swap-mode yes` needs: the tier, opened before anything is loaded, and its threads.

use isotherm_commands::call::ColdKey;
use isotherm_disk::{Disk, FaultyDisk, Mode, RING_READS_MAX, Ring};
use isotherm_tier::{Checkpoint, LogId, SEGMENT_FILE_SUFFIX};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::process::descriptors;
use isotherm_durability::aof::{base_head, settings};
use isotherm_node::Node;
use isotherm_node::mail::message::WorkerMessage;
use isotherm_node::observe::latency::monitor::{Event, Spikes};
use isotherm_node::process::system;
use isotherm_node::tier::copies;
use isotherm_node::tier::files::Access;
use isotherm_node::tier::owner::Claim;
use isotherm_node::tier::reads::{READERS, Reader};
use isotherm_node::tier::state::{Terms, Tier};
use isotherm_node::tier::target::Fetched;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::random::random_bytes;
use isotherm_runtime::routines;
use isotherm_swap::tier::due::Due;
use isotherm_swap::tier::round::Round;
use isotherm_swap::tier::sinker::Sinker;
use isotherm_swap::tier::space;
use isotherm_swap::tier::watch::Watch;

pub fn begin(node: &'static Node) -> Result<(), String> {
    let config = &node.config;
    if !config.swaps() {
        warn_of_files(node);
        return Ok(());
    }
    config.note_machine_memory(system::memory_bytes());
    config.check_swap_limits()?;
    let folder = config.folder().join(config.swap_folder());
    let disk = Arc::clone(&node.persistence.disk);
    let is_shared = space::is_shared(&folder, &config.folder());
    // It may have to be made yet.
    let free = disk.free_bytes(&if is_shared { config.folder() } else { space::existing(&folder) });
    let free =
        free.map_err(|error| format!("Can't look at the file system of swap-dir: {}", os_text(&error)))?;
    let bytes = match config.swap_disk_bytes() {
        0 => space::share_of(config, free, is_shared),
        bytes => bytes,
    };
    let left_bytes = free.saturating_sub(bytes);
    let claim = claim(node)?;
    let named = claim.checkpoint.as_ref().map(Checkpoint::named).unwrap_or_default();
    // Kept segments take none of the free bytes.
    let kept: u64 = named.iter().map(|named| named.bytes).sum();
    let bytes = if config.swap_disk_bytes() == 0 { bytes + kept } else { bytes };
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(disk, Arc::clone(&node.debug.swap_troubles)));
    let terms = Terms {
        disk_bytes_max: bytes,
        cache_bytes: config.swap_cache_bytes(),
        access: Access {
            wants_direct: config.swaps_directly(),
            open_max: descriptors::segment_files_kept(config),
            is_synced_later: config.swap_checkpoints(),
            is_shared,
        },
    };
    let (tier, log) = Tier::open(disk, &folder, terms, &node.keyspace, &claim)?;
    if !named.is_empty() && !config.flag(settings::APPEND_ONLY) {
        tier.has_foreign_base.store(true, Relaxed);
        log::warning(format!(
            "WARNING: {} MB in '{}' are kept for the append-only file, whose base refers to them, though 'appendonly' is off: they cannot be \
             used before BGREWRITEAOF writes a new base, or 'appendonly yes' does.",
            kept >> 20,
            folder.display(),
        ));
    }
    tier.is_restoring.store(!named.is_empty() && config.flag(settings::APPEND_ONLY), Relaxed);
    tier.set_read_timeout(config.swap_read_timeout());
    tier.homes.set_rules(&config.swap_load_rule());
    choose_backend(node, &tier);
    node.set_tier(Arc::clone(&tier));
    let why = |error: std::io::Error| format!("Can't start a thread of swap-mode: {}", os_text(&error));
    start_readers(node, &tier).map_err(why)?;
    routines::start("swap-round", Round::new(node, Arc::clone(&tier))).map_err(why)?;
    routines::start("swap-due", Due::new(node, Arc::clone(&tier))).map_err(why)?;
    routines::start("swap-watch", Watch::new(node, Arc::clone(&tier))).map_err(why)?;
    routines::start("swap-writer", Sinker::new(node, tier, log)).map_err(why)?;
    if config.maxmemory_bytes() == 0 {
        log::notice(format!(
            "swap: maxmemory is 0, so values leave memory when {} MB are used, four fifths of what this process may \
             use; nothing is evicted or refused for that",
            config.memory_target_bytes() >> 20
        ));
    }
    log::warning(format!(
        "WARNING: swap-mode is new. What is used least lies in '{}' when memory is short, at most {} MB; {} MB of the file system are left. {}",
        folder.display(),
        bytes >> 20,
        left_bytes >> 20,
        match (config.swap_checkpoints(), claim.checkpoint.is_some()) {
            (false, false) =>
                "They are durable by the append-only file or RDB files alone: this folder is emptied at start.",
            _ =>
                "The base of the append-only file refers to values in this folder: both belong together, in backups too \
                 (swap-checkpoint).",
        }
    ));
    Ok(())
}

/// Files of a former `swap-mode yes` take space, and nothing uses them. A base may refer to them: they are
/// not removed.
fn warn_of_files(node: &Node) {
    let folder = node.config.folder().join(node.config.swap_folder());
    let disk = &node.persistence.disk;
    let names = disk.list(&folder).unwrap_or_default();
    let files = names.iter().filter(|name| name.ends_with(SEGMENT_FILE_SUFFIX));
    let len = |name: &String| disk.open(&folder.join(name), Mode::Read)?.len();
    let lens: Vec<u64> = files.map(|name| len(name).unwrap_or(0)).collect();
    if !lens.is_empty() {
        log::warning(format!(
            "WARNING: '{}' has {} files of {} MB that a server with 'swap-mode yes' left. They are not used, and not removed, while \
             'swap-mode' is off.",
            folder.display(),
            lens.len(),
            lens.iter().sum::<u64>() >> 20,
        ));
    }
}

/// Chooses how values are read that commands wait for: by rings of the workers, or by threads.
fn choose_backend(node: &'static Node, tier: &Tier) {
    let refused = match node.config.swaps_by_rings() {
        true => Ring::try_out().err().map(|error| format!("io_uring: {}", os_text(&error))),
        false => Some("swap-io-uring no".to_string()),
    };
    tier.rings.set_on(refused.is_none());
    log::notice(match refused {
        None => format!("swap: workers read by io_uring, {RING_READS_MAX} values at once each"),
        Some(why) => format!("swap: {READERS} threads read ({why})"),
    });
}

/// Returns the claim of this server's append-only file to the folder. The file is read whether `appendonly`
/// is on or not: values that its base refers to are kept until there is another base.
fn claim(node: &'static Node) -> Result<Claim, String> {
    let new_log = LogId(random_bytes()?);
    let manifest = settings::files(node).manifest_path();
    let manifest = std::path::absolute(&manifest).unwrap_or(manifest);
    let base_head::Found { has_manifest, lacks_base, base } =
        base_head::find(&node.persistence.disk, &node.config)?;
    let checkpoint = base.map(|base| base.checkpoint);
    Ok(Claim { checkpoint, new_log, manifest, has_manifest, lacks_base })
}

/// CONFIG SET has changed a parameter of this.
pub fn configure(node: &Node) -> Result<(), String> {
    let config = &node.config;
    config.check_swap_limits()?;
    if let Some(tier) = node.tier() {
        tier.homes.set_rules(&config.swap_load_rule());
        copies::bound(node, tier);
    }
    match (config.swaps(), node.tier()) {
        (true, None) => Err("it can be switched on at start only: start with swap-mode yes".to_string()),
        (false, Some(tier)) if !tier.is_off() => {
            let (limit, used, away) =
                (config.maxmemory_bytes(), node.counted_memory_bytes(), tier.live_bytes());
            if limit > 0 && used + away > limit {
                return Err(format!(
                    "values of {away} bytes are on disk, and {used} of {limit} bytes are in use: raise maxmemory first"
                ));
            }
            tier.set_off(true);
            if tier.files.has_owner() && node.aof.is_on() {
                // A start without swap-mode needs a base that has all values.
                node.aof.rewrites().is_scheduled = true;
            }
            Ok(())
        }
        (on, Some(tier)) => {
            tier.set_off(!on);
            Ok(())
        }
        (false, None) => Ok(()),
    }
}

/// Reader for the threads that read.
struct TierReader {
    node: &'static Node,
    tier: Arc<Tier>,
}

impl Reader for TierReader {
    fn read_key(&self, cold: &ColdKey) -> Option<Fetched> {
        let spikes = Spikes { monitor: &self.node.latency, config: &self.node.config };
        spikes.time(Event::SwapRead, || self.tier.read_key(&self.node.keyspace, cold))
    }

    fn time(&self, call: impl FnOnce()) {
        let spikes = Spikes { monitor: &self.node.latency, config: &self.node.config };
        spikes.time(Event::SwapRead, call);
    }

    fn probe(&self) -> bool {
        self.tier.probe()
    }

    fn notify(&self, worker: u16) {
        self.node.mail.post(usize::from(worker), WorkerMessage::ReadsEnded);
    }
}

/// Threads that read what others wait for. They end with the process.
fn start_readers(node: &'static Node, tier: &Arc<Tier>) -> std::io::Result<()> {
    #[cfg(debug_assertions)]
    if routines::simulated::is_on() {
        tier.reads.is_alone.store(true, Relaxed);
        return Ok(());
    }
    let reader = TierReader { node, tier: Arc::clone(tier) };
    std::thread::Builder::new().name("swap-read-now".to_string()).spawn(move || {
        loop {
            reader.tier.reads.help_held(&reader.tier, &reader);
        }
    })?;
    for number in 0..READERS {
        let reader = TierReader { node, tier: Arc::clone(tier) };
        std::thread::Builder::new().name(format!("swap-read-{number}")).spawn(move || {
            loop {
                reader.tier.reads.help(&reader.tier, &reader);
            }
        })?;
    }
    Ok(())
}
