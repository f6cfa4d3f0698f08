//! Parameters of the append-only file.

use isotherm_disk::Disk;
use isotherm_log::writer::FsyncPolicy;
use std::sync::Arc;

use isotherm_config::{Config, Id, id};
use isotherm_node::Node;
use isotherm_node::aof::files::AofFiles;
use isotherm_node::aof::state::ALWAYS;

/// Parameter that switches the append-only file on.
pub const APPEND_ONLY: Id = id("appendonly");

const NEVER: i64 = 2;

pub fn policy(node: &Node) -> FsyncPolicy {
    const FSYNC: Id = id("appendfsync");
    match node.config.number(FSYNC) {
        ALWAYS => FsyncPolicy::Always,
        NEVER => FsyncPolicy::No,
        _ => FsyncPolicy::EverySecond,
    }
}

/// `aof-integrity-check`: commits have lines, and are checked.
pub fn has_lines(node: &Node) -> bool {
    const HAS_LINES: Id = id("aof-integrity-check");
    node.config.flag(HAS_LINES)
}

/// Sets how the writer frames commands: with lines that are checked, and with timestamps.
pub fn frame(node: &Node) {
    const HAS_TIMESTAMPS: Id = id("aof-timestamp-enabled");
    const PREPARE_BYTES: Id = id("aof-prepare-bytes");
    node.aof.set_format(has_lines(node), u64::try_from(node.config.number(PREPARE_BYTES)).unwrap_or(0));
    node.aof.set_has_timestamps(node.config.flag(HAS_TIMESTAMPS));
}

/// The files that are written, or while none are those that the parameters name. One owner: what a rewrite
/// adds stands where the writer lists it.
pub fn files(node: &Node) -> AofFiles {
    node.aof.files().unwrap_or_else(|| files_on(&node.persistence.disk, &node.config))
}

// COMPAT(persistence): CONFIG SET dir is refused while `appendonly` is yes; with `appendonly no` first and
// `yes` behind it the append-only file moves. Valkey takes it, and its next rewrite writes the base and the
// manifest there: killed before that is complete, it finds the data in neither folder. Why: one folder always
// has all of it.
/// Returns why `dir`, which was changed, cannot be what it is now.
pub fn refuse_folder(node: &Node) -> Result<(), &'static str> {
    // COMPAT(cluster): CONFIG SET dir is refused in a member of a cluster; Valkey writes nodes.conf there
    // from then on. Why: until it has, the next start would be a new node without slots.
    if node.cluster.get().is_some() {
        return Err("nodes.conf is in it, which stays");
    }
    let Some(_alone) = node.aof.try_switching() else {
        return Err("the append-only file is being switched on or off");
    };
    let is_elsewhere =
        |files: AofFiles| files.folder() != files_on(&node.persistence.disk, &node.config).folder();
    let is_suspended = node.aof.is_suspended() && node.config.flag(APPEND_ONLY);
    match is_suspended || node.aof.files().is_some_and(is_elsewhere) {
        true => Err("the append-only file is in it: CONFIG SET appendonly no first"),
        false => Ok(()),
    }
}

/// Returns the configured files before there is a node.
pub fn files_on(disk: &Arc<dyn Disk>, config: &Config) -> AofFiles {
    const FOLDER: Id = id("appenddirname");
    const NAME: Id = id("appendfilename");
    let folder = config.folder().join(String::from_utf8_lossy(&config.text(FOLDER)).as_ref());
    AofFiles::new(Arc::clone(disk), folder, &config.text(NAME))
}
