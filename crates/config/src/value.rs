//! Conversion of arguments to values and back: types, ranges, and Valkey's texts for values that are refused.

use super::params::{Format, Kind, Number, Param, Reason, Support, Value, Words};
use isotherm_stdx::parse_i64;
use isotherm_stdx::units::parse_memory_bytes;

/// Reads `arguments` as a value of `param`. `current` is the value so far.
pub fn parse(param: &Param, arguments: &[&[u8]], current: &Value) -> Result<Value, Reason> {
    let value = match param.kind {
        Kind::Special(special) => {
            let Value::Text(current) = current else { unreachable!("a special parameter is kept as text") };
            Value::Text((special.parse)(arguments, current)?)
        }
        Kind::Choice { words, .. } => Value::Number(parse_words(words, arguments, param.flags.multi_arg)?),
        Kind::Flag { .. } => Value::Number(i64::from(parse_flag(single(arguments))?)),
        Kind::Number(number) => Value::Number(parse_number(&number, single(arguments))?),
        Kind::Text { c_string, .. } => Value::Text(parse_text(single(arguments), c_string)),
    };
    if let Some(check) = param.check {
        check(&value)?;
    }
    if let Support::Fixed(because) = param.support
        && value != param.default_value()
    {
        let only = String::from_utf8_lossy(&show(param, &param.default_value())).into_owned();
        return Err(format!("{because}: it can only be '{only}'").into());
    }
    Ok(value)
}

/// Returns the text of a value as CONFIG GET shows it.
pub fn show(param: &Param, value: &Value) -> Vec<u8> {
    let number = match value {
        Value::Text(text) => {
            return match param.kind {
                Kind::Special(special) => (special.show)(text),
                _ => text.clone(),
            };
        }
        Value::Number(number) => *number,
    };
    match param.kind {
        Kind::Flag { .. } => (if number != 0 { "yes" } else { "no" }).into(),
        Kind::Choice { words, .. } => show_words(words, number, param.flags.multi_arg).into_bytes(),
        Kind::Number(declared) => show_number(&declared, number).into_bytes(),
        Kind::Text { .. } | Kind::Special(_) => unreachable!("these are kept as text"),
    }
}

/// The caller has seen to it that a parameter of one argument gets one.
fn single<'a>(arguments: &[&'a [u8]]) -> &'a [u8] {
    let [argument] = arguments else { unreachable!("exactly one argument") };
    argument
}

// ---- yes or no ----

fn parse_flag(argument: &[u8]) -> Result<bool, Reason> {
    match argument.to_ascii_lowercase().as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}

// ---- words ----

fn parse_words(words: Words, arguments: &[&[u8]], several: bool) -> Result<i64, Reason> {
    let value_of = |argument: &&[u8]| {
        words.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(argument)).map(|(_, value)| *value)
    };
    let fits = arguments.len() == 1 || (several && !arguments.is_empty());
    let value = arguments.iter().try_fold(0, |value, argument| Some(value | value_of(argument)?));
    value.filter(|_| fits).ok_or_else(|| {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("argument(s) must be one of the following: {}", all.join(", ")).into()
    })
}

fn show_words(words: Words, value: i64, several: bool) -> String {
    if let Some((word, _)) = words.iter().find(|(_, bits)| *bits == value) {
        return (*word).into();
    }
    assert!(several, "the value of a choice is one of its words");
    let set = words.iter().filter(|(_, bits)| *bits != 0 && value & bits == *bits);
    set.map(|(word, _)| *word).collect::<Vec<_>>().join(" ")
}

/// The word that `value` stands for.
pub fn word(words: Words, value: i64) -> &'static str {
    words.iter().find(|(_, bits)| *bits == value).expect("the value of a choice is one of its words").0
}

// ---- numbers ----

fn parse_number(number: &Number, argument: &[u8]) -> Result<i64, Reason> {
    let value = read_number(number.format, argument)?;
    check_range(number, value)?;
    Ok(match number.clamp {
        Some((min, max)) => value.clamp(min, max),
        None => value,
    })
}

fn read_number(format: Format, argument: &[u8]) -> Result<i64, Reason> {
    let memory = || parse_memory_bytes(argument).map(|bytes| bytes as i64);
    let (value, otherwise) = match format {
        Format::Plain => (parse_i64(argument), "argument couldn't be parsed into an integer"),
        Format::Memory => (memory(), "argument must be a memory value"),
        Format::MemoryOrNegative => {
            (memory().or_else(|| parse_i64(argument)), "argument must be a memory value")
        }
        Format::MemoryOrPercent => {
            let percent = || argument.strip_suffix(b"%").and_then(parse_i64).filter(|percent| *percent >= 0);
            let value = memory().or_else(|| percent().map(|percent| -percent));
            (value, "argument must be a memory or percent value")
        }
        Format::Octal => (parse_octal(argument), "argument couldn't be parsed as an octal number"),
    };
    value.ok_or(otherwise.into())
}

