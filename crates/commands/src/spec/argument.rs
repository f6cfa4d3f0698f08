//! The arguments of a command as COMMAND DOCS describes them: a tree of small words.

/// Documented argument of a command (COMMAND DOCS).
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    pub name: &'static str,
    pub kind: ArgumentKind,
    pub key_spec_index: Option<u8>,
    pub token: Option<&'static str>,
    pub summary: Option<&'static str>,
    pub since: Option<&'static str>,
    pub deprecated_since: Option<&'static str>,
    pub optional: bool,
    pub multiple: bool,
    pub multiple_token: bool,
    pub display: Option<&'static str>,
    pub arguments: &'static [Argument],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgumentKind {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl ArgumentKind {
    /// Returns the name in COMMAND DOCS.
    pub const fn name(self) -> &'static str {
        match self {
            ArgumentKind::String => "string",
            ArgumentKind::Integer => "integer",
            ArgumentKind::Double => "double",
            ArgumentKind::Key => "key",
            ArgumentKind::Pattern => "pattern",
            ArgumentKind::UnixTime => "unix-time",
            ArgumentKind::PureToken => "pure-token",
            ArgumentKind::OneOf => "oneof",
            ArgumentKind::Block => "block",
        }
    }
}

/// A declaration reads as a sentence: `Argument::integer("seconds").token("EX").since("2.6.12")`.
impl Argument {
    const fn new(name: &'static str, kind: ArgumentKind) -> Argument {
        Argument {
            name,
            kind,
            key_spec_index: None,
            token: None,
            summary: None,
            since: None,
            deprecated_since: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            display: None,
            arguments: &[],
        }
    }

    pub const fn string(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::String)
    }

    pub const fn integer(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Integer)
    }

    pub const fn double(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Double)
    }

    /// `key_spec_index`: which of the key specs finds it.
    pub const fn key(name: &'static str, key_spec_index: u8) -> Argument {
        Argument { key_spec_index: Some(key_spec_index), ..Argument::new(name, ArgumentKind::Key) }
    }

    pub const fn pattern(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Pattern)
    }

    pub const fn unix_time(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::UnixTime)
    }

    pub const fn pure_token(name: &'static str, token: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::PureToken).token(token)
    }

    pub const fn one_of(name: &'static str, arguments: &'static [Argument]) -> Argument {
        Argument { arguments, ..Argument::new(name, ArgumentKind::OneOf) }
    }

    pub const fn block(name: &'static str, arguments: &'static [Argument]) -> Argument {
        Argument { arguments, ..Argument::new(name, ArgumentKind::Block) }
    }

    pub const fn token(self, token: &'static str) -> Argument {
        Argument { token: Some(token), ..self }
    }

    pub const fn summary(self, summary: &'static str) -> Argument {
        Argument { summary: Some(summary), ..self }
    }

    pub const fn since(self, version: &'static str) -> Argument {
        Argument { since: Some(version), ..self }
    }

    pub const fn deprecated_since(self, version: &'static str) -> Argument {
        Argument { deprecated_since: Some(version), ..self }
    }

    pub const fn optional(self) -> Argument {
        Argument { optional: true, ..self }
    }

    pub const fn multiple(self) -> Argument {
        Argument { multiple: true, ..self }
    }

    /// Repeated together with its token.
    pub const fn multiple_token(self) -> Argument {
        Argument { multiple: true, multiple_token: true, ..self }
    }

    /// Sets the key specification that Valkey names for the argument, although the argument itself is no key.
    pub const fn of_key_spec(self, index: u8) -> Argument {
        Argument { key_spec_index: Some(index), ..self }
    }

    /// Shown under another name than its own.
    pub const fn display(self, text: &'static str) -> Argument {
        Argument { display: Some(text), ..self }
    }
}
