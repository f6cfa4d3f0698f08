//! Interleavings of the locks and of the waiters, under a mutex of shuttle: `cargo xtask locks`.
#![cfg(shuttle)]

mod lock_model;
mod waiter_model;