/// Reads an octal number, as C's `strtoll` with base 8 does: a blank text is 0.
fn parse_octal(argument: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(argument).ok()?.trim_start();
    if text.is_empty() {
        return Some(0);
    }
    i64::from_str_radix(text, 8).ok()
}

fn check_range(number: &Number, value: i64) -> Result<(), Reason> {
    let (min, max) = (number.min, number.max);
    if number.unsigned {
        let (value, min, max) = (value as u64, min as u64, max as u64);
        if (min..=max).contains(&value) {
            return Ok(());
        }
        return Err(match number.format {
            Format::Octal => format!("argument must be between {min:o} and {max:o} inclusive"),
            _ => format!("argument must be between {min} and {max} inclusive"),
        }
        .into());
    }
    if (min..=max).contains(&value) {
        return Ok(());
    }
    if number.format == Format::MemoryOrPercent && value < 0 {
        return Err(format!("percentage argument must be less or equal to {}", -min).into());
    }
    Err(format!("argument must be between {min} and {max} inclusive").into())
}

fn show_number(number: &Number, value: i64) -> String {
    match number.format {
        Format::MemoryOrPercent if value < 0 => format!("{}%", -value),
        Format::MemoryOrNegative if value < 0 => value.to_string(),
        Format::Memory | Format::MemoryOrPercent | Format::MemoryOrNegative => (value as u64).to_string(),
        Format::Octal => format!("{value:o}"),
        // Without a format unsigned numbers are shown as signed ones too.
        Format::Plain => value.to_string(),
    }
}

// ---- texts ----

fn parse_text(argument: &[u8], c_string: bool) -> Vec<u8> {
    let end = argument.iter().position(|&byte| byte == 0 && c_string).unwrap_or(argument.len());
    argument[..end].to_vec()
}

