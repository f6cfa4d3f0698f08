//! The channels that a command names.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channels {
    /// None, or only such as it leaves (UNSUBSCRIBE).
    None,
    /// The first argument (PUBLISH).
    One,
    /// All arguments (SUBSCRIBE).
    All,
    /// The same, and they are patterns.
    Patterns,
}
