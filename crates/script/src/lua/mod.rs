//! The room of `unsafe`: Lua, which is C, and its binding.
//!
//! ```text
//! state    the interpreter as safe code sees it: open, compile, run
//! bridge   what C calls, and the safe code behind it
//! ffi      the declarations of lua/glue/glue.h
//! ```
//! * C is called with bytes, and calls back with bytes. No Rust frame lies between an error of Lua and the
//!   protected call that catches it: the functions that C calls return before C touches its state again.
//! * A panic in a function that C calls ends the process: `extern "C"` does not unwind.
//! * Miri cannot run this: it has no C. The tests of the crate run it, with Lua's own checks in builds with
//!   debug assertions.

#![allow(unsafe_code)]

mod bridge;
mod ffi;
mod state;

pub use state::{Run, State, Status};
