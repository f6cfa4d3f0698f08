//! Commands of the session and of the server, as the request path knows them: what a handler gets, and what
//! is handed in of them at start.

use isotherm_commands::Outcome;
use isotherm_commands::spec::Command;
use isotherm_keyspace::{Conditions, ExpiryMode, Survey, Txn, UnixMs};
use isotherm_resp::{Args, Reply};

use crate::request::execute::Exec;
use isotherm_node::Node;
use isotherm_node::effects::pubsub::Audience;
use isotherm_node::observe::facts::Facts;
use isotherm_node::request::entry::Entry;
use isotherm_node::session::{Queued, Session};
use isotherm_node::users::sight::Sight;

pub type AdminHandler = fn(&mut AdminCall<'_>) -> Outcome;

/// Call of a session or server command.
pub struct AdminCall<'c> {
    pub node: &'static Node,
    pub session: &'c mut Session,
    /// With the command's name at 0.
    pub args: Args<'c>,
    pub command: &'static Entry,
    pub reply: &'c mut Reply,
    /// Read once for this command (or EXEC).
    pub now: UnixMs,
    pub conditions: Conditions,
    /// State of the worker. Partitions that the declaration asked for (key specs, `Reach::All`) are locked.
    pub exec: &'c mut Exec,
    /// Subscriptions of this worker's clients.
    pub audience: &'c mut Audience,
    /// Inside EXEC, what the system says if a command of it reports that.
    pub facts: Option<&'c Facts>,
    /// EXEC runs others.
    pub handlers: &'c [Option<AdminHandler>],
}

impl AdminCall<'_> {
    /// A transaction over what is held, for commands that also look at keys.
    pub fn txn(&mut self) -> Txn<'_, 'static> {
        Txn::new(&mut self.exec.held, self.conditions, &mut self.exec.pump)
    }

    /// A look at all partitions, for a command that reaches for each (`Reach::Each`).
    pub fn survey(&mut self) -> Survey<'_, 'static> {
        Survey::new(&mut self.exec.held)
    }

    /// The rows of a report about keys that its reader may see.
    pub fn sight(&self) -> Sight<'_> {
        Sight::new(self.node, &self.session.user, self.command)
    }

    /// Returns a transaction over the held partitions that leaves no trace: it still finds expired keys, and
    /// marks none as used.
    pub fn debug_txn(&mut self) -> Txn<'_, 'static> {
        let conditions = Conditions { expiry_mode: ExpiryMode::Keep, no_touch: true, ..self.conditions };
        Txn::new(&mut self.exec.held, conditions, &mut self.exec.pump)
    }
}

/// Commands that are not about keys alone, and questions about a queue of commands that only they can answer.
pub struct AdminTable {
    /// Every session and server command, by group.
    pub commands: &'static [&'static [Command<AdminHandler>]],
    /// Returns whether a command of a transaction changes parameters.
    pub writes_config: fn(&[Queued]) -> bool,
    /// Asks the system for the facts that commands of a transaction report, before anything is locked.
    pub facts_for: fn(&Node, &[Queued]) -> Facts,
}
