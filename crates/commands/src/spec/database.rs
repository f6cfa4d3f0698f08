//! Database of the keys of a command, if it is not the one of the session.

use isotherm_resp::Args;
use isotherm_stdx::parse_i64;

/// Databases that a command uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Databases {
    /// Only the session's database.
    One,
    /// Database with this number, which the command selects if there is one (SELECT).
    Selects(i64),
    /// The session's database and another one, in which one of the keys lies or is to lie (MOVE, COPY DB).
    Two,
}

/// Appends the arguments that name databases, each with the database that it names. The second argument is
/// the number of databases. If a name is wrong, the command will say so, and nothing is appended.
pub type FindDatabases = fn(Args<'_>, u16, &mut Vec<(usize, u32)>);

/// The database that an argument names, if there is one of this number.
pub fn number_at(args: Args<'_>, at: usize, databases: u16) -> Option<(usize, u32)> {
    let number = args.try_get(at).and_then(parse_i64)?;
    (0..i64::from(databases)).contains(&number).then_some((at, number as u32))
}
