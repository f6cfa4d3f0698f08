//! A primary and its replica, and how far the one is behind the other.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::Fallible;
use crate::options::Options;
use crate::process::{Server, Setting, Side};

const PATIENCE: Duration = Duration::from_secs(300);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

pub struct Pair {
    pub primary: Server,
    pub replica: Server,
}

/// A server that may become either.
pub fn setting(options: &Options) -> Setting {
    Setting { workers: 2, valkey_workers: Some(options.valkey_threads), ..Setting::default() }
        .with("repl-diskless-sync-delay", 0)
        .with("repl-diskless-load", "flush-before-load")
        // What a replica has not read yet is no reason to drop it.
        .with("client-output-buffer-limit", "replica 0 0 0")
        .with("repl-backlog-size", "256mb")
}

impl Pair {
    /// Both started; neither follows the other yet.
    pub fn start(primary: Side, replica: Side, options: &Options) -> Fallible<Pair> {
        let setting = setting(options);
        Ok(Pair {
            primary: Server::start(primary, &setting, options)?,
            replica: Server::start(replica, &setting, options)?,
        })
    }

    /// Makes the one follow the other. Returns the time until the link is up.
    pub fn join(&self) -> Fallible<Duration> {
        let mut client = self.replica.client()?;
        let begun = Instant::now();
        client.call(&["REPLICAOF", "127.0.0.1", &self.primary.port.to_string()])?;
        while client.info("master_link_status")? != "up" {
            self.check(begun, "the link is not up")?;
        }
        Ok(begun.elapsed())
    }

    /// Waits until the replica has all that the primary had when this began.
    pub fn settle(&self) -> Fallible {
        let (mut primary, mut replica) = (self.primary.client()?, self.replica.client()?);
        let (begun, goal) = (Instant::now(), offset(&primary.info("master_repl_offset")?)?);
        while offset(&replica.info("slave_repl_offset")?)? < goal {
            self.check(begun, "the replica lags behind")?;
        }
        Ok(())
    }

    /// Asks again and again whether the replica has all that the primary has.
    pub fn watch(&self) -> Fallible<impl FnMut() -> bool> {
        let (mut primary, mut replica) = (self.primary.client()?, self.replica.client()?);
        let mut is_settled = move || {
            let goal = offset(&primary.info("master_repl_offset")?)?;
            Fallible::Ok(offset(&replica.info("slave_repl_offset")?)? >= goal)
        };
        // One that cannot be asked is noticed by the one who waits for it.
        Ok(move || is_settled().unwrap_or(true))
    }

    fn check(&self, begun: Instant, what: &str) -> Fallible {
        thread::sleep(BETWEEN_LOOKS);
        match begun.elapsed() > PATIENCE {
            true => Err(format!("{what} after {PATIENCE:?} (replica: {})", self.replica.side.name())),
            false => Ok(()),
        }
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

fn offset(text: &str) -> Fallible<u64> {
    text.parse().map_err(|_| format!("'{text}' is no offset"))
}
