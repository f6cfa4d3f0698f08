//! Functions that C calls while a script runs, and the safe code under them.
//!
//! Every function here is called with the pointer that `State` gave to C, which is a [`Bridge`] that lives as
//! long as the state. C calls one function at a time, and only while `State::run` or `State::resume` is on
//! the stack of the thread that called it: these put the host there, and take it away when they return. A
//! function's references end when it returns, or before it suspends the run.

use std::ffi::c_void;
use std::ptr::NonNull;

use isotherm_resp::{Args, Protocol, Reply, Span};
use isotherm_stdx::float::push_f64_digits;
use isotherm_stdx::sha1::{hex, sha1};

use super::ffi::{
    self, Bytes, Calls, DEPTH_END, ERROR_ARGUMENT, ERROR_PLACED, ERROR_PLAIN, GO_ON, GO_ON_OFTEN,
    NUMBER_BYTES_MAX, SHA_DIGITS, STOP,
};
use crate::debugger::{Action, Debugger};
use crate::host::{Called, Checkpoint, Host, LogLevel, Replication};
use crate::libraries::{self, Call, Depth, Failure};
use crate::tape::{Reader, Writer};

/// Data that a run and its host share. `'static` stands for "until `State` takes it away", which is before
/// the host ends.
#[derive(Default)]
pub struct Bridge {
    pub host: Option<NonNull<dyn Host>>,
    /// Suspension point of the current run.
    pub suspension: Option<NonNull<Suspension>>,
    /// Buffer for the replies to the script's commands.
    pub reply: Reply,
    pub libraries: libraries::State,
    /// Debugger of the current run, if it is debugged.
    pub debugger: Option<Box<Debugger>>,
    /// Results of a library function.
    pub out: Vec<u8>,
}

/// Suspension point that passes no values in either direction: the caller that resumes a run has put the host
/// into the bridge.
pub type Suspension = corosensei::Yielder<(), ()>;

impl Bridge {
    fn host(&mut self) -> &mut dyn Host {
        let mut host = self.host.expect("C calls only while a run has its host");
        // SAFETY: `State` has put it there for the call under way, and no other reference to it is in use.
        unsafe { host.as_mut() }
    }
}

/// Returns to the caller that has resumed the run, until it is resumed again.
///
/// # Safety
/// As for `of`; no reference to the bridge or its host is in use.
unsafe fn suspend(bridge: *mut c_void) {
    // SAFETY: the caller's promise. The suspension is that of the run under way, on whose stack this is.
    unsafe { of(bridge).suspension.expect("a run is under way").as_ref() }.suspend(());
}

pub static CALLS: Calls = Calls {
    call,
    may_run,
    set_replication,
    log,
    checkpoint,
    number_text,
    sha1hex,
    library_depth,
    library_call,
    debug_reach,
    debug_next,
    debug_word,
    debug_log,
    debug_line,
};

/// # Safety
/// `bridge` is what C was given for the run under way, and no other reference to it is in use.
unsafe fn of<'a>(bridge: *mut c_void) -> &'a mut Bridge {
    // SAFETY: the caller's promise.
    unsafe { &mut *bridge.cast::<Bridge>() }
}

/// # Safety
/// `wire` and `count` spans of it are alive and unchanged for `'a`.
unsafe fn words<'a>(wire: Bytes, spans: *const Span, count: usize) -> Args<'a> {
    // SAFETY: the caller's promise; there is at least one word, so `spans` is not null.
    unsafe { Args::new(wire.as_slice(), std::slice::from_raw_parts(spans, count)) }
}

