//! An interpreter of C as safe code sees it.
//!
//! ```text
//!   run ------>  [ stack of the run: iso_run, Lua, a function that C calls ]
//!      <- ended | suspended                       |
//!   resume --->                                   '- host: "later", "pause"
//! ```
//! A script runs on a stack of its own, so that it can be left in the middle of it and gone back to: Lua 5.1
//! cannot leave a function of C. The stack is kept for the next run. Invariant: `run` is `Some` exactly
//! between a suspension and the end of its run.

use std::ffi::c_void;
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};
use isotherm_resp::Args;

use super::bridge::{Bridge, CALLS, Suspension};
use super::ffi::{self, Bytes};
use crate::debugger::Debugger;
use crate::host::Host;
use crate::interpreter::{BUFFER_KEPT_MAX, Identity, Limits, OutOfMemory};
use crate::libraries::{self, Constant};

/// Maximum stack of a run. Lua limits nested calls of C to 200, and each of these takes less than 4 KB; a
/// command of a script runs on the same stack. Only touched pages take memory.
const STACK_BYTES: usize = 1 << 20;

/// Status with which `iso_run` has ended, and its result.
type Ran = (i32, Bytes);
type Fiber = Coroutine<(), (), Ran, DefaultStack>;

/// Lua state. Dropping it frees all that it holds.
pub struct State {
    interp: NonNull<ffi::Interp>,
    /// C has its address while a script runs. Made by `Box`, freed by `drop`; used as a pointer only.
    bridge: NonNull<Bridge>,
    /// Stack of the next run; `None` before the first, and during a run.
    stack: Option<DefaultStack>,
    /// The run that is suspended.
    run: Option<Fiber>,
    /// C keeps a pointer to them.
    _libraries: Libraries,
}

// SAFETY: the state belongs to the owner of this value, keeps nothing of a thread, and is used through `&mut`
// only. So do the frames of a run that is suspended: they are those of Lua and of `bridge::call`,
// `bridge::checkpoint` and `bridge::debug_next`.
unsafe impl Send for State {}

/// Status in which a run returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Ran,
    Failed,
    Stopped,
    Suspended,
}

/// Input of a script.
pub struct Run<'a> {
    pub reference: i32,
    /// Keys, then arguments.
    pub words: Args<'a>,
    pub key_count: usize,
}

impl State {
    /// `runs_functions`: of libraries, and no scripts.
    pub fn open(limits: &Limits, identity: &Identity, runs_functions: bool) -> Result<State, OutOfMemory> {
        let libraries = Libraries::declare();
        let config = ffi::Config {
            memory_max: limits.memory_bytes,
            insecure_api: limits.insecure_api.into(),
            runs_functions: runs_functions.into(),
            server_name: Bytes::of(identity.server_name.as_bytes()),
            redis_version: Bytes::of(identity.redis_version.as_bytes()),
            redis_version_num: version_number(identity.redis_version),
            valkey_version: Bytes::of(identity.valkey_version.as_bytes()),
            valkey_version_num: version_number(identity.valkey_version),
            libraries: libraries.list.as_ptr(),
            library_count: libraries.list.len(),
            calls: &CALLS,
        };
        // SAFETY: all that `config` points to is alive for the call; the libraries and CALLS are for as long
        // as the state.
        let interp = NonNull::new(unsafe { ffi::iso_open(&config) }).ok_or(OutOfMemory)?;
        // SAFETY: a box is not null.
        let bridge = unsafe { NonNull::new_unchecked(Box::into_raw(Box::<Bridge>::default())) };
        Ok(State { interp, bridge, stack: None, run: None, _libraries: libraries })
    }

    pub fn used_bytes(&self) -> usize {
        // SAFETY: the state is open; the bridge is alive, and no function that C calls is under way.
        let (used, bridge) = unsafe { (ffi::iso_used(self.interp.as_ptr()), self.bridge.as_ref()) };
        let debugger = bridge.debugger.as_ref().map_or(0, |debugger| debugger.memory_bytes());
        used + size_of::<Bridge>() + bridge.reply.out.capacity() + bridge.out.capacity() + debugger
    }

    /// Resets the libraries: settings that a script makes in them last for its run.
    pub fn reset_libraries(&mut self) {
        // SAFETY: the bridge is alive, and no function that C calls is under way.
        unsafe { self.bridge.as_mut() }.libraries.reset();
    }

    pub fn is_suspended(&self) -> bool {
        self.run.is_some()
    }

    /// The next run is debugged.
    pub fn debug(&mut self, debugger: Debugger) {
        self.assert_idle();
        // SAFETY: the state is open, and this is its only user; the bridge is alive, and no function that C
        // calls is under way.
        unsafe {
            ffi::iso_debug(self.interp.as_ptr());
            self.bridge.as_mut().debugger = Some(Box::new(debugger));
        }
    }

