//! Playing a log back with several threads.
//!
//! ```text
//!   commands of one key each --> window 0, of partitions 0, k, 2k ...  --> helper 0: sorts it by partition, fetches memory ahead,
//!                           \--> window 1, of partitions 1, k + 1 ...  --> helper 1  and runs it
//!   any other command, MULTI ... EXEC:  all that came before is run, then it is, alone
//! ```
//! Commands of one key each change nothing that those of other partitions see, and those of one partition
//! stay in their order. So the data is at each command of several partitions what it was when that was
//! recorded. A window that is ended early by one of these is run by the reader itself: two threads do not
//! wait for each other at each of many transactions.
//!
//! The beginning of a log is gathered, as far as it sets strings (`staged`), until a command comes that is to
//! be run alone.

use isotherm_keyspace::{Db, Slot};
use isotherm_resp::Args;
use isotherm_resp::request::Span;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::applier::{Applier, CommandFailure, Refused};
use super::staged::Staged;
use super::thawing;
use crate::persistence::load::room;
use isotherm_engine::request::resolve::{Found, Request};
use isotherm_node::Node;
use isotherm_node::request::entry::{Entry, Handler};

/// Bytes of commands, and number of commands, with which a window is full: it stays in the cache from the
/// reader to the helper.
const WINDOW_BYTES: usize = 64 << 10;
const WINDOW_COMMANDS: usize = 1024;
/// Windows that wait for each helper at most.
const WAITING_MAX: usize = 4;
/// The reader keeps no more of them busy.
const HELPERS_MAX: usize = 6;
/// Commands whose memory is fetched together.
const TOGETHER: usize = 32;
/// Commands after which others may look at partitions.
const COMMANDS_PER_HOLD: usize = 3 * TOGETHER;

/// A command that cannot be run, and where in the file it is.
#[derive(Debug)]
pub struct Failed {
    pub place: u64,
    pub why: Refused,
}

/// Commands in the order of the file.
#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    commands: Vec<Command>,
    /// The strings gathered so far are built after this window.
    ends_staging: bool,
}

#[derive(Clone, Copy)]
struct Command {
    place: u64,
    entry: &'static Entry,
    db: Db,
    slot: Slot,
    partition: u16,
    start: u32,
    spans: (u32, u32),
}

pub struct Replay<'r> {
    applier: &'r mut Applier,
    /// Windows of the helpers, also of those that will be started.
    windows: Vec<Window>,
    helpers: Vec<Helper>,
    /// The next full window starts the helpers, or the gathering.
    may_start: bool,
    /// Strings that the reader has gathered itself, without helpers.
    staged: Option<Staged>,
    /// Each helper gathers.
    helpers_stage: bool,
    /// Commands of the reader itself since others could look at partitions.
    since_release: usize,
}