/// The reply stays in `Bridge::reply`, which is cleared by the next call only. A command that has to wait is
/// tried again when the run is resumed.
unsafe extern "C" fn call(
    bridge: *mut c_void,
    wire: Bytes,
    spans: *const Span,
    count: usize,
    resp: i32,
    reply: *mut Bytes,
) {
    // SAFETY: the request lies in the interpreter's buffer, which nothing writes meanwhile, not while the run
    // is suspended either.
    let words = unsafe { words(wire, spans, count) };
    let this = bridge;
    // SAFETY: as the head of this file says.
    if let Some(debugger) = &mut unsafe { of(bridge) }.debugger {
        debugger.log_command(words.iter());
    }
    let bridge = loop {
        // SAFETY: as the head of this file says.
        let bridge = unsafe { of(this) };
        bridge.reply.truncate(0);
        bridge.reply.proto = if resp == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut host = bridge.host.expect("C calls only while a run has its host");
        // SAFETY: as in `Bridge::host`; the reply is another part of the bridge than the host.
        match unsafe { host.as_mut() }.call(words, &mut bridge.reply) {
            Called::Done => break bridge,
            // SAFETY: the references of this round are not used any more.
            Called::Later => unsafe { suspend(this) },
        }
    };
    if bridge.reply.is_empty() {
        bridge.reply.error("ERR the command has no reply");
    }
    if let Some(debugger) = bridge.debugger.as_mut().filter(|debugger| debugger.steps()) {
        let mut host = bridge.host.expect("C calls only while a run has its host");
        let refusal = match bridge.reply.out.first() {
            // SAFETY: as in `Bridge::host`; the debugger is another part of the bridge than the host.
            Some(b'-') => unsafe { host.as_mut() }.shown_refusal(words),
            _ => None,
        };
        debugger.log_reply(&bridge.reply.out, refusal);
    }
    // SAFETY: C gave the address of a variable of its own.
    unsafe { *reply = Bytes::of(&bridge.reply.out) };
}

unsafe extern "C" fn may_run(bridge: *mut c_void, wire: Bytes, spans: *const Span, count: usize) -> i32 {
    // SAFETY: as for `call`.
    let (bridge, words) = unsafe { (of(bridge), words(wire, spans, count)) };
    bridge.host().may_run(words).map_or(-1, i32::from)
}

unsafe extern "C" fn set_replication(bridge: *mut c_void, flags: u8) {
    // SAFETY: as the head of this file says.
    unsafe { of(bridge) }.host().set_replication(Replication::of_flags(flags));
}

unsafe extern "C" fn log(bridge: *mut c_void, level: u8, text: Bytes) {
    // SAFETY: as the head of this file says; the text lies in the interpreter's buffer.
    let (bridge, text) = unsafe { (of(bridge), text.as_slice()) };
    let level = LogLevel::of_number(level).expect("C refuses all other levels");
    bridge.host().log(level, text);
}

/// 0: the script continues; 1: it is to end; 2: it was suspended, continues, and is asked more often.
unsafe extern "C" fn checkpoint(bridge: *mut c_void) -> i32 {
    let mut was_suspended = false;
    loop {
        // SAFETY: as the head of this file says.
        match unsafe { of(bridge) }.host().checkpoint() {
            Checkpoint::GoOn => return if was_suspended { GO_ON_OFTEN } else { GO_ON },
            Checkpoint::Stop => return STOP,
            // SAFETY: the reference of this round is not used any more.
            Checkpoint::Pause => unsafe { suspend(bridge) },
        }
        was_suspended = true;
    }
}

unsafe extern "C" fn number_text(value: f64, text: *mut u8) -> usize {
    let mut digits = Vec::with_capacity(NUMBER_BYTES_MAX);
    if value.is_nan() && value.is_sign_negative() {
        digits.push(b'-'); // what 0/0 is on x86
    }
    push_f64_digits(&mut digits, value);
    assert!(
        digits.len() <= NUMBER_BYTES_MAX,
        "a number has at most 17 digits, a sign, a point and an exponent"
    );
    // SAFETY: C's buffer has NUMBER_BYTES_MAX bytes.
    unsafe { std::ptr::copy_nonoverlapping(digits.as_ptr(), text, digits.len()) };
    digits.len()
}

unsafe extern "C" fn sha1hex(text: Bytes, digits: *mut u8) {
    // SAFETY: the text is a string on Lua's stack.
    let hex = hex(&sha1(unsafe { text.as_slice() }));
    assert_eq!(hex.len(), SHA_DIGITS);
    // SAFETY: C's buffer has SHA_DIGITS bytes.
    unsafe { std::ptr::copy_nonoverlapping(hex.as_ptr(), digits, SHA_DIGITS) };
}

/// The function with this number among those of all libraries.
fn function(number: u32) -> &'static libraries::Function {
    let mut left = number as usize;
    for library in libraries::ALL {
        match library.functions.get(left) {
            Some(function) => return function,
            None => left -= library.functions.len(),
        }
    }
    unreachable!("C knows the functions that it was given")
}

unsafe extern "C" fn library_depth(bridge: *mut c_void, number: u32, instance: u32) -> u32 {
    // SAFETY: as the head of this file says.
    let bridge = unsafe { of(bridge) };
    match (function(number).depth)(&bridge.libraries, instance) {
        Depth::None => 0,
        Depth::Cut(levels) => levels.into(),
        Depth::End(levels) => u32::from(levels) | DEPTH_END,
    }
}

