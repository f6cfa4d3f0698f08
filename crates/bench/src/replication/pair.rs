//! A primary and its replica, and how far the one is behind the other.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::Client;
use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::options::Options;
use crate::process::{Server, Setting, Side};

pub const PATIENCE: Duration = Duration::from_secs(300);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

pub struct Pair {
    pub primary: Server,
    pub replica: Server,
}

/// A server that may become either, with the limits that it has by itself.
pub fn limits(options: &Options) -> Setting {
    Setting { workers: 2, valkey_workers: Some(options.valkey_threads), ..Setting::default() }
        .with("repl-diskless-sync-delay", 0)
}

/// Returns settings with which a server never drops a link and never starts a sync anew.
pub fn setting(options: &Options) -> Setting {
    limits(options)
        .with("repl-diskless-load", "flush-before-load")
        // Bytes that a replica has not read yet are no reason to drop it.
        .with("client-output-buffer-limit", "replica 0 0 0")
        .with("repl-backlog-size", "256mb")
}

impl Pair {
    /// Both started; neither follows the other yet.
    pub fn start(primary: Side, replica: Side, options: &Options) -> Fallible<Pair> {
        Pair::start_with(primary, replica, &setting(options), options)
    }

    pub fn start_with(primary: Side, replica: Side, setting: &Setting, options: &Options) -> Fallible<Pair> {
        Ok(Pair {
            primary: Server::start(primary, setting, options)?,
            replica: Server::start(replica, setting, options)?,
        })
    }

    /// Makes the one follow the other. Returns the time until the link is up.
    pub fn join(&self) -> Fallible<Duration> {
        follow(&self.replica, self.primary.port)
    }

    /// Waits until the replica has all that the primary had when this began.
    pub fn settle(&self) -> Fallible {
        reach(&self.replica, &self.primary)
    }

    /// Asks again and again whether the replica has all that the primary has.
    pub fn watch(&self) -> Fallible<impl FnMut() -> bool> {
        let (mut primary, mut replica) = (self.primary.client()?, self.replica.client()?);
        // The caller that waits for a server notices that it cannot be asked.
        Ok(move || is_in_sync(&mut primary, &mut replica).unwrap_or(true))
    }

    /// Stops the replica's process where it is, or lets it go on.
    pub fn suspend_replica(&self, suspends: bool) -> Fallible {
        let signal = if suspends { "-STOP" } else { "-CONT" };
        let status = Command::new("kill").args([signal, &self.replica.id().to_string()]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            _ => Err(format!("cannot send {signal} to the replica")),
        }
    }
}

/// Numbers of full and partial syncs that a server has given its replicas since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syncs {
    pub full: u64,
    pub partial: u64,
}

impl Syncs {
    pub fn of(primary: &Server) -> Fallible<Syncs> {
        Ok(Syncs { full: count(primary, "sync_full")?, partial: count(primary, "sync_partial_ok")? })
    }

    pub fn since(self, before: Syncs) -> Syncs {
        Syncs { full: self.full - before.full, partial: self.partial - before.partial }
    }
}

/// A number in INFO.
pub fn count(server: &Server, field: &str) -> Fallible<u64> {
    number(&server.client()?.info(field)?)
}

/// Makes a server follow the one on a port. Returns the time until the link is up.
pub fn follow(replica: &Server, port: u16) -> Fallible<Duration> {
    let mut client = replica.client()?;
    let begun = Instant::now();
    client.call(&["REPLICAOF", "127.0.0.1", &port.to_string()])?;
    while !link_is_up(&mut client)? {
        check(begun, "the link is not up")?;
    }
    Ok(begun.elapsed())
}

/// Waits until a replica has all that its primary, or the primary of that, had when this began.
pub fn reach(replica: &Server, primary: &Server) -> Fallible {
    let mut client = replica.client()?;
    let (begun, goal) = (Instant::now(), count(primary, "master_repl_offset")?);
    while number(&client.info("slave_repl_offset")?)? < goal {
        check(begun, "the replica lags behind")?;
    }
    Ok(())
}

pub fn link_is_up(replica: &mut Client) -> Fallible<bool> {
    Ok(replica.info("master_link_status")? == "up")
}

/// Returns whether a replica has all that its primary has now.
pub fn is_in_sync(primary: &mut Client, replica: &mut Client) -> Fallible<bool> {
    let goal = number(&primary.info("master_repl_offset")?)?;
    Ok(link_is_up(replica)? && number(&replica.info("slave_repl_offset")?)? >= goal)
}

/// Returns a digest of all data, which is equal on two servers with the same data.
pub fn digest(server: &Server) -> Fallible<Value> {
    server.client()?.call(&["DEBUG", "DIGEST"])
}

/// Waits a moment; after `PATIENCE` it fails instead.
pub fn check(begun: Instant, what: &str) -> Fallible {
    thread::sleep(BETWEEN_LOOKS);
    if begun.elapsed() > PATIENCE { Err(format!("{what} after {PATIENCE:?}")) } else { Ok(()) }
}

fn number(text: &str) -> Fallible<u64> {
    text.parse().map_err(|_| format!("'{text}' is no number"))
}
