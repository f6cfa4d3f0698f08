//! Kinds of clients and of disturbances, and their names on the command line.

/// The kinds of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Queues,
    Streams,
    Counters,
    Victims,
    Messages,
    Caches,
    Times,
    Anything,
    Torn,
    Wide,
}

/// A kind, its name, the least members with which it makes sense, and the most that help.
pub const KINDS: [(Kind, &str, usize, usize); 10] = [
    (Kind::Queues, "queues", 4, 100),
    (Kind::Streams, "streams", 4, 60),
    (Kind::Counters, "counters", 2, 100),
    (Kind::Victims, "victims", 1, 4),
    (Kind::Messages, "messages", 4, 80),
    (Kind::Caches, "caches", 2, 30),
    (Kind::Times, "times", 1, 2),
    (Kind::Anything, "anything", 1, 30),
    (Kind::Torn, "torn", 1, 12),
    (Kind::Wide, "wide", 1, 2),
];

/// Disturbance of the server or of its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disturbance {
    /// DEBUG SLEEP
    Sleep,
    /// SIGSTOP, and SIGCONT some time later
    Stop,
    /// SIGHUP
    HangUp,
    /// CLIENT PAUSE, for all or for writes, prolonged again and again, and UNPAUSE
    Pause,
    /// CLIENT KILL of connections that expect it
    Kill,
    /// CLIENT KILL of every client
    KillAll,
    /// CLIENT UNBLOCK of clients that wait
    Unblock,
    /// CONFIG SET of limits and rates
    Config,
    /// SWAPDB, FLUSHDB, COPY DB
    Swap,
    /// FLUSHALL
    FlushAll,
    /// DEBUG RELOAD
    Reload,
    /// DEBUG SET-ACTIVE-EXPIRE 0, and 1 again
    NoExpiry,
    /// INFO everything, MEMORY, CLIENT LIST, ...
    Reports,
    /// DEBUG CHECK-INVARIANTS
    Invariants,
}

/// A disturbance, its name, and in how many of eight runs it is drawn.
pub const DISTURBANCES: [(Disturbance, &str, u64); 14] = [
    (Disturbance::Sleep, "sleep", 4),
    (Disturbance::Stop, "stop", 3),
    (Disturbance::HangUp, "hup", 2),
    (Disturbance::Pause, "pause", 4),
    (Disturbance::Kill, "kill", 5),
    (Disturbance::KillAll, "kill-all", 1),
    (Disturbance::Unblock, "unblock", 4),
    (Disturbance::Config, "config", 4),
    (Disturbance::Swap, "swap", 4),
    (Disturbance::FlushAll, "flush-all", 1),
    (Disturbance::Reload, "reload", 3),
    (Disturbance::NoExpiry, "no-expiry", 3),
    (Disturbance::Reports, "reports", 5),
    (Disturbance::Invariants, "invariants", 3),
];

pub fn lane_names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(_, name, ..)| *name)
}

pub fn disturbance_names() -> impl Iterator<Item = &'static str> {
    DISTURBANCES.iter().map(|(_, name, _)| *name)
}

pub fn name_of(kind: Kind) -> &'static str {
    KINDS.iter().find(|(other, ..)| *other == kind).expect("all are listed").1
}
