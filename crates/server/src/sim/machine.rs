//! A machine: its disk, its clock, and one process after the other on it.

use isotherm_disk::{Call, Damage, Disk, Fault, FullDisk, Mode, Plan, RandomFault, SimDisk, read_exact_at};
use isotherm_log::LogOffset;
use isotherm_log::writer::FsyncPolicy;
use isotherm_persist::aof::manifest::{Manifest, Names};
use isotherm_stdx::Prng;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::counts::Counts;
use super::history::History;
use super::process::{Answer, Process};
use super::state::{self, State};
use super::workload::{self, Shown};
use isotherm_node::effects::change_log::ChangeLog;
use isotherm_node::persistence::state::Job;
use isotherm_runtime::routines;
use isotherm_runtime::time::simulated::{self as clock, Moment};
use isotherm_runtime::time::unix_now;

const FOLDER: &str = "appendonlydir";
/// Reason why a start has to be refused: under `appendfsync no` a sync has failed of bytes that memory had no
/// more, and the power failed before a rewrite had mended that; or the clock was set back
/// (`may_be_unordered`).
pub const UNREADABLE: &str = "unreadable, and known to be";
const BEGIN_MS: u64 = 1_750_000_000_000;

/// Text about a broken rule.
pub type Violation = String;

/// A save that was begun: what it holds, and whether it is complete.
pub struct Save {
    pub state: State,
    pub is_complete: bool,
    /// Begun while the append-only file was off: a start takes it for the newer one.
    pub is_newer: bool,
}

/// A reply that waits.
pub struct Waiting {
    pub not_before: LogOffset,
    shows: LogOffset,
}

