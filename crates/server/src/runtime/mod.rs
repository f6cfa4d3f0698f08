//! What a thread of the server needs whatever it does: the log, the clocks, work in steps, random numbers and
//! files of operators. This folder does not know what runs.

pub mod log;
pub mod operator_file;
pub mod random;
pub mod routines;
pub mod time;
