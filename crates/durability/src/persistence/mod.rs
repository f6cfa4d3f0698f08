//! Data that is written to disk and read at start: the RDB file.
//!
//! ```text
//! SAVE, save points, BGSAVE --> cut (all partitions held for a moment) --> Snapshot
//!                                                                             |
//!      under one partition's lock, some hundred items a step:            ItemWriter --> bytes in memory
//!      with no lock:                                                     temp-<pid>.rdb, sum, fsync, rename, fsync of the folder
//!
//! start --> dump.rdb in portions --> FileReader --> load_piece --> keyspace;   clients hear -LOADING meanwhile
//! ```
//! `save` writes a file, `background` decides when and on which thread, and `load` reads one. `state` answers
//! the questions of others, and `watch` writes the progress to the log. Nothing here knows a session or the
//! node: it gets [`Store`], the parts that it needs.
//!
//! **Invariants.** The file of that name is always a whole one: a save that fails or is ended leaves the one
//! before. A file that cannot be read ends the start: nothing half loaded is served. One save runs at a time.

pub mod away;
pub mod background;
mod delay;
pub mod items;
pub mod load;
pub mod report;
pub mod room;
pub mod save;
pub mod watch;
