//! PSYNC and SYNC: the request for the stream.

use isotherm_log::LogOffset;
use isotherm_resp::Args;
use isotherm_stdx::parse_i64;

use crate::ReplId;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyncRequest {
    /// The old one: a snapshot, and the log after it.
    Sync,
    Psync {
        /// Replication id of the request; `None` if its text is not a valid id.
        id: Option<ReplId>,
        /// Text in the place of the replication id; `?` asks for a snapshot.
        text: Vec<u8>,
        /// The first byte that is wanted; the first of all is 1.
        from: i64,
        /// The primary that it comes from has become a replica: we are to take its place.
        failover: bool,
    },
}

/// The offset is no number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongRequest;

impl SyncRequest {
    /// `args` begins with the command's name; there are as many as it needs.
    pub fn parse(args: Args<'_>) -> Result<SyncRequest, WrongRequest> {
        if args.get(0).eq_ignore_ascii_case(b"sync") {
            return Ok(SyncRequest::Sync);
        }
        let text = args.get(1).to_vec();
        let failover = args.try_get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"failover"));
        let from = args.try_get(2).and_then(parse_i64).ok_or(WrongRequest)?;
        Ok(SyncRequest::Psync { id: ReplId::parse(&text), text, from, failover })
    }

    /// Returns whether the replica asks for a snapshot and expects no other answer.
    pub fn asks_for_snapshot(&self) -> bool {
        match self {
            SyncRequest::Sync => true,
            SyncRequest::Psync { text, .. } => text.first() == Some(&b'?'),
        }
    }

    /// Returns the replication id and the offset from which the replica wants the log.
    pub fn place(&self) -> Option<(ReplId, LogOffset)> {
        match self {
            SyncRequest::Psync { id: Some(id), from, .. } if *from >= 1 => {
                Some((*id, LogOffset(*from as u64 - 1)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::ArgsBuf;

    fn parse(text: &str) -> Result<SyncRequest, WrongRequest> {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        SyncRequest::parse(ArgsBuf::from_slices(&words).args())
    }

    #[test]
    fn requests() {
        let id = "0123456789012345678901234567890123456789";
        assert_eq!(parse("SYNC"), Ok(SyncRequest::Sync));
        let psync = parse(&format!("psync {id} 101")).unwrap();
        assert_eq!(psync.place(), Some((ReplId::parse(id.as_bytes()).unwrap(), LogOffset(100))));
        assert!(!psync.asks_for_snapshot());
        let fresh = parse("PSYNC ? -1").unwrap();
        assert!(fresh.asks_for_snapshot() && fresh.place().is_none());
        assert_eq!(parse(&format!("psync {id} 0")).unwrap().place(), None, "there is no byte 0");
        assert_eq!(parse("psync monkey 1").unwrap().place(), None);
        assert_eq!(parse("psync ? x"), Err(WrongRequest));
        assert_eq!(parse("psync ?"), Err(WrongRequest));
        assert!(matches!(parse("psync ? 1 FAILOVER"), Ok(SyncRequest::Psync { failover: true, .. })));
    }
}
