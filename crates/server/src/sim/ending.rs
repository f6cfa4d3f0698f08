//! The end of a life: the disk works again or does not, the process is gone, and what is there is looked at
//! once more.

use isotherm_disk::{Damage, Plan};
use isotherm_log::writer::FsyncPolicy;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::machine::{Machine, Save, Violation, difference, equals_saved};
use super::process::Process;
use isotherm_durability::aof::settings;
use isotherm_node::mail::tasks::Tasks;
use isotherm_runtime::routines;
use isotherm_runtime::time::simulated as clock;
use isotherm_runtime::time::unix_now;
use isotherm_runtime::time::{elapsed, instant};

impl Machine {
    /// The disk works again: so do writes, without a restart, and all becomes durable.
    pub fn heal(&mut self, process: &mut Process) -> Result<(), Violation> {
        self.disk.set_plan(Plan { damage: Damage::ALL, ..Plan::default() });
        routines::simulated::let_go();
        self.settle(process, 4_000)?;
        for session in 0..process.sessions() {
            self.run(process, session, &[b"DISCARD".to_vec()])?;
        }
        self.settle(process, 100)?;
        // It had waited too long for the disk.
        if !self.is_alive() {
            return Ok(());
        }
        let answer = self.run(process, 0, &[b"SET".to_vec(), b"k0".to_vec(), b"after".to_vec()])?;
        if answer.is_error() || answer.is_parked {
            let reply = answer.reply.escape_ascii();
            return Err(format!("the disk works again, and a write is refused: {reply}"));
        }
        let end = self.history.as_ref().expect("the life has begun").end();
        self.settle(process, 2_500)?;
        if !self.is_alive() {
            return Ok(());
        }
        let node = process.node;
        if node.mail.tasks().has(Tasks::LOG_FAILED) {
            return Err("the disk works again, and writes are refused".to_string());
        }
        if self.is_off || node.aof.awaits_base.load(Relaxed) {
            return Ok(());
        }
        let policy = settings::policy(node);
        if node.aof.durable() < end && policy != FsyncPolicy::No {
            return Err(format!(
                "the disk works again, and the log is durable to {} of {end}",
                node.aof.durable()
            ));
        }
        if let Some(waiting) = self.waiting.first() {
            return Err(format!("a reply waits for {} for ever", waiting.not_before));
        }
        self.settle(process, 1_200)?;
        self.is_healed = true;
        self.reload(process)
    }

    /// DEBUG LOADAOF, which holds everything: a walk that is under way would wait for it.
    fn reload(&mut self, process: &mut Process) -> Result<(), Violation> {
        let walks = |name: &String| ["rdb-save", "aof-rewrite"].contains(&name.as_str());
        if routines::simulated::names().iter().any(walks) || self.prng.one_in(2) {
            return Ok(());
        }
        let before = process.state();
        let answer = self.run(process, 0, &[b"DEBUG".to_vec(), b"LOADAOF".to_vec()])?;
        match answer.is_error() || process.state() != before {
            true => Err(format!("DEBUG LOADAOF has changed the data: {}", answer.reply.escape_ascii())),
            false => Ok(()),
        }
    }

    /// Lets all routines move for `ms`.
    pub fn settle(&mut self, process: &mut Process, ms: u64) -> Result<(), Violation> {
        let begun = instant();
        while elapsed(begun) < Duration::from_millis(ms) && self.is_alive() {
            for _ in 0..12 {
                if routines::simulated::step_one(|_| true).as_deref() == Some("rdb-save") {
                    self.note_end_of_save(process);
                }
            }
            process.cron(&mut self.prng);
            self.note(process, "cron")?;
            self.note_save(process, false);
            self.note_durable(process);
            clock::pass(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ends the life, so that nothing more runs: the power fails, the process is killed, or it is shut down.
    pub fn end(&mut self, process: Process) -> Result<(), Violation> {
        self.counts.calls += self.disk.calls();
        if let Some(code) = routines::simulated::exit_code() {
            self.counts.exits += 1;
            self.trace(|| format!("the process has exited with {code}"));
        } else if !self.disk.is_stopped() && self.prng.one_in(3) {
            let (node, was_off) = (process.node, self.is_off);
            process.shut_down();
            self.trace(|| "shut down".to_string());
            let history = self.history.as_mut().expect("the life has begun");
            if !was_off && !self.disk.is_stopped() && !node.aof.awaits_base.load(Relaxed) && self.is_healed {
                history.required = history.end();
            }
        } else {
            drop(process);
        }
        routines::simulated::end();
        if self.disk.is_stopped() || self.may_lose_power && self.prng.one_in(2) {
            self.counts.crashes += 1;
            self.trace(|| format!("the power fails, the disk had {} calls", self.disk.calls()));
            self.disk.restart(Plan::default());
        } else {
            self.disk.kill(Plan::default());
        }
        self.disk.check_invariants();
        Ok(())
    }

    /// A process without the append-only file finds the data of the last save.
    pub fn check_rdb(&mut self, parameters: &[String]) -> Result<(), Violation> {
        let without: Vec<String> =
            parameters.iter().cloned().chain(["--appendonly", "no"].map(String::from)).collect();
        let started = Process::start(&self.disk, &without, self.prng.next_u64());
        let process = started.map_err(|why| format!("the start with the RDB file was refused: {why}"))?;
        let (found, now_ms) = (process.state(), unix_now().0);
        drop(process);
        self.disk.kill(Plan::default());
        let those = || self.saves.iter().filter(|save| equals_saved(&save.state, &found, now_ms));
        let (is_any, is_newer) = (those().next().is_some(), those().all(|save| save.is_newer));
        let has_none = found.is_empty() && !self.saves.iter().any(|save| save.is_complete);
        if !is_any && !has_none {
            let last = self.saves.first().map(|save| difference(&save.state, &found)).unwrap_or_default();
            return Err(format!("the RDB file has {} keys, as no save had: {last}", found.len()));
        }
        // One of those is the file, and what has expired in it is there again if the clock is set back.
        let is_newer = is_any && is_newer;
        self.saves.retain(|save| equals_saved(&save.state, &found, now_ms));
        if !is_any {
            self.saves = vec![Save { state: found, is_complete: true, is_newer }];
        }
        for save in &mut self.saves {
            (save.is_complete, save.is_newer) = (true, is_newer);
        }
        Ok(())
    }

    /// A second start changes nothing.
    pub fn check_again(&mut self, process: Process, parameters: &[String]) -> Result<Process, Violation> {
        let (found, end) = (process.state(), process.node.log.end());
        drop(process);
        self.disk.kill(Plan::default());
        let process = self.start(parameters)?;
        if process.node.log.end() != end || process.state() != found {
            return Err(format!("a second start goes on at {}, the first at {end}", process.node.log.end()));
        }
        Ok(process)
    }
}
