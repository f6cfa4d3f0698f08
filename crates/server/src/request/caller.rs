//! A caller: who asks for a command, as the command sees it.

/// Who asks, as far as that matters to a data command.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The author of what is changed, for client-side caching.
    pub id: u64,
    /// It can wait for a key.
    pub may_wait: bool,
    /// CLIENT NO-TOUCH, and CLIENT IMPORT-SOURCE.
    pub no_touch: bool,
    pub import_source: bool,
}
