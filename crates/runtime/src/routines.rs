//! Work outside the workers and the control thread, in steps: a thread for each routine, or all of them on
//! one thread in the order that a seed draws.
//!
//! ```text
//!   start(routine)  -->  thread:   step, rest, step, rest, ... until a step says that it was the last
//!                    test:     the routines lie in a list; `step` of one of them whenever the test says so
//! ```
//! A step may take as long as the disk does. A thread that waits for another routine (`pause`) holds nothing
//! that the routine needs.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::time::{elapsed, instant};

pub trait Routine: Send {
    /// The next part of the work. Whether there is more.
    fn step(&mut self) -> bool;

    /// Checks the invariants that hold between two steps.
    #[cfg(debug_assertions)]
    fn check(&self) {}

    /// On a thread of its own, between two steps: waits until there is something to do.
    fn rest(&mut self) {}
}

/// A routine that was started.
pub struct Running {
    has_ended: Arc<AtomicBool>,
}

impl Running {
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Waits for its end. For a thread that no other waits for.
    pub fn join(&self) {
        while !self.has_ended() {
            pause(LOOK);
        }
    }

    /// Waits for its end, for `at_most`. Returns whether it has come.
    pub fn ends_within(&self, at_most: Duration) -> bool {
        let begun = instant();
        while !self.has_ended() {
            if elapsed(begun) > at_most {
                return false;
            }
            pause(LOOK);
        }
        true
    }
}

/// Interval of the looks for the end of a routine.
pub const LOOK: Duration = Duration::from_millis(1);

/// Says that the routine is over, also if it panics.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Starts a routine on a thread of this name.
pub fn start(name: &str, routine: impl Routine + 'static) -> io::Result<Running> {
    try_start(name, routine).map_err(|(error, _)| error)
}

/// Starts it, or returns it where there is no room for a thread: for a caller that holds what would be waited
/// for where the routine is dropped.
pub fn try_start<R: Routine + 'static>(name: &str, routine: R) -> Result<Running, (io::Error, R)> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let (running, ending) = (Running { has_ended: Arc::clone(&has_ended) }, Ending(has_ended));
    #[cfg(debug_assertions)]
    if simulated::is_on() {
        simulated::add(name, Box::new(routine), Box::new(ending));
        return Ok(running);
    }
    let place = Arc::new(Mutex::new(Some(routine)));
    let taken_from = Arc::clone(&place);
    let run = move || {
        // Dropped after the routine.
        let _ending = ending;
        let mut routine = take(&taken_from);
        while routine.step() {
            routine.rest();
        }
        drop(routine);
    };
    match std::thread::Builder::new().name(name.into()).spawn(run) {
        Ok(_) => Ok(running),
        Err(error) => Err((error, take(&place))),
    }
}

fn take<R>(place: &Mutex<Option<R>>) -> R {
    let taken = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    taken.expect("its thread takes it, or there is none")
}

/// Waits a moment for what another routine does.
pub fn pause(time: Duration) {
    #[cfg(debug_assertions)]
    if simulated::is_on() {
        return simulated::pause(time);
    }
    std::thread::sleep(time);
}

/// Takes a lock whose holder may wait for another routine. The caller holds nothing that the holder needs.
pub fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    loop {
        match try_lock(mutex) {
            Some(guard) => return guard,
            None => pause(LOOK),
        }
    }
}

/// Takes it within `at_most`, or not at all.
pub fn lock_within(mutex: &Mutex<()>, at_most: Duration) -> Option<MutexGuard<'_, ()>> {
    let begun = instant();
    loop {
        let guard = try_lock(mutex);
        if guard.is_some() || elapsed(begun) > at_most {
            return guard;
        }
        pause(LOOK);
    }
}

