//! The declarations of `lua/glue/glue.h`, in its order. A test compares sizes and constants.

use std::ffi::c_void;

use isotherm_resp::Span;

/// Borrowed for as long as the function called says.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub data: *const u8,
    pub len: usize,
}

impl Bytes {
    pub const EMPTY: Bytes = Bytes { data: std::ptr::null(), len: 0 };

    pub const fn of(bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr(), len: bytes.len() }
    }

    /// # Safety
    /// The bytes are alive and unchanged for `'a`.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller's promise; a pointer to more than no byte is not null.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// Functions that C calls while a script runs; `bridge` is that of `iso_run`.
#[repr(C)]
pub struct Calls {
    pub call: unsafe extern "C" fn(*mut c_void, Bytes, *const Span, usize, i32, *mut Bytes),
    pub may_run: unsafe extern "C" fn(*mut c_void, Bytes, *const Span, usize) -> i32,
    pub set_replication: unsafe extern "C" fn(*mut c_void, u8),
    pub log: unsafe extern "C" fn(*mut c_void, u8, Bytes),
    pub checkpoint: unsafe extern "C" fn(*mut c_void) -> i32,
    pub number_text: unsafe extern "C" fn(f64, *mut u8) -> usize,
    pub sha1hex: unsafe extern "C" fn(Bytes, *mut u8),
    pub library_depth: unsafe extern "C" fn(*mut c_void, u32, u32) -> u32,
    pub library_call: unsafe extern "C" fn(*mut c_void, u32, u32, Bytes, usize, *mut Bytes) -> u32,
    pub debug_reach: unsafe extern "C" fn(*mut c_void, i32, i32) -> i32,
    pub debug_next: unsafe extern "C" fn(*mut c_void, *mut Bytes) -> i32,
    pub debug_word: unsafe extern "C" fn(*mut c_void, usize, *mut Bytes) -> i32,
    pub debug_log: unsafe extern "C" fn(*mut c_void, i32, Bytes, i32),
    pub debug_line: unsafe extern "C" fn(*mut c_void, i32) -> i32,
}

pub const GO_ON: i32 = 0;
pub const STOP: i32 = 1;
pub const GO_ON_OFTEN: i32 = 2;

pub const DEBUG_GO_ON: i32 = 0;
pub const DEBUG_STOP: i32 = 1;
pub const DEBUG_FAIL: i32 = 2;
pub const DEBUG_PRINT_ALL: i32 = 3;
pub const DEBUG_PRINT: i32 = 4;
pub const DEBUG_TRACE: i32 = 5;
pub const DEBUG_EVAL: i32 = 6;
pub const DEBUG_CALL: i32 = 7;

pub const LOG_ERROR: i32 = 1;
pub const LOG_FRAME: i32 = 2;

pub const NUMBER_BYTES_MAX: usize = 64;
pub const SHA_DIGITS: usize = 40;

pub const ERROR_PLACED: u32 = 1;
pub const ERROR_PLAIN: u32 = 2;
/// And the number of the argument.
pub const ERROR_ARGUMENT: u32 = 3;
pub const DEPTH_END: u32 = 0x10000;

#[repr(C)]
pub struct Constant {
    pub name: Bytes,
    pub of_type: i32,
    pub number: f64,
    pub text: Bytes,
}

#[repr(C)]
pub struct Library {
    pub name: Bytes,
    pub functions: *const Bytes,
    pub function_count: usize,
    pub function_first: u32,
    pub constants: *const Constant,
    pub constant_count: usize,
}

#[repr(C)]
pub struct Config {
    pub memory_max: usize,
    pub insecure_api: i32,
    pub runs_functions: i32,
    pub server_name: Bytes,
    pub redis_version: Bytes,
    pub redis_version_num: u32,
    pub valkey_version: Bytes,
    pub valkey_version_num: u32,
    pub libraries: *const Library,
    pub library_count: usize,
    pub calls: *const Calls,
}

pub const RAN: i32 = 0;
pub const STOPPED: i32 = 2;

/// C's struct. Only C knows its fields.
#[repr(C)]
pub struct Interp {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    pub fn iso_open(config: *const Config) -> *mut Interp;
    pub fn iso_close(interp: *mut Interp);
    pub fn iso_used(interp: *const Interp) -> usize;
    pub fn iso_set_limit(interp: *mut Interp, memory_max: usize);
    pub fn iso_compile(interp: *mut Interp, text: Bytes, result: *mut Bytes) -> i32;
    pub fn iso_forget(interp: *mut Interp, reference: i32);
    pub fn iso_collect(interp: *mut Interp);
    pub fn iso_trim(interp: *mut Interp);
    pub fn iso_debug(interp: *mut Interp);
    pub fn iso_run(
        interp: *mut Interp,
        reference: i32,
        bytes: Bytes,
        spans: *const Span,
        key_count: usize,
        arg_count: usize,
        bridge: *mut c_void,
        result: *mut Bytes,
    ) -> i32;
    pub fn iso_load(interp: *mut Interp, code: Bytes, bridge: *mut c_void, result: *mut Bytes) -> i32;
    #[cfg(test)]
    pub fn iso_constants(out: *mut u32, max: usize) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::{FIELDS_MAX, WALKED_HEAD, tags, types};

    /// `iso_constants` lists them in this order.
    #[test]
    fn both_sides_have_the_same_constants() {
        let tags = [
            tags::NIL,
            tags::FALSE,
            tags::TRUE,
            tags::NUMBER,
            tags::STRING,
            tags::TABLE,
            tags::TABLE_END,
            tags::OTHER,
            tags::NULL,
            tags::TOO_DEEP,
            tags::LIST,
            tags::LIBRARY,
            tags::VALUES,
            tags::NUMBERED,
            tags::KEYED,
            tags::FIELDS,
            WALKED_HEAD as u8,
            FIELDS_MAX as u8,
        ];
        let types = [
            types::NIL,
            types::BOOLEAN,
            types::LIGHT_USERDATA,
            types::NUMBER,
            types::STRING,
            types::TABLE,
            types::FUNCTION,
            types::USERDATA,
            types::THREAD,
        ];
        let sizes = [
            size_of::<Span>(),
            size_of::<Constant>(),
            size_of::<Library>(),
            size_of::<Config>(),
            size_of::<Calls>(),
        ];
        let ours: Vec<u32> =
            tags.into_iter().chain(types).map(u32::from).chain(sizes.map(|size| size as u32)).collect();
        let mut theirs = vec![0; ours.len()];
        // SAFETY: it writes at most `max` numbers.
        let count = unsafe { iso_constants(theirs.as_mut_ptr(), theirs.len()) };
        assert_eq!(count, ours.len());
        assert_eq!(theirs, ours);
    }
}
