//! Parameters with a syntax of their own. Each is kept as the text that CONFIG GET shows.

use super::params::{Reason, Special};
use isotherm_stdx::units::parse_memory_bytes;
use isotherm_stdx::{parse_f64, parse_i64};

const BIND_ADDRESSES_MAX: usize = 16;
const OOM_SCORES: usize = 3;
const OOM_SCORE_LIMIT: i64 = 2000;
const PORT_MAX: i64 = 65535;

// ---- bind ----

pub static BIND: Special = Special { default: || b"* -::*".to_vec(), parse: parse_bind, show: as_kept };
pub static RDMA_BIND: Special = Special { default: Vec::new, parse: refuse_rdma, show: as_kept };

fn parse_bind(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    if arguments.len() > BIND_ADDRESSES_MAX {
        return Err("Too many bind addresses specified.".into());
    }
    Ok(arguments.join(&b' '))
}

fn refuse_rdma(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    match arguments.iter().all(|argument| argument.is_empty()) {
        true => Ok(Vec::new()),
        false => Err("No RDMA building support.".into()),
    }
}

// ---- dir ----

pub static DIR: Special = Special { default: working_directory, parse: change_directory, show: as_kept };

fn working_directory() -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt;
    std::env::current_dir().map(|path| path.into_os_string().into_vec()).unwrap_or_default()
}

/// Takes effect at once: what follows in the configuration file is relative to it already.
fn change_directory(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    use std::os::unix::ffi::OsStrExt;
    let [path] = arguments else { return Err("wrong number of arguments".into()) };
    if path.is_empty() {
        return Err("dir can't be empty".into());
    }
    std::env::set_current_dir(std::ffi::OsStr::from_bytes(path))
        .map_err(|error| Reason::from(super::value::os_error_text(&error)))?;
    Ok(working_directory())
}

// ---- save ----

/// Seconds and changes in turn. In a configuration file each line adds to those before it (`file`).
pub static SAVE: Special = Special { default: save_default, parse: parse_save, show: as_kept };

fn save_default() -> Vec<u8> {
    b"3600 1 300 100 60 10000".to_vec()
}

/// A value as it is kept, as pairs.
pub fn save_points(kept: &[u8]) -> Vec<(i64, i64)> {
    let numbers: Vec<i64> = kept.split(|&byte| byte == b' ').filter_map(parse_c_i64).collect();
    numbers.as_chunks::<2>().0.iter().map(|[seconds, changes]| (*seconds, *changes)).collect()
}

fn parse_save(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    if matches!(arguments, [only] if only.is_empty()) {
        return Ok(Vec::new());
    }
    let valid = |(at, argument): (usize, &&[u8])| {
        parse_c_i64(argument).is_some_and(|value| value >= if at % 2 == 0 { 1 } else { 0 })
    };
    if !arguments.len().is_multiple_of(2) || !arguments.iter().enumerate().all(valid) {
        return Err("Invalid save parameters".into());
    }
    let numbers: Vec<String> = arguments
        .iter()
        .filter_map(|argument| parse_c_i64(argument))
        .map(|number| number.to_string())
        .collect();
    Ok(numbers.join(" ").into_bytes())
}

// ---- swap-load-rule ----

/// Seconds and uses in turn.
pub static LOAD_RULE: Special = Special { default: Vec::new, parse: parse_load_rule, show: as_kept };

const LOAD_RULES_MAX: usize = 16;
/// A longer stretch of time than a year is a mistake.
const LOAD_RULE_SECONDS_MAX: i64 = 31_536_000;