/// Takes such a lock if no other thread has it.
pub fn try_lock(mutex: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Returns whether this thread is a simulated process. In a build without assertions none is.
pub fn is_simulated() -> bool {
    #[cfg(debug_assertions)]
    if simulated::is_on() {
        return true;
    }
    false
}

/// Ends the process. A simulated one notes it, and ends when the current step does.
pub fn exit(code: i32) {
    #[cfg(debug_assertions)]
    if simulated::is_on() {
        return simulated::exit(code);
    }
    std::process::exit(code);
}

/// The routines of a simulated process.
#[cfg(debug_assertions)]
pub mod simulated {
    use super::Routine;
    use crate::time;
    use isotherm_stdx::Prng;
    use std::any::Any;
    use std::cell::RefCell;
    use std::time::{Duration, Instant};

    struct Started {
        name: String,
        number: u64,
        routine: Box<dyn Routine>,
        _ending: Box<dyn Any>,
    }

    struct Process {
        prng: Prng,
        started: Vec<Started>,
        number_next: u64,
        exit_code: Option<i32>,
        /// Number of a routine whose disk does not answer until then.
        hung: Option<(u64, Instant)>,
    }

    thread_local! {
        static PROCESS: RefCell<Option<Process>> = const { RefCell::new(None) };
    }

    /// Begins a simulated process: the routines that this thread starts are its own from now on, and run in
    /// an order that the seed draws.
    pub fn begin(seed: u64) {
        end();
        let prng = Prng::new(seed);
        let process = Process { prng, started: Vec::new(), number_next: 0, exit_code: None, hung: None };
        PROCESS.set(Some(process));
    }

    /// The process is gone, with all its routines.
    pub fn end() {
        // The drop of a routine may ask for others.
        let started = PROCESS
            .with_borrow_mut(|process| process.as_mut().map(|process| std::mem::take(&mut process.started)));
        drop(started);
        PROCESS.set(None);
    }

    pub fn is_on() -> bool {
        PROCESS.with_borrow(Option::is_some)
    }

    pub fn exit_code() -> Option<i32> {
        PROCESS.with_borrow(|process| process.as_ref().and_then(|process| process.exit_code))
    }

    pub fn names() -> Vec<String> {
        let names = |process: &Process| process.started.iter().map(|started| started.name.clone()).collect();
        PROCESS.with_borrow(|process| process.as_ref().map(names).unwrap_or_default())
    }

    pub(super) fn add(name: &str, routine: Box<dyn Routine>, ending: Box<dyn Any>) {
        with(|process| {
            process.number_next += 1;
            let number = process.number_next;
            process.started.push(Started { name: name.to_string(), number, routine, _ending: ending });
        });
    }

    fn with<T>(run: impl FnOnce(&mut Process) -> T) -> T {
        PROCESS.with_borrow_mut(|process| run(process.as_mut().expect("a process is simulated")))
    }

    /// Makes a routine that the seed draws hang for `time`: others continue meanwhile. Returns its name, if
    /// there is one.
    pub fn hang(time: Duration) -> Option<String> {
        with(|process| {
            let Process { started, prng, hung, .. } = process;
            let drawn = (!started.is_empty()).then(|| prng.pick(started))?;
            *hung = Some((drawn.number, time::instant() + time));
            Some(drawn.name.clone())
        })
    }

    /// Ends the hang of a routine.
    pub fn let_go() {
        with(|process| process.hung = None);
    }

    /// Runs a step of a routine that the seed draws, of those that do not hang and for which `is_meant`.
    /// Returns the name of the routine, if there was one.
    pub fn step_one(is_meant: impl Fn(&str) -> bool) -> Option<String> {
        // A routine that is under way is not in the list: what it waits for are others.
        let mut taken = with(|process| {
            let Process { started, prng, hung, .. } = process;
            let hung = hung.filter(|(_, until)| time::instant() < *until).map(|(number, _)| number);
            let is_free = |started: &Started| hung != Some(started.number) && is_meant(&started.name);
            let meant: Vec<usize> = (0..started.len()).filter(|at| is_free(&started[*at])).collect();
            if meant.is_empty() {
                return None;
            }
            Some(started.remove(*prng.pick(&meant)))
        })?;
        let has_more = taken.routine.step();
        taken.routine.check();
        let name = taken.name.clone();
        if has_more {
            with(|process| {
                let place = process.started.partition_point(|other| other.number < taken.number);
                process.started.insert(place.min(process.started.len()), taken);
            });
        }
        Some(name)
    }

    pub(super) fn pause(time: Duration) {
        // DEBUG LOADAOF waits for the log, and holds the partitions that those of the tier would wait for.
        step_one(|name| !name.starts_with("swap-"));
        time::simulated::pass(time);
    }

    pub(super) fn exit(code: i32) {
        with(|process| process.exit_code = Some(code));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time;
    use std::time::Instant;

    /// Notes its name `left` times.
    struct Noting {
        name: char,
        left: u32,
        notes: Arc<Mutex<String>>,
    }

    impl Routine for Noting {
        fn step(&mut self) -> bool {
            self.notes.lock().expect("no panic").push(self.name);
            self.left -= 1;
            self.left > 0
        }
    }

    fn notes_of(seed: Option<u64>) -> String {
        let notes = Arc::new(Mutex::new(String::new()));
        if let Some(seed) = seed {
            let moment = time::simulated::Moment { instant: Instant::now(), since_epoch: Duration::ZERO };
            time::simulated::set(Some(moment));
            simulated::begin(seed);
        }
        let start =
            |name| start("noting", Noting { name, left: 5, notes: Arc::clone(&notes) }).expect("a thread");
        let running = [start('a'), start('b')];
        if seed.is_some() {
            assert_eq!(simulated::names(), ["noting"; 2]);
            assert!(notes.lock().expect("no panic").is_empty(), "nothing moves by itself");
        }
        running.iter().for_each(Running::join);
        if seed.is_some() {
            exit(3);
            assert_eq!(simulated::exit_code(), Some(3));
            simulated::end();
            time::simulated::set(None);
        }
        notes.lock().expect("no panic").clone()
    }

    #[test]
    fn a_seed_draws_the_order() {
        let orders: Vec<String> = (0..8).map(|seed| notes_of(Some(seed))).collect();
        assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
        assert_eq!(notes_of(Some(1)), orders[1], "the same seed, the same order");
        let of_threads = notes_of(None);
        assert_eq!(of_threads.chars().filter(|name| *name == 'a').count(), 5, "{of_threads}");
        assert_eq!(of_threads.len(), 10);
    }
}