pub struct Machine {
    pub disk: SimDisk,
    pub prng: Prng,
    pub counts: Counts,
    folder: PathBuf,
    pub history: Option<History>,
    /// Older history. A start finds it as long as the first base after `CONFIG SET appendonly yes` is not
    /// listed.
    before: Option<History>,
    /// The data at rewrites that were begun while the append-only file was off: one replaces all files by a
    /// base.
    alone: Vec<State>,
    /// The append-only file is switched off: nothing more is logged.
    pub is_off: bool,
    /// Replies that wait in the current life.
    pub waiting: Vec<Waiting>,
    pub saves: Vec<Save>,
    saves_seen: u64,
    /// The log of the life before, with all its bytes.
    old_log: Option<&'static ChangeLog>,
    /// The disk has worked since the last fault, for long.
    pub is_healed: bool,
    /// The power may fail. Without lines of commits what that leaves is refused, as in Valkey.
    pub may_lose_power: bool,
    rewrites_seen: u64,
    /// A start may meet faults of its own.
    pub starts_fail: bool,
    /// The disk fails at syncs, in this life.
    syncs_fail: bool,
    /// Some life wrote without syncs where they fail.
    may_have_holes: bool,
    /// The wall clock was set back while the append-only file was off: which of two files is newer may not be
    /// known, and such a start is refused.
    pub may_be_unordered: bool,
    /// The last start met no fault: it has removed what it could.
    is_start_clean: bool,
    is_traced: bool,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        let instant = Instant::now();
        clock::set(Some(Moment { instant, since_epoch: Duration::from_millis(BEGIN_MS) }));
        let disk = SimDisk::new(seed, Plan::default());
        let folder = std::env::current_dir().expect("a folder");
        let mut parents: Vec<&Path> = folder.ancestors().collect();
        parents.pop();
        for parent in parents.into_iter().rev() {
            disk.create_dir(parent).expect("no fault");
            disk.sync_dir(parent.parent().unwrap_or(Path::new(""))).expect("no fault");
        }
        Machine {
            disk,
            prng: Prng::new(seed),
            counts: Counts::default(),
            folder,
            history: None,
            before: None,
            alone: Vec::new(),
            is_off: false,
            starts_fail: true,
            waiting: Vec::new(),
            saves: Vec::new(),
            saves_seen: 0,
            old_log: None,
            is_healed: false,
            may_lose_power: true,
            rewrites_seen: 0,
            syncs_fail: false,
            may_have_holes: false,
            may_be_unordered: false,
            is_start_clean: true,
            is_traced: std::env::var_os("SIM_TRACE").is_some(),
        }
    }

    pub fn trace(&self, text: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{} {}", unix_now().0 - BEGIN_MS as i64, text());
        }
    }

    // ---- starts ----

    /// Starts a process, and checks what it has found.
    pub fn start(&mut self, parameters: &[String]) -> Result<Process, Violation> {
        self.counts.lives += 1;
        let process = self.start_somehow(parameters)?;
        let (found, end) = (process.state(), process.node.log.end());
        self.trace(|| format!("started at {end} with {} keys", found.len()));
        if let Some(history) = &self.history {
            let checked = self.check_found(history, &found, end);
            let is_before = self
                .before
                .as_ref()
                .is_some_and(|before| checked.is_err() && self.check_found(before, &found, end).is_ok());
            let is_alone = end == LogOffset(0) && self.alone.contains(&found);
            if !is_before && !is_alone && !self.is_newer_save(&found, end) {
                checked?;
            }
        }
        self.saves.iter_mut().for_each(|save| save.is_newer = false);
        (self.before, self.is_off) = (None, false);
        self.alone.clear();
        if self.is_start_clean {
            self.check_files()?;
        }
        self.history = Some(History::new(end, found));
        self.old_log = Some(&process.node.log);
        (self.waiting, self.saves_seen, self.is_healed, self.rewrites_seen) = (Vec::new(), 0, false, 0);
        Ok(process)
    }

    /// Returns whether what was found is a save that was begun while the append-only file was off. It is not
    /// found if the end could not be noted in the manifest.
    fn is_newer_save(&self, found: &State, end: LogOffset) -> bool {
        let now_ms = unix_now().0;
        let is_found = |save: &Save| save.is_newer && equals_saved(&save.state, found, now_ms);
        end == LogOffset(0) && self.saves.iter().any(is_found)
    }

    /// A start under this plan, which stays. None if the machine stopped.
    pub fn start_under(&mut self, plan: Plan, parameters: &[String]) -> Result<Option<Process>, Violation> {
        self.disk.set_plan(plan);
        match Process::start(&self.disk, parameters, self.prng.next_u64()) {
            Ok(process) => {
                self.adopt(&process);
                Ok(Some(process))
            }
            Err(_) => {
                routines::simulated::end();
                self.disk.restart(Plan::default());
                Ok(None)
            }
        }
    }

    /// Takes the data that this process has found as the right one.
    pub fn adopt(&mut self, process: &Process) {
        self.history = Some(History::new(process.node.log.end(), process.state()));
        self.old_log = Some(&process.node.log);
    }

    /// A start may meet a crash or a fault: then it is repeated, at last without any.
    fn start_somehow(&mut self, parameters: &[String]) -> Result<Process, Violation> {
        while self.starts_fail && self.prng.one_in(3) {
            let plan = self.plan_of_start();
            self.disk.set_plan(plan);
            let started = Process::start(&self.disk, parameters, self.prng.next_u64());
            let is_stopped = self.disk.is_stopped();
            self.counts.calls += self.disk.calls();
            self.trace(|| format!("a start with faults: {:?}", started.as_ref().map(drop)));
            self.counts.failed_starts += u64::from(started.is_err());
            if started.is_ok() && !is_stopped {
                self.disk.set_plan(Plan::default());
                self.is_start_clean = false;
                return started;
            }
            drop(started);
            let rest_ms = self.prng.below(2000);
            clock::pass(Duration::from_millis(rest_ms));
            if is_stopped || self.may_lose_power && self.prng.one_in(2) {
                self.disk.restart(Plan::default());
            } else {
                self.disk.kill(Plan::default());
            }
        }
        self.disk.set_plan(Plan::default());
        self.is_start_clean = true;
        let started = Process::start(&self.disk, parameters, self.prng.next_u64());
        started.map_err(|why| match self.may_have_holes || self.may_be_unordered {
            true => UNREADABLE.to_string(),
            false => format!("the start was refused: {why}"),
        })
    }

    fn plan_of_start(&mut self) -> Plan {
        let prng = &mut self.prng;
        let mut plan = Plan { damage: Damage::ALL, ..Plan::default() };
        if self.may_lose_power && prng.one_in(2) {
            plan.crash_at = Some(prng.below(40));
        } else {
            let fault = *prng.pick(&[Fault::Io, Fault::NoSpace, Fault::Short, Fault::Interrupted]);
            plan.faults = vec![(prng.below(40), fault)];
        }
        plan
    }

    fn check_found(&self, history: &History, found: &State, end: LogOffset) -> Result<(), Violation> {
        if end < history.required && self.may_have_holes {
            return Err(UNREADABLE.to_string());
        }
        if end < history.required {
            return Err(format!("the log goes on at {end}, and {} was durable or shown", history.required));
        }
        let log = self.old_log.expect("there was a life before");
        let expected = history.digest_at(end, log)?;
        // Nothing was promised yet, and the RDB file became the first base.
        let is_begun_anew = end == LogOffset(0) && history.required == LogOffset(0);
        let now_ms = unix_now().0;
        if is_begun_anew && self.saves.iter().any(|save| equals_saved(&save.state, found, now_ms)) {
            return Ok(());
        }
        if state::digest(found) != expected {
            let difference =
                if end == history.end() { difference(&history.state, found) } else { String::new() };
            return Err(format!(
                "at {end} of {} the data is another one than it was {difference}",
                history.end()
            ));
        }
        Ok(())
    }

    /// Checks that the folder has the files that its manifest lists, and no others.
    fn check_files(&self) -> Result<(), Violation> {
        let folder = self.folder.join(FOLDER);
        let Ok(names) = self.disk.list(&folder) else { return Ok(()) };
        let path = folder.join("appendonly.aof.manifest");
        let Ok(file) = self.disk.open(&path, Mode::Read) else { return Ok(()) };
        let mut text = vec![0; file.len().expect("no fault") as usize];
        read_exact_at(&*file, &mut text, 0).expect("no fault");
        let manifest = Manifest::parse(&text).map_err(|error| format!("the manifest: {error}"))?;
        let listed = manifest.base.iter().chain(&manifest.incr).map(|file| file.name.clone());
        let listed: Vec<Vec<u8>> = listed.collect();
        let of_names = Names::new(b"appendonly.aof");
        let base_max = manifest.base.as_ref().map_or(0, |base| base.seq);
        let incr_max = manifest.incr.last().map_or(0, |incr| incr.seq);
        let is_known = |name: &str| {
            let bytes = name.as_bytes();
            ["appendonly.aof.manifest", ".appendonly.aof.lock"].contains(&name)
                || listed.iter().any(|known| known == bytes)
                // Its name is taken again.
                || of_names.number_of_base(bytes).is_some_and(|number| number >= base_max)
                || of_names.number_of_incr(bytes).is_some_and(|number| number > incr_max)
        };
        match names.iter().find(|name| !is_known(name)) {
            Some(name) => Err(format!("{name} is left, which the manifest does not list: {manifest:?}")),
            None => Ok(()),
        }
    }
}