    /// The debugger of the run that is suspended, or was the last.
    pub fn debugger(&mut self) -> &mut Option<Box<Debugger>> {
        // SAFETY: the bridge is alive, and no function that C calls is under way.
        unsafe { &mut self.bridge.as_mut().debugger }
    }

    pub fn set_limit(&mut self, memory_bytes: usize) {
        // SAFETY: the state is open, and this is its only user.
        unsafe { ffi::iso_set_limit(self.interp.as_ptr(), memory_bytes) }
    }

    fn assert_idle(&self) {
        assert!(!self.is_suspended(), "one run at a time");
    }

    /// A reference to the compiled function, or the text of the error.
    pub fn compile(&mut self, text: &[u8]) -> Result<i32, Vec<u8>> {
        self.assert_idle();
        let mut why = Bytes::EMPTY;
        // SAFETY: the state is open, and this is its only user; `text` is read in the call only.
        let reference = unsafe { ffi::iso_compile(self.interp.as_ptr(), Bytes::of(text), &mut why) };
        if reference >= 0 {
            return Ok(reference);
        }
        // SAFETY: the text lies in a buffer of the state, which nothing writes before the next call.
        Err(unsafe { why.as_slice() }.to_vec())
    }

    /// `reference`: of `compile`, and not forgotten since.
    pub fn forget(&mut self, reference: i32) {
        self.assert_idle();
        // SAFETY: the state is open, and this is its only user. Any number is safe: one that is no reference
        // frees a slot of the registry that holds nothing.
        unsafe { ffi::iso_forget(self.interp.as_ptr(), reference) }
    }

    pub fn collect(&mut self) {
        self.assert_idle();
        // SAFETY: the state is open, and this is its only user.
        unsafe { ffi::iso_collect(self.interp.as_ptr()) }
    }

    /// Gives back the memory of buffers that a run has made large, if the run is over. `result_bytes` is the
    /// length of its result.
    pub fn trim_after(&mut self, result_bytes: usize) {
        if self.is_suspended() {
            return;
        }
        if result_bytes > BUFFER_KEPT_MAX {
            // SAFETY: the state is open, and this is its only user, so that no result is borrowed.
            unsafe { ffi::iso_trim(self.interp.as_ptr()) }
        }
        // SAFETY: the bridge is alive, and no function that C calls is under way.
        let bridge = unsafe { self.bridge.as_mut() };
        for buffer in [&mut bridge.reply.out, &mut bridge.out] {
            if buffer.capacity() > BUFFER_KEPT_MAX {
                *buffer = Vec::new();
            }
        }
    }

    /// Runs the code of a library: the list of what it has registered, as `lua/glue/glue.h` draws it, or the
    /// text of the error. The state was opened for functions. It is not suspended: the host says neither
    /// "later" nor "pause".
    pub fn load(&mut self, code: &[u8], host: &mut dyn Host) -> Result<&[u8], Vec<u8>> {
        self.assert_idle();
        self.set_host(Some(host));
        let (bridge, mut result) = (self.bridge.as_ptr().cast::<c_void>(), Bytes::EMPTY);
        // SAFETY: the state is open, and this is its only user; `code` is read in the call only, and so is
        // the host.
        let loaded = unsafe { ffi::iso_load(self.interp.as_ptr(), Bytes::of(code), bridge, &mut result) };
        self.set_host(None);
        // SAFETY: the bytes lie in a buffer of the state, which nothing writes before the next call, which
        // needs `&mut`.
        let bytes = unsafe { result.as_slice() };
        if loaded == 1 { Ok(bytes) } else { Err(bytes.to_vec()) }
    }

    /// The host of the call under way, or none between calls.
    fn set_host(&mut self, host: Option<&mut dyn Host>) {
        // SAFETY: only the lifetime changes. Each caller takes the host away before it can end, and this
        // thread's only frames that use it meanwhile are those above the caller's.
        let host = host.map(|host| unsafe {
            std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(host.into())
        });
        // SAFETY: the bridge is alive, and no function that C calls is under way.
        unsafe { self.bridge.as_mut() }.host = host;
    }

