//! The server of a cell, its replica if there is one, and the trouble that their disk gets into.

use std::path::Path;
use std::process::Command;

use isotherm_probe::{Client, Fallible, Server};

use super::cell::{Cell, Disk, Workload};
use super::client::PATIENCE;

/// Descriptors of a server that has few: 32 for all that is neither client nor segment, 8 for segments, 16
/// for clients (a cell has up to ten).
const FILES: u32 = 56;
/// Clients that take the descriptors which are left for clients.
const IDLE_CLIENTS_MAX: usize = 64;
const MAX_DISK: &str = "1gb";
/// The least that the server takes: of its four segments two are in reserve.
const MAX_DISK_SMALL: &str = "256mb";

pub struct Deployment {
    /// The primary, then its replica.
    pub servers: Vec<Server>,
    /// Resident bytes of each before there was data.
    pub base_bytes: Vec<u64>,
    /// Connections that only change the state of the disk, one a server.
    controls: Vec<Client>,
    idle: Vec<Client>,
}

impl Deployment {
    pub fn start(program: &Path, cell: &Cell, scratch: &Path) -> Fallible<Deployment> {
        let mut servers = vec![start(program, cell, scratch)?];
        if cell.workload == Workload::Replica {
            servers.push(start(program, cell, scratch)?);
        }
        let controls: Fallible<Vec<Client>> =
            servers.iter().map(|server| Client::connect_within(server.port, PATIENCE)).collect();
        let base_bytes: Fallible<Vec<u64>> = servers.iter().map(Server::resident_bytes_max).collect();
        let mut deployment =
            Deployment { base_bytes: base_bytes?, controls: controls?, servers, idle: Vec::new() };
        let primary = deployment.servers[0].port.to_string();
        if let Some(replica) = deployment.controls.get_mut(1) {
            replica.call(&["REPLICAOF", "127.0.0.1", &primary])?;
        }
        Ok(deployment)
    }

    pub fn port(&self) -> u16 {
        self.servers[0].port
    }

    /// A connection for commands to the primary alone.
    pub fn control(&mut self) -> &mut Client {
        &mut self.controls[0]
    }

    /// Brings the disk of all servers into the state of the cell.
    pub fn begin_trouble(&mut self, disk: Disk) -> Fallible {
        match disk {
            Disk::Fast | Disk::Small => Ok(()),
            Disk::Slow => self.set_faults(&[("READ", "SLOW"), ("WRITE", "SLOW")]),
            Disk::HungWrite => self.set_faults(&[("WRITE", "HANG")]),
            Disk::HungRead => self.set_faults(&[("READ", "HANG")]),
            Disk::Full => self.set_faults(&[("WRITE", "FULL")]),
            Disk::Failing => self.set_faults(&[("WRITE", "IO")]),
            Disk::Unreadable => self.set_faults(&[("READ", "IO")]),
            Disk::FewFiles => {
                self.take_descriptors();
                Ok(())
            }
        }
    }

    /// Ends it. Returns whether the disk is as large as is wanted: what a server does not take while it runs,
    /// the clients have to make up for by deleting keys.
    pub fn end_trouble(&mut self, disk: Disk) -> Fallible<bool> {
        self.idle.clear();
        self.set_faults(&[("READ", "NONE"), ("WRITE", "NONE")])?;
        if disk != Disk::Small {
            return Ok(true);
        }
        Ok(self
            .controls
            .iter_mut()
            .all(|control| control.call(&["CONFIG", "SET", "swap-max-disk", MAX_DISK]).is_ok()))
    }

    fn set_faults(&mut self, faults: &[(&str, &str)]) -> Fallible {
        for control in &mut self.controls {
            for (calls, fault) in faults {
                control.call(&["DEBUG", "SWAP-FAULT", calls, fault])?;
            }
        }
        Ok(())
    }

    /// Connects until no more is accepted.
    fn take_descriptors(&mut self) {
        for _ in 0..IDLE_CLIENTS_MAX {
            let client = Client::connect_within(self.port(), std::time::Duration::from_secs(1));
            match client.and_then(|mut client| client.call(&["PING"]).map(|_| client)) {
                Ok(client) => self.idle.push(client),
                Err(_) => return,
            }
        }
    }

    /// Ends the primary at once and starts it on its files.
    pub fn kill_and_restart(&mut self) -> Fallible {
        self.servers[0].kill()?;
        self.servers[0].restart()?;
        self.controls[0] = Client::connect_within(self.port(), PATIENCE)?;
        Ok(())
    }
}

fn start(program: &Path, cell: &Cell, scratch: &Path) -> Fallible<Server> {
    let yes_or_no = |is_yes: bool| if is_yes { "yes" } else { "no" };
    let max_disk = if cell.disk == Disk::Small { MAX_DISK_SMALL } else { MAX_DISK };
    let maxmemory = format!("{}mb", cell.maxmemory_mb);
    let workers = cell.workers.to_string();
    let mut words = vec![
        ["--swap-mode", "yes"],
        ["--swap-freeze", yes_or_no(cell.freezes)],
        ["--swap-max-disk", max_disk],
        ["--maxmemory", &maxmemory],
        ["--maxmemory-policy", cell.policy.name()],
        ["--io-threads", &workers],
        ["--enable-debug-command", "yes"],
    ];
    if let Some(fsync) = cell.fsync {
        words.extend([["--appendonly", "yes"], ["--appendfsync", fsync]]);
    }
    let arguments: Vec<String> = words.iter().flatten().map(|word| word.to_string()).collect();
    Server::start("Isotherm", command(program, cell), &arguments, scratch)
}

/// The program, behind a shell that lowers the limit of descriptors where there are to be few.
fn command(program: &Path, cell: &Cell) -> Command {
    if cell.disk != Disk::FewFiles {
        return Command::new(program);
    }
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {FILES} && exec \"$0\" \"$@\"")]).arg(program);
    command
}
