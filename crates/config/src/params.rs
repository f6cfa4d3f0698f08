//! Declarations of parameters. CONFIG GET, CONFIG SET, the configuration file, the command line and
//! docs/config.md are all derived from them.
//!
//! Values have two shapes. Numbers, yes/no and choices are one `i64` each; everything else is text in the
//! form that CONFIG GET shows. An unsigned parameter keeps its 64 bits in the same `i64`.

use std::borrow::Cow;

/// Why a value is refused, in Valkey's words.
pub type Reason = Cow<'static, str>;

/// The place of a parameter in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Id(pub u16);

impl Id {
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Declaration of a parameter.
#[derive(Clone, Copy)]
pub struct Param {
    pub name: &'static str,
    /// An older name, equal in every way.
    pub alias: Option<&'static str>,
    pub kind: Kind,
    pub flags: Flags,
    /// A rule beyond the range.
    pub check: Option<Check>,
    /// Action of the process after a change.
    pub apply: Apply,
    pub support: Support,
}

pub type Check = fn(&Value) -> Result<(), &'static str>;

#[derive(Clone, Copy)]
pub enum Kind {
    /// `yes` or `no`, kept as 1 or 0.
    Flag {
        default: bool,
    },
    /// Word out of a list, in any case. If the parameter takes several arguments it is several words, kept as
    /// bits.
    Choice {
        words: Words,
        default: i64,
    },
    Number(Number),
    /// `c_string`: the value ends at its first NUL.
    Text {
        default: &'static str,
        c_string: bool,
    },
    /// With an own syntax.
    Special(&'static Special),
}

/// The words of a choice and the numbers that they stand for; of two words for one number CONFIG GET shows
/// the first.
pub type Words = &'static [(&'static str, i64)];

