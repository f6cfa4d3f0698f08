//! Interleavings of the log's appends, cuts and readers, under a mutex of shuttle: `cargo xtask locks`.
//!
//! Shuttle runs one thread at a time and switches at each lock, atomic and park. It finds a deadlock, a lost
//! wake-up among them, by itself. Its atomics are sequentially consistent, so that an ordering is strong
//! enough is not checked here.
#![cfg(shuttle)]

mod tail_model;
mod wake_model;
mod wire;

use isotherm_log::SleepMarks;
use shuttle::sync::Mutex;
use shuttle::thread::Thread;

/// The reader of the log, as the server holds it.
#[derive(Default)]
struct Reader {
    thread: Mutex<Option<Thread>>,
    is_asleep: SleepMarks,
}

impl Reader {
    fn is(&self, thread: Thread) {
        *self.thread.lock().expect("no panic before") = Some(thread);
    }

    fn wake(&self) {
        if self.is_asleep.take() != 0 {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = &*self.thread.lock().expect("no panic before") {
            thread.unpark();
        }
    }
}

fn explore(iterations: usize, scenario: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(scenario, iterations);
    // Few switches at unlikely places: what random schedules find last.
    shuttle::check_pct(scenario, iterations, 3);
}
