//! Load that shows what was lost and what ran twice: INCR of random counters at a fixed rate.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::Fallible;
use crate::open_loop::OpenLoop;
use crate::shape::{Order, Shape, Verb};

/// Number of counters: large enough that each is incremented only every few seconds, small enough that a full
/// sync of them is short.
const COUNTERS: u64 = 100_000;
pub const PER_SECOND: f64 = 20_000.0;
const CONNECTIONS: usize = 4;

/// Does `what` while counters of the server on this port go up. When it returns, the last of them has been
/// answered.
pub fn meanwhile<T>(port: u16, what: impl FnOnce() -> Fallible<T>) -> Fallible<T> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let load = scope.spawn(move || {
            let mut shape = Shape::new(Verb::Incr, COUNTERS).order(Order::Uniform);
            let load = OpenLoop { port, connections: CONNECTIONS, per_second: PER_SECOND };
            load.run(&mut shape, || over.load(Relaxed))
        });
        let done = what();
        over.store(true, Relaxed);
        load.join().map_err(|_| "the load panicked".to_string())??;
        done
    })
}
