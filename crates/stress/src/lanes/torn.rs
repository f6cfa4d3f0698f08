//! Torn: connections that end in every state a connection can be in, without a word.

use std::time::Duration;

use super::{Lane, line};
use crate::connection::{Connection, Lost};
use crate::plan::DBS_ANY;
use crate::world::Member;

pub struct Torn;

/// Requests that bring a connection into a state; `#` stands for a database. Their replies are not read.
const STATES: [&[&str]; 14] = [
    &["BLPOP torn:1 torn:2 torn:3 torn:4 0"],
    &["XREAD BLOCK 0 STREAMS torn:x1 torn:x2 $ $"],
    &["BZPOPMIN torn:z1 torn:z2 0"],
    &["MULTI", "SET torn:s 1", "INCR torn:s"],
    &["WATCH torn:s torn:1", "MULTI", "GET torn:s"],
    &["SUBSCRIBE torn:a torn:b", "PSUBSCRIBE torn:*", "SSUBSCRIBE {torn}:c"],
    &["HELLO 3", "CLIENT TRACKING ON", "GET torn:s", "MGET torn:1 torn:2"],
    &["HELLO 3", "CLIENT TRACKING ON BCAST PREFIX torn:"],
    &["MONITOR"],
    &["CLIENT REPLY OFF", "SET torn:s 2", "INFO everything"],
    &["RPUSH torn:1 a", "LPOP torn:1", "BLMOVE torn:1 torn:2 LEFT RIGHT 0"],
    &["SETRANGE torn:big 300000 x", "GET torn:big", "GET torn:big", "GET torn:big", "GET torn:big"],
    &["RESET", "SELECT #", "MULTI", "BLPOP torn:1 0", "EXEC"],
    &["QUIT"],
];
/// Number of reads of a large value whose replies are never taken: 60 x 300 KB is more than the server keeps
/// for one client.
const UNREAD: usize = 60;

impl Torn {
    fn round(member: &mut Member) -> Result<(), Lost> {
        let mut connection = Connection::open(&member.world, &member.record)?;
        let db = DBS_ANY.start + member.below(DBS_ANY.len());
        connection.send(&line(&format!("SELECT {db}")))?;
        let state = STATES[member.below(STATES.len())];
        let requests: Vec<_> = state.iter().map(|text| line(&text.replace('#', &db.to_string()))).collect();
        connection.send_all(&requests)?;
        member.note_done();
        if member.prng.one_in(8) {
            connection.send_all(&vec![line("GET torn:big"); UNREAD])?;
        }
        match member.below(5) {
            // Half a request, then the end.
            0 => connection.write(b"*3\r\n$3\r\nSET\r\n$6\r\ntorn:s\r\n$100000\r\nhalf of it")?,
            1 => connection.half_close(),
            2 => connection.write(b"*1\r\n$4\r\nPI")?,
            _ => {}
        }
        if member.prng.one_in(2) {
            std::thread::sleep(Duration::from_micros(member.prng.below(20_000)));
        }
        Ok(())
    }
}

impl Lane for Torn {
    fn work(&self, member: &mut Member) -> Result<(), Lost> {
        while member.is_busy() {
            match Torn::round(member) {
                Ok(()) | Err(Lost::Closed(_)) => {}
                Err(lost) => return Err(lost),
            }
            member.rest();
        }
        Ok(())
    }
}