/// Some keys that differ, for the message.
pub fn difference(expected: &State, found: &State) -> String {
    let lost = expected.iter().filter(|(name, key)| found.get(*name) != Some(key)).take(3);
    let new = found.iter().filter(|(name, _)| !expected.contains_key(*name)).take(3);
    let lost: Vec<String> =
        lost.map(|(name, key)| format!("{} was {key:?} and is {:?}", show(name), found.get(name))).collect();
    let new: Vec<String> =
        new.map(|(name, key)| format!("{} was not there and is {key:?}", show(name))).collect();
    format!("({} {})", lost.join("; "), new.join("; "))
}

fn show((db, key): &state::Name) -> String {
    format!("{db}:{}", key.escape_ascii())
}

// ---- a life ----

impl Machine {
    /// The faults of one life.
    pub fn plan_of_life(&mut self) -> Plan {
        let prng = &mut self.prng;
        let mut random_faults = Vec::new();
        let rare = [Call::SetLen, Call::Open, Call::Rename, Call::SyncDir, Call::Remove];
        for _ in 0..prng.below(4).saturating_sub(1) {
            let fault = *prng.pick(&[Fault::Io, Fault::NoSpace, Fault::Short]);
            let call =
                if prng.one_in(3) { *prng.pick(&rare) } else { *prng.pick(&[Call::Write, Call::Sync]) };
            random_faults.push(RandomFault { call, fault, one_in: 1 + prng.below(12) });
        }
        let full_disk = if prng.one_in(2) { FullDisk::AtWrite } else { FullDisk::AtSync };
        self.syncs_fail =
            full_disk == FullDisk::AtSync || random_faults.iter().any(|random| random.call == Call::Sync);
        let damage = Damage { torn: prng.one_in(2), reordered: prng.one_in(2), old_blocks: prng.one_in(2) };
        Plan {
            crash_at: (self.may_lose_power && prng.one_in(2)).then(|| prng.below(80)),
            random_faults,
            quota_bytes: prng.one_in(6).then(|| prng.below(200_000)),
            full_disk,
            damage,
            writeback_one_in: prng.below(5),
            ..Plan::default()
        }
    }

    /// Returns whether the process exists and runs.
    pub fn is_alive(&self) -> bool {
        !self.disk.is_stopped() && routines::simulated::exit_code().is_none()
    }

