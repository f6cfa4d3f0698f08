//! Scripts of this worker that take long: in each turn of the event loop one of them runs for a moment.

use isotherm_resp::Reply;

use super::Inner;
use super::connection::Connection;
use crate::admin::scripting::{suspended, within_exec};
use isotherm_engine::request::dispatch::Dispatcher;
use isotherm_engine::scripting::run::SuspendedRun;
use isotherm_node::session::Attention;
use isotherm_runtime::log;

impl Inner {
    #[inline]
    pub fn run_scripts(&mut self) {
        if self.dispatcher.exec.runs.has_work() {
            self.run_script();
        }
    }

    /// Resumes the one whose turn it is; if it has ended its client is answered.
    #[cold]
    fn run_script(&mut self) {
        if self.node.runs.are_abandoned() {
            return;
        }
        let Some(run) = self.dispatcher.exec.runs.take() else { return };
        let Dispatcher { exec, audience, handlers, .. } = &mut self.dispatcher;
        match suspended::step(exec, audience, handlers, run) {
            Some(run) if run.transaction.is_some() => self.go_on_with_exec(*run),
            Some(run) => self.answer_script(*run),
            None => self.say_of_debugger(),
        }
    }

    /// A script of a transaction is over: the queue continues, to its end or to the next script that takes
    /// long.
    fn go_on_with_exec(&mut self, run: SuspendedRun) {
        let token = self.parking.take_ticket(run.ticket);
        let connection = token.and_then(|token| Some((token, self.connections.get_mut(token)?.take()?)));
        let (token, mut connection) = connection.expect("it stays until its transaction is over");
        let Dispatcher { exec, audience, handlers, .. } = &mut self.dispatcher;
        match within_exec::go_on(exec, audience, handlers, &mut connection.session, run) {
            Ok(reply) => self.answer_exec(connection, token, &reply),
            Err(cause) => {
                connection.parked = Some(cause.into());
                self.park(&mut connection);
                self.settle(connection, token);
            }
        }
    }

    fn answer_exec(&mut self, mut connection: Box<Connection>, token: usize, reply: &Reply) {
        connection.unpark();
        self.dispatcher.exec.clock.begin();
        self.dispatcher.answer(&mut connection.session, &reply.out);
        self.finish(&mut connection);
        if connection.session.close_after_reply {
            connection.begin_closing();
        }
        if connection.session.shared.is_asked(Attention::KILL) {
            connection.break_off();
        }
        self.run_kept(&mut connection);
        self.settle(connection, token);
    }

    fn answer_script(&mut self, mut run: SuspendedRun) {
        let session_end = run.callee.take_debugger().map(|mut debugger| debugger.end());
        let (ticket, written) = (run.ticket, run.session.written);
        let reply = suspended::take_apart(&mut self.dispatcher.exec, run);
        let Some(token) = self.parking.take_ticket(ticket) else {
            // Its client has left.
            self.dispatcher.exec.take_not_before();
            return;
        };
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else { return };
        connection.unpark();
        connection.session.written = connection.session.written.max(written);
        self.dispatcher.exec.clock.begin();
        self.dispatcher.reply.out.extend_from_slice(session_end.as_deref().unwrap_or_default());
        self.dispatcher.answer(&mut connection.session, &reply.out);
        self.finish(&mut connection);
        if session_end.is_some() {
            log::notice("Synchronous debugging eval session ended");
            connection.begin_closing();
        }
        if connection.session.shared.is_asked(Attention::KILL) {
            connection.break_off();
        }
        self.run_kept(&mut connection);
        self.settle(connection, token);
    }
}