fn parse_load_rule(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    if matches!(arguments, [only] if only.is_empty()) {
        return Ok(Vec::new());
    }
    let valid = |(at, argument): (usize, &&[u8])| {
        parse_c_i64(argument)
            .is_some_and(|value| value >= 1 && (at % 2 == 1 || value <= LOAD_RULE_SECONDS_MAX))
    };
    let is_valid = arguments.len().is_multiple_of(2) && arguments.iter().enumerate().all(valid);
    if !is_valid || arguments.len() > 2 * LOAD_RULES_MAX {
        return Err("swap-load-rule is up to 16 pairs of seconds and uses, both above 0".into());
    }
    Ok(arguments.join(&b' '))
}

// ---- client-output-buffer-limit ----

/// Limit of the unread reply bytes of a client of one class. A client is closed if it has more than
/// `hard_bytes` at any time, or more than `soft_bytes` for longer than `soft_seconds`. 0 is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OutputLimit {
    pub hard_bytes: u64,
    pub soft_bytes: u64,
    pub soft_seconds: u64,
}

/// The classes of clients, in the order in which they are shown.
pub const OUTPUT_CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

const OUTPUT_LIMITS_DEFAULT: [OutputLimit; 3] = [
    OutputLimit { hard_bytes: 0, soft_bytes: 0, soft_seconds: 0 },
    OutputLimit { hard_bytes: 256 << 20, soft_bytes: 64 << 20, soft_seconds: 60 },
    OutputLimit { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_seconds: 60 },
];

pub static CLIENT_OUTPUT_BUFFER_LIMIT: Special = Special {
    default: || show_output_limits(&OUTPUT_LIMITS_DEFAULT),
    parse: parse_output_limits_argument,
    show: as_kept,
};

fn parse_output_limits_argument(arguments: &[&[u8]], current: &[u8]) -> Result<Vec<u8>, Reason> {
    let mut limits = output_limits(current);
    set_output_limits(arguments, &mut limits)?;
    Ok(show_output_limits(&limits))
}

/// Returns the limits from the text of the parameter.
pub fn output_limits(text: &[u8]) -> [OutputLimit; 3] {
    let mut limits = OUTPUT_LIMITS_DEFAULT;
    let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
    set_output_limits(&words, &mut limits).expect("the text was made by show_output_limits");
    limits
}

/// Groups of four: class, hard limit, soft limit, seconds. All or nothing.
fn set_output_limits(arguments: &[&[u8]], limits: &mut [OutputLimit; 3]) -> Result<(), Reason> {
    if !arguments.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    let mut changed = *limits;
    for group in arguments.chunks_exact(4) {
        let class =
            output_class(group[0]).ok_or("Invalid client class specified in buffer limit configuration.")?;
        let seconds = parse_c_i64(group[3]).and_then(|seconds| u64::try_from(seconds).ok());
        let (Some(hard_bytes), Some(soft_bytes), Some(soft_seconds)) =
            (parse_memory_bytes(group[1]), parse_memory_bytes(group[2]), seconds)
        else {
            return Err("Error in hard, soft or soft_seconds setting in buffer limit configuration.".into());
        };
        changed[class] = OutputLimit { hard_bytes, soft_bytes, soft_seconds };
    }
    *limits = changed;
    Ok(())
}

fn output_class(name: &[u8]) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    match name.as_slice() {
        b"normal" => Some(0),
        b"slave" | b"replica" => Some(1),
        b"pubsub" => Some(2),
        _ => None,
    }
}

fn show_output_limits(limits: &[OutputLimit; 3]) -> Vec<u8> {
    let one = |(class, limit): (&&str, &OutputLimit)| {
        format!("{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
    };
    OUTPUT_CLASSES.iter().zip(limits).map(one).collect::<Vec<_>>().join(" ").into_bytes()
}

// ---- oom-score-adj-values ----

pub static OOM_SCORE_ADJ_VALUES: Special =
    Special { default: || b"0 200 800".to_vec(), parse: parse_oom_scores, show: as_kept };

fn parse_oom_scores(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    if arguments.len() != OOM_SCORES {
        return Err("wrong number of arguments".into());
    }
    let scores: Option<Vec<String>> = arguments
        .iter()
        .map(|argument| parse_c_i64(argument).filter(|score| score.abs() <= OOM_SCORE_LIMIT))
        .map(|score| score.map(|score| score.to_string()))
        .collect();
    scores
        .map(|scores| scores.join(" ").into_bytes())
        .ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into())
}

