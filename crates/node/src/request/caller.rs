//! A caller: where a command comes from, as the command sees it.

/// Client that asks for a command, as far as it matters to a data command.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The author of what is changed, for client-side caching.
    pub id: u64,
    /// True if the caller can wait for a key.
    pub may_wait: bool,
    pub in_script: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// True if the user may read every key; SORT asks for this.
    pub may_read_all: bool,
    pub authority: Authority,
}

/// Authority that decides when a key has expired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Authority {
    /// The server, by its clock.
    Server,
    /// A client with CLIENT IMPORT-SOURCE: while data is imported, its source decides.
    ImportSource,
    /// A log that is played back: keys stay until it removes them.
    Log,
}
