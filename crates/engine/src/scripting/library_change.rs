//! Changes of the libraries of the node: FUNCTION LOAD, DELETE, FLUSH and RESTORE, from a client, a file or a
//! primary.
//!
//! ```text
//!   arguments --read--> Change --apply--> the catalog is another, or as it was
//! ```

use isotherm_persist::Limits;
use isotherm_persist::rdb::functions::{Codes, FunctionsError};
use isotherm_resp::{Args, errors};

use isotherm_node::scripting::function_engine::{FunctionEngine, LoadTime};
use isotherm_node::scripting::libraries::{Libraries, RestorePolicy};
use isotherm_node::scripting::library_head::Refused;

#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    Load { text: &'a [u8], replaces: bool },
    Delete { name: &'a [u8] },
    Flush,
    Restore { payload: &'a [u8], policy: RestorePolicy },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// The library of this name.
    Loaded(Vec<u8>),
    Changed,
}

/// `Ok(None)`: another subcommand, or too few arguments. The error is the text of the reply.
pub fn read(args: Args<'_>) -> Result<Option<Change<'_>>, Vec<u8>> {
    let what = args.try_get(1).unwrap_or_default().to_ascii_lowercase();
    match (what.as_slice(), args.len()) {
        (b"load", 3..) => read_load(args).map(Some),
        (b"delete", 3) => Ok(Some(Change::Delete { name: args.get(2) })),
        (b"flush", 2..) => read_flush(args).map(Some),
        (b"restore", 3..) => read_restore(args).map(Some),
        _ => Ok(None),
    }
}

fn read_load(args: Args<'_>) -> Result<Change<'_>, Vec<u8>> {
    let last = args.len() - 1;
    for at in 2..last {
        if !args.get(at).eq_ignore_ascii_case(b"replace") {
            return Err(errors::with_bytes("ERR Unknown option given: ", args.get(at), ""));
        }
    }
    Ok(Change::Load { text: args.get(last), replaces: last > 2 })
}

fn read_flush(args: Args<'_>) -> Result<Change<'_>, Vec<u8>> {
    let is = |mode: &[u8], word: &[u8]| mode.eq_ignore_ascii_case(word);
    match args.try_get(2) {
        _ if args.len() > 3 => Err(errors::subcommand_syntax(args)),
        Some(mode) if !is(mode, b"sync") && !is(mode, b"async") => {
            Err(b"ERR FUNCTION FLUSH only supports SYNC|ASYNC option".to_vec())
        }
        _ => Ok(Change::Flush),
    }
}

fn read_restore(args: Args<'_>) -> Result<Change<'_>, Vec<u8>> {
    if args.len() > 4 {
        return Err(errors::subcommand_syntax(args));
    }
    let policy = match args.try_get(3).unwrap_or(b"append").to_ascii_lowercase().as_slice() {
        b"append" => RestorePolicy::Append,
        b"replace" => RestorePolicy::Replace,
        b"flush" => RestorePolicy::Flush,
        _ => {
            return Err(
                b"ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.".to_vec()
            );
        }
    };
    Ok(Change::Restore { payload: args.get(2), policy })
}

/// `strict`: payloads of versions that are not known are refused (`rdb-version-check strict`).
pub fn apply(
    change: Change<'_>,
    libraries: &Libraries,
    engine: &mut FunctionEngine,
    time: LoadTime,
    strict: bool,
) -> Result<Done, Refused> {
    match change {
        Change::Load { text, replaces } => {
            let library = libraries.add(text, replaces, time, engine)?;
            if replaces {
                engine.follow_catalog();
            }
            return Ok(Done::Loaded(library.name.clone()));
        }
        Change::Delete { name } => {
            if !libraries.remove(name) {
                return Err(Refused::new("Library not found"));
            }
        }
        Change::Flush => libraries.clear(),
        Change::Restore { payload, policy } => {
            let codes = Codes::open(payload, Limits::default(), strict).map_err(|why| refused(&why))?;
            let codes = codes.map(|code| code.map_err(|why| refused(&why)));
            libraries.restore(codes, policy, time, engine)?;
        }
    }
    // Libraries that are gone take no memory here any more; in interpreters where they were called, none
    // after the next call.
    engine.follow_catalog();
    Ok(Done::Changed)
}

fn refused(why: &FunctionsError) -> Refused {
    Refused::new(match why {
        FunctionsError::VersionOrChecksum => "DUMP payload version or checksum are wrong",
        FunctionsError::PreGa => "Pre-GA function format not supported",
        FunctionsError::Type(_) => "given type is not a function",
        FunctionsError::Code(_) => "Failed loading library payload",
    })
}
