//! Connections whose script is debugged: their input goes to the debugger, its output goes to them.
//!
//! ```text
//!   EVAL --> stops at its first line: suspended, its keys leased, the connection parked
//!   bytes --> read aside --> the debugger's input --> the run goes on in a turn of its own --> lines --> written
//!   the client leaves --> the run goes on to its end, as any that takes long
//! ```
//! The run holds nothing, and no thread stops, while the user thinks. A client that does not read what was
//! written to it gets no more.

use super::Inner;
use super::connection::Connection;
use super::parking::Parked;
use isotherm_node::request::next::Ticket;

impl Inner {
    /// Hands the bytes that have been read from the connection to its debugger.
    #[cold]
    pub fn feed_debugger(&mut self, connection: &mut Connection) {
        let Some(Parked::Debugger(ticket)) = connection.parked else { return };
        if connection.input.is_empty() || connection.reads_too_little() {
            return;
        }
        let input = std::mem::take(&mut connection.input);
        let done = std::mem::take(&mut connection.input_done);
        if let Some(debugger) = self.dispatcher.exec.runs.debugger(ticket) {
            debugger.feed(&input[done..]);
        }
    }

    /// The client sends no more. Its input so far is carried out, and it may still read.
    #[cold]
    pub fn end_debugger_input(&mut self, connection: &mut Connection) {
        let Some(Parked::Debugger(ticket)) = connection.parked else { return };
        self.feed_debugger(connection);
        connection.note_end();
        connection.parked = Some(Parked::Script(ticket));
        if let Some(debugger) = self.dispatcher.exec.runs.debugger(ticket) {
            debugger.end_input();
        }
    }

    /// The connection is about to go. Its script continues without a debugger.
    pub fn leave_debugger(&mut self, connection: &Connection) {
        if let Some(Parked::Debugger(ticket) | Parked::Script(ticket)) = connection.parked
            && let Some(debugger) = self.dispatcher.exec.runs.debugger(ticket)
        {
            debugger.leave();
        }
    }

    /// The socket has taken what waited: the debugger may continue.
    #[cold]
    pub fn free_debugger(&mut self, connection: &mut Connection) {
        if connection.reads_too_little() {
            return;
        }
        if let Some(Parked::Debugger(ticket) | Parked::Script(ticket)) = connection.parked
            && let Some(debugger) = self.dispatcher.exec.runs.debugger(ticket)
        {
            debugger.hold(false);
        }
        self.feed_debugger(connection);
    }

    /// The run that had its turn has said something to its user.
    pub fn say_of_debugger(&mut self) {
        let Some((ticket, output)) = self.dispatcher.exec.runs.said.take() else { return };
        let Some(token) = self.parking.token_of(ticket) else { return };
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        self.dispatcher.exec.clock.begin();
        self.dispatcher.reply.out.extend_from_slice(&output);
        self.finish(&mut connection);
        self.go_on_debugging(&mut connection, ticket);
        self.settle(connection, token);
    }

    /// Lets the debugger continue after its output was sent, if more input of the client waits and the client
    /// does not read too little.
    fn go_on_debugging(&mut self, connection: &mut Connection, ticket: Ticket) {
        let is_held = connection.reads_too_little();
        let runs = &mut self.dispatcher.exec.runs;
        if runs.has_more_input(ticket)
            && let Some(debugger) = runs.debugger(ticket)
        {
            debugger.hold(is_held);
        }
    }
}
