//! RESTORE: a key from the bytes of a DUMP. Nothing is stored before all of them have been checked.

use crate::call::is_word;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_codec::load;
use isotherm_keyspace::{AccessNote, EventClass, Key, Lookup, UnixMs};
use isotherm_persist::{Dump, DumpError, Limits, RdbValue};
use isotherm_resp::errors;
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::parse_i64;

const HISTORY: &[(&str, &str)] = &[
    ("3.0.0", "New option `REPLACE`."),
    ("5.0.0", "New option `ABSTTL`."),
    ("5.0.0", "New options `IDLETIME` and `FREQ`."),
];

const ARGUMENTS: &[Argument] = &[
    Argument::key("key", 0),
    Argument::integer("ttl"),
    Argument::string("serialized-value"),
    Argument::pure_token("replace", "REPLACE").since("3.0.0").optional(),
    Argument::pure_token("absttl", "ABSTTL").since("5.0.0").optional(),
    Argument::integer("seconds").token("IDLETIME").since("5.0.0").optional(),
    Argument::integer("frequency").token("FREQ").since("5.0.0").optional(),
];

const SPEC: Spec = Spec {
    name: "restore",
    summary: "Creates a key from a payload of DUMP. An error for an existing key without REPLACE.",
    since: "2.6.0",
    complexity: "O(N*M), N the elements of the value and M their mean size; O(N*M*log(N)) for a sorted set",
    arity: -4,
    flags: Flags::WRITE.or(Flags::DENYOOM),
    acl: AclCategories::KEYSPACE.or(AclCategories::DANGEROUS),
    key_specs: &[KeySpec::one(1, KeyFlags::OW.or(KeyFlags::UPDATE))],
    history: HISTORY,
    arguments: ARGUMENTS,
    ..Spec::BASE
};

pub const RESTORE: Command<Handler> = Command::new(SPEC, restore);

/// RESTORE for MIGRATE between members of a cluster. The command need not be preceded by ASKING.
pub const RESTORE_ASKING: Command<Handler> = Command::new(
    Spec {
        name: "restore-asking",
        summary: "Restores a key in a slot that is being imported (internal).",
        since: "3.0.0",
        group: Group::Server,
        flags: SPEC.flags.or(Flags::ASKING),
        doc_flags: &["syscmd"],
        ..SPEC
    },
    restore,
);

#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    access: Option<AccessNote>,
}

fn restore(call: &mut Call<'_, '_, '_>) -> Outcome {
    let options = match parse_options(call) {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let key = call.key(1);
    if !options.replace && call.txn.find(call.db, &key, Lookup::Write).is_some() {
        return call.fail(errors::BUSY_KEY);
    }
    let ttl_ms = match parse_i64(call.args.get(2)) {
        None => return call.fail(errors::NOT_AN_INTEGER),
        Some(..0) => return call.fail("ERR Invalid TTL value, must be >= 0"),
        Some(ttl_ms) => ttl_ms,
    };
    let (code, value) = match decode(call) {
        Ok(decoded) => decoded,
        Err(error) => return call.fail(error),
    };
    let replaced = options.replace && call.txn.remove(call.db, &key);
    let expiry = match (ttl_ms, options.absolute) {
        (0, _) => None,
        (_, true) => Some(UnixMs(ttl_ms)),
        (_, false) => Some(UnixMs(ttl_ms.wrapping_add(call.txn.now().0))),
    };
    if expiry.is_some_and(|moment| call.is_over(moment)) {
        if replaced {
            call.wrote(EventClass::Generic, "del", &key, 1);
            call.record_removal(&key);
        }
        call.reply.ok();
        return Outcome::Done;
    }
    let stored = load(call.txn, call.db, &key, (code, &value), &call.settings.limits);
    if stored.and_then(|()| call.txn.set_expiry(call.db, &key, expiry)).is_err() {
        return call.result_is_cut_short(&key, replaced);
    }
    if let Some(access) = options.access {
        call.txn.note_access(call.db, &key, access);
    }
    call.wrote(EventClass::Generic, "restore", &key, 1);
    record(call, &key, expiry.filter(|_| !options.absolute));
    call.reply.ok();
    Outcome::Done
}

/// A span becomes the moment at which it ends.
fn record(call: &mut Call<'_, '_, '_>, key: &Key<'_>, computed: Option<UnixMs>) {
    let Some(moment) = computed else { return };
    let args = call.args;
    let mut room = [0; I64_BYTES_MAX];
    let moment = write_i64(moment.0, &mut room);
    call.record_words(|words| {
        words.extend([args.get(0), key.bytes, moment]);
        words.extend(args.from(3).iter());
        words.push(b"ABSTTL");
    });
}

fn parse_options(call: &Call<'_, '_, '_>) -> Result<Options, &'static str> {
    let mut options = Options::default();
    let mut at = 4;
    while at < call.args.len() {
        let word = call.args.get(at);
        let number = call.args.try_get(at + 1);
        if is_word(word, "REPLACE") {
            options.replace = true;
        } else if is_word(word, "ABSTTL") {
            options.absolute = true;
        } else if let Some(number) = number
            && is_word(word, "IDLETIME")
            && !matches!(options.access, Some(AccessNote::Frequency(_)))
        {
            let seconds = parse_i64(number).ok_or(errors::NOT_AN_INTEGER)?;
            let seconds = u64::try_from(seconds).map_err(|_| "ERR Invalid IDLETIME value, must be >= 0")?;
            options.access = Some(AccessNote::IdleSeconds(seconds));
            at += 1;
        } else if let Some(number) = number
            && is_word(word, "FREQ")
            && !matches!(options.access, Some(AccessNote::IdleSeconds(_)))
        {
            let count = parse_i64(number).ok_or(errors::NOT_AN_INTEGER)?;
            let count = u8::try_from(count).map_err(|_| "ERR Invalid FREQ value, must be >= 0 and <= 255")?;
            options.access = Some(AccessNote::Frequency(count));
            at += 1;
        } else {
            return Err(errors::SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

fn decode(call: &Call<'_, '_, '_>) -> Result<(u8, RdbValue), String> {
    let dump = Dump::open(call.args.get(3), call.settings.transfer.checks);
    dump.and_then(|dump| Ok((dump.code(), dump.value(&Limits::default())?))).map_err(|error| match error {
        DumpError::VersionOrChecksum => "ERR DUMP payload version or checksum are wrong".to_string(),
        DumpError::ForeignType(code) => format!("ERR Unsupported foreign data type: {code}"),
        DumpError::Value(why) => {
            if let Some(report) = call.settings.transfer.refused.0 {
                report(&why);
            }
            "ERR Bad data format".to_string()
        }
    })
}
