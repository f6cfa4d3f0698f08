//! In which database a command looks at its keys, where that is not the one of its session.

/// What a command says of databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Databases {
    /// It stays in the session's.
    One,
    /// It selects this one, if there is one of this number (SELECT).
    Selects(i64),
    /// One of its keys lies in another, or is to (MOVE, COPY DB).
    Two,
}
