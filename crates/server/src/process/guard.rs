//! The end that a signal asks for: a thread hears signals, and sees to it that the process ends whatever
//! hangs.
//!
//! ```text
//!   SIGTERM, SIGINT --> guard --> pending --> the control thread acts (`leaving`) --> the process ends
//!                         |                        |
//!                         |                        '-- refused: a file cannot be written. Each second
//!                         |                            again, for `ATTEMPTS`. Then the process stays, as
//!                         |                            the log says each second, until the next signal
//!                         '-- nothing has moved for `HANGS`: exit code 1; a line says what was not saved
//! ```
//! Replicas that are waited for do not hang: `shutdown-timeout` is their time.
//!
//! The thread waits for nothing but signals, and for its final message only for `MESSAGE_MAX`: a line of the
//! log may hang too.

use isotherm_log::LogOffset;
use isotherm_reactor::signals::{Ending, Signals};
use isotherm_reactor::{Events, Token};
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use isotherm_config::{Id, id};
use isotherm_durability::persistence::save::Target;
use isotherm_node::Node;
use isotherm_node::aof::request::Request;
use isotherm_node::mail::message::ControlMessage;
use isotherm_node::persistence::Store;
use isotherm_node::persistence::state::Job;
use isotherm_node::process::asked_end::Signal;
use isotherm_node::process::wish::BETWEEN;
use isotherm_runtime::log;
use isotherm_runtime::time::{elapsed, instant, unix_now};

// COMPAT(server): After SIGTERM the process ends within 8 seconds, and what `shutdown-timeout` waits, also if
// a disk or a script hangs: with exit code 1, and a line of the log that says what was not saved. Valkey
// waits for both. Why: who runs it kills it some seconds later (10 in containers), and what was lost is not
// reported.
/// Time without progress after which an end hangs.
const HANGS: Duration = Duration::from_secs(6);
/// Time between two looks at the progress.
const LOOK: Duration = Duration::from_millis(50);
/// Time that the last line of the log may take, and the part of it for the sync before that line.
const MESSAGE_MAX: Duration = Duration::from_millis(800);
const SYNC_MAX: Duration = Duration::from_millis(500);

const TOKENS: [Token; 2] = [Token(0), Token(1)];
const INSISTED: &str = "You insist... exiting now.";

struct Guard {
    node: &'static Node,
    events: Events,
    signals: Signals,
    /// Progress since the end is asked for, and the moment of its last change.
    seen: Option<(Progress, Instant)>,
}

/// Counters that move while the process ends.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Progress {
    answers: u64,
    /// Steps and bytes of the last file, or of the first base.
    written: (u64, u64),
    /// Durable place of the append-only file, while that is being closed.
    durable: Option<LogOffset>,
}

/// Signals are heard from here on.
pub fn start(node: &'static Node) -> io::Result<()> {
    let (signals, events) = (Signals::install()?, Events::new()?);
    for (source, token) in signals.sources().into_iter().zip(TOKENS) {
        events.watch_readable(source, token)?;
    }
    let guard = Guard { node, events, signals, seen: None };
    std::thread::Builder::new().name("guard".into()).spawn(move || guard.run()).map(drop)
}

/// A second interrupt: the file that is being written does not stay.
fn insist(store: Store<'static>) -> ! {
    say_and_exit(move || {
        log::warning(INSISTED);
        let _ = store.state.disk.remove(&Target::db_file(store).temporary);
    })
}

/// Ends the process after its final message, if that does not hang.
fn say_and_exit(words: impl FnOnce() + Send + 'static) -> ! {
    let (said, is_said) = channel();
    let say = move || {
        words();
        let _ = said.send(());
    };
    if std::thread::Builder::new().spawn(say).is_ok() {
        let _ = is_said.recv_timeout(MESSAGE_MAX);
    }
    std::process::exit(1)
}

impl Guard {
    fn run(mut self) {
        loop {
            let wish = &self.node.process.wish;
            let timeout = match wish.is_on() {
                true => Some(LOOK),
                false => wish.refused_for().map(|_| BETWEEN),
            };
            if let Err(error) = self.events.wait(timeout) {
                log::warning(format!("Fatal error in the thread that hears signals: {error}"));
                std::process::exit(1);
            }
            while let Some(signal) = self.signals.take() {
                self.hear(signal);
            }
            match self.node.process.wish.is_on() {
                true => self.look_at_progress(),
                false => {
                    self.seen = None;
                    self.say_that_it_stays();
                }
            }
        }
    }

