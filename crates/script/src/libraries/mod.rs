//! The libraries that scripts find beside Lua's own, in safe Rust: cjson, cmsgpack, struct, bit.
//!
//! A library is a table of declarations. Its functions get the arguments as a tape, write their results to one, and never
//! see Lua. What a library remembers (the settings of cjson) lives in [`State`] and lasts for a run.

use crate::tape::{Reader, Writer};

pub struct Library {
    /// The global variable that holds its table.
    pub name: &'static str,
    pub functions: &'static [Function],
    pub constants: &'static [(&'static str, Constant)],
}

pub struct Function {
    pub name: &'static str,
    pub run: fn(&mut Call<'_>) -> Result<(), Failure>,
    /// How deep tables among its arguments are walked, given the instance.
    pub depth: fn(&State, u32) -> Depth,
}

/// How far the walker follows tables in tables. A table that is an argument has depth 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// No argument is a table of interest: each is `Item::TooDeep`.
    None,
    /// A deeper table is `Item::TooDeep`, and the walk goes on behind it.
    Cut(u16),
    /// At a deeper table the walk ends: `Item::TooDeep` is the last item of the tape.
    End(u16),
}

pub enum Constant {
    Text(&'static str),
    Number(f64),
    /// The light userdata NULL.
    Null,
}

/// One call of a function.
pub struct Call<'a> {
    /// The arguments, one value behind the other.
    pub args: Reader<'a>,
    pub arg_count: usize,
    /// Results, one value behind the other; C counts them.
    pub out: Writer<'a>,
    /// 0, or what `Writer::library` was called with when this function's table was made.
    pub instance: u32,
    pub state: &'a mut State,
}

/// How a function fails. What it has written is dropped.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// `luaL_error`: the text behind the place in the script.
    Error(Vec<u8>),
    /// `luaL_argerror`: the argument's number from 1; the text becomes "bad argument #1 to 'encode' (...)".
    Argument(u32, Vec<u8>),
}

impl Failure {
    pub fn error(text: impl Into<Vec<u8>>) -> Failure {
        Failure::Error(text.into())
    }

    pub fn argument(number: u32, text: impl Into<Vec<u8>>) -> Failure {
        Failure::Argument(number, text.into())
    }

    /// `luaL_typerror`: "number expected, got nil". `got`: Lua's number of the type, `None` for an argument that is missing.
    pub fn type_error(number: u32, expected: &str, got: Option<u8>) -> Failure {
        let got = got.map_or("no value", crate::tape::types::name);
        Failure::Argument(number, format!("{expected} expected, got {got}").into_bytes())
    }
}

/// What the libraries of one interpreter remember. A run begins with a new one.
#[derive(Default)]
pub struct State {}

impl State {
    /// Called before each run: must cost next to nothing if no script has set anything.
    pub fn reset(&mut self) {}
}

/// All libraries, in the order in which Valkey opens them.
pub static ALL: &[&Library] = &[];
