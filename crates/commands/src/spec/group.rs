//! The groups that the documentation sorts commands into.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    Generic,
    String,
    Connection,
    Server,
    Transactions,
    Bitmap,
    Geo,
    Hash,
    HyperLogLog,
    List,
    PubSub,
    Scripting,
    Set,
    SortedSet,
    Stream,
    Cluster,
}

impl Group {
    /// Returns the name in COMMAND DOCS.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Transactions => "transactions",
            Group::Bitmap => "bitmap",
            Group::Geo => "geo",
            Group::Hash => "hash",
            Group::HyperLogLog => "hyperloglog",
            Group::List => "list",
            Group::PubSub => "pubsub",
            Group::Scripting => "scripting",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::Cluster => "cluster",
        }
    }
}
