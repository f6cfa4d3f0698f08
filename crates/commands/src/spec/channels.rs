//! The channels that a command names.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channels {
    /// No channels, or only channels that the command leaves (UNSUBSCRIBE).
    None,
    /// The first argument (PUBLISH).
    One,
    /// All arguments (SUBSCRIBE).
    All,
    /// All arguments, which are patterns.
    Patterns,
}
