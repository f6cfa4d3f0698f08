//! Interleavings of the locks, of leases and of the waiters, under a mutex of shuttle: `cargo xtask locks`.
#![cfg(shuttle)]

mod lease_model;
mod lock_model;
mod slot_model;
mod waiter_model;
