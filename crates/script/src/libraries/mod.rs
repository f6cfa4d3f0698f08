//! The libraries that scripts find besides Lua's own, in safe Rust: cjson, cmsgpack, struct, bit.
//!
//! A library is a table of declarations. Its functions get the arguments as a tape, write their results to
//! one, and never see Lua. The memory of a library (the settings of cjson) lives in [`State`] and lasts for a
//! run.
//!
//! ```text
//! cjson.encode({a = 1})                                   in Lua
//!   in   table "a" 1 end             arguments, one behind the other
//!        Call                        this module
//!   out  string {"a":1}              results, one behind the other; or a Failure, which C throws
//! ```
//!
//! The functions behave as those of Valkey 9.1.2, down to the text of their errors and the order of their
//! checks. Where these follow from the slots that C uses on Lua's stack, the slots are counted here
//! (`STACK_SLOTS_MAX`), so that what is nested too deeply fails at the same depth with the same text.
//!
//! Invariants: nothing panics, whatever the bytes of a string or the nesting of a table; only a tape that the
//! walker cannot write is a bug, and asserts. Memory is taken for what was read, never for what a length
//! promises. The settings that a script makes in cjson are gone at the next `reset`.

mod args;
mod bits;
mod cjson;
mod cmsgpack;
mod numbers;
mod shape;
mod structs;

use crate::tape::{Reader, Writer};
use args::Args;

/// Lua's `LUAI_MAXCSTACK`: the slots that a C function may use, its arguments included.
const STACK_SLOTS_MAX: usize = 8_000;
/// Results above this are refused as Lua refuses a string that it finds no memory for.
pub const RESULT_BYTES_MAX: usize = 1 << 30;
const OUT_OF_MEMORY: Failure = Failure::Plain("not enough memory");

pub struct Library {
    /// The global variable that holds its table.
    pub name: &'static str,
    pub functions: &'static [Function],
    pub constants: &'static [(&'static str, Constant)],
}

pub struct Function {
    pub name: &'static str,
    pub run: fn(&mut Call<'_>) -> Result<(), Failure>,
    /// Function that returns how deep tables among the arguments are walked, given the instance.
    pub depth: fn(&State, u32) -> Depth,
}

/// Depth to which the walker follows tables in tables. A table that is an argument has depth 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// No argument is a table of interest: each is `Item::TooDeep`.
    None,
    /// A deeper table is `Item::TooDeep`, and the walk continues after it.
    Cut(u16),
    /// A deeper table is `Item::TooDeep`, and so is each table after it: the function is going to fail, and
    /// needs no more than the keys of those that are open.
    End(u16),
}

pub enum Constant {
    Text(&'static str),
    Number(f64),
    /// The light userdata NULL.
    Null,
}

/// Call of a function.
pub struct Call<'a> {
    /// The arguments, one value after the other.
    pub args: Reader<'a>,
    pub arg_count: usize,
    /// Results, one value after the other; C counts them.
    pub out: Writer<'a>,
    /// 0, or what `Writer::library` was called with when this function's table was made.
    pub instance: u32,
    pub state: &'a mut State,
}

/// Failure of a function. Its output is dropped.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// `luaL_error`: the text after the place in the script.
    Error(Vec<u8>),
    /// A text without a place, as what Lua itself throws in a function of C.
    Plain(&'static str),
    /// `luaL_argerror`: the argument's number from 1; the text becomes "bad argument #1 to 'encode' (...)".
    Argument(u32, Vec<u8>),
}

impl Failure {
    pub fn error(text: impl Into<Vec<u8>>) -> Failure {
        Failure::Error(text.into())
    }

    pub fn argument(number: usize, text: impl Into<Vec<u8>>) -> Failure {
        Failure::Argument(number as u32, text.into())
    }

    /// Returns the error that `luaL_checkstack` throws.
    fn stack_overflow(text: &str) -> Failure {
        Failure::error(format!("stack overflow ({text})"))
    }

    /// `luaL_typerror`: "number expected, got nil". `got`: Lua's number of the type, `None` for an argument
    /// that is missing.
    pub fn type_error(number: usize, expected: &str, got: Option<u8>) -> Failure {
        let got = got.map_or("no value", crate::tape::types::name);
        Failure::argument(number, format!("{expected} expected, got {got}"))
    }
}

