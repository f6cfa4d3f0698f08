//! Start of the process: from the arguments to a running node, and the exit code.

use isotherm_disk::{Disk, OsDisk};
use isotherm_keyspace::{ARENA_BYTES_MAX, Keyspace};
use isotherm_reactor::{Events, signals};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::admin;
use crate::admin::client::maintenance;
use crate::observe::metrics;
use crate::process::control::Control;
use crate::process::daemon;
use crate::process::descriptors;
use crate::process::folders;
use crate::process::formats;
use crate::process::logo;
use crate::process::start_options::{self, Environment};
use crate::process::supervisor;
use crate::process::swap_start;
use crate::process::version_line;
use crate::worker::{self, Worker};
use isotherm_allocator as allocator;
use isotherm_config::Config;
use isotherm_config::file::{self, Loaded, Start, StartError};
use isotherm_durability::aof;
use isotherm_durability::aof::open::CannotLoad;
use isotherm_durability::persistence::background;
use isotherm_durability::persistence::load;
use isotherm_durability::persistence::load::{Expired, FilePortions, LoadFailure, Target};
use isotherm_durability::persistence::room;
use isotherm_engine::request::blocking;
use isotherm_engine::request::eviction;
use isotherm_engine::request::gating;
use isotherm_membership::cluster::{bus, changes};
use isotherm_node::cluster::ClusterState;
use isotherm_node::mail::Mail;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::process::system;
use isotherm_node::replication::state::Upstream;
use isotherm_node::request::registry::Commands;
use isotherm_node::tls;
use isotherm_node::users;
use isotherm_node::{Hooks, Node, Parts};
use isotherm_replicas::migration;
use isotherm_replicas::replication::role::TakenOver;
use isotherm_replicas::replication::{feeder, link, role};
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::random::random_bytes;

/// Arenas are for spreading the load of a few allocating threads; more only cost memory.
const ARENAS_MAX: usize = 16;
const PARTITIONS_MAX: usize = 1024;

pub const HOOKS: Hooks = Hooks { keep_log: feeder::keep_soon, forget_saved: background::forget_saved };

