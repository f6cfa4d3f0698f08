//! What is known of the function under way: FUNCTION STATS shows it, and KILL asks whether it is one.
//!
//! Most functions are over in a moment, so its call is copied only when its interpreter asks for the first time whether it
//! is to stop.

use isotherm_resp::{Args, ArgsBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

#[derive(Clone)]
pub struct FunctionCall {
    /// FCALL and its arguments.
    pub words: ArgsBuf,
    pub began_us: i64,
}

#[derive(Default)]
pub struct UnderWay {
    is_function: AtomicBool,
    is_shown: AtomicBool,
    shown: Mutex<Option<FunctionCall>>,
}

impl UnderWay {
    /// A function begins.
    pub fn begin(&self) {
        self.is_function.store(true, Relaxed);
    }

    /// It is over.
    pub fn end(&self) {
        self.is_function.store(false, Relaxed);
        if self.is_shown.swap(false, Relaxed) {
            *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Whether what runs, if anything does, is a function.
    pub fn is_function(&self) -> bool {
        self.is_function.load(Relaxed)
    }

    /// It takes long: others see it from now on.
    #[inline]
    pub fn show(&self, words: Args<'_>, began_us: i64) {
        if self.is_function() && !self.is_shown.load(Relaxed) {
            let call = FunctionCall { words: ArgsBuf::from(words), began_us };
            *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
            self.is_shown.store(true, Relaxed);
        }
    }

    pub fn shown(&self) -> Option<FunctionCall> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
