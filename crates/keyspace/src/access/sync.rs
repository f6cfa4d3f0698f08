//! Synchronisation between threads: the standard library's types, or shuttle's under `--cfg shuttle`.
//! Shuttle's scheduler then decides at each use which thread continues (`cargo xtask locks`).

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(shuttle)]
pub use shuttle::thread::yield_now;

#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
#[cfg(not(shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub use std::thread::yield_now;
