//! Why rules are refused, in Valkey's words.

/// Error in a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleError {
    UnknownCommand,
    Syntax,
    PatternAfterAll,
    ChannelAfterAll,
    NoSuchPassword,
    BadHash,
    DuplicateUser,
    ArgumentOfSubcommand,
    DatabaseRange,
}

impl RuleError {
    pub const fn text(self) -> &'static str {
        match self {
            RuleError::UnknownCommand => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::PatternAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
                 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::ChannelAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try \
                 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::DuplicateUser => {
                "Duplicate user found. A user can only be defined once in config files"
            }
            RuleError::ArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            RuleError::DatabaseRange => "The provided database ID is out of range",
        }
    }
}

/// Why a user is not changed as asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetUserError {
    /// The rule, and what is wrong with it.
    Rule(Vec<u8>, RuleError),
    /// A selector that begins with this word has no end.
    Unmatched(Vec<u8>),
}

impl SetUserError {
    pub fn text(&self) -> Vec<u8> {
        match self {
            SetUserError::Rule(rule, error) => {
                [b"Error in ACL SETUSER modifier '", &rule[..], b"': ", error.text().as_bytes()].concat()
            }
            SetUserError::Unmatched(word) => {
                [b"Unmatched parenthesis in acl selector starting at '", &word[..], b"'."].concat()
            }
        }
    }
}
