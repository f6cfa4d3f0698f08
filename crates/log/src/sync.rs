//! Types that threads share: the standard library's, or shuttle's under `--cfg shuttle`. Shuttle's scheduler
//! then decides at each use which thread continues (`cargo xtask locks`).

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicU64, fence};
#[cfg(shuttle)]
pub use shuttle::sync::{Mutex, MutexGuard};

#[cfg(not(shuttle))]
pub use std::sync::atomic::{AtomicU64, fence};
#[cfg(not(shuttle))]
pub use std::sync::{Mutex, MutexGuard};
