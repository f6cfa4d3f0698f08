//! A server on port 6379, which most suites expect, and a program with it, out of the reach of anything else.
//!
//! Both run in a network of their own, where there is only the loopback and each port is free; so they cannot
//! meet another server, nor the world. Where the kernel gives no such network to a user, the machine's own
//! port is taken, if it is free.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::Fallible;
use crate::process::Server;

pub const PORT: u16 = 6379;

const IN_A_NETWORK: &str = "ip link set lo up && exec \"$@\"";

/// Builds the command that runs `program` together with a new server of `binary`: it is this program again,
/// as `with-server`.
pub fn command(binary: &Path, program: &Command) -> Fallible<Command> {
    let own = std::env::current_exe().map_err(|why| format!("where is this program? {why}"))?;
    let mut command = match has_networks() {
        true => {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--net", "sh", "-c", IN_A_NETWORK, "sh"]).arg(own);
            command
        }
        false => {
            TcpListener::bind(("127.0.0.1", PORT)).map_err(|why| format!("port {PORT}: {why}"))?;
            Command::new(own)
        }
    };
    command.args(["with-server".as_ref(), binary.as_os_str(), program.get_program()]);
    command.args(program.get_args());
    if let Some(folder) = program.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    Ok(command)
}

fn has_networks() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", IN_A_NETWORK, "sh", "true"]);
    command.output().is_ok_and(|output| output.status.success())
}

/// Starts a server of the first word, runs the others, and says whether these ended well.
pub fn with_server(words: &[String]) -> Fallible<bool> {
    let [binary, program, args @ ..] = words else {
        return Err("usage: with-server SERVER PROGRAM [ARG ..]".to_string());
    };
    let _server = Server::start_at(Path::new(binary), PORT, &[])?;
    let status =
        Command::new(program).args(args).status().map_err(|why| format!("cannot run {program}: {why}"))?;
    Ok(status.success())
}