// ---- notify-keyspace-events ----

pub static NOTIFY_KEYSPACE_EVENTS: Special =
    Special { default: Vec::new, parse: parse_event_classes, show: show_event_classes };

/// The classes that `A` stands for together, in the order in which they are shown.
const EVENT_CLASSES: &[u8] = b"g$lshzxetd";
/// New keys are none of these; after `A` Valkey keeps them without showing them.
const NEW_KEYS: u8 = b'n';
/// Shown after the others.
const EVENT_CHANNELS: &[u8] = b"KEm";

fn show_event_classes(kept: &[u8]) -> Vec<u8> {
    let all = kept.contains(&b'A');
    kept.iter().copied().filter(|character| !(all && *character == NEW_KEYS)).collect()
}

fn parse_event_classes(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    let [classes] = arguments else { return Err("wrong number of arguments".into()) };
    let end = classes.iter().position(|&byte| byte == 0).unwrap_or(classes.len());
    let classes = &classes[..end];
    let known = |byte: &u8| {
        matches!(*byte, b'A' | NEW_KEYS) || EVENT_CLASSES.contains(byte) || EVENT_CHANNELS.contains(byte)
    };
    if !classes.iter().all(known) {
        return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into());
    }
    let all = classes.contains(&b'A') || EVENT_CLASSES.iter().all(|class| classes.contains(class));
    let mut shown = Vec::new();
    if all {
        shown.push(b'A');
    } else {
        shown.extend(EVENT_CLASSES.iter().filter(|class| classes.contains(class)));
    }
    shown.extend(classes.contains(&NEW_KEYS).then_some(NEW_KEYS));
    shown.extend(EVENT_CHANNELS.iter().filter(|class| classes.contains(class)));
    Ok(shown)
}

// ---- latency-tracking-info-percentiles ----

pub static LATENCY_TRACKING_INFO_PERCENTILES: Special =
    Special { default: || b"50 99 99.9".to_vec(), parse: parse_percentiles, show: as_kept };

fn parse_percentiles(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    if matches!(arguments, [only] if only.is_empty()) {
        return Ok(Vec::new());
    }
    let mut shown = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let percentile = parse_f64(argument).ok_or("Invalid latency-tracking-info-percentiles parameters")?;
        if !(0.0..=100.0).contains(&percentile) {
            return Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into());
        }
        let text = format!("{percentile:.6}");
        shown.push(text.trim_end_matches('0').trim_end_matches('.').to_owned());
    }
    Ok(shown.join(" ").into_bytes())
}

// ---- replicaof ----

/// "host port", or nothing.
pub static REPLICAOF: Special = Special { default: Vec::new, parse: parse_replicaof, show: as_kept };

fn parse_replicaof(arguments: &[&[u8]], _: &[u8]) -> Result<Vec<u8>, Reason> {
    let [host, port] = arguments else { return Err("wrong number of arguments".into()) };
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Vec::new());
    }
    if !parse_c_i64(port).is_some_and(|port| (0..=PORT_MAX).contains(&port)) {
        return Err("Invalid primary port".into());
    }
    Ok([*host, *port].join(&b' '))
}

// ---- helpers ----

fn as_kept(text: &[u8]) -> Vec<u8> {
    text.to_vec()
}

/// A number as C's `strtoll` reads it, up to the end of the text: blanks and a plus sign may precede it, and
/// nothing at all is 0.
fn parse_c_i64(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return Some(0);
    }
    let digits = std::str::from_utf8(digits).ok()?;
    if digits.starts_with('+') {
        return None;
    }
    digits.parse().ok().or_else(|| parse_i64(digits.as_bytes()))
}
