//! An interpreter of C as safe code sees it.

use std::ffi::c_void;
use std::ptr::NonNull;

use isotherm_resp::Args;

use super::bridge::{Bridge, CALLS};
use super::ffi::{self, Bytes};
use crate::interpreter::{Identity, Limits, OutOfMemory};
use crate::libraries::{self, Constant};

/// One Lua state. Dropped with all that it holds.
pub struct State {
    interp: NonNull<ffi::Interp>,
    /// C keeps a pointer to them.
    _libraries: Libraries,
}

// SAFETY: the state belongs to the owner of this value, keeps nothing of a thread, and is used through `&mut` only.
unsafe impl Send for State {}

/// How a run came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Ran,
    Failed,
    Stopped,
}

/// What a script is run with.
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
        // SAFETY: all that `config` points to is alive for the call; the libraries and CALLS are for as long as the state.
        let interp = NonNull::new(unsafe { ffi::iso_open(&config) }).ok_or(OutOfMemory)?;
        Ok(State { interp, _libraries: libraries })
    }

    pub fn used_bytes(&self) -> usize {
        // SAFETY: the state is open.
        unsafe { ffi::iso_used(self.interp.as_ptr()) }
    }

    pub fn set_limit(&mut self, memory_bytes: usize) {
        // SAFETY: the state is open, and this is its only user.
        unsafe { ffi::iso_set_limit(self.interp.as_ptr(), memory_bytes) }
    }

    /// A reference to the compiled function, or the text of the error.
    pub fn compile(&mut self, text: &[u8]) -> Result<i32, Vec<u8>> {
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
        // SAFETY: the state is open, and this is its only user. Any number is safe: one that is no reference frees a slot of
        // the registry that holds nothing.
        unsafe { ffi::iso_forget(self.interp.as_ptr(), reference) }
    }

    pub fn collect(&mut self) {
        // SAFETY: the state is open, and this is its only user.
        unsafe { ffi::iso_collect(self.interp.as_ptr()) }
    }

    /// Gives back the buffer in which a large result lay.
    pub fn trim(&mut self) {
        // SAFETY: the state is open, and this is its only user, so that no result is borrowed.
        unsafe { ffi::iso_trim(self.interp.as_ptr()) }
    }

    /// Runs the code of a library: the list of what it has registered, as `lua/glue/glue.h` draws it, or the text of the
    /// error. The state was opened for functions.
    pub fn load(&mut self, code: &[u8], mut bridge: Bridge<'_>) -> Result<&[u8], Vec<u8>> {
        let mut result = Bytes::EMPTY;
        // SAFETY: the state is open, and this is its only user; `code` is read in the call only, and the bridge is used by
        // `CALLS` in the call only, as `bridge.rs` says.
        let loaded = unsafe {
            ffi::iso_load(
                self.interp.as_ptr(),
                Bytes::of(code),
                (&raw mut bridge).cast::<c_void>(),
                &mut result,
            )
        };
        // SAFETY: the bytes lie in a buffer of the state, which nothing writes before the next call, which needs `&mut`.
        let bytes = unsafe { result.as_slice() };
        if loaded == 1 { Ok(bytes) } else { Err(bytes.to_vec()) }
    }

    /// The tokens of the result: `lua/glue/glue.h` lists them.
    pub fn run(&mut self, run: &Run<'_>, mut bridge: Bridge<'_>) -> (Status, &[u8]) {
        let (bytes, spans) = run.words.parts();
        assert!(run.key_count <= spans.len(), "keys are words");
        let mut tokens = Bytes::EMPTY;
        // SAFETY: the state is open, and this is its only user; the words are read in the call only, and the bridge is used
        // by `CALLS` in the call only, as `bridge.rs` says.
        let status = unsafe {
            ffi::iso_run(
                self.interp.as_ptr(),
                run.reference,
                Bytes::of(bytes),
                spans.as_ptr(),
                run.key_count,
                spans.len() - run.key_count,
                (&raw mut bridge).cast::<c_void>(),
                &mut tokens,
            )
        };
        let status = match status {
            ffi::RAN => Status::Ran,
            ffi::STOPPED => Status::Stopped,
            _ => Status::Failed,
        };
        // SAFETY: the tokens lie in a buffer of the state, which nothing writes before the next call, which needs `&mut`.
        (status, unsafe { tokens.as_slice() })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: the state is open, and nothing uses it afterwards.
        unsafe { ffi::iso_close(self.interp.as_ptr()) }
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
