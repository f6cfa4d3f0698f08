//! A MIGRATE that a client waits for.

use isotherm_keyspace::{Db, Waiter};
use isotherm_resp::Reply;
use isotherm_resp::reply::Protocol;
use std::sync::Arc;

use super::request::Request;
use crate::request::caller::Caller;
use crate::session::ClientShared;

/// Findings of the handler, made before its client is parked.
pub struct Order {
    pub request: Request,
    /// The keys that were there, as often as they were named.
    pub names: Vec<Arc<[u8]>>,
    pub is_replica: bool,
}

pub struct Job {
    pub order: Order,
    pub waiter: Arc<Waiter>,
    pub client: Arc<ClientShared>,
    pub caller: Caller,
    pub db: Db,
    pub proto: Protocol,
}

impl Job {
    pub fn error(&self, text: impl AsRef<[u8]>) -> Reply {
        let mut reply = Reply::new(self.proto);
        reply.error(text);
        reply
    }
}