impl<'r> Replay<'r> {
    /// With as many helpers as there are workers; none where one thread holds all partitions.
    pub fn new(applier: &'r mut Applier) -> Replay<'r> {
        let node = applier.node();
        let workers = node.config.workers().min(HELPERS_MAX).min(node.keyspace.partition_count());
        let may_start = !applier.is_within();
        let windows = (0..if may_start { workers } else { 1 }).map(|_| Window::default()).collect();
        let (helpers, staged, helpers_stage) = (Vec::new(), None, false);
        Replay { applier, windows, helpers, may_start, staged, helpers_stage, since_release: 0 }
    }

    /// Runs the command that begins at `bytes`, now or with others; `place` is that in the file.
    pub fn run(&mut self, place: u64, bytes: &[u8], args: &[Range<usize>]) -> Result<(), Failed> {
        let node = self.applier.node();
        let name = &bytes[args[0].clone()];
        let entry = node.commands.find_logged(name);
        let key = entry.filter(|_| !self.applier.is_in_transaction()).and_then(|entry| key_of(entry, args));
        if let (Some(entry), Some(key)) = (entry, key) {
            let slot = Slot::of_key(&bytes[key]);
            let partition = node.keyspace.partition_of(slot);
            let db = self.applier.db();
            let number = usize::from(partition) % self.windows.len();
            let window = &mut self.windows[number];
            let (start, spans) = (0, (0, 0));
            window.push(bytes, args, Command { place, entry, db, slot, partition, start, spans });
            return if window.is_full() { self.hand_on(number) } else { Ok(()) };
        }
        // SELECT changes only the reader's state.
        if !name.eq_ignore_ascii_case(b"SELECT") {
            self.settle()?;
            self.note_run(1);
        }
        let spans: Vec<Span> = args.iter().map(span).collect();
        self.applier.apply(Args::new(bytes, &spans)).map_err(|why| Failed { place, why })
    }

    /// A full window: its helper runs it, if there are any.
    fn hand_on(&mut self, number: usize) -> Result<(), Failed> {
        if std::mem::take(&mut self.may_start) {
            self.start();
        }
        match self.helpers.is_empty() {
            true => self.run_window(number)?,
            false => self.give(number)?,
        }
        let store = self.applier.node().store();
        if room::is_short(store) {
            self.settle()?;
            self.applier.release();
            room::await_sinker(store);
        }
        Ok(())
    }

    fn give(&mut self, number: usize) -> Result<(), Failed> {
        self.applier.release();
        let helper = &mut self.helpers[number];
        let given = helper.give(std::mem::take(&mut self.windows[number]));
        self.windows[number] = helper.free.pop().unwrap_or_default();
        match given {
            Ok(()) => Ok(()),
            Err(failed) => first_of([Err(failed), self.wait()]),
        }
    }

    fn start(&mut self) {
        let node = self.applier.node();
        self.applier.release();
        let stages = self.applier.is_unobserved() && !node.keyspace.has_keys();
        let staged = || stages.then(|| Staged::new(node));
        if self.windows.len() == 1 {
            self.staged = staged();
            return;
        }
        // One that the system does not give leaves its share to none: then there are none.
        let helpers: Option<Vec<_>> = self.windows.iter().map(|_| Helper::start(node, staged())).collect();
        self.helpers = helpers.unwrap_or_default();
        self.helpers_stage = stages && !self.helpers.is_empty();
    }

    /// Until the helpers have run what they were given.
    fn wait(&mut self) -> Result<(), Failed> {
        let waited: Vec<_> = self.helpers.iter_mut().map(|helper| helper.wait(0)).collect();
        first_of(waited)
    }

    /// Everything that came is applied.
    pub fn settle(&mut self) -> Result<(), Failed> {
        if std::mem::take(&mut self.helpers_stage) {
            return self.end_staging();
        }
        if self.helpers.iter().any(|helper| helper.unanswered > 0) {
            self.applier.release();
        }
        self.wait()?;
        let ran: Vec<_> = (0..self.windows.len()).map(|number| self.run_window(number)).collect();
        let built = match self.staged.take() {
            Some(mut staged) => {
                self.applier.release();
                staged.build().map_err(|why| Failed { place: u64::MAX, why })
            }
            None => Ok(()),
        };
        first_of(ran.into_iter().chain([built]))
    }

    /// The helpers run what there is, and build what they have gathered.
    fn end_staging(&mut self) -> Result<(), Failed> {
        let given: Vec<_> = (0..self.windows.len())
            .map(|number| {
                self.windows[number].ends_staging = true;
                self.give(number)
            })
            .collect();
        first_of(given.into_iter().chain([self.wait()]))
    }

    /// The reader runs a window itself.
    fn run_window(&mut self, number: usize) -> Result<(), Failed> {
        if self.windows[number].commands.is_empty() {
            return Ok(());
        }
        let mut window = std::mem::take(&mut self.windows[number]);
        let db = self.applier.db();
        let ran = window.run(self.applier, self.staged.as_mut());
        self.applier.set_db(db);
        self.note_run(window.commands.len());
        window.clear();
        self.windows[number] = window;
        ran
    }

    fn note_run(&mut self, count: usize) {
        self.since_release += count;
        if self.since_release >= COMMANDS_PER_HOLD && !self.applier.is_in_transaction() {
            self.applier.release();
            self.since_release = 0;
        }
    }

    /// The log ended, and what is left of a transaction has no effect.
    pub fn abandon_transaction(&mut self) {
        self.applier.abandon_transaction();
    }

    /// Ends the helpers and adds up what they have counted. Nothing is held afterwards.
    pub fn end(mut self) -> Result<(), Failed> {
        let settled = self.settle();
        self.applier.release();
        for helper in std::mem::take(&mut self.helpers) {
            let (failed, failure) = helper.end();
            self.applier.failed += failed;
            self.applier.failure = self.applier.failure.take().or(failure);
        }
        settled
    }
}

fn span(range: &Range<usize>) -> Span {
    Span { start: range.start as u32, len: range.len() as u32 }
}

/// Returns the place of the only key, if the command changes nothing else.
fn key_of(entry: &Entry, args: &[Range<usize>]) -> Option<Range<usize>> {
    let is_alone = entry.first_key > 0
        && entry.has_one_key(args.len())
        && entry.spec.takes(args.len())
        && matches!(entry.handler, Some(Handler::Data(_)));
    args.get(usize::from(entry.first_key)).filter(|_| is_alone).cloned()
}

/// The failure that comes first in the file.
fn first_of(all: impl IntoIterator<Item = Result<(), Failed>>) -> Result<(), Failed> {
    match all.into_iter().filter_map(Result::err).min_by_key(|failed| failed.place) {
        Some(first) => Err(first),
        None => Ok(()),
    }
}

impl Window {
    fn push(&mut self, bytes: &[u8], args: &[Range<usize>], command: Command) {
        let (start, first) = (self.bytes.len() as u32, self.spans.len() as u32);
        self.bytes.extend_from_slice(&bytes[..args.last().map_or(0, |last| last.end)]);
        self.spans.extend(args.iter().map(span));
        self.commands.push(Command { start, spans: (first, self.spans.len() as u32), ..command });
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= WINDOW_BYTES || self.commands.len() >= WINDOW_COMMANDS
    }

