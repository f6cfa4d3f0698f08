//! The persistence of the whole server on a simulated disk: one thread, one seed.
//!
//! ```text
//!   seed --> who moves next?
//!              a client         a random command or EXEC, through the dispatcher of one of two workers
//!              a routine        a step of aof-write, aof-sync, aof-prepare, aof-rewrite, rdb-save   (`runtime::routines`)
//!              the cron         expiry, scheduled saves and rewrites
//!              the clock        some milliseconds, sometimes seconds; the wall clock is set  (`runtime::time`)
//!           --> the disk stops, or fails, at a call that the seed draws                            (`SimDisk`)
//!           --> the disk of one routine hangs for up to 15 s, between two of its steps: all others move
//!           --> the next process starts with the server's own `find_data` and `load_now`
//! ```
//! Real are the keyspace (four partitions), the commands, the executor, the log, the writer with all its
//! files, the loader, and saves. Sockets, workers' event loops and the outbox are not there: a reply leaves
//! when the log is durable up to the place that the dispatcher names.
//!
//! **Checked after each start** (`history`): the data is what it was at the place of the log where the start
//! continues. This place is not before the one that a reply has shown that left under `always`, nor before
//! the one that was announced as durable; no transaction is there in part; the folder has no file that the
//! manifest does not list; a second start changes nothing; a start without the append-only file finds the
//! data of the last save. And in the process before: once the disk works again, so do writes.
//!
//! `follower` has the same for a replica: the seed plays its primary, whose stream goes through the server's
//! own applier. `swap` has the same of what is not in memory.
//!
//! `state` is the data as a map, `workload` draws commands, `process` is one life of the server, `machine`
//! its disk and what moves, `counts` what its lives had, `disturbance` hangs and steps of the clock, `ending`
//! how a life ends.

mod counts;
mod disturbance;
mod ending;
mod follower;
mod history;
mod machine;
pub mod process;
mod seeds;
mod state;
mod swap;
mod sweep;
mod workload;
