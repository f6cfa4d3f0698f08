//! SCAN: all keys in many small steps.

use super::keys::slot_of_pattern;
use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Entry, Slot};
use isotherm_resp::{Args, Reply, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_u64};
use isotherm_stdx::{glob_match, parse_i64, parse_u64};

pub const SCAN: Command<Handler> = Command::new(
    Spec {
        name: "scan",
        summary: "Returns some keys of the database and the cursor of the next call.",
        since: "2.8.0",
        complexity: "O(1) for each call with a small COUNT, O(N) for all calls until the cursor is 0 again, N the elements",
        arity: -2,
        flags: Flags::READONLY.or(Flags::TOUCHES_ARBITRARY_KEYS),
        acl: AclCategories::KEYSPACE,
        reach: Reach::All,
        tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
        history: &[("6.0.0", "New option `TYPE`.")],
        arguments: &[
            Argument::integer("cursor"),
            Argument::pattern("pattern").token("MATCH").optional(),
            Argument::integer("count").token("COUNT").optional(),
            Argument::string("type").token("TYPE").since("6.0.0").optional(),
        ],
        ..Spec::BASE
    },
    scan,
);

const COUNT_DEFAULT: u64 = 10;

/// The names that TYPE may filter by, in Valkey's spelling.
const TYPES: [&str; 6] = ["string", "list", "set", "zset", "hash", "stream"];

/// Options of SCAN and CLUSTERSCAN in addition to the cursor.
#[derive(Clone, Copy)]
pub struct ScanOptions<'a> {
    pub count: u64,
    pattern: Option<&'a [u8]>,
    kind: Option<&'static str>,
    /// SLOT, of CLUSTERSCAN.
    pub slot: Option<Slot>,
}

impl<'a> ScanOptions<'a> {
    /// Reads the arguments after `SCAN cursor`.
    pub fn parse(args: Args<'a>, has_slot: bool) -> Result<ScanOptions<'a>, Vec<u8>> {
        let mut options = ScanOptions { count: COUNT_DEFAULT, pattern: None, kind: None, slot: None };
        let mut at = 2;
        while at < args.len() {
            let word = args.get(at);
            let Some(next) = args.try_get(at + 1) else {
                return Err(error_of_last(word));
            };
            if is_word(word, "COUNT") {
                let count = parse_i64(next).ok_or(errors::NOT_AN_INTEGER)?;
                options.count = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(errors::SYNTAX)?;
            } else if is_word(word, "MATCH") {
                options.pattern = Some(next).filter(|pattern| *pattern != b"*");
            } else if is_word(word, "TYPE") {
                options.kind = Some(kind_by_name(next)?);
            } else if has_slot && is_word(word, "SLOT") {
                if options.slot.is_some() {
                    return Err(b"ERR SLOT option can only be specified once".to_vec());
                }
                options.slot = Some(slot_by_number(next)?);
            } else {
                return Err(error_of_last(word));
            }
            at += 2;
        }
        Ok(options)
    }

    /// The only slot in which keys that match may lie.
    pub fn slot_of_pattern(&self) -> Option<Slot> {
        self.pattern.and_then(slot_of_pattern)
    }

    pub fn takes(&self, key: &[u8], entry: &Entry<'_>) -> bool {
        self.kind.is_none_or(|kind| kind == entry.kind().name())
            && self.pattern.is_none_or(|pattern| glob_match(pattern, key, false))
    }
}

fn slot_by_number(text: &[u8]) -> Result<Slot, Vec<u8>> {
    let number = parse_i64(text).and_then(|number| u16::try_from(number).ok());
    let number = number.filter(|number| usize::from(*number) < Slot::COUNT);
    number.map(Slot::new).ok_or_else(|| b"ERR Invalid or out of range slot".to_vec())
}

/// Words that only the siblings of SCAN take have errors of their own.
fn error_of_last(word: &[u8]) -> Vec<u8> {
    if is_word(word, "NOVALUES") {
        b"ERR NOVALUES option can only be used in HSCAN".to_vec()
    } else if is_word(word, "NOSCORES") {
        b"ERR NOSCORES option can only be used in ZSCAN".to_vec()
    } else {
        errors::SYNTAX.into()
    }
}

fn kind_by_name(name: &[u8]) -> Result<&'static str, Vec<u8>> {
    let shown = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let found = TYPES.into_iter().find(|kind| is_word(name, kind));
    found.ok_or_else(|| errors::with_bytes("ERR unknown type name '", shown, "'"))
}

fn scan(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(cursor) = parse_u64(call.args.get(1)) else {
        return call.fail(errors::INVALID_CURSOR);
    };
    let options = match ScanOptions::parse(call.args, false) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    // The next cursor stands before the keys and is known after them.
    let mut keys = Reply::new(call.reply.proto);
    let mut found = 0;
    let slot = options.slot_of_pattern();
    let wanted = |key: &[u8], entry: &Entry<'_>| options.takes(key, entry);
    let next = call.txn.scan(call.db, cursor, options.count, slot, wanted, |key, _| {
        keys.bulk(key);
        found += 1;
    });
    call.reply.array(2);
    call.reply.bulk(write_u64(next, &mut [0; I64_BYTES_MAX]));
    call.reply.array(found);
    call.reply.raw(&keys.out);
    Outcome::Done
}