    pub fn step(&mut self, process: &mut Process) -> Result<(), Violation> {
        self.counts.steps += 1;
        self.disturb();
        match self.prng.below(20) {
            0..10 => self.request(process)?,
            10..17 => {
                let name = routines::simulated::step_one(|_| true);
                if name.as_deref() == Some("rdb-save") {
                    self.note_end_of_save(process);
                }
            }
            17 => {
                process.cron(&mut self.prng);
                self.note(process, "cron")?;
            }
            _ => {
                let ms = match self.prng.below(150) {
                    // Longer than `always` waits for a disk that fails.
                    0 => 11_000,
                    1..12 => 1000,
                    _ => 1 + self.prng.below(25),
                };
                clock::pass(Duration::from_millis(ms));
            }
        }
        self.note_save(process, false);
        self.note_durable(process);
        self.note_rewrites(process);
        Ok(())
    }

    pub fn note_rewrites(&mut self, process: &Process) {
        let begun = process.node.aof.rewrites().begun;
        self.counts.rewrites += begun - std::mem::replace(&mut self.rewrites_seen, begun);
    }

    /// A random request of a random client.
    fn request(&mut self, process: &mut Process) -> Result<(), Violation> {
        let session = self.prng.below(process.sessions() as u64) as usize;
        let prng = &mut self.prng;
        match prng.below(100) {
            0..20 => {
                let (words, shown) = workload::read(prng);
                let db = process.db_of(session);
                let answer = self.run(process, session, &words)?;
                let history = self.history.as_ref().expect("the life has begun");
                let shows = match shown {
                    Shown::Key(key) => history.seen(&(db, key.into_bytes())),
                    Shown::Database => history.seen_in(db),
                };
                self.note_answer(&answer, shows)?;
            }
            20..27 => {
                let words = workload::large(prng);
                self.write(process, session, &words)?;
            }
            27..33 => {
                let words = workload::of_databases(prng);
                self.write(process, session, &words)?;
            }
            33..36 => {
                let words = workload::of_files(prng);
                self.write(process, session, &words)?;
            }
            36..38 => {
                let words = workload::of_settings(prng);
                self.run(process, session, &words)?;
            }
            38..48 => self.transaction(process, session)?,
            48 => {
                let key = workload::key(prng).into_bytes();
                self.run(process, session, &[b"WATCH".to_vec(), key])?;
            }
            _ => {
                let words = workload::command(prng, unix_now().0);
                self.write(process, session, &words)?;
            }
        }
        Ok(())
    }

    fn transaction(&mut self, process: &mut Process, session: usize) -> Result<(), Violation> {
        self.run(process, session, &[b"MULTI".to_vec()])?;
        for _ in 0..1 + self.prng.below(5) {
            let words = match self.prng.below(12) {
                0 => workload::of_databases(&mut self.prng),
                1 => workload::large(&mut self.prng),
                _ => workload::command(&mut self.prng, unix_now().0),
            };
            self.run(process, session, &words)?;
        }
        self.write(process, session, &[b"EXEC".to_vec()])
    }

    /// Runs a request of the first client, whose reply shows the changes that the request made.
    pub fn request_of(&mut self, process: &mut Process, words: &[Vec<u8>]) -> Result<(), Violation> {
        self.write(process, 0, words)
    }

    /// A request whose reply shows what it has changed.
    pub fn write(
        &mut self,
        process: &mut Process,
        session: usize,
        words: &[Vec<u8>],
    ) -> Result<(), Violation> {
        let before = process.node.log.end();
        let answer = self.run(process, session, words)?;
        let end = process.node.log.end();
        if end > before {
            self.note_answer(&answer, end)?;
        }
        Ok(())
    }

    pub fn run(
        &mut self,
        process: &mut Process,
        session: usize,
        words: &[Vec<u8>],
    ) -> Result<Answer, Violation> {
        let answer = process.run(session, words);
        self.trace(|| {
            let words: Vec<String> =
                words.iter().map(|word| word[..word.len().min(30)].escape_ascii().to_string()).collect();
            let reply = answer.reply[..answer.reply.len().min(60)].escape_ascii().to_string();
            let (end, durable) = (process.node.log.end(), process.node.aof.durable());
            format!("{session}: {} -> {reply} log {end} durable {durable}", words.join(" "))
        });
        self.counts.refused += u64::from(answer.is_error() && answer.reply.starts_with(b"-MISCONF"));
        self.note(process, "request")?;
        self.note_save(process, words[0] == b"SAVE" && answer.reply == b"+OK\r\n");
        Ok(answer)
    }