    fn clear(&mut self) {
        if self.bytes.capacity() > 4 * WINDOW_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.spans.clear();
        self.commands.clear();
        self.ends_staging = false;
    }

    fn args(&self, command: &Command) -> Args<'_> {
        let (from, to) = command.spans;
        Args::new(&self.bytes[command.start as usize..], &self.spans[from as usize..to as usize])
    }

    /// Runs the commands, partition by partition.
    fn run(&self, applier: &mut Applier, staged: Option<&mut Staged>) -> Result<(), Failed> {
        let command = |number: &u32| &self.commands[*number as usize];
        let mut numbers: Vec<u32> = match staged {
            None => (0..self.commands.len() as u32).collect(),
            Some(staged) => {
                // The build takes the partitions' locks.
                applier.release();
                self.stage(staged)?
            }
        };
        // Stable: those of a partition stay in their order.
        numbers.sort_by_key(|number| command(number).partition);
        let keyspace = &applier.node().keyspace;
        let keys = numbers.iter().map(|number| {
            let command = command(number);
            let name = self.args(command).get(usize::from(command.entry.first_key));
            (command.db, keyspace.key(name))
        });
        thawing::thaw(applier, keys);
        for (hold, some) in numbers.chunks(TOGETHER).enumerate() {
            if hold > 0 && (hold * TOGETHER).is_multiple_of(COMMANDS_PER_HOLD) {
                applier.release();
            }
            let keyspace = &applier.node().keyspace;
            let requests: Vec<Request<'_>> = some
                .iter()
                .map(|number| {
                    let command = command(number);
                    let args = self.args(command);
                    let key = keyspace.key(args.get(usize::from(command.entry.first_key)));
                    Request { args, found: Found::Command(command.entry), key: Some(key) }
                })
                .collect();
            applier.set_db(command(&some[0]).db);
            applier.prefetch(&requests);
            for (request, number) in requests.iter().zip(some) {
                applier.set_db(command(number).db);
                let place = command(number).place;
                applier.apply_resolved(request).map_err(|why| Failed { place, why })?;
            }
        }
        Ok(())
    }
}

impl Window {
    /// Gathers the commands that can be gathered. Returns the numbers of the others, which may be run after
    /// them.
    fn stage(&self, staged: &mut Staged) -> Result<Vec<u32>, Failed> {
        let mut others = Vec::new();
        let mut strings = Vec::with_capacity(self.commands.len());
        for (number, command) in self.commands.iter().enumerate() {
            match staged.string(command.entry, command.db, command.slot, self.args(command)) {
                Some(string) => strings.push(string),
                None => others.push(number as u32),
            }
        }
        staged.add(&strings).map_err(|why| Failed { place: self.place(), why })?;
        Ok(others)
    }

    /// Returns the place of its first command in the file.
    fn place(&self) -> u64 {
        self.commands.first().map_or(0, |first| first.place)
    }
}

/// A thread that runs the commands of some partitions.
struct Helper {
    windows: SyncSender<Window>,
    answers: Receiver<(Window, Result<(), Failed>)>,
    unanswered: usize,
    /// Windows that came back.
    free: Vec<Window>,
    thread: JoinHandle<Counted>,
}

/// `Applier::failed` and `failure`.
type Counted = (u64, Option<CommandFailure>);

impl Helper {
    /// Starts a helper. Returns `None` if the system gives no thread.
    fn start(node: &'static Node, mut staged: Option<Staged>) -> Option<Helper> {
        let (windows, waiting) = sync_channel::<Window>(WAITING_MAX);
        let (answer, answers) = sync_channel(WAITING_MAX + 1);
        let run = move || {
            let mut applier = Applier::new(node);
            for mut window in waiting {
                let mut ran = window.run(&mut applier, staged.as_mut());
                // The reader may wait for all partitions.
                applier.release();
                if let Some(mut staged) = staged.take_if(|_| window.ends_staging) {
                    let place = window.place();
                    ran = first_of([ran, staged.build().map_err(|why| Failed { place, why })]);
                }
                window.clear();
                if answer.send((window, ran)).is_err() {
                    break;
                }
            }
            (applier.failed, applier.failure)
        };
        let thread = Builder::new().name("loader-helper".into()).spawn(run).ok()?;
        Some(Helper { windows, answers, unanswered: 0, free: Vec::new(), thread })
    }

    fn give(&mut self, window: Window) -> Result<(), Failed> {
        self.wait(WAITING_MAX - 1)?;
        self.windows.send(window).expect("it ends when it gets no more");
        self.unanswered += 1;
        Ok(())
    }

    /// Until no more than this many windows are to be answered.
    fn wait(&mut self, unanswered_max: usize) -> Result<(), Failed> {
        let mut first = Ok(());
        while self.unanswered > unanswered_max {
            self.unanswered -= 1;
            let (window, ran) = self.answers.recv().expect("it ends when it gets no more");
            self.free.push(window);
            first = first.and(ran);
        }
        first
    }

    fn end(self) -> Counted {
        drop((self.windows, self.answers));
        self.thread.join().expect("a panic ends the process")
    }
}
