//! A control of jemalloc: a name and a value of one type (`mallctl`).

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

/// Stands for all arenas together in the name of a control (MALLCTL_ARENAS_ALL).
pub const ALL_ARENAS: u32 = 4096;

/// A type that controls have: any bytes of its size are a value of it.
pub trait Plain: Copy + Default {}
impl Plain for u8 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for usize {}
impl Plain for isize {}

fn control_name(name: &str) -> CString {
    CString::new(name).expect("no control has a NUL in its name")
}

/// Reads a control; nothing if there is none of this name and size.
pub fn read<T: Plain>(name: &str) -> Option<T> {
    let name = control_name(name);
    let (mut value, mut size) = (T::default(), size_of::<T>());
    // SAFETY: the value has the size that is passed with it, jemalloc compares that with its own, and every
    // value is valid.
    let result = unsafe {
        tikv_jemalloc_sys::mallctl(name.as_ptr(), (&raw mut value).cast(), &raw mut size, null_mut(), 0)
    };
    (result == 0).then_some(value)
}

pub fn is_on(name: &str) -> bool {
    read::<u8>(name).is_some_and(|value| value != 0)
}

/// Sets a control. The error is the system's number.
pub fn write<T: Copy>(name: &str, value: T) -> Result<(), c_int> {
    let (name, mut value) = (control_name(name), value);
    // SAFETY: the value has the size that is passed with it, and jemalloc compares that with its own.
    done(unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            null_mut(),
            null_mut(),
            (&raw mut value).cast(),
            size_of::<T>(),
        )
    })
}

/// Does what a control without a value does.
pub fn call(name: &str) -> Result<(), c_int> {
    let name = control_name(name);
    // SAFETY: this control takes and gives no value.
    done(unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0) })
}

fn done(result: c_int) -> Result<(), c_int> {
    if result == 0 { Ok(()) } else { Err(result) }
}