    /// A step is over: what it has changed belongs to the end of the log.
    pub fn note(&mut self, process: &Process, what: &str) -> Result<(), Violation> {
        let end = process.node.log.end();
        self.note_switch(process);
        let history = self.history.as_mut().expect("the life has begun");
        if self.is_off {
            return Ok(());
        }
        if end > history.end() || self.prng.one_in(10) {
            let noted = history.note(end, process.state(), what == "cron");
            noted.map_err(|why| format!("{what}: {why}"))?;
        }
        Ok(())
    }

    /// Notes whether the append-only file was switched on or off in the current step, which has changed
    /// nothing else.
    fn note_switch(&mut self, process: &Process) {
        let is_off = !process.node.aof.is_on();
        if std::mem::replace(&mut self.is_off, is_off) && !is_off {
            let now = History::new(process.node.log.end(), process.state());
            let old = self.history.replace(now);
            self.before = self.before.take().or(old);
        } else if is_off {
            // Nothing waits for a file that is not written.
            self.waiting.clear();
            if process.node.aof.rewrites().begun > self.rewrites_seen {
                self.alone.push(process.state());
            }
        }
    }

    fn note_answer(&mut self, answer: &Answer, shows: LogOffset) -> Result<(), Violation> {
        if answer.was_gated && !answer.is_parked && !answer.reply.starts_with(b"-SWAPERR") {
            if answer.not_before < shows {
                return Err(format!(
                    "a reply that shows {shows} waits for {}: {}",
                    answer.not_before,
                    answer.reply.escape_ascii()
                ));
            }
            self.waiting.push(Waiting { not_before: answer.not_before, shows });
        }
        Ok(())
    }

    pub fn note_durable(&mut self, process: &Process) {
        let is_unsynced = isotherm_durability::aof::settings::policy(process.node) == FsyncPolicy::No;
        self.may_have_holes |= is_unsynced && self.syncs_fail;
        let aof = &process.node.aof;
        let history = self.history.as_mut().expect("the life has begun");
        if !aof.is_on() || aof.awaits_base.load(Relaxed) {
            return;
        }
        self.before = None;
        self.saves.iter_mut().for_each(|save| save.is_newer = false);
        let durable = aof.durable();
        history.required = history.required.max(durable);
        self.waiting.retain(|waiting| {
            let leaves = waiting.not_before <= durable;
            if leaves {
                history.required = history.required.max(waiting.shows);
            }
            !leaves
        });
    }

    /// Notes a save that was begun in the current step, which has changed nothing else.
    pub fn note_save(&mut self, process: &Process, is_complete: bool) {
        let saves = process.node.persistence.saving().saves;
        if saves > self.saves_seen {
            self.saves_seen = saves;
            self.counts.saves += 1;
            let aof = &process.node.aof;
            let has_no_file = self.is_off || aof.awaits_base.load(Relaxed);
            let is_newer = has_no_file && !aof.is_suspended();
            self.saves.push(Save { state: process.state(), is_complete, is_newer });
            self.forget_saves();
        }
    }

    /// A step of a save in the background is over.
    pub fn note_end_of_save(&mut self, process: &Process) {
        let saving = process.node.persistence.saving().clone();
        let is_running = saving.running.is_some_and(|running| running.job == Job::BackgroundSave);
        let was_cancelled = process.node.persistence.is_cancelled.load(Relaxed);
        if !is_running && !was_cancelled && !saving.last_failed && !self.disk.is_stopped() {
            if let Some(save) = self.saves.last_mut() {
                save.is_complete = true;
            }
            self.forget_saves();
        }
    }

    /// Forgets older saves: a start finds the last complete save, or one that was begun after it.
    fn forget_saves(&mut self) {
        if let Some(last) = self.saves.iter().rposition(|save| save.is_complete) {
            self.saves.drain(..last);
        }
    }
}

/// Returns whether `found` has the keys of a save, as they are loaded at this time.
pub fn equals_saved(saved: &State, found: &State, now_ms: i64) -> bool {
    let living = |(_, key): &(&state::Name, &state::KeyState)| key.expiry_ms.is_none_or(|at| at >= now_ms);
    let is_same = |name: &state::Name, saved: &state::KeyState| match found.get(name) {
        Some(key) => saved.has_timed_fields || key == saved,
        // Its fields may all have left.
        None => saved.has_timed_fields,
    };
    found.keys().all(|name| saved.contains_key(name))
        && saved.iter().filter(living).all(|(name, key)| is_same(name, key))
}