/// "No such file or directory", without Rust's "(os error 2)".
pub fn os_error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{PARAMS, id};

    fn set(name: &str, arguments: &[&str]) -> Result<String, String> {
        let param = PARAMS.iter().find(|param| param.name == name).expect("a parameter");
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
        let value = parse(param, &arguments, &param.default_value()).map_err(Reason::into_owned)?;
        Ok(String::from_utf8(show(param, &value)).expect("shown values are text"))
    }

    #[track_caller]
    fn check(name: &str, argument: &str, expected: &str) {
        assert_eq!(set(name, &[argument]).as_deref(), Ok(expected), "{name} {argument}");
    }

    #[track_caller]
    fn refused(name: &str, arguments: &[&str], reason: &str) {
        assert_eq!(set(name, arguments), Err(reason.to_owned()), "{name} {arguments:?}");
    }

    #[test]
    fn every_default_is_shown_and_read_back() {
        for param in PARAMS.iter().filter(|param| param.name != "io-threads") {
            let shown = show(param, &param.default_value());
            let arguments: Vec<&[u8]> =
                if param.flags.multi_arg { shown.split(|&b| b == b' ').collect() } else { vec![&shown] };
            // No words set it to nothing but NO ONE.
            if param.name == "replicaof" {
                continue;
            }
            let again = parse(param, &arguments, &param.default_value());
            assert_eq!(again, Ok(param.default_value()), "{}", param.name);
        }
    }

    #[test]
    fn numbers() {
        check("maxmemory", "100mb", "104857600");
        check("maxmemory", "18446744073709551615", "18446744073709551615");
        refused("maxmemory", &["-1"], "argument must be a memory value");
        check("maxmemory-clients", "50%", "50%");
        check("maxmemory-clients", "1k", "1000");
        refused("maxmemory-clients", &["200%"], "percentage argument must be less or equal to 100");
        refused("maxmemory-clients", &["x%"], "argument must be a memory or percent value");
        check("slot-migration-max-failover-repl-bytes", "-1", "-1");
        refused(
            "slot-migration-max-failover-repl-bytes",
            &["-2"],
            "argument must be between -1 and 9223372036854775807 inclusive",
        );
        check("unixsocketperm", "777", "777");
        check("unixsocketperm", "0700", "700");
        refused("unixsocketperm", &["1000"], "argument must be between 0 and 777 inclusive");
        refused("unixsocketperm", &["8"], "argument couldn't be parsed as an octal number");
        check("hz", "0", "1");
        check("hz", "100000", "500");
        refused("port", &["65536"], "argument must be between 0 and 65535 inclusive");
        refused("port", &["1x"], "argument couldn't be parsed into an integer");
        refused("maxclients", &["-1"], "argument must be between 1 and 4294967295 inclusive");
        check("cluster-blacklist-ttl", "-1", "-1");
        check("list-max-listpack-size", "-5", "-5");
        refused("databases", &["65536"], "there can be at most 65535 databases");
    }

    #[test]
    fn words() {
        check("maxmemory-policy", "ALLKEYS-LRU", "allkeys-lru");
        check("oom-score-adj", "relative", "yes");
        refused("appendfsync", &["x"], "argument(s) must be one of the following: everysec, always, no");
        refused(
            "loglevel",
            &[],
            "argument(s) must be one of the following: debug, verbose, notice, warning, nothing",
        );
        assert_eq!(set("shutdown-on-sigterm", &["now", "nosave"]).as_deref(), Ok("nosave now"));
        refused(
            "shutdown-on-sigterm",
            &["save", "nosave"],
            "shutdown options SAVE and NOSAVE can't be used simultaneously",
        );
        check("protected-mode", "YES", "yes");
        refused("protected-mode", &["1"], "argument must be 'yes' or 'no'");
    }

    #[test]
    fn what_does_not_exist_yet_is_refused_clearly() {
        assert_eq!(set("replicaof", &["localhost", "6379"]).as_deref(), Ok("localhost 6379"));
        refused("replicaof", &["localhost", "x"], "Invalid primary port");
        assert_eq!(set("replicaof", &["no", "one"]).as_deref(), Ok(""));
        refused("syslog-enabled", &["yes"], "there is no logging to syslog: it can only be 'no'");
    }

    #[test]
    fn own_syntaxes() {
        assert_eq!(set("save", &["900", "1", "60", "0"]).as_deref(), Ok("900 1 60 0"));
        assert_eq!(set("save", &["1", ""]).as_deref(), Ok("1 0"), "the end of `1 ` is a number too");
        assert_eq!(set("save", &["+9", " 010"]).as_deref(), Ok("9 10"));
        for bad in [&["900"][..], &["0", "1"], &["900", "-1"], &["900", "x"]] {
            refused("save", bad, "Invalid save parameters");
        }
        check("save", "", "");
        assert_eq!(set("swap-load-rule", &["1", "100", "10", "800"]).as_deref(), Ok("1 100 10 800"));
        check("swap-load-rule", "", "");
        for bad in [&["1"][..], &["0", "1"], &["1", "0"], &["1", "x"], &["1"; 34]] {
            refused(
                "swap-load-rule",
                bad,
                "swap-load-rule is up to 16 pairs of seconds and uses, both above 0",
            );
        }
        assert_eq!(set("bind", &["127.0.0.1", "-::1"]).as_deref(), Ok("127.0.0.1 -::1"));
        refused("bind", &["1"; 17], "Too many bind addresses specified.");
        check("jemalloc-slab-sizes", "128-128:2|200-1024:8", "128-128:2|200-1024:8");
        for bad in ["128", "128-64:1", "1-8:0", "1-8:1,prof:true", "1-8:1|", "1-123456:1", "+1-8:1"] {
            let reason = "jemalloc-slab-sizes are 'from-to:pages' of sizes in bytes, with '|' between them";
            refused("jemalloc-slab-sizes", &[bad], reason);
        }
        check("notify-keyspace-events", "EKA", "AKE");
        check("notify-keyspace-events", "mlg", "glm");
        check("notify-keyspace-events", "", "");
        refused("notify-keyspace-events", &["q"], "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.");
        assert_eq!(
            set("latency-tracking-info-percentiles", &["50.0", "100", "99.99"]).as_deref(),
            Ok("50 100 99.99")
        );
        refused(
            "latency-tracking-info-percentiles",
            &["101"],
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        );
        assert_eq!(
            set("client-output-buffer-limit", &["replica", "1mb", "2k", "3", "normal", "9", "8", "7"])
                .as_deref(),
            Ok("normal 9 8 7 slave 1048576 2000 3 pubsub 33554432 8388608 60")
        );
        refused(
            "client-output-buffer-limit",
            &["master", "1", "1", "1"],
            "Invalid client class specified in buffer limit configuration.",
        );
        refused(
            "client-output-buffer-limit",
            &["normal", "1", "1", "-1"],
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        );
        assert_eq!(set("oom-score-adj-values", &["1", "2", "-3"]).as_deref(), Ok("1 2 -3"));
        refused("dir", &[""], "dir can't be empty");
        refused("dir", &["/no/such/folder"], "No such file or directory");
        check("proc-title-template", "{title} {{ {port}", "{title} {{ {port}");
        refused(
            "proc-title-template",
            &["{nothing}"],
            "template format is invalid or contains unknown variables",
        );
        refused("dbfilename", &["a/b"], "dbfilename can't be a path, just a filename");
        refused("cluster-announce-client-ipv4", &["1.2.3"], "Invalid IPv4 address");
        // What ends a text elsewhere is seen here.
        refused("cluster-announce-ip", &["10.0.0.1\0"], "cluster-announce-ip contains invalid character");
        let text = "Announced human node name contained invalid character";
        refused("cluster-announce-human-nodename", &["a\0"], text);
    }

    #[test]
    fn names_are_found_at_compile_time() {
        const PORT: crate::params::Id = id("port");
        assert_eq!(PARAMS[PORT.index()].name, "port");
    }
}
