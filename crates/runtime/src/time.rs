//! The clocks. Persistence asks for the time only here, so that a test can let a seed move it.

use isotherm_stdx::UnixMs;
use isotherm_stdx::steady::{self, SteadyMs};
use std::sync::OnceLock;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds by which DEBUG STEP-CLOCK has set the wall clock forth.
#[cfg(debug_assertions)]
pub static STEPPED_MS: AtomicI64 = AtomicI64::new(0);

/// The wall clock, which may be set back.
pub fn unix_now() -> UnixMs {
    UnixMs(since_epoch().as_millis() as i64)
}

/// The current moment for durations: no step of the wall clock changes it.
pub fn steady_now() -> SteadyMs {
    SteadyMs::of(unix_now())
}

/// Returns the time of the wall clock in microseconds.
pub fn unix_now_us() -> i64 {
    since_epoch().as_micros() as i64
}

pub fn since_epoch() -> Duration {
    #[cfg(debug_assertions)]
    if let Some(moment) = simulated::moment() {
        return moment.since_epoch;
    }
    let since_epoch = wall_clock();
    note_steps(since_epoch);
    since_epoch
}

fn wall_clock() -> Duration {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    #[cfg(debug_assertions)]
    let since_epoch = {
        let stepped_ms = STEPPED_MS.load(Relaxed);
        let stepped = Duration::from_millis(stepped_ms.unsigned_abs());
        if stepped_ms < 0 { since_epoch.saturating_sub(stepped) } else { since_epoch + stepped }
    };
    since_epoch
}

/// Notes whether the wall clock was set, so that durations do not see that.
fn note_steps(since_epoch: Duration) {
    static BEGAN: OnceLock<(Instant, Duration)> = OnceLock::new();
    let (instant, began) = BEGAN.get_or_init(|| (Instant::now(), since_epoch));
    let without_steps = *began + instant.elapsed();
    steady::note_wall_clock(since_epoch.as_millis() as i64 - without_steps.as_millis() as i64);
}

/// The clock that never runs backwards.
pub fn instant() -> Instant {
    #[cfg(debug_assertions)]
    if let Some(moment) = simulated::moment() {
        return moment.instant;
    }
    Instant::now()
}

/// The processor time of this thread.
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the time that has passed since `since`.
pub fn elapsed(since: Instant) -> Duration {
    instant().saturating_duration_since(since)
}

/// Both clocks of a thread, as a test has set them.
#[cfg(debug_assertions)]
pub mod simulated {
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    #[derive(Clone, Copy)]
    pub struct Moment {
        pub instant: Instant,
        pub since_epoch: Duration,
    }

    thread_local! {
        static MOMENT: Cell<Option<Moment>> = const { Cell::new(None) };
    }

    pub fn moment() -> Option<Moment> {
        MOMENT.get()
    }

    pub fn set(moment: Option<Moment>) {
        MOMENT.set(moment);
    }

    /// Sets the wall clock forward or back.
    pub fn step(step_ms: i64) {
        let Moment { instant, since_epoch } = moment().expect("the time is simulated");
        let step = Duration::from_millis(step_ms.unsigned_abs());
        let since_epoch = if step_ms < 0 { since_epoch.saturating_sub(step) } else { since_epoch + step };
        set(Some(Moment { instant, since_epoch }));
    }

    pub fn pass(time: Duration) {
        let Moment { instant, since_epoch } = moment().expect("the time is simulated");
        set(Some(Moment { instant: instant + time, since_epoch: since_epoch + time }));
    }
}