/// Runs the server to its end. `program`: as it was called.
pub fn run(program: &OsStr, arguments: &[OsString]) -> ExitCode {
    // The configuration may change it, and the process in the background starts where this one did.
    let folder = std::env::current_dir().unwrap_or_default();
    let mut commands = Commands::build(admin::COMMANDS);
    let rename = &mut |from: &[u8], to: &[u8]| commands.rename(from, to);
    let mut loaded = match file::load(arguments, rename, admin::check_user_line) {
        Ok(Start::Run(loaded)) => *loaded,
        Ok(Start::Say(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Ok(Start::Version) => {
            print!("{}", version_line::line(program));
            return ExitCode::SUCCESS;
        }
        Ok(Start::Layout) => {
            print!("{}", formats::table());
            return ExitCode::SUCCESS;
        }
        Err(StartError::Config(text)) => {
            let _ = io::stderr().write_all(&text);
            return ExitCode::FAILURE;
        }
        Err(StartError::Log(text)) => {
            log::warning(text);
            return ExitCode::FAILURE;
        }
    };
    supervisor::find(&loaded.config);
    let options = start_options::environment(&loaded.config);
    let stdin = loaded.stdin.take();
    let stdin = stdin.as_deref();
    // A supervised process stays where it was started.
    if loaded.config.daemonize() && !supervisor::is_there() {
        if !daemon::is_detached() {
            return match daemon::start_again(arguments, &folder, stdin, options.unwrap_or_default()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&format!("Can't go into the background: {}", os_text(&error))),
            };
        }
        daemon::leave_session();
    }
    if let Some(options) = options {
        let error = daemon::become_again(arguments, &folder, stdin, options);
        log::warning(format!("The allocator's options have no effect: {}", os_text(&error)));
    }
    match start(loaded, commands) {
        Ok(control) => {
            let node = control.node();
            match control.run() {
                Ok(()) => end(node, arguments, &folder, stdin),
                Err(error) => fail(&format!("Fatal error in the control thread: {error}")),
            }
        }
        Err(why) => fail(&why),
    }
}

/// The process is over; the program may start again in its place.
fn end(node: &Node, arguments: &[OsString], folder: &Path, stdin: Option<&[u8]>) -> ExitCode {
    let Some(delay) = node.process.restart.delay() else {
        return if node.process.wish.has_lost() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    };
    std::thread::sleep(delay);
    let error = daemon::become_again(arguments, folder, stdin, Environment::default());
    fail(&format!("Can't restart: {}", os_text(&error)))
}

fn fail(why: &str) -> ExitCode {
    log::warning(why);
    ExitCode::FAILURE
}

fn start(loaded: Loaded, commands: Commands) -> Result<Control, String> {
    let config = loaded.config;
    signals::ignore_others().map_err(|error| format!("Can't ignore signals: {}", os_text(&error)))?;
    set_up_log(&config)?;
    greet(&config, loaded.file.is_some(), loaded.nothing_given);
    start_options::apply(&config);
    descriptors::adjust(&config)?;
    let workers = config.workers();
    allocator::keep_libc_small();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let keyspace = open_keyspace(&config, workers, &disk)?;
    check_address_space(workers)?;
    let no_events =
        |error: io::Error| format!("Failed creating the event loop. Error message: '{}'", os_text(&error));
    let mailboxes = worker::mailboxes(workers).map_err(no_events)?;
    let events = Events::new().map_err(no_events)?;
    let mailbox = events.mailbox().map_err(no_events)?;
    let (cluster, bus) = open_cluster(&config, &disk)?;
    let node = Node::start(Parts {
        commands,
        keyspace,
        config,
        config_file: loaded.file,
        mail: Mail::new(worker::senders(&mailboxes), mailbox.sender()),
        disk,
        random: random_bytes()?,
        history: random_bytes()?,
        cluster,
        hooks: HOOKS,
    });
    maintenance::configure(node);
    users::file::load_at_start(node, &loaded.users)?;
    node.keyspace.watch_leases(|| node.runs.wake(&node.mail, blocking::look_again));
    migration::thread::attach(node);
    eviction::apply_policy(node);
    swap_start::begin(node)?;
    gating::apply(node);
    role::begin(node)?;
    if let Some((host, port)) = bus.as_ref().and_then(|opened| opened.machine.primary_address()) {
        role::begin_behind(node, Upstream { host, port });
    }
    let metrics = metrics::open(&node.config)?;
    if tls::is_used(&node.config) && node.tls.configure(&node.config).is_err() {
        return Err("Failed to configure TLS. Check logs for more info.".to_string());
    }
    node.process.listeners.open(&node.config)?;
    if node.process.listeners.lock().is_empty() {
        return Err("Configured to not listen anywhere, exiting.".to_string());
    }
    write_pid_file(node);
    let data = find_data(node)?;
    if data.is_some() {
        node.replication.set_starting(true);
        node.mail.set_tasks(Tasks::LOADING, Tasks::LOADING);
    }
    let control = Control::new(node, events, mailbox).map_err(no_events)?;
    log::notice("Server initialized");
    node.memory.note_startup(node.used_memory_bytes());
    system::warn(&node.config);
    folders::warn(node);
    for (number, (events, mailbox)) in mailboxes.into_iter().enumerate() {
        spawn(number, move || {
            start_options::bind_worker(&node.config);
            Worker::new(node, events, mailbox, number)
        })?;
    }
    if let Some(open) = metrics {
        metrics::serve(node, open)?;
    }
    if let Err(why) = allocator::return_freed_pages(node.config.returns_freed_pages()) {
        log::warning(format!("Background purging unavailable, freed memory is returned late: {why}"));
    }
    start_options::log_options();
    if let Some(opened) = bus {
        log::warning(
            "WARNING: this node votes for replicas, but as a replica it does not take the place of a failed primary yet, and \
             announces nofailover. Keep a Valkey replica beside it, or promote it by hand (docs/design/cluster.md).",
        );
        bus::start(node, opened)
            .map_err(|error| format!("Can't start the cluster bus: {}", os_text(&error)))?;
    }
    match data {
        Some(data) => load_beside(node, data)?,
        None => {
            say_ready(node);
            link::spawn(node);
        }
    }
    Ok(control)
}

/// Files with the data that the process starts with.
pub enum Data {
    Rdb(FilePortions),
    /// Files that the manifest of the append-only file lists, or the RDB file if there is none.
    Aof(Option<FilePortions>),
}

pub fn find_data(node: &'static Node) -> Result<Option<Data>, String> {
    let file = FilePortions::open(node.store()).map_err(end_of_loading)?;
    if !node.config.flag(aof::settings::APPEND_ONLY) {
        aof::ended::warn_beside(node);
        return Ok(file.map(Data::Rdb));
    }
    // COMPAT(persistence): With `appendonly yes`, an RDB file and no append-only file the RDB file is loaded
    // and becomes the first base; Valkey starts without data, and writes over the RDB file later. Why: the
    // data would be lost by a change of one parameter.
    Ok(Some(Data::Aof(file)))
}

fn say_ready(node: &Node) {
    for listener in node.process.listeners.lock().iter() {
        log::notice(format!("Ready to accept connections {}", listener.kind()));
    }
    supervisor::notify("STATUS=Ready to accept connections\nREADY=1\n");
}

/// Loads the data while workers answer that it is being loaded. Data that cannot be loaded ends the process.
fn load_beside(node: &'static Node, data: Data) -> Result<(), String> {
    let run = move || {
        let begun = Instant::now();
        let loading = &node.persistence.loading;
        let extending = supervisor::extend(|| {
            let (loaded, total) = (loading.loaded_bytes.load(Relaxed), loading.total_bytes.load(Relaxed));
            let percent = u128::from(loaded) * 100 / u128::from(total.max(1));
            let keys = loading.keys_loaded.load(Relaxed);
            format!("Isotherm is loading: {percent} % of {total} bytes, {keys} keys")
        });
        if let Err(why) = load_now(node, data) {
            log::warning(why);
            std::process::exit(1);
        }
        role::keep_log(node);
        log::notice(format!("DB loaded from disk: {:.3} seconds", begun.elapsed().as_secs_f64()));
        room::warn_of_result(node.store(), node.used_memory_bytes());
        drop(extending);
        changes::loaded(node);
        node.mail.set_tasks(Tasks::LOADING, Tasks::NONE);
        say_ready(node);
        // The cluster may have named a primary meanwhile.
        node.replication.set_starting(false);
        link::spawn(node);
    };
    let spawned = std::thread::Builder::new().name("loader".into()).spawn(run);
    spawned.map(drop).map_err(|error| format!("Can't start the loader: {}", os_text(&error)))
}

/// Loads the data on this thread, for a node that runs nothing else yet. Returns the reason if that fails.
pub fn load_now(node: &'static Node, data: Data) -> Result<(), String> {
    match data {
        Data::Rdb(mut file) => load::load(node.store(), &mut file, Target::Empty, Expired::Dropped, true)
            .map(|ended| {
                role::take_over(node, &ended.history);
            })
            .map_err(end_of_loading),
        Data::Aof(rdb) => load_log(node, rdb)
            .map_err(|_| "Fatal error loading the append-only file, check server logs. Exiting.".to_string()),
    }
}

/// Reads the append-only file and continues it, in the history that it states.
fn load_log(node: &'static Node, rdb: Option<FilePortions>) -> Result<(), CannotLoad> {
    let opened = aof::open::open(node, rdb)?;
    // With a quorum the log is kept from the start on, before it is known where it begins; `gating` keeps it
    // again.
    feeder::let_go(node);
    node.log.go_on_at(opened.end, 0);
    let taken_over = role::take_over(node, &opened.history);
    opened.go_on(node, taken_over == TakenOver::Renamed)
}

/// Logs why, and says what follows.
fn end_of_loading(LoadFailure(lines): LoadFailure) -> String {
    lines.iter().for_each(log::warning);
    "Fatal error loading the DB, check server logs. Exiting.".to_string()
}

fn spawn(number: usize, make: impl FnOnce() -> Worker + Send + 'static) -> Result<(), String> {
    let name = format!("worker-{number}");
    let run = move || {
        // A worker ends only if its event loop is broken, and then so is the server.
        if let Err(error) = make().run() {
            log::warning(format!("Fatal error in worker {number}: {error}"));
            std::process::exit(1);
        }
    };
    let spawned = std::thread::Builder::new().name(name).spawn(run);
    spawned.map(drop).map_err(|error| format!("Can't start worker {number}: {}", os_text(&error)))
}

fn set_up_log(config: &Config) -> Result<(), String> {
    log::set_level(config.log_level());
    let (format, timestamp) = config.log_format();
    log::set_format(format, timestamp);
    let path = config.log_file();
    log::set_file(path.as_deref()).map_err(|error| format!("Can't open the log file: {}", os_text(&error)))
}

fn greet(config: &Config, file_given: bool, nothing_given: bool) {
    log::notice("oO0OoO0OoO0Oo Isotherm is starting oO0OoO0OoO0Oo");
    let (version, bits) = (file::VERSION, usize::BITS);
    log::notice(format!("Isotherm version={version}, bits={bits}, pid={}, just started", std::process::id()));
    if nothing_given {
        log::warning(
            "Warning: no config file specified, using the default config. In order to specify a config file use \
             isotherm-server /path/to/isotherm.conf",
        );
    } else if file_given {
        log::notice("Configuration loaded");
    }
    match (config.flag(aof::settings::APPEND_ONLY), config.save_points().is_empty()) {
        (true, _) => {}
        (false, true) => log::warning(
            "WARNING: there are no save points: data is lost when this process ends, unless SAVE or BGSAVE is called.",
        ),
        (false, false) => log::warning(
            "WARNING: 'appendonly' is off: what was written since the last RDB file is lost if this process is killed.",
        ),
    }
    logo::show(config);
    let (mode, port, workers) = (config.mode(), config.shown_port(), config.workers());
    log::notice(format!("Running mode={mode}, port={port}, workers={workers}."));
}

/// Opens the files and ports that a member of a cluster needs before it has a keyspace: nodes.conf, and the
/// port of the bus.
fn open_cluster(
    config: &Config,
    disk: &Arc<dyn Disk>,
) -> Result<(ClusterState, Option<bus::Opened>), String> {
    if !config.is_clustered() {
        return Ok((ClusterState::none(), None));
    }
    let (opened, topology) = bus::open(config, disk)?;
    Ok((ClusterState::member(topology), Some(opened)))
}

/// P partitions: one for one worker, else sixteen to a worker, so that two seldom meet; and one for each
/// arena at least.
fn open_keyspace(config: &Config, workers: usize, disk: &Arc<dyn Disk>) -> Result<Keyspace, String> {
    let (partitions, arenas, arena_bytes) = layout(config, workers, address_space_left());
    let hash_secret = match aof::base_head::key_secret(disk, config)? {
        Some(kept) => kept,
        None => random_bytes()?,
    };
    let keyspace = Keyspace::new(isotherm_keyspace::Config {
        partitions,
        arenas,
        databases: config.databases(),
        reserve_bytes: arena_bytes * arenas as u64,
        hash_secret,
        class_bytes: allocator::class_bytes,
    });
    let keyspace = keyspace.map_err(|error| format!("Can't start the keyspace: {error}"))?;
    if let Some(settings) = config.prefix_settings() {
        keyspace.plan_prefixes(settings).expect("the parameters are checked, and there are no keys yet");
    }
    Ok(keyspace)
}

/// Partitions, arenas, and addresses to reserve for each arena.
fn layout(config: &Config, workers: usize, addresses_left: Option<u64>) -> (usize, usize, u64) {
    let memory_bytes = match config.maxmemory_bytes() {
        0 => system::memory_bytes(),
        limit => limit,
    };
    let arenas = arenas_for(memory_bytes, workers, addresses_left);
    let partitions = match workers {
        1 => arenas.next_power_of_two(),
        _ => (16 * workers).next_power_of_two(),
    };
    // Addresses cost nothing. Where they are limited (`ulimit -v`), half of what is left is for everything
    // else: large values, buffers, the stacks of threads.
    let arena_bytes = addresses_left.map_or(ARENA_BYTES_MAX, |left| left / 2 / arenas as u64);
    (partitions.min(PARTITIONS_MAX), arenas, arena_bytes.min(ARENA_BYTES_MAX))
}

/// Returns the number of arenas: one a worker, so that each has an allocator of its own. An arena's partial
/// slabs may take 1.5 MB at rest, so a server that is to stay small gets fewer. An arena ends at 64 GB, so a
/// server with much memory gets more.
fn arenas_for(memory_bytes: u64, workers: usize, addresses_left: Option<u64>) -> usize {
    /// Bytes of memory, or of address space, that allow one more arena.
    const ARENA_MEMORY_BYTES: u64 = 64 << 20;
    let limit = memory_bytes.min(addresses_left.map_or(u64::MAX, |left| left / 2));
    let arenas_max = usize::try_from(limit / ARENA_MEMORY_BYTES).unwrap_or(ARENAS_MAX);
    // Keys may lie unevenly, and memory may be added: twice as much as there is now.
    let arenas_min = usize::try_from(memory_bytes.saturating_mul(2) / ARENA_BYTES_MAX).unwrap_or(ARENAS_MAX);
    workers.max(arenas_min).min(ARENAS_MAX).min(arenas_max).max(1)
}

/// Threads that find no addresses for a stack and an allocator's arena end the process before it can say why.
fn check_address_space(workers: usize) -> Result<(), String> {
    /// Bytes for the process: 16 MB of large values and buffers, as much for memory that the allocator maps
    /// in advance, and the stack of the allocator's thread.
    const BASE_BYTES: u64 = 40 << 20;
    /// 2 MB of stack, and what jemalloc maps for a thread: 4 MB of bookkeeping (aligned to 2 MB), 4 MB of
    /// slabs.
    const WORKER_BYTES: u64 = 10 << 20;
    let needed = BASE_BYTES + WORKER_BYTES * workers as u64;
    match address_space_left() {
        Some(left) if left < needed => Err(format!(
            "The limit on address space ('ulimit -v') leaves {left} bytes for {workers} workers, which need {needed}. \
             Please raise it or start fewer (io-threads). Exiting."
        )),
        _ => Ok(()),
    }
}

/// Returns the bytes of address space that are left; `None` if there is no limit.
fn address_space_left() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::As).current?;
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = sizes.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(pages * rustix::param::page_size() as u64))
}

fn write_pid_file(node: &Node) {
    let Some(path) = node.config.pid_file() else { return };
    if let Err(error) = std::fs::write(&path, format!("{}\n", std::process::id())) {
        log::warning(format!("Failed to write PID file: {}", os_text(&error)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_follow_workers_and_memory() {
        let check = |memory_bytes: u64, workers: usize, addresses_left: Option<u64>, expected: usize| {
            let arenas = arenas_for(memory_bytes, workers, addresses_left);
            assert_eq!(arenas, expected, "{memory_bytes} B, {workers} workers, {addresses_left:?}");
        };
        check(24 << 30, 1, None, 1);
        check(24 << 30, 4, None, 4);
        check(24 << 30, 64, None, 16);
        // Small servers have few, whatever their workers.
        check(100 << 20, 16, None, 1);
        check(1 << 20, 16, None, 1);
        // One worker with more memory than an arena holds.
        check(64 << 30, 1, None, 2);
        check(256 << 30, 1, None, 8);
        check(4 << 40, 2, None, 16);
        check(256 << 30, 1, Some(300 << 20), 2);
    }
}