    /// Begins a run. The tokens of the result: `lua/glue/glue.h` lists them; none if it is suspended.
    pub fn run<'s>(&'s mut self, run: &Run<'_>, host: &mut dyn Host) -> (Status, &'s [u8]) {
        self.assert_idle();
        let (bytes, spans) = run.words.parts();
        assert!(run.key_count <= spans.len(), "keys are words");
        let stack = self.stack.take().unwrap_or_else(|| {
            DefaultStack::new(STACK_BYTES).expect("the system has addresses and maps for a stack")
        });
        let (interp, bridge, reference) = (self.interp, self.bridge, run.reference);
        let (key_count, arg_count) = (run.key_count, spans.len() - run.key_count);
        let (bytes, spans) = (Bytes::of(bytes), spans.as_ptr());
        let fiber = Fiber::with_stack(stack, move |suspension: &Suspension, ()| {
            let mut tokens = Bytes::EMPTY;
            // SAFETY: the state is open, and the run is its only user until it has returned. The words are
            // read before the run can be suspended, so within this call of `State::run`. The bridge outlives
            // the run, and so does the suspension, which lies below these frames on the same stack.
            let status = unsafe {
                (*bridge.as_ptr()).suspension = Some(NonNull::from(suspension));
                let bridge = bridge.as_ptr().cast::<c_void>();
                let interp = interp.as_ptr();
                ffi::iso_run(interp, reference, bytes, spans, key_count, arg_count, bridge, &mut tokens)
            };
            (status, tokens)
        });
        self.go_on(fiber, host)
    }

    /// Continues the run that is suspended.
    pub fn resume<'s>(&'s mut self, host: &mut dyn Host) -> (Status, &'s [u8]) {
        let fiber = self.run.take().expect("a run is suspended");
        self.go_on(fiber, host)
    }

    fn go_on(&mut self, mut fiber: Fiber, host: &mut dyn Host) -> (Status, &[u8]) {
        self.set_host(Some(host));
        let resumed = fiber.resume(());
        self.set_host(None);
        let (status, tokens) = match resumed {
            CoroutineResult::Yield(()) => {
                self.run = Some(fiber);
                return (Status::Suspended, &[]);
            }
            CoroutineResult::Return(ran) => ran,
        };
        self.stack = Some(fiber.into_stack());
        // SAFETY: the bridge is alive, and no function that C calls is under way.
        unsafe { self.bridge.as_mut() }.suspension = None;
        let status = match status {
            ffi::RAN => Status::Ran,
            ffi::STOPPED => Status::Stopped,
            _ => Status::Failed,
        };
        // SAFETY: the tokens lie in a buffer of the state, which nothing writes before the next call, which
        // needs `&mut`.
        (status, unsafe { tokens.as_slice() })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(mut fiber) = self.run.take() {
            // SAFETY: the frames that are left own nothing that would have to be dropped: C's buffers belong
            // to the state, which is closed below, and the functions that suspend hold references only.
            unsafe { fiber.force_reset() };
        }
        // SAFETY: the state is open, and nothing uses it afterwards; the bridge was a box, and C had the only
        // other pointer to it.
        unsafe {
            ffi::iso_close(self.interp.as_ptr());
            drop(Box::from_raw(self.bridge.as_ptr()));
        }
    }
}

/// `7.2.4` as 0x070204: a part has a byte.
fn version_number(version: &str) -> u32 {
    let parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0) & 0xff);
    parts.chain([0; 3]).take(3).fold(0, |number, part| number << 8 | part)
}

/// The declarations of the libraries as C reads them.
struct Libraries {
    list: Vec<ffi::Library>,
    _functions: Vec<Vec<Bytes>>,
    _constants: Vec<Vec<ffi::Constant>>,
}

impl Libraries {
    fn declare() -> Libraries {
        let functions: Vec<Vec<Bytes>> = libraries::ALL
            .iter()
            .map(|library| {
                library.functions.iter().map(|function| Bytes::of(function.name.as_bytes())).collect()
            })
            .collect();
        let constants: Vec<Vec<ffi::Constant>> =
            libraries::ALL.iter().map(|library| library.constants.iter().map(constant).collect()).collect();
        let mut function_first = 0;
        let mut list = Vec::new();
        for ((library, functions), constants) in libraries::ALL.iter().zip(&functions).zip(&constants) {
            list.push(ffi::Library {
                name: Bytes::of(library.name.as_bytes()),
                functions: functions.as_ptr(),
                function_count: functions.len(),
                function_first,
                constants: constants.as_ptr(),
                constant_count: constants.len(),
            });
            function_first += functions.len() as u32;
        }
        Libraries { list, _functions: functions, _constants: constants }
    }
}

fn constant((name, value): &(&'static str, Constant)) -> ffi::Constant {
    use crate::tape::types;
    let (of_type, number, text) = match value {
        Constant::Text(text) => (types::STRING, 0.0, Bytes::of(text.as_bytes())),
        Constant::Number(number) => (types::NUMBER, *number, Bytes::EMPTY),
        Constant::Null => (types::LIGHT_USERDATA, 0.0, Bytes::EMPTY),
    };
    ffi::Constant { name: Bytes::of(name.as_bytes()), of_type: of_type.into(), number, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(version_number("7.2.4"), 0x070204);
        assert_eq!(version_number("255.255.255"), 0xff_ffff);
        assert_eq!(version_number("9"), 0x090000);
    }
}
