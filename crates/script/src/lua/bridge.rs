//! What C calls while a script runs, and the safe code behind it.
//!
//! Every function here is called with the pointer that `State::run` gave to C, which is a [`Bridge`] alive until that run
//! returns. C calls one function at a time, from the thread that runs, and a function's references end when it returns.

use std::ffi::c_void;

use isotherm_resp::{Args, Protocol, Reply, Span};
use isotherm_stdx::float::push_f64_digits;
use isotherm_stdx::sha1::{hex, sha1};

use super::ffi::{
    Bytes, Calls, DEPTH_END, ERROR_ARGUMENT, ERROR_PLACED, ERROR_PLAIN, NUMBER_BYTES_MAX, SHA_DIGITS,
};
use crate::host::{Host, LogLevel, Replication};
use crate::libraries::{self, Call, Depth, Failure};
use crate::tape::{Reader, Writer};

pub struct Bridge<'a> {
    pub host: &'a mut dyn Host,
    /// For the replies to the script's commands.
    pub reply: &'a mut Reply,
    pub libraries: &'a mut libraries::State,
    /// What a function of a library returns.
    pub out: &'a mut Vec<u8>,
}

pub static CALLS: Calls = Calls {
    call,
    may_run,
    set_replication,
    log,
    is_to_stop,
    number_text,
    sha1hex,
    library_depth,
    library_call,
};

/// # Safety
/// `bridge` is what C was given for the run under way, and no other reference to it is in use.
unsafe fn of<'a>(bridge: *mut c_void) -> &'a mut Bridge<'a> {
    // SAFETY: the caller's promise.
    unsafe { &mut *bridge.cast::<Bridge<'a>>() }
}

/// # Safety
/// `wire` and `count` spans of it are alive and unchanged for `'a`.
unsafe fn words<'a>(wire: Bytes, spans: *const Span, count: usize) -> Args<'a> {
    // SAFETY: the caller's promise; there is at least one word, so `spans` is not null.
    unsafe { Args::new(wire.as_slice(), std::slice::from_raw_parts(spans, count)) }
}

/// The reply stays in `Bridge::reply`, which is cleared by the next call only.
unsafe extern "C" fn call(
    bridge: *mut c_void,
    wire: Bytes,
    spans: *const Span,
    count: usize,
    resp: i32,
    reply: *mut Bytes,
) {
    // SAFETY: as the head of this file says; the request lies in the interpreter's buffer, which nothing writes meanwhile.
    let (bridge, words) = unsafe { (of(bridge), words(wire, spans, count)) };
    bridge.reply.truncate(0);
    bridge.reply.proto = if resp == 3 { Protocol::Resp3 } else { Protocol::Resp2 };
    bridge.host.call(words, bridge.reply);
    assert!(!bridge.reply.is_empty(), "a command of a script has one reply: {words:?}");
    // SAFETY: C gave the address of a variable of its own.
    unsafe { *reply = Bytes::of(&bridge.reply.out) };
}

unsafe extern "C" fn may_run(bridge: *mut c_void, wire: Bytes, spans: *const Span, count: usize) -> i32 {
    // SAFETY: as for `call`.
    let (bridge, words) = unsafe { (of(bridge), words(wire, spans, count)) };
    bridge.host.may_run(words).map_or(-1, i32::from)
}

unsafe extern "C" fn set_replication(bridge: *mut c_void, flags: u8) {
    // SAFETY: as the head of this file says.
    unsafe { of(bridge) }.host.set_replication(Replication::of_flags(flags));
}

unsafe extern "C" fn log(bridge: *mut c_void, level: u8, text: Bytes) {
    // SAFETY: as the head of this file says; the text lies in the interpreter's buffer.
    let (bridge, text) = unsafe { (of(bridge), text.as_slice()) };
    let level = LogLevel::of_number(level).expect("C refuses all other levels");
    bridge.host.log(level, text);
}

unsafe extern "C" fn is_to_stop(bridge: *mut c_void) -> i32 {
    // SAFETY: as the head of this file says.
    i32::from(unsafe { of(bridge) }.host.is_to_stop())
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
    match (function(number).depth)(bridge.libraries, instance) {
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
        out: Writer::new(bridge.out),
        instance,
        state: bridge.libraries,
    };
    let status = match (function(number).run)(&mut call) {
        Ok(()) => 0,
        Err(Failure::Error(text)) => {
            *bridge.out = text;
            ERROR_PLACED
        }
        Err(Failure::Plain(text)) => {
            bridge.out.clear();
            bridge.out.extend_from_slice(text.as_bytes());
            ERROR_PLAIN
        }
        Err(Failure::Argument(number, text)) => {
            *bridge.out = text;
            ERROR_ARGUMENT + number
        }
    };
    // SAFETY: C gave the address of a variable of its own; `out` is not touched before the next call.
    unsafe { *out = Bytes::of(bridge.out) };
    status
}
