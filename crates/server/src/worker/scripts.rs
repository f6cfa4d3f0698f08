//! Scripts of this worker that take long: in each turn of the event loop one of them goes on for a moment.

use super::Inner;
use crate::admin::scripting::suspended;
use crate::process::log;
use crate::request::dispatch::Dispatcher;
use crate::scripting::run::SuspendedRun;
use crate::session::Attention;

impl Inner {
    #[inline]
    pub fn run_scripts(&mut self) {
        if self.dispatcher.exec.runs.has_work() {
            self.run_script();
        }
    }

    /// The one whose turn it is goes on; if it has ended its client is answered.
    #[cold]
    fn run_script(&mut self) {
        if self.node.runs.are_abandoned() {
            return;
        }
        let Some(run) = self.dispatcher.exec.runs.take() else { return };
        let Dispatcher { exec, audience, handlers, .. } = &mut self.dispatcher;
        if let Some(run) = suspended::step(exec, audience, handlers, run) {
            self.answer_script(*run);
        } else {
            self.say_of_debugger();
        }
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
