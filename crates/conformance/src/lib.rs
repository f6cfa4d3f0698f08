//! Compares Isotherm with Valkey: the same commands to both, the same replies expected.
//!
//! **Architecture invariant:** this tool does not know the server's insides. It talks to both over sockets.
//!
//! Reading order: a connection (`client`), servers started on the way (`process`), random commands
//! (`grammar`, `vocabulary`, `disorder`), what is done with them (`session`, `runner`, `rules`, `audit`),
//! how a difference is explained (`shrink`, `differential`), bugs on purpose (`faults`), connections that
//! meet (`interleave`), what Valkey writes to its replication stream (`replication`, `effects`), what both
//! say of their commands (`declared`), values dumped and restored both ways (`transfer`), replicas of other
//! makes and versions (`follow`), common clients at work (`clients`), clusters whose slots move under their
//! load (`cluster`), libraries that work by scripts (`scripts`), and Valkey's own test suite (`suite`).

pub mod client;
pub mod process;

pub mod disorder;
pub mod grammar;
pub mod vocabulary;

pub mod audit;
pub mod rules;
pub mod runner;
pub mod session;

pub mod differential;
pub mod faults;
pub mod shrink;

pub mod interleave;

pub mod declared;
pub mod effects;
pub mod replication;

pub mod follow;
pub mod transfer;

pub mod clients;
pub mod cluster;
pub mod scripts;

pub mod suite;

mod bounded;

/// Result whose error is a text for people.
pub type Fallible<T = ()> = Result<T, String>;
