//! Connections between servers under TLS: the link to a primary, the bus of a cluster, MIGRATE.

use crate::common::{Client, free_port, wait_until};
use crate::tls::{Files, TlsServer};

const OK: &str = "+OK\r\n";

fn is_up(client: &mut Client) -> bool {
    client.ask("INFO replication").contains("master_link_status:up")
}

#[test]
fn a_replica_follows_under_tls() {
    let files = Files::make();
    let primary = files.server(1, &[]);
    let replica = files.server(1, &["--tls-replication", "yes"]);
    let (mut writes, mut reads) = (primary.plain.client(), replica.plain.client());
    let value = "x".repeat(200_000);
    for number in 0..50 {
        writes.check(&format!("SET before:{number} {value}"), OK);
    }
    reads.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port), OK);
    wait_until("the link is up", || is_up(&mut reads));
    assert_eq!(reads.ask_number("DBSIZE"), 50);
    for number in 0..2000 {
        writes.check(&format!("SET after:{number} {number}"), OK);
    }
    writes.check(&format!("SET large {}", value.repeat(20)), OK);
    wait_until("all has come", || reads.ask_number("STRLEN large") == 20 * value.len() as i64);
    assert_eq!(reads.ask_number("DBSIZE"), 2051);
    let port = replica.port;
    assert!(
        writes.ask("INFO replication").contains(&format!("port={port},state=online")),
        "its TLS port is named"
    );
    // Without TLS the port answers nothing.
    reads.check("CONFIG SET tls-replication no", OK);
    reads.check("REPLICAOF NO ONE", OK);
    reads.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port), OK);
    wait_until("it has tried in vain", || !is_up(&mut reads));
    primary.plain.wait_for_log("Error accepting a client connection");
    reads.check("CONFIG SET tls-replication yes", OK);
    wait_until("the link is up", || is_up(&mut reads));
}

#[test]
fn a_replica_believes_no_other_authority() {
    let (files, others) = (Files::make(), Files::make());
    let primary = files.server(1, &[]);
    let replica = others.server(1, &["--tls-replication", "yes"]);
    let mut reads = replica.plain.client();
    reads.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port), OK);
    replica.plain.wait_for_log("UnknownIssuer");
    assert!(!is_up(&mut reads));
}

fn node(files: &Files) -> TlsServer {
    let bus = free_port().to_string();
    files.server(1, &["--tls-cluster", "yes", "--cluster-enabled", "yes", "--cluster-port", &bus])
}

#[test]
fn a_cluster_speaks_tls() {
    let files = Files::make();
    let nodes = [node(&files), node(&files)];
    let mut clients = [nodes[0].plain.client(), nodes[1].plain.client()];
    clients[0].check("CLUSTER ADDSLOTSRANGE 0 8191", OK);
    clients[1].check("CLUSTER ADDSLOTSRANGE 8192 16383", OK);
    let bus = clients[1].ask("CONFIG GET cluster-port");
    let bus = bus.lines().nth(4).unwrap();
    clients[0].check(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", nodes[1].port), OK);
    for client in &mut clients {
        wait_until("the cluster is up", || client.ask("CLUSTER INFO").contains("cluster_state:ok"));
    }
    // A client that asks under TLS gets ports of TLS, one that asks without it gets the others.
    let (tls_port, plain_port) = (nodes[1].port, nodes[1].plain.port);
    let mut under_tls = nodes[0].client(&files);
    // The slot of `a` is 15495.
    under_tls.check("GET a", &format!("-MOVED 15495 127.0.0.1:{tls_port}\r\n"));
    clients[0].check("GET a", &format!("-MOVED 15495 127.0.0.1:{plain_port}\r\n"));
    assert!(under_tls.ask("CLUSTER SLOTS").contains(&format!(":{tls_port}\r\n")));
    assert!(clients[0].ask("CLUSTER SLOTS").contains(&format!(":{plain_port}\r\n")));
    // MIGRATE goes to a port of TLS too. The slot of `b` is 3300.
    clients[0].check("SET b value", OK);
    let id = clients[1].ask("CLUSTER MYID");
    let id = id.lines().nth(1).unwrap();
    clients[0].check(&format!("CLUSTER SETSLOT 3300 MIGRATING {id}"), OK);
    let own = clients[0].ask("CLUSTER MYID");
    let own = own.lines().nth(1).unwrap();
    clients[1].check(&format!("CLUSTER SETSLOT 3300 IMPORTING {own}"), OK);
    clients[0].check(&format!("MIGRATE 127.0.0.1 {tls_port} b 0 5000"), OK);
    clients[1].check("ASKING", OK);
    clients[1].check("GET b", "$5\r\nvalue\r\n");
}

#[test]
fn a_certificate_that_is_its_own_authority_serves_all_links() {
    let files = Files::alone();
    let primary = files.server(1, &["--repl-diskless-sync-delay", "0"]);
    let replica = files.server(1, &["--tls-replication", "yes"]);
    let (mut writes, mut reads) = (primary.plain.client(), replica.plain.client());
    writes.check("SET key value", OK);
    reads.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port), OK);
    wait_until("the link is up", || is_up(&mut reads));
    reads.check("GET key", "$5\r\nvalue\r\n");
    let nodes = [node(&files), node(&files)];
    let mut clients = [nodes[0].plain.client(), nodes[1].plain.client()];
    let bus = clients[1].ask("CONFIG GET cluster-port");
    let bus = bus.lines().nth(4).unwrap();
    clients[0].check(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", nodes[1].port), OK);
    for client in &mut clients {
        wait_until("both have met", || {
            let lines = client.ask("CLUSTER NODES");
            lines.matches(" connected").count() == 2 && !lines.contains("handshake")
        });
    }
}
