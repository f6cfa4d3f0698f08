//! Why a request does not run here, in Valkey's words.

use isotherm_cluster::Slot;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The keys of the request lie in several slots.
    CrossSlot,
    /// Some of its keys are here, and some elsewhere.
    TryAgain,
    /// The cluster is down.
    Down,
    /// The cluster is down, but it serves reads.
    DownReadOnly,
    /// The slot has no owner.
    Unbound,
    Moved(Slot),
    Ask(Slot),
    /// A key that is missing here is on its way: whether it is there is known in a moment.
    UnderWay,
    /// Some keys are missing, and of the others a record on disk says whether they are there: they are read,
    /// and the request is judged again.
    Unread,
}

impl Refusal {
    /// Returns the text of the error. Refusals that name another node are written by `route`.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot",
            Refusal::TryAgain | Refusal::UnderWay | Refusal::Unread => {
                "TRYAGAIN Multiple keys request during rehashing of slot"
            }
            Refusal::Down => "CLUSTERDOWN The cluster is down",
            Refusal::DownReadOnly => "CLUSTERDOWN The cluster is down and only accepts read commands",
            Refusal::Unbound => "CLUSTERDOWN Hash slot not served",
            Refusal::Moved(_) => "MOVED",
            Refusal::Ask(_) => "ASK",
        }
    }
}