unsafe extern "C" fn library_call(
    bridge: *mut c_void,
    number: u32,
    instance: u32,
    args: Bytes,
    arg_count: usize,
    out: *mut Bytes,
) -> u32 {
    // SAFETY: as the head of this file says; the tape lies in the interpreter's buffer.
    let (bridge, args) = unsafe { (of(bridge), args.as_slice()) };
    bridge.out.clear();
    let mut call = Call {
        args: Reader::new(args),
        arg_count,
        out: Writer::new(&mut bridge.out),
        instance,
        state: &mut bridge.libraries,
    };
    let status = match (function(number).run)(&mut call) {
        Ok(()) => 0,
        Err(Failure::Error(text)) => {
            bridge.out = text;
            ERROR_PLACED
        }
        Err(Failure::Plain(text)) => {
            bridge.out.clear();
            bridge.out.extend_from_slice(text.as_bytes());
            ERROR_PLAIN
        }
        Err(Failure::Argument(number, text)) => {
            bridge.out = text;
            ERROR_ARGUMENT + number
        }
    };
    // SAFETY: C gave the address of a variable of its own; `out` is not touched before the next call.
    unsafe { *out = Bytes::of(&bridge.out) };
    status
}

// ---- the debugger ----

/// # Safety
/// As for `of`; the run is debugged.
unsafe fn debugger<'a>(bridge: *mut c_void) -> &'a mut Debugger {
    // SAFETY: the caller's promise.
    unsafe { of(bridge) }.debugger.as_mut().expect("C asks in a run that is debugged only")
}

unsafe extern "C" fn debug_reach(bridge: *mut c_void, line: i32, is_its_own: i32) -> i32 {
    // SAFETY: as the head of this file says.
    unsafe { debugger(bridge) }.reach(line.into(), is_its_own != 0).into()
}

/// Returns the next action. Suspends the run until there is one.
unsafe extern "C" fn debug_next(bridge: *mut c_void, text: *mut Bytes) -> i32 {
    loop {
        // SAFETY: as the head of this file says.
        let word = unsafe { of(bridge) }.host().checkpoint();
        if word == Checkpoint::Stop {
            return ffi::DEBUG_STOP;
        }
        // SAFETY: the reference to the host is not used any more.
        let debugger = unsafe { debugger(bridge) };
        let action = match word {
            Checkpoint::Pause => debugger.pause(),
            _ => debugger.next(),
        };
        if let Some(action) = action {
            let (code, bytes) = match action {
                Action::GoOn => (ffi::DEBUG_GO_ON, &[][..]),
                Action::Fail(why) => (ffi::DEBUG_FAIL, why.as_bytes()),
                Action::PrintAll => (ffi::DEBUG_PRINT_ALL, &[][..]),
                Action::Print => (ffi::DEBUG_PRINT, debugger.text()),
                Action::Trace => (ffi::DEBUG_TRACE, &[][..]),
                Action::Eval => (ffi::DEBUG_EVAL, debugger.text()),
                Action::Call => (ffi::DEBUG_CALL, &[][..]),
            };
            // SAFETY: C gave the address of a variable of its own; the debugger keeps the text until it is
            // asked for the next.
            unsafe { *text = Bytes::of(bytes) };
            return code;
        }
        // SAFETY: the references of this round are not used any more.
        unsafe { suspend(bridge) };
    }
}

unsafe extern "C" fn debug_word(bridge: *mut c_void, number: usize, out: *mut Bytes) -> i32 {
    // SAFETY: as the head of this file says.
    let Some(word) = unsafe { debugger(bridge) }.word(number) else { return 0 };
    // SAFETY: C gave the address of a variable of its own; the debugger keeps the words until it is asked for
    // the next.
    unsafe { *out = Bytes::of(word) };
    1
}

unsafe extern "C" fn debug_log(bridge: *mut c_void, kind: i32, text: Bytes, line: i32) {
    // SAFETY: as the head of this file says; the text is C's, and stays meanwhile.
    let (debugger, text) = unsafe { (debugger(bridge), text.as_slice()) };
    match kind {
        ffi::LOG_ERROR => debugger.log_error(text),
        ffi::LOG_FRAME => debugger.log_frame(text, line.into()),
        _ => debugger.log(text),
    }
}

unsafe extern "C" fn debug_line(bridge: *mut c_void, breaks: i32) -> i32 {
    // SAFETY: as the head of this file says.
    let debugger = unsafe { debugger(bridge) };
    if breaks != 0 {
        debugger.break_next();
    }
    debugger.line() as i32
}
