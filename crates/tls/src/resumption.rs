//! Resumption of a session by a later connection: by a ticket that the client keeps, or by a number under
//! which this side has kept it.
//!
//! Both end after a configured time. A ticket is sealed by keys that rustls changes every six hours, and says
//! when it was made.

use rustls::Error;
use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::settings::Resumption;

const TIME_BYTES: usize = 8;

#[derive(Debug)]
pub struct Tickets {
    sealing: Arc<dyn ProducesTickets>,
    lifetime_s: u32,
}

impl Tickets {
    pub fn new(resumption: Resumption) -> Result<Tickets, Error> {
        Ok(Tickets { sealing: rustls::crypto::ring::Ticketer::new()?, lifetime_s: resumption.lifetime_s })
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime_s
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.sealing.encrypt(&stamped(plain, now_s()))
    }

    fn decrypt(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        fresh(&self.sealing.decrypt(sealed)?, now_s(), self.lifetime_s)
    }
}

/// Sessions by number, which only TLS 1.2 has.
#[derive(Debug)]
pub struct Sessions {
    kept: Arc<ServerSessionMemoryCache>,
    lifetime_s: u32,
}

impl Sessions {
    pub fn new(resumption: Resumption) -> Sessions {
        // Memory is taken as sessions come.
        Sessions {
            kept: ServerSessionMemoryCache::new(resumption.sessions_max),
            lifetime_s: resumption.lifetime_s,
        }
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.kept.put(key, stamped(&value, now_s()))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        fresh(&self.kept.get(key)?, now_s(), self.lifetime_s)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        fresh(&self.kept.take(key)?, now_s(), self.lifetime_s)
    }

    fn can_cache(&self) -> bool {
        self.kept.can_cache()
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn stamped(bytes: &[u8], now_s: u64) -> Vec<u8> {
    [&now_s.to_be_bytes(), bytes].concat()
}

fn fresh(stamped: &[u8], now_s: u64, lifetime_s: u32) -> Option<Vec<u8>> {
    let (made_s, bytes) = stamped.split_first_chunk::<TIME_BYTES>()?;
    let age_s = now_s.checked_sub(u64::from_be_bytes(*made_s))?;
    (age_s <= u64::from(lifetime_s)).then(|| bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_after_their_time() {
        let kept = stamped(b"session", 1000);
        assert_eq!(fresh(&kept, 1000, 300).as_deref(), Some(&b"session"[..]));
        assert!(fresh(&kept, 1300, 300).is_some());
        assert!(fresh(&kept, 1301, 300).is_none());
        // The clock was set back, or it is no such thing at all.
        assert!(fresh(&kept, 999, 300).is_none());
        assert!(fresh(b"short", 999, 300).is_none());
    }

    #[test]
    fn a_ticket_is_opened_by_who_sealed_it() {
        let resumption = Resumption { sessions_max: 10, lifetime_s: 300 };
        let (one, other) = (Tickets::new(resumption).unwrap(), Tickets::new(resumption).unwrap());
        let ticket = one.encrypt(b"session").unwrap();
        assert_eq!(one.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(other.decrypt(&ticket), None);
        assert_eq!(one.decrypt(&ticket[1..]), None);
    }
}