#[derive(Clone, Copy)]
pub struct Number {
    pub default: i64,
    pub min: i64,
    pub max: i64,
    pub unsigned: bool,
    pub format: Format,
    /// Values outside are accepted and drawn to the nearer end.
    pub clamp: Option<(i64, i64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Plain,
    /// "100mb"; CONFIG GET shows bytes.
    Memory,
    /// Like `Memory`, or a percentage: "50%" is kept as -50.
    MemoryOrPercent,
    /// Like `Memory`, or a negative number with a meaning of its own.
    MemoryOrNegative,
    Octal,
}

/// A parameter with an own syntax. Its value is kept as text, mostly that which CONFIG GET shows.
pub struct Special {
    pub default: fn() -> Vec<u8>,
    /// `current` is the value so far: some parameters change only in parts.
    pub parse: Parse,
    /// Function that makes the text of CONFIG GET from the kept value.
    pub show: fn(&[u8]) -> Vec<u8>,
}

pub type Parse = fn(arguments: &[&[u8]], current: &[u8]) -> Result<Vec<u8>, Reason>;

/// A value of any parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Number(i64),
    Text(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags {
    /// Only at start.
    pub immutable: bool,
    /// Only by name, never by a pattern.
    pub hidden: bool,
    /// Only if `enable-protected-configs` says so.
    pub protected: bool,
    /// Secret value, which is never logged.
    pub sensitive: bool,
    /// Takes more than one argument.
    pub multi_arg: bool,
    /// Setting it to the value that it has is a change nevertheless (a file may have changed).
    pub volatile: bool,
}

/// Part of the process that follows a change of a parameter. Parameters that are read whenever they are
/// needed have `Nothing`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apply {
    Nothing,
    /// Switch the append-only file on or off, or sync it otherwise.
    Aof,
    /// Ask whether files that are written may be left in the old folder.
    Folder,
    LogMemory,
    /// The bus reads its parameters anew.
    Cluster,
    LuaApi,
    /// A command of CLIENT is known, or no longer.
    Maintenance,
    /// Replies wait for other replicas, or for none.
    ReplyGate,
    /// Close the listening sockets and open others.
    Listen,
    /// Close the listening sockets and open others, for other addresses.
    Bind,
    /// Close the listening sockets and open others, with certificates for TLS.
    TlsPort,
    /// Read certificates and keys anew.
    Tls,
    LogLevel,
    LogFormat,
    Metrics,
    Allocator,
    Decay,
    MaxClients,
    MaxMemory,
    EvictionPolicy,
    Password,
    Timers,
    /// Values leave memory, or come back, at other limits or not at all.
    Swap,
    /// Readers of what no longer fits are notified.
    TrackedKeys,
    Workers,
}

impl Apply {
    /// Returns whether it may wait for a disk, or for scripts.
    pub fn may_wait(self) -> bool {
        match self {
            Apply::Aof
            | Apply::Folder
            | Apply::Cluster
            | Apply::ReplyGate
            | Apply::Listen
            | Apply::Bind
            | Apply::TlsPort
            | Apply::Tls
            | Apply::EvictionPolicy => true,
            Apply::Nothing
            | Apply::LogMemory
            | Apply::LuaApi
            | Apply::Maintenance
            | Apply::LogLevel
            | Apply::LogFormat
            | Apply::Metrics
            | Apply::Allocator
            | Apply::Decay
            | Apply::MaxClients
            | Apply::MaxMemory
            | Apply::Password
            | Apply::Swap
            | Apply::Timers
            | Apply::TrackedKeys
            | Apply::Workers => false,
        }
    }
}

/// Support for a parameter, as described in docs/config.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    Works(&'static str),
    /// Accepted and shown, without any effect, because ...
    None(&'static str),
    /// Only its default is accepted, because ...
    Fixed(&'static str),
}

// ---- declaring ----

const fn param(name: &'static str, kind: Kind) -> Param {
    let flags = Flags {
        immutable: false,
        hidden: false,
        protected: false,
        sensitive: false,
        multi_arg: false,
        volatile: false,
    };
    Param { name, alias: None, kind, flags, check: None, apply: Apply::Nothing, support: Support::None("") }
}

pub const fn flag(name: &'static str, default: bool) -> Param {
    param(name, Kind::Flag { default })
}

pub const fn choice(name: &'static str, words: Words, default: &str) -> Param {
    param(name, Kind::Choice { words, default: word_value(words, default) })
}

pub const fn signed(name: &'static str, default: i64, min: i64, max: i64) -> Param {
    let format = Format::Plain;
    param(name, Kind::Number(Number { default, min, max, unsigned: false, format, clamp: None }))
}

pub const fn unsigned(name: &'static str, default: i64, min: i64, max: i64) -> Param {
    let format = Format::Plain;
    param(name, Kind::Number(Number { default, min, max, unsigned: true, format, clamp: None }))
}

pub const fn text(name: &'static str, default: &'static str) -> Param {
    param(name, Kind::Text { default, c_string: true })
}

/// A text that may hold any bytes.
pub const fn bytes(name: &'static str, default: &'static str) -> Param {
    param(name, Kind::Text { default, c_string: false })
}

pub const fn special(name: &'static str, special: &'static Special) -> Param {
    param(name, Kind::Special(special))
}

impl Param {
    pub const fn alias(mut self, alias: &'static str) -> Param {
        self.alias = Some(alias);
        self
    }
    pub const fn immutable(mut self) -> Param {
        self.flags.immutable = true;
        self
    }
    pub const fn hidden(mut self) -> Param {
        self.flags.hidden = true;
        self
    }
    pub const fn protected(mut self) -> Param {
        self.flags.protected = true;
        self
    }
    pub const fn sensitive(mut self) -> Param {
        self.flags.sensitive = true;
        self
    }
    pub const fn multi_arg(mut self) -> Param {
        self.flags.multi_arg = true;
        self
    }
    pub const fn volatile(mut self) -> Param {
        self.flags.volatile = true;
        self
    }
    pub const fn memory(self) -> Param {
        self.format(Format::Memory)
    }
    pub const fn memory_or_percent(self) -> Param {
        self.format(Format::MemoryOrPercent)
    }
    pub const fn memory_or_negative(self) -> Param {
        self.format(Format::MemoryOrNegative)
    }
    pub const fn octal(self) -> Param {
        self.format(Format::Octal)
    }
    const fn format(mut self, format: Format) -> Param {
        let Kind::Number(ref mut number) = self.kind else { panic!("only numbers have a format") };
        number.format = format;
        self
    }
    pub const fn clamp(mut self, min: i64, max: i64) -> Param {
        let Kind::Number(ref mut number) = self.kind else { panic!("only numbers can be clamped") };
        number.clamp = Some((min, max));
        self
    }
    pub const fn check(mut self, check: Check) -> Param {
        self.check = Some(check);
        self
    }
    pub const fn apply(mut self, apply: Apply) -> Param {
        self.apply = apply;
        self
    }
    pub const fn works(mut self, what: &'static str) -> Param {
        self.support = Support::Works(what);
        self
    }
    pub const fn no_effect(mut self, because: &'static str) -> Param {
        self.support = Support::None(because);
        self
    }
    pub const fn fixed(mut self, because: &'static str) -> Param {
        self.support = Support::Fixed(because);
        self
    }

    pub fn default_value(&self) -> Value {
        match self.kind {
            Kind::Flag { default } => Value::Number(i64::from(default)),
            Kind::Choice { default, .. } => Value::Number(default),
            Kind::Number(Number { default, .. }) => Value::Number(default),
            Kind::Text { default, .. } => Value::Text(default.into()),
            Kind::Special(special) => Value::Text((special.default)()),
        }
    }
}

const fn word_value(words: Words, word: &str) -> i64 {
    let mut at = 0;
    while at < words.len() {
        if same(words[at].0, word) {
            return words[at].1;
        }
        at += 1;
    }
    panic!("the default is one of the words")
}

/// `a == b`, at compile time.
pub const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
