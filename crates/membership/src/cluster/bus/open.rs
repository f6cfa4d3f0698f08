//! Steps of the start of a member of a cluster: it locks and reads nodes.conf and opens the bus's port.

use isotherm_cluster::conf;
use isotherm_cluster::machine::{Machine, Ms, Now};
use isotherm_cluster::topology::Topology;
use isotherm_disk::Disk;
use isotherm_reactor::Listener;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::conf_file::ConfFile;
use super::settings::{self, BUS_PORT_OFFSET};
use isotherm_config::{Config, id};
use isotherm_node::process::listeners;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::random::random_bytes;
use isotherm_runtime::time::unix_now;

pub struct Opened {
    pub machine: Machine,
    pub listeners: Vec<Listener>,
    pub file: ConfFile,
    pub begun: Instant,
}

/// Says why the process cannot be a member.
pub fn open(config: &Config, disk: &Arc<dyn Disk>) -> Result<(Opened, Arc<Topology>), String> {
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
    let mut file = ConfFile::open(disk, path)?;
    let begun = Instant::now();
    let now = Now { ms: Ms(0), unix_ms: unix_now().0 as u64 };
    let mut machine = load(config, &mut file, now)?;
    let topology = machine.view(now);
    let listeners = listeners::open_bus(config, settings::bus_port(config))?;
    Ok((Opened { machine, listeners, file, begun }, topology))
}

fn load(config: &Config, file: &mut ConfFile, now: Now) -> Result<Machine, String> {
    let seed = u64::from_le_bytes(random_bytes()?);
    let settings = settings::read(config);
    let bytes = file
        .read()
        .map_err(|error: io::Error| format!("Can't read {}: {}", file.path.display(), os_text(&error)))?;
    if bytes.is_empty() {
        if !file.is_new {
            judge_empty(config, file)?;
        }
        let mut machine = Machine::new(settings, seed, now);
        log::notice(format!("No cluster configuration found, I'm {}", machine.my_id()));
        // Before there is data: a crash leaves no empty file next to it. If this fails, so does the save that
        // the bus waits for.
        let _ = file.write(&conf::write(&machine.conf(now)), true);
        return Ok(machine);
    }
    let read = conf::read(&bytes, false).map_err(|why| why.to_string())?;
    let machine = Machine::from_conf(settings, seed, &read, now);
    log::notice(format!("Node configuration loaded, I'm {}", machine.my_id()));
    Ok(machine)
}

// COMPAT(cluster): A member of a cluster does not start with an empty nodes.conf beside an RDB file or an
// append-only file, and warns of one without them. Valkey becomes a new node, which takes the slots of the
// keys that it finds. Why: a node has lost its id, and perhaps a vote, by a file system that lost unsynced
// bytes.
/// Decides on a file without a byte that was there already. This server leaves none.
fn judge_empty(config: &Config, file: &ConfFile) -> Result<(), String> {
    let shown = file.path.display();
    let names = [config.text(const { id("dbfilename") }), config.text(const { id("appenddirname") })];
    let data = names.map(|name| config.folder().join(String::from_utf8_lossy(&name).as_ref()));
    if let Some(found) = data.iter().find(|path| path.exists()) {
        return Err(format!(
            "The cluster configuration file {shown} is empty, but there is {}: which node this was is lost. Restore the file, or \
             remove it if this is to be a new node.",
            found.display()
        ));
    }
    log::warning(format!("The cluster configuration file {shown} is empty: this is a new node."));
    Ok(())
}
