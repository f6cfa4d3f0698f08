//! The control thread: acts on signals, does what others must not wait for, and keeps the cron.
//!
//! ```text
//! SIGTERM, SIGINT (`guard`) --> orderly end (`shutdown`), exit code 0
//! a message ------------> a handover, a switch of the append-only file, ...
//! hz ------------------> cron
//! ```
//! The thread never waits for the end of a script: what needs the gate is tried, and stays due until the gate
//! was had. So SHUTDOWN NOSAVE is heard whatever runs. Connections are accepted by a thread of their own
//! (`accepting`).

use isotherm_reactor::{Events, Mailbox};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::process::accepting;
use crate::process::guard;
use crate::process::leaving::{self, Answer};
use crate::process::supervisor;
use crate::upkeep::cron::Cron;
use isotherm_allocator::{self as allocator, Format};
use isotherm_durability::aof;
use isotherm_engine::request::eviction;
use isotherm_engine::request::gating;
use isotherm_node::Node;
use isotherm_node::mail::message::ControlMessage;
use isotherm_node::observe::holds;
use isotherm_node::process::asked_end::Options;
use isotherm_node::process::wish::{ATTEMPTS, BETWEEN};
use isotherm_replicas::replication::handover::Acted;
use isotherm_replicas::replication::{feeder, handover, link, role};
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::routines::Running;

/// Time between two attempts at what waits for the end of scripts.
const NEXT_TRY: Duration = Duration::from_millis(10);

pub struct Control {
    node: &'static Node,
    events: Events,
    mailbox: Mailbox<ControlMessage>,
    attempts: Attempts,
    cron: Cron,
    next_cron: Instant,
    /// `appendonly` is to hold, as soon as no other thread switches it and no script is in its middle.
    is_aof_due: bool,
    /// The thread that sees to it, which may wait for a disk.
    aof_switch: Option<Running>,
    /// A handover has come to its next step, for which everything has to be held.
    is_handover_due: bool,
}

/// The end that a signal asks for, while its file cannot be written.
#[derive(Default)]
struct Attempts {
    /// Options of the last signal.
    options: Options,
    /// Moments at which the first one failed, and the next one is due.
    since: Option<(Instant, Instant)>,
}

impl Control {
    pub fn new(node: &'static Node, events: Events, mailbox: Mailbox<ControlMessage>) -> io::Result<Control> {
        guard::start(node)?;
        Ok(Control {
            node,
            events,
            mailbox,
            attempts: Attempts::default(),
            cron: Cron::new(node),
            next_cron: Instant::now(),
            is_aof_due: false,
            aof_switch: None,
            is_handover_due: false,
        })
    }

