//! Two servers that get the same commands: parts of the collections of one are on disk, the other has all of
//! its in memory.

use crate::common::{Client, Server, wait_until};
use crate::swap::{Folder, swap};

pub struct Pair {
    pub client: Client,
    other: Client,
    _servers: [Server; 2],
}

impl Pair {
    pub fn new(folder: &Folder) -> Pair {
        let servers = [
            folder.start(&["--maxmemory", "64mb"]),
            Server::with_workers(1, &["--enable-debug-command", "yes"]),
        ];
        wait_until("it has loaded", || servers[0].client().ask("PING") == "+PONG\r\n");
        Pair { client: servers[0].client(), other: servers[1].client(), _servers: servers }
    }

    /// The reply that both give.
    pub fn same(&mut self, request: &str) -> String {
        let reply = self.client.ask(request);
        assert!(reply == self.other.ask(request), "{request}: {reply:.300}");
        reply
    }

    /// Waits until all that may leave has left: more than `nodes_min` parts.
    pub fn sink(&mut self, nodes_min: u64) {
        self.client.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
        let mut before = 0;
        wait_until("all parts leave memory", || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let nodes = swap(&mut self.client, "swap_nodes");
            nodes > nodes_min && std::mem::replace(&mut before, nodes) == nodes
        });
        self.client.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    }

    /// Checks that the replies are equal, and that all is as it has to be.
    pub fn check(&mut self, requests: &[&str]) {
        requests.iter().for_each(|request| _ = self.same(request));
        self.client.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
    }

    /// All keys are deleted: nothing is left on disk.
    pub fn empty(&mut self) {
        self.same("FLUSHALL");
        wait_until("all is given back", || swap(&mut self.client, "swap_nodes") == 0);
        wait_until("on disk too", || swap(&mut self.client, "swap_live_bytes") == 0);
    }

    /// None of these can be read, or changes anything.
    pub fn fails(&mut self, requests: &[String], at_last: &str) {
        self.client.check("DEBUG SWAP-FAULT READ IO", "+OK\r\n");
        for request in requests {
            let reply = self.client.ask(request);
            assert!(reply.starts_with("-SWAPERR"), "{request}: {reply}");
        }
        self.client.check("DEBUG SWAP-FAULT READ NONE", "+OK\r\n");
        wait_until("the disk is back", || !self.client.ask(at_last).starts_with('-'));
    }
}

/// A replica loads sets in pieces, and all that may leave memory does so at once: so does what there is of a
/// set, between two pieces.
#[test]
fn a_collection_that_is_loaded_in_pieces_may_leave_memory_between_them() {
    const MEMBERS: usize = 7000;
    let primary =
        Server::with_workers(1, &["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"]);
    let mut client = primary.client();
    for key in 0..40 {
        let members: String = (0..MEMBERS).map(|at| format!(" {}", at * 1_000_003 + key)).collect();
        client.check(&format!("SADD set{key}{members}"), &format!(":{MEMBERS}\r\n"));
    }
    let folder = Folder::new("pieces");
    let replica =
        folder.start(&["--maxmemory", "500mb", "--swap-max-disk", "64gb", "--swap-min-value", "16"]);
    let mut other = replica.client();
    other.check("DEBUG SWAP-CHAOS 1", "+OK\r\n");
    other.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port), "+OK\r\n");
    wait_until("it has all", || other.ask("INFO replication").contains("master_link_status:up"));
    other.check("DEBUG SWAP-CHAOS 0", "+OK\r\n");
    assert_eq!(other.ask("DEBUG DIGEST"), client.ask("DEBUG DIGEST"));
    other.check("DEBUG CHECK-INVARIANTS", "+OK\r\n");
}
