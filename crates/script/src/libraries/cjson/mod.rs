//! `cjson`: JSON and back, with settings for each instance that a script has made.
//!
//! `encode` and `decode` are in files of their own; here are the functions that read and change settings.
//! Each gives the settings as they are after it, and checks its arguments one by one, so that what precedes a
//! bad one has been set.

mod decode;
mod encode;

pub use decode::{Room as DecodeRoom, decode};
pub use encode::{Room as EncodeRoom, encode};

use super::args::{Args, Value, check_integer, check_text, put_bool, put_number, put_text, until_nul};
use super::{Failure, OUT_OF_MEMORY, STACK_SLOTS_MAX, State};

use crate::tape::Writer;

type Done = Result<(), Failure>;

/// The instances that `cjson.new()` may make in a run.
const INSTANCES_MAX: usize = 10_000;

/// Settings by instance: number 0 is the global `cjson`, the others were made by `cjson.new()`.
pub struct Instances {
    configs: Vec<Config>,
}

impl Default for Instances {
    fn default() -> Instances {
        Instances { configs: vec![Config::default()] }
    }
}

impl Instances {
    pub fn reset(&mut self) {
        self.configs.truncate(1);
        self.configs.shrink_to(1);
        self.configs[0] = Config::default();
    }

    /// Returns the depth to which `encode` reads tables before it fails.
    pub fn encode_depth(&self, instance: u32) -> u16 {
        self.get(instance).encode_max_depth.min(STACK_SLOTS_MAX as i32) as u16
    }

    pub fn get(&self, instance: u32) -> &Config {
        &self.configs[instance as usize]
    }
}

/// The settings of one instance.
#[derive(Clone, Debug)]
pub struct Config {
    /// An array that is too sparse becomes an object; else it is an error.
    sparse_convert: bool,
    /// Too sparse: the largest index is above `sparse_ratio` times the elements (0: never) and above
    /// `sparse_safe`.
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_max_depth: i32,
    decode_max_depth: i32,
    invalid_numbers: InvalidNumbers,
    decode_invalid_numbers: bool,
    number_precision: i32,
    /// Kept for its getter: the room is always kept.
    keep_buffer: bool,
}

/// Treatment of NaN and the infinities.
#[derive(Clone, Copy, Debug, PartialEq)]
enum InvalidNumbers {
    Error,
    Written,
    Null,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1_000,
            decode_max_depth: 1_000,
            invalid_numbers: InvalidNumbers::Error,
            decode_invalid_numbers: true,
            number_precision: 14,
            keep_buffer: true,
        }
    }
}

/// The arguments of a setting: at most `most`, and the instance's settings.
fn settings<'a>(state: &'a mut State, args: Args<'_>, most: usize) -> Result<&'a mut Config, Failure> {
    if args.count > most {
        return Err(Failure::argument(most + 1, "found too many arguments"));
    }
    Ok(&mut state.cjson.configs[args.instance as usize])
}

fn given<'a>(args: &Args<'a>, number: usize) -> Option<Value<'a>> {
    args.get(number).filter(|value| *value != Value::Nil)
}

/// A bad value is always reported as the first argument.
fn set_integer(setting: &mut i32, args: &Args<'_>, number: usize, least: i32, most: i32) -> Done {
    if let Some(value) = given(args, number) {
        let value = check_integer(Some(value), number)? as i32;
        if !(least..=most).contains(&value) {
            return Err(Failure::argument(1, format!("expected integer between {least} and {most}")));
        }
        *setting = value;
    }
    Ok(())
}

/// The place of the option that an argument names.
fn option(value: Value<'_>, number: usize, options: &[&str]) -> Result<usize, Failure> {
    let text = check_text(Some(value), number)?;
    let text = until_nul(&text);
    options
        .iter()
        .position(|option| option.as_bytes() == text)
        .ok_or_else(|| Failure::argument(number, [b"invalid option '", text, b"'"].concat()))
}

fn set_switch(setting: &mut bool, args: &Args<'_>, number: usize) -> Done {
    match given(args, number) {
        None => {}
        Some(Value::Bool(value)) => *setting = value,
        Some(value) => *setting = option(value, number, &["off", "on"])? == 1,
    }
    Ok(())
}

pub fn encode_sparse_array(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let config = settings(state, args, 3)?;
    set_switch(&mut config.sparse_convert, &args, 1)?;
    set_integer(&mut config.sparse_ratio, &args, 2, 0, i32::MAX)?;
    set_integer(&mut config.sparse_safe, &args, 3, 0, i32::MAX)?;
    put_bool(out, config.sparse_convert);
    put_number(out, f64::from(config.sparse_ratio));
    put_number(out, f64::from(config.sparse_safe));
    Ok(())
}

fn integer_setting((setting, least, most): (&mut i32, i32, i32), args: &Args<'_>, out: &mut Vec<u8>) -> Done {
    set_integer(setting, args, 1, least, most)?;
    put_number(out, f64::from(*setting));
    Ok(())
}

pub fn encode_max_depth(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let config = settings(state, args, 1)?;
    integer_setting((&mut config.encode_max_depth, 1, i32::MAX), &args, out)
}

pub fn decode_max_depth(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let config = settings(state, args, 1)?;
    integer_setting((&mut config.decode_max_depth, 1, i32::MAX), &args, out)
}

pub fn encode_number_precision(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let config = settings(state, args, 1)?;
    integer_setting((&mut config.number_precision, 1, 14), &args, out)
}

pub fn encode_keep_buffer(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let config = settings(state, args, 1)?;
    set_switch(&mut config.keep_buffer, &args, 1)?;
    put_bool(out, config.keep_buffer);
    Ok(())
}

pub fn decode_invalid_numbers(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let config = settings(state, args, 1)?;
    set_switch(&mut config.decode_invalid_numbers, &args, 1)?;
    put_bool(out, config.decode_invalid_numbers);
    Ok(())
}

pub fn encode_invalid_numbers(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    const OPTIONS: [InvalidNumbers; 3] =
        [InvalidNumbers::Error, InvalidNumbers::Written, InvalidNumbers::Null];
    let config = settings(state, args, 1)?;
    match given(&args, 1) {
        None => {}
        Some(Value::Bool(value)) => config.invalid_numbers = OPTIONS[usize::from(value)],
        Some(value) => config.invalid_numbers = OPTIONS[option(value, 1, &["off", "on", "null"])?],
    }
    match config.invalid_numbers {
        InvalidNumbers::Error => put_bool(out, false),
        InvalidNumbers::Written => put_bool(out, true),
        InvalidNumbers::Null => put_text(out, b"null"),
    }
    Ok(())
}

/// An instance with settings of its own, as a table. Arguments are ignored.
pub fn new(state: &mut State, _: Args<'_>, out: &mut Vec<u8>) -> Done {
    let configs = &mut state.cjson.configs;
    if configs.len() == INSTANCES_MAX {
        return Err(OUT_OF_MEMORY);
    }
    Writer::new(out).library(configs.len() as u32);
    configs.push(Config::default());
    Ok(())
}
