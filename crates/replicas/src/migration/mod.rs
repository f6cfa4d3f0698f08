//! MIGRATE: keys move to another server while this one keeps serving.
//!
//! ```text
//!   worker               thread "migrate"                                            target
//!   MIGRATE: parked ---> lock: the value as bytes, a watch | unlock
//!                        AUTH, SELECT, RESTORE ..., in one go                   ---> each answers
//!                        lock: unchanged? it leaves: DEL | unlock               <---
//!                        changed meanwhile? once more, with REPLACE
//!                        changed again? once more, leased: who needs it waits
//!   the reply       <--- over
//! ```
//! MIGRATE holds no lock while it waits for the network, and no worker waits. There are few threads
//! (`THREADS_MAX`), which begin with the first MIGRATEs.
//!
//! **Here or there.** A key leaves only under the lock under which it was found to be what the target has
//! said OK to. So whatever happens to the target, to the connection or to this process, it is here, or it is
//! there; after an error it may be in both, as in Valkey, and is served here. Changes by its clients
//! meanwhile are not lost:
//!
//! ```text
//!   its value changes       it is sent again
//!   it is deleted, expires  the target is to delete it too, if it has said OK to it
//!   it is made anew         it is sent again
//! ```
//! A client would be sent on to the target for a key that is missing here, if its slot is on its way; while
//! the key is on its way (`flights`) it waits instead. Between two servers without a cluster, a client that
//! writes to the key at the target meanwhile may find that the MIGRATE has written over it, or has deleted
//! it.
//!
//! **The third time** the keys are leased as those of a long script are (`keyspace` `lease`): commands that
//! need one of them wait, all others run, and what stops the whole node waits too. That lasts as long as the
//! client's timeout at most.
//!
//! A client that leaves, or is killed, does not end its MIGRATE once that has begun: half of it may have
//! happened.

mod batch;
mod course;
mod reading;
pub mod thread;