/// State of the libraries of an interpreter: the settings of cjson, and buffers to work in.
#[derive(Default)]
pub struct State {
    cjson: cjson::Instances,
    encoder: cjson::EncodeRoom,
    decoder: cjson::DecodeRoom,
    packer: cmsgpack::PackRoom,
    unpacker: cmsgpack::UnpackRoom,
}

impl State {
    /// Called before each run: must cost next to nothing if no script has set anything.
    pub fn reset(&mut self) {
        self.cjson.reset();
        self.encoder.shrink();
        self.decoder.shrink();
        self.packer.shrink();
        self.unpacker.shrink();
    }
}

/// Items that a stack of the libraries keeps room for between runs.
const ROOM_ITEMS: usize = 256;

fn shrink<T>(room: &mut Vec<T>) {
    room.clear();
    if room.capacity() > ROOM_ITEMS {
        room.shrink_to(ROOM_ITEMS);
    }
}

/// A function of a library, which takes `(&mut State, Args, &mut Vec<u8>)`.
macro_rules! function {
    ($name:literal, $run:path) => {
        function!($name, $run, |_, _| Depth::None)
    };
    ($name:literal, $run:path, $depth:expr) => {
        Function {
            name: $name,
            run: |call| {
                let args = Args { tape: call.args.rest(), count: call.arg_count, instance: call.instance };
                $run(call.state, args, call.out.bytes())
            },
            depth: $depth,
        }
    };
}

/// All libraries, in the order in which Valkey opens them.
pub static ALL: &[&Library] = &[
    &Library {
        name: "cjson",
        functions: &[
            function!("encode", cjson::encode, |state, instance| Depth::End(
                state.cjson.encode_depth(instance)
            )),
            function!("decode", cjson::decode),
            function!("encode_sparse_array", cjson::encode_sparse_array),
            function!("encode_max_depth", cjson::encode_max_depth),
            function!("decode_max_depth", cjson::decode_max_depth),
            function!("encode_number_precision", cjson::encode_number_precision),
            function!("encode_keep_buffer", cjson::encode_keep_buffer),
            function!("encode_invalid_numbers", cjson::encode_invalid_numbers),
            function!("decode_invalid_numbers", cjson::decode_invalid_numbers),
            function!("new", cjson::new),
        ],
        constants: &[
            ("null", Constant::Null),
            ("_NAME", Constant::Text("cjson")),
            ("_VERSION", Constant::Text("2.1.0")),
        ],
    },
    &Library {
        name: "struct",
        functions: &[
            function!("pack", structs::pack),
            function!("unpack", structs::unpack),
            function!("size", structs::size),
        ],
        constants: &[],
    },
    &Library {
        name: "cmsgpack",
        functions: &[
            function!("pack", cmsgpack::pack, |_, _| Depth::Cut(cmsgpack::NESTING_MAX as u16)),
            function!("unpack", cmsgpack::unpack),
            function!("unpack_one", cmsgpack::unpack_one),
            function!("unpack_limit", cmsgpack::unpack_limit),
        ],
        constants: &[
            ("_NAME", Constant::Text("cmsgpack")),
            ("_VERSION", Constant::Text("lua-cmsgpack 0.4.0")),
            ("_COPYRIGHT", Constant::Text("Copyright (C) 2012, Redis Ltd.")),
            ("_DESCRIPTION", Constant::Text("MessagePack C implementation for Lua")),
        ],
    },
    &Library {
        name: "bit",
        functions: &[
            function!("tobit", bits::tobit),
            function!("bnot", bits::bnot),
            function!("band", bits::band),
            function!("bor", bits::bor),
            function!("bxor", bits::bxor),
            function!("lshift", bits::lshift),
            function!("rshift", bits::rshift),
            function!("arshift", bits::arshift),
            function!("rol", bits::rol),
            function!("ror", bits::ror),
            function!("bswap", bits::bswap),
            function!("tohex", bits::tohex),
        ],
        constants: &[],
    },
];
