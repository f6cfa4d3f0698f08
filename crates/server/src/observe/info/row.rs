//! Rows of INFO: what a line is called, how its value is found, and the metric that it is.
//!
//! ```text
//! gauge("used_memory", "redis_memory_used_bytes", ..)   used_memory:1       redis_memory_used_bytes 1
//! counter("keyspace_hits", "redis_*_total", ..)         keyspace_hits:3     redis_keyspace_hits_total 3
//! word("swap_state", "isotherm_*", ..)                  swap_state:ok       isotherm_swap_state{is="ok"} 1
//! field("os", ..)                                       os:Linux            none
//! family("errorstat_*", .., ..)                         errorstat_A:count=1 redis_errors_total{err="A"} 1
//! ```
//! A `*` in the name of a metric stands for the name of the field. In the name of a family it stands for the
//! part in which its lines differ, and so it does in the labels of its metrics.

use super::snapshot::Snapshot;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Text of a value; `None` where there is no such line.
pub struct Value(pub Option<String>);

macro_rules! values {
    ($($from:ty)*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value(Some(value.to_string()))
            }
        })*
    };
}

values! { u8 u16 u32 u64 usize i32 i64 &str String }

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        u8::from(value).into()
    }
}

impl From<&AtomicU64> for Value {
    fn from(counter: &AtomicU64) -> Value {
        counter.load(Relaxed).into()
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        Value(value.and_then(|value| value.into().0))
    }
}

pub type ValueOf = fn(&Snapshot<'_>) -> Value;

/// Values of several lines, each after the part of its name that stands for `*`.
pub type Lines = Vec<(String, String)>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    Gauge,
    Counter,
    Histogram,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Type::Gauge => "gauge",
            Type::Counter => "counter",
            Type::Histogram => "histogram",
        }
    }
}

/// Way from the value of a line to that of a metric.
#[derive(Clone, Copy)]
enum Reading {
    /// A number, or a status: 1 if it is `ok`, else 0.
    Whole,
    /// A part (`calls` of `calls=1,usec=2`, or all of it if empty) in another unit.
    Part(&'static str, f64),
    /// A label; the metric is 1.
    Word,
}

#[derive(Clone, Copy)]
pub struct Metric {
    name: &'static str,
    pub kind: Type,
    /// Text of HELP; if it is empty, the field is named.
    help: &'static str,
    labels: &'static str,
    reading: Reading,
}

pub const fn metric(name: &'static str, kind: Type, help: &'static str, labels: &'static str) -> Metric {
    Metric { name, kind, help, labels, reading: Reading::Whole }
}

impl Metric {
    /// Reads a part of the value; `divisor` of its units are one of the metric.
    pub const fn part(self, part: &'static str, divisor: f64) -> Metric {
        Metric { reading: Reading::Part(part, divisor), ..self }
    }

    pub fn name(&self, row: &Row) -> String {
        self.name.replace('*', row.name)
    }

    pub fn help(&self, row: &Row) -> String {
        if self.help.is_empty() { format!("`{}` of INFO.", row.name) } else { self.help.to_string() }
    }

    /// Returns the labels and the number of a line; `escaped` makes a text fit for a label.
    pub fn read(&self, part: &str, value: &str, escaped: fn(&str) -> String) -> Option<(String, String)> {
        let (label, number) = match self.reading {
            Reading::Word => (value, "1".to_string()),
            Reading::Whole if value.parse::<f64>().is_ok() => (part, value.to_string()),
            Reading::Whole => (part, u8::from(value == "ok").to_string()),
            Reading::Part(name, divisor) => {
                let mut pairs = value.split(',').map(|pair| pair.rsplit_once('=').unwrap_or(("", pair)));
                let (_, number) = pairs.find(|pair| pair.0 == name)?;
                (part, (number.parse::<f64>().ok()? / divisor).to_string())
            }
        };
        Some((self.labels.replace('*', &escaped(label)), number))
    }
}

#[derive(Clone, Copy)]
enum Source {
    One(ValueOf),
    Several(fn(&Snapshot<'_>) -> Lines),
}

#[derive(Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    source: Source,
    metric: Option<Metric>,
    /// Metrics of a family.
    metrics: &'static [Metric],
}

pub const fn field(name: &'static str, value: ValueOf) -> Row {
    Row { name, source: Source::One(value), metric: None, metrics: &[] }
}

pub const fn gauge(name: &'static str, seen_as: &'static str, value: ValueOf) -> Row {
    field(name, value).seen_as(metric(seen_as, Type::Gauge, "", ""))
}

/// Declares what only grows, from the start on.
pub const fn counter(name: &'static str, seen_as: &'static str, value: ValueOf) -> Row {
    field(name, value).seen_as(metric(seen_as, Type::Counter, "", ""))
}

pub const fn word(name: &'static str, seen_as: &'static str, value: ValueOf) -> Row {
    let metric = metric(seen_as, Type::Gauge, "", "is=\"*\"");
    field(name, value).seen_as(Metric { reading: Reading::Word, ..metric })
}

pub const fn family(
    name: &'static str,
    lines: fn(&Snapshot<'_>) -> Lines,
    metrics: &'static [Metric],
) -> Row {
    Row { name, source: Source::Several(lines), metric: None, metrics }
}

/// Value of fields about things that do not exist here.
pub fn none(_: &Snapshot<'_>) -> Value {
    0.into()
}

impl Row {
    pub const fn seen_as(self, metric: Metric) -> Row {
        Row { metric: Some(metric), ..self }
    }

    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.metric.iter().chain(self.metrics)
    }

    /// Finds the values; a row that is not a family has at most one.
    pub fn lines(&self, snapshot: &Snapshot<'_>) -> Lines {
        match self.source {
            Source::One(value) => value(snapshot).0.map(|value| (String::new(), value)).into_iter().collect(),
            Source::Several(lines) => lines(snapshot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_metrics() {
        let read = |metric: Metric, value: &str| metric.read("get", value, str::to_string);
        let of = |labels: &str, number: &str| Some((labels.to_string(), number.to_string()));
        let whole = metric("a", Type::Gauge, "", "cmd=\"*\"");
        assert_eq!(read(whole, "12.5"), of("cmd=\"get\"", "12.5"));
        assert_eq!([read(whole, "ok"), read(whole, "err")], [of("cmd=\"get\"", "1"), of("cmd=\"get\"", "0")]);
        let part = whole.part("usec", 1e6);
        assert_eq!(read(part, "calls=1,usec=2500000,usec_per_call=0"), of("cmd=\"get\"", "2.5"));
        assert_eq!(read(part, "calls=1"), None);
        assert_eq!(read(whole.part("", 1000.0), "500"), of("cmd=\"get\"", "0.5"));
        let word = word("state", "b", none).metric.expect("it has one");
        assert_eq!(read(word, "ok"), of("is=\"ok\"", "1"));
    }
}
