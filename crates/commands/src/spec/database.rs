//! In which database a command looks at its keys, where that is not the one of its session.

use isotherm_resp::Args;
use isotherm_stdx::parse_i64;

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

/// Appends the arguments that name databases, each with what it names, of so many that there are. If one of them is wrong the
/// command will say so, and nothing is appended.
pub type FindDatabases = fn(Args<'_>, u16, &mut Vec<(usize, u32)>);

/// The database that an argument names, if there is one of this number.
pub fn number_at(args: Args<'_>, at: usize, databases: u16) -> Option<(usize, u32)> {
    let number = args.try_get(at).and_then(parse_i64)?;
    (0..i64::from(databases)).contains(&number).then_some((at, number as u32))
}