    pub fn node(&self) -> &'static Node {
        self.node
    }

    /// Runs until the process is to end. The first connection is accepted here: by then the workers and the
    /// bus are there, and data that is to be loaded is known to be on its way.
    pub fn run(mut self) -> io::Result<()> {
        accepting::start(self.node)?;
        holds::enter(self.node.hold_sinks(), self.node.worker_count());
        loop {
            let mut timeout = self.next_cron.saturating_duration_since(Instant::now());
            if self.awaits_scripts() {
                timeout = timeout.min(NEXT_TRY);
            }
            self.events.wait(Some(timeout))?;
            if let Some(options) = self.signalled()
                && self.ends(|node| leaving::ask(node, options, None))
            {
                return Ok(());
            }
            if let Some(options) = self.node.end_is_due()
                && self.ends(|node| leaving::finish(node, options))
            {
                return Ok(());
            }
            for message in self.mailbox.take() {
                match message {
                    ControlMessage::Aof => self.is_aof_due = true,
                    ControlMessage::ReplyGate => gating::apply(self.node),
                    ControlMessage::Look => {}
                    ControlMessage::HandOver => self.is_handover_due = true,
                    ControlMessage::EvictionPolicy => eviction::apply_policy(self.node),
                    ControlMessage::ShutDown => {
                        self.end();
                        return Ok(());
                    }
                }
            }
            self.do_what_is_due();
            if Instant::now() >= self.next_cron {
                let rest = self.cron.tick();
                self.next_cron = Instant::now() + rest;
            }
        }
    }

    /// Returns whether something is put off until no script is in its middle.
    fn awaits_scripts(&self) -> bool {
        self.is_aof_due || self.is_handover_due || self.node.process.pending_end.is_some()
    }

    fn do_what_is_due(&mut self) {
        if self.is_handover_due {
            let acted = handover::act(self.node);
            self.is_handover_due = acted == Acted::Later;
            if acted == Acted::Follows {
                link::spawn(self.node);
            }
        }
        if self.is_aof_due && self.aof_switch.as_ref().is_none_or(Running::has_ended) {
            self.is_aof_due = false;
            match aof::switch::start_applying(self.node) {
                Ok(running) => self.aof_switch = Some(running),
                Err(error) => {
                    self.is_aof_due = true;
                    log::warning(format!("Can't start a thread: {}", os_text(&error)));
                }
            }
        }
        aof::switch::watch_ending(self.node);
        // Or one script after the other could begin meanwhile.
        self.cron.ask_for_gate(self.is_handover_due || self.node.process.pending_end.is_some());
    }

    // ---- the end ----

    /// Takes the options of a signal that has come, or whose end is to be tried again.
    fn signalled(&mut self) -> Option<Options> {
        let process = &self.node.process;
        // While another thread decides about the end it stays pending: it is acted on if nothing came of
        // that.
        if self.node.debug.cron_paused.is_on() || process.ending.is_deciding() {
            return None;
        }
        // Scripts that have not written end. The others are waited for, as the next command of a client would
        // be: the signal stays pending, so it can be called off, and SHUTDOWN NOSAVE ends the process
        // meanwhile.
        if process.pending_end.is_some() && self.node.keyspace.has_leases() {
            self.node.runs.set_ending(true);
            return None;
        }
        if let Some(options) = process.pending_end.take_options(&self.node.config) {
            let is_second = process.wish.refused_for().is_some();
            let options = if is_second { options.or(Options::FORCE) } else { options };
            self.attempts.options = options;
            return Some(options);
        }
        let (_, next) = self.attempts.since?;
        if !process.wish.is_on() {
            self.attempts.since = None;
            return None;
        }
        // Replicas were waited for.
        (Instant::now() >= next).then(|| self.attempts.options.or(Options::NOW))
    }

    /// The end that was asked for, unless something stands in its way.
    fn ends(&mut self, ask: impl FnOnce(&'static Node) -> Answer) -> bool {
        let wish = &self.node.process.wish;
        wish.set_acting(true);
        match ask(self.node) {
            Answer::Ends => {
                self.end();
                return true;
            }
            Answer::Waits => {}
            Answer::Refused => self.note_refusal(),
        }
        wish.set_acting(false);
        false
    }

    /// The file could not be written: again in a moment, if it was a signal that asked for it.
    fn note_refusal(&mut self) {
        let (wish, now) = (&self.node.process.wish, Instant::now());
        // Or a save stands in its way, which may hang: that is no answer of the disk either.
        let walks =
            || aof::rewrite::is_running(self.node) || self.node.persistence.saving().running.is_some();
        let is_writing_base = self.node.aof.awaits_base.load(Relaxed) && walks();
        wish.note_failure(!is_writing_base);
        if !wish.is_on() {
            return;
        }
        let (first, _) = *self.attempts.since.get_or_insert((now, now));
        self.attempts.since = Some((first, now + BETWEEN));
        if now - first >= ATTEMPTS {
            self.attempts.since = None;
            wish.refuse();
        }
    }

    fn end(&self) {
        supervisor::notify("STOPPING=1\n");
        role::end_link(self.node);
        self.node.process.wish.note_closing();
        aof::switch::close(self.node);
        if self.node.aof.is_writer_ending() {
            self.node.process.wish.note_loss();
        }
        feeder::flush(self.node);
        // A client that sees its connection end must not reach this process any more.
        self.node.process.listeners.lock().clear();
        if let Some(path) = self.node.config.pid_file()
            && std::fs::remove_file(path).is_ok()
        {
            log::notice("Removing the pid file.");
        }
        if let Some(path) = self.node.config.unix_socket() {
            log::notice("Removing the unix socket file.");
            if let Err(error) = std::fs::remove_file(path) {
                log::warning(format!("Error removing the unix socket file: {error}"));
            }
        }
        if self.node.config.logs_allocator_stats() {
            log::report(&format!("Allocator statistics at exit:\n{}", allocator::report(Format::Text)));
        }
        log::warning("Isotherm is now ready to exit, bye bye...");
    }
}
