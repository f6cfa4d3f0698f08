//! Arguments that several commands share, as COMMAND DOCS shows them.

use crate::spec::Argument;

/// Fields of a hash: `FIELDS numfields field [field ...]`.
pub const FIELDS: Argument =
    Argument::block("fields", &[NUM_FIELDS, Argument::string("field").multiple()]).token("FIELDS");
/// Valkey says of this number that the first key spec finds it, and so do we.
pub const NUM_FIELDS: Argument = Argument::integer("numfields").of_key_spec(0);
/// Condition under which a new time replaces the old one.
pub const CONDITION: Argument = Argument::one_of(
    "condition",
    &[
        Argument::pure_token("nx", "NX"),
        Argument::pure_token("xx", "XX"),
        Argument::pure_token("gt", "GT"),
        Argument::pure_token("lt", "LT"),
    ],
);
/// Function that combines the scores of a member of several sorted sets.
pub const AGGREGATE: Argument = Argument::one_of(
    "aggregate",
    &[
        Argument::pure_token("sum", "SUM"),
        Argument::pure_token("min", "MIN"),
        Argument::pure_token("max", "MAX"),
    ],
)
.token("AGGREGATE")
.optional();
/// `LIMIT offset count` of a range.
pub const LIMIT: Argument =
    Argument::block("limit", &[Argument::integer("offset"), Argument::integer("count")])
        .token("LIMIT")
        .optional();
