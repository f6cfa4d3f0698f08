//! The kinds of clients. A lane is one kind: what its members send, what it keeps count of, and what it says
//! is wrong.
//!
//! ```text
//!   prepare     one connection, before anything is sent
//!   work        each member, in a thread of its own
//!   while Quiet: look_quiet    nothing is sent any more, receivers still wait: what is there has to be delivered
//!   after all have left: audit what was sent is held against what came and what is left
//! ```

use std::sync::Arc;

use crate::connection::{Connection, Lost};
use crate::kinds::Kind;
use crate::plan::Plan;
use crate::world::Member;

mod anything;
mod caches;
mod control;
mod counters;
pub mod messages;
mod queues;
mod streams;
mod times;
mod torn;
mod victims;
mod wide;

pub use control::Control;
pub use times::now_ms;

pub trait Lane: Send + Sync {
    fn prepare(&self, _connection: &mut Connection) -> Result<(), Lost> {
        Ok(())
    }

    /// Runs one member until it is to end. Members that wait for others end last.
    fn work(&self, member: &mut Member) -> Result<(), Lost>;

    /// Returns whether this member waits for messages of others. Such a member stays until the others have
    /// ended.
    fn waits(&self, _number: usize) -> bool {
        false
    }

    /// Returns the faults that are visible once no requests are sent. The caller repeats this until there are
    /// none, or for some time.
    fn look_quiet(&self, _connection: &mut Connection) -> Result<Vec<String>, Lost> {
        Ok(Vec::new())
    }

    /// Returns the faults that are visible once all members have left.
    fn audit(&self, _connection: &mut Connection) -> Result<Vec<String>, Lost> {
        Ok(Vec::new())
    }

    /// Describes for the summary how much the lane has done.
    fn summary(&self) -> String {
        String::new()
    }
}

pub fn lane(kind: Kind, plan: &Plan, members: usize) -> Arc<dyn Lane> {
    match kind {
        Kind::Queues => Arc::new(queues::Queues::new(plan, members)),
        Kind::Streams => Arc::new(streams::Streams::new(plan, members)),
        Kind::Counters => Arc::new(counters::Counters::new(plan)),
        Kind::Victims => Arc::new(victims::Victims::new(plan)),
        Kind::Messages => Arc::new(messages::Messages::new(plan, members)),
        Kind::Caches => Arc::new(caches::Caches::new(plan)),
        Kind::Times => Arc::new(times::Times::new(plan)),
        Kind::Anything => Arc::new(anything::Anything::default()),
        Kind::Torn => Arc::new(torn::Torn),
        Kind::Wide => Arc::new(wide::Wide::new(plan)),
    }
}

/// Words of a request.
pub fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// The words of a line that has no spaces inside them.
pub fn line(text: &str) -> Vec<Vec<u8>> {
    text.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}
