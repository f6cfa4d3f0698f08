//! Anything: every command the server has, with arguments by its documentation, alone, in packets and in
//! transactions.
//!
//! Replies are not looked at, only that they come: other tools compare answers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Lane, line};
use crate::connection::{Connection, Lost};
use crate::grammar::Grammar;
use crate::kinds::Disturbance;
use crate::plan::DBS_ANY;
use crate::world::Member;

/// Number of requests on a connection; then another connection is opened, in another database.
const REQUESTS: u64 = 300;
const PACKET_MAX: usize = 12;

#[derive(Default)]
pub struct Anything {
    grammar: OnceLock<Grammar>,
    requests: AtomicU64,
}

impl Anything {
    fn session(&self, member: &mut Member) -> Result<(), Lost> {
        let mut connection = member.connect()?;
        let id = connection.id()?;
        let db = DBS_ANY.start + member.below(DBS_ANY.len());
        connection.call(&line(&format!("SELECT {db}")))?;
        member.world.exposed().killable.insert(id);
        let result = self.requests(member, &mut connection);
        member.world.exposed().killable.remove(&id);
        result
    }

    fn requests(&self, member: &mut Member, connection: &mut Connection) -> Result<(), Lost> {
        let grammar = self.grammar.get().expect("it was prepared");
        let swaps = member.world.plan.draws(Disturbance::Swap);
        let mut sent = 0;
        while member.is_busy() && sent < REQUESTS {
            let count = if member.prng.one_in(3) { 1 + member.below(PACKET_MAX) } else { 1 };
            let mut requests: Vec<_> = (0..count).map(|_| grammar.draw(&mut member.prng)).collect();
            requests.retain(|request| swaps || !matches!(request[0].as_slice(), b"swapdb" | b"flushdb"));
            // A transaction that MULTI has begun ends some time.
            if member.prng.one_in(4) {
                requests.push(line(["EXEC", "DISCARD", "UNWATCH"][member.below(3)]));
            }
            connection.send_all(&requests)?;
            connection.replies(requests.len())?;
            member.note_done();
            sent += requests.len() as u64;
            self.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
            member.rest();
        }
        Ok(())
    }
}

impl Lane for Anything {
    fn prepare(&self, connection: &mut Connection) -> Result<(), Lost> {
        let docs = connection.call(&["COMMAND", "DOCS"])?;
        self.grammar.get_or_init(|| Grammar::of(&docs));
        Ok(())
    }

    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        while member.is_busy() {
            match self.session(member) {
                // It may be killed at any time.
                Ok(()) | Err(Lost::Closed(_)) => {}
                Err(lost) => return Err(lost),
            }
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let commands = self.grammar.get().map_or(0, Grammar::commands);
        format!("{} requests of {commands} commands", self.requests.load(Ordering::Relaxed))
    }
}
