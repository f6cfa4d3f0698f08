//! Servers that the tools start themselves, and end when they are done.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_probe::free_port;

use crate::Fallible;

/// A server starts within this time or not at all.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Server process in a folder of its own. When this value is dropped, the process ends and the folder is
/// removed.
pub struct Server {
    child: Child,
    folder: PathBuf,
    pub port: u16,
}

impl Server {
    /// Starts `binary` without persistence on a free port.
    pub fn start(binary: &Path, more: &[String]) -> Fallible<Server> {
        Server::start_at(binary, free_port()?, more)
    }

    /// Starts `binary` without persistence on this port.
    pub fn start_at(binary: &Path, port: u16, more: &[String]) -> Fallible<Server> {
        let folder = std::env::temp_dir().join(format!("isotherm-conformance-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let mut command = Command::new(binary);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]).args(more);
        command.current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|why| format!("cannot start {}: {why}", binary.display()))?;
        let mut server = Server { child, folder, port };
        server.wait_until_it_listens(binary)?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self, binary: &Path) -> Fallible {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended at once: {status}", binary.display()));
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err(format!("{} does not listen on port {}", binary.display(), self.port));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a process that is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}