    fn hear(&mut self, signal: Ending) {
        let process = &self.node.process;
        let is_busy =
            process.pending_end.is_some() || process.ending.is_by_signal() || process.wish.is_acting();
        if signal == Ending::Interrupt && is_busy {
            insist(self.node.store());
        }
        process.wish.begin();
        process.pending_end.note(match signal {
            Ending::Terminate => Signal::Terminate,
            Ending::Interrupt => Signal::Interrupt,
        });
        self.node.mail.post_control(ControlMessage::Look);
    }

    fn look_at_progress(&mut self) {
        let node = self.node;
        let waits_for_replicas = node.process.ending.left_ms(unix_now()).is_some_and(|left_ms| left_ms > 0);
        let is_put_off = node.debug.cron_paused.is_on() && node.process.pending_end.is_some();
        let progress = progress(node);
        match self.seen {
            Some((seen, at)) if seen == progress && !waits_for_replicas && !is_put_off => {
                if elapsed(at) >= HANGS {
                    say_and_exit(move || log::warning(final_message(node)));
                }
            }
            _ => self.seen = Some((progress, instant())),
        }
    }

    fn say_that_it_stays(&self) {
        let wish = &self.node.process.wish;
        let Some(refused_for) = wish.refused_for() else { return };
        if elapsed(self.node.persistence.saving().last_save) < refused_for {
            log::notice("The data is saved by now: the process can be asked to end again.");
            wish.call_off();
            return;
        }
        log::warning(format!(
            "The end that a signal has asked for {} s ago was refused: the data cannot be saved. Another SIGTERM ends \
             the process without that.",
            refused_for.as_secs()
        ));
    }
}

fn progress(node: &Node) -> Progress {
    let wish = &node.process.wish;
    let is_last_save =
        node.persistence.saving().running.is_some_and(|running| matches!(running.job, Job::Save(_)));
    let written = &node.persistence.progress;
    let written = match is_last_save || node.aof.awaits_base.load(SeqCst) {
        true => (written.steps.load(SeqCst), written.bytes.load(SeqCst)),
        false => (0, 0),
    };
    Progress { answers: wish.answers(), written, durable: wish.is_closing().then(|| node.aof.durable()) }
}

/// Says what a process that hangs has not saved.
fn final_message(node: &'static Node) -> String {
    const APPEND_ONLY: Id = id("appendonly");
    // While the file is closed its writer is no longer there.
    let is_closed =
        node.process.wish.is_closing() && node.config.flag(APPEND_ONLY) && !node.aof.is_suspended();
    let is_in_log = (node.aof.is_on() || is_closed) && !node.aof.awaits_base.load(SeqCst);
    let lost = match is_in_log {
        true => not_synced(node),
        false => not_in_file(node),
    };
    format!(
        "The process does not come to its end: a disk does not answer or is full, or a script runs on. Exiting \
         now. {lost}"
    )
}

fn not_synced(node: &'static Node) -> String {
    let end = node.log.end();
    node.aof.inbox.post(&node.log, Request::Flush);
    let begun = instant();
    while node.aof.durable() < end && elapsed(begun) < SYNC_MAX {
        std::thread::sleep(Duration::from_millis(1));
    }
    match end.0.saturating_sub(node.aof.durable().0) {
        0 => "Nothing is lost: the append-only file is synced.".to_string(),
        bytes => format!("The last {bytes} bytes of the append-only file are not synced, and may be lost."),
    }
}

fn not_in_file(node: &'static Node) -> String {
    let saving = node.persistence.saving();
    match node.stats.changes().saturating_sub(saving.saved_changes) {
        0 => "Nothing is lost: nothing has changed since the last RDB file.".to_string(),
        changes => format!(
            "Lost are {changes} changes, those since the last RDB file or the start, {} s ago.",
            elapsed(saving.last_save).as_secs()
        ),
    }
}
