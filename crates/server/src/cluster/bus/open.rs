//! What the process does at start to be a member of a cluster: it locks and reads nodes.conf and opens the bus's port.

use isotherm_cluster::conf;
use isotherm_cluster::machine::{Machine, Ms, Now};
use isotherm_cluster::topology::Topology;
use isotherm_reactor::Listener;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::settings::{self, BUS_PORT_OFFSET};
use crate::config::{Config, id};
use crate::process::listeners;
use crate::process::log::{self, os_text};
use crate::process::random::random_bytes;
use crate::process::time::unix_now;

pub struct Opened {
    pub machine: Machine,
    pub listeners: Vec<Listener>,
    pub file: ConfFile,
    pub begun: Instant,
}

/// Locked for as long as it is open: two processes with one file would be one node twice.
pub struct ConfFile {
    pub path: PathBuf,
    pub lock: File,
}

/// Says why the process cannot be a member.
pub fn open(config: &Config) -> Result<(Opened, Arc<Topology>), String> {
    if config.number(const { id("cluster-port") }) == 0
        && settings::default_port(config) > u16::MAX - BUS_PORT_OFFSET
    {
        return Err("Isotherm port number too high. Cluster communication port is 10,000 port numbers higher than your \
                    Isotherm port. Your Isotherm port number must be 55535 or less."
            .to_string());
    }
    let path = config
        .folder()
        .join(String::from_utf8_lossy(&config.text(const { id("cluster-config-file") })).as_ref());
    let file = lock(path)?;
    let begun = Instant::now();
    let now = Now { ms: Ms(0), unix_ms: unix_now().0 as u64 };
    let mut machine = load(config, &file, now)?;
    let topology = machine.view(now);
    let listeners = listeners::open_bus(config, settings::bus_port(config))?;
    Ok((Opened { machine, listeners, file, begun }, topology))
}

fn lock(path: PathBuf) -> Result<ConfFile, String> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(|error| {
        format!("Can't open {} in order to acquire a lock: {}", path.display(), os_text(&error))
    })?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => format!(
            "Sorry, the cluster configuration file {} is already used by a different Cluster node. Please make sure that \
             different nodes use different cluster configuration files.",
            path.display()
        ),
        error => format!("Impossible to lock {}: {}", path.display(), os_text(&error.into())),
    })?;
    Ok(ConfFile { path, lock: file })
}

fn load(config: &Config, file: &ConfFile, now: Now) -> Result<Machine, String> {
    let seed = u64::from_le_bytes(random_bytes()?);
    let settings = settings::read(config);
    let bytes = std::fs::read(&file.path);
    let bytes = bytes
        .map_err(|error: io::Error| format!("Can't read {}: {}", file.path.display(), os_text(&error)))?;
    if bytes.is_empty() {
        let machine = Machine::new(settings, seed, now);
        log::notice(format!("No cluster configuration found, I'm {}", machine.my_id()));
        return Ok(machine);
    }
    let read = conf::read(&bytes, false).map_err(|why| why.to_string())?;
    let machine = Machine::from_conf(settings, seed, &read, now);
    log::notice(format!("Node configuration loaded, I'm {}", machine.my_id()));
    Ok(machine)
}
