//! MEMORY PROFILE: which code holds memory, by a sample of the allocations that live.
//!
//! ```text
//!   ON --> allocations are sampled (one in 512 KB)  --> DUMP --> isotherm.<pid>.<n>.heap --> jeprof --text isotherm-server FILE
//! ```
//! Whatever lies in the arenas - keys, and values to 4 KB - is no allocation; MEMORY STATS and INFO have it.

use isotherm_allocator::{self as allocator, ProfileError};
use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_resp::errors;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::admin::AdminCall;

/// Clients may have files written, but no others overwritten.
const SUFFIX: &str = ".heap";
const NAME_BYTES_MAX: usize = 200;

static DUMPS: AtomicU32 = AtomicU32::new(0);

pub const MEMORY_PROFILE: Spec = Spec {
    name: "profile",
    summary: "Samples the allocations that live, and writes the sample to a file.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "Grows with the memory in use",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING),
    arguments: &[
        Argument::one_of(
            "order",
            &[
                Argument::pure_token("on", "ON"),
                Argument::pure_token("off", "OFF"),
                Argument::pure_token("dump", "DUMP"),
            ],
        ),
        Argument::string("file").optional(),
    ],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:all_succeeded"],
    ..Spec::BASE
};

pub fn profile(call: &mut AdminCall<'_>) -> Outcome {
    let (word, file) = (call.args.get(2), call.args.try_get(3));
    let done = match (word.to_ascii_uppercase().as_slice(), call.args.len(), file) {
        (b"ON", 3, None) => allocator::profile(true).map_err(text_of),
        (b"OFF", 3, None) => allocator::profile(false).map_err(text_of),
        (b"DUMP", 3 | 4, file) => match dump(file) {
            Ok(name) => {
                call.reply.bulk(name.as_bytes());
                return Outcome::Done;
            }
            Err(text) => Err(text),
        },
        _ => Err(errors::SYNTAX),
    };
    match done {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

/// The name of the file, which lies in the working directory.
fn dump(file: Option<&[u8]>) -> Result<String, &'static str> {
    let name = match file {
        Some(name) => checked(name)?.to_owned(),
        None => {
            format!("isotherm.{}.{}{SUFFIX}", std::process::id(), DUMPS.fetch_add(1, Ordering::Relaxed))
        }
    };
    allocator::dump_profile(name.as_ref()).map_err(text_of)?;
    Ok(name)
}

fn checked(name: &[u8]) -> Result<&str, &'static str> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let name = std::str::from_utf8(name).ok().filter(|name| name.bytes().all(|byte| plain(&byte)));
    name.filter(|name| name.ends_with(SUFFIX) && !name.starts_with('.') && name.len() <= NAME_BYTES_MAX)
        .ok_or("ERR A profile is written to a file of the working directory whose name ends in .heap, not to a path")
}

fn text_of(error: ProfileError) -> &'static str {
    match error {
        ProfileError::NotBuilt => {
            "ERR This server was built without heap profiles: cargo build --release -p isotherm --features profiling"
        }
        ProfileError::Off => "ERR Heap profiles were switched off at start: MALLOC_CONF has prof:false",
        ProfileError::Failed => "ERR The profile could not be written",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        for good in ["a.heap", "isotherm.17.0.heap", "A-b_c.heap"] {
            assert_eq!(checked(good.as_bytes()), Ok(good));
        }
        let long = "x".repeat(NAME_BYTES_MAX) + SUFFIX;
        for bad in ["", "a", ".heap", "../a.heap", "/a.heap", "a b.heap", "dump.rdb", "a.heap\n", &long] {
            assert!(checked(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
