//! Large replies that show the cluster: whole and in their place for each client, and in memory once for all
//! of them.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{Server, free_port, wait_until};

const NODES: usize = 100;

/// A member of a cluster of 100 primaries that do not exist, where every slot is a range of its own.
fn start(name: &str) -> Server {
    let file = std::env::temp_dir().join(format!("isotherm-{name}-{}.conf", std::process::id()));
    let mut conf = String::new();
    for node in 0..NODES {
        let flags = if node == 0 { "myself,master" } else { "master" };
        write!(conf, "{node:040x} 127.0.0.1:{}@{} {flags} - 0 0 {node} connected", 1 + node, 200 + node)
            .unwrap();
        (node..16384).step_by(NODES).for_each(|slot| write!(conf, " {slot}").unwrap());
        conf.push('\n');
    }
    writeln!(conf, "vars currentEpoch {NODES} lastVoteEpoch 0").unwrap();
    std::fs::write(&file, conf).unwrap();
    let (file_text, bus_port) = (file.to_str().unwrap(), free_port().to_string());
    let arguments = [
        ["--cluster-enabled", "yes"],
        ["--cluster-port", &bus_port],
        ["--cluster-config-file", file_text],
        ["--cluster-node-timeout", "600000"],
        ["--cluster-require-full-coverage", "no"],
    ];
    let server = Server::with_workers(2, arguments.as_flattened());
    std::fs::remove_file(&file).unwrap();
    server
}

fn connect(server: &Server, requests: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(requests).unwrap();
    stream
}

#[track_caller]
fn expect(stream: &mut TcpStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "of {} bytes", expected.len());
}

#[test]
fn clients_that_do_not_read_share_a_reply() {
    const CLIENTS: usize = 60;
    const ASKS: usize = 6;
    let server = start("unread");
    let slots = server.client().ask("CLUSTER SLOTS").into_bytes();
    assert!(slots.starts_with(b"*16384\r\n") && slots.len() > 1_200_000, "{}", slots.len());
    let before = server.resident_bytes();
    // More than the buffers of a socket take: what is left waits in the server.
    let requests = b"CLUSTER SLOTS\r\nPING\r\n".repeat(ASKS);
    let mut streams: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&server, &requests)).collect();
    let mut asker = server.client();
    wait_until("replies wait for each client", || {
        let list = asker.ask("CLIENT LIST");
        list.lines().filter(|line| line.contains(" oll=") && !line.contains(" oll=0 ")).count() >= CLIENTS
    });
    asker.check("PING", "+PONG\r\n");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes, for replies of {} in all", ASKS * CLIENTS * slots.len());
    let expected = [&slots, &b"+PONG\r\n"[..]].concat().repeat(ASKS);
    streams.iter_mut().for_each(|stream| expect(stream, &expected));
}

#[test]
fn a_shared_reply_stands_where_it_belongs() {
    let server = start("placed");
    for hello in ["HELLO 2", "HELLO 3"] {
        let mut client = server.client();
        assert!(client.ask(hello).contains("cluster"));
        let slots = client.ask("CLUSTER SLOTS").into_bytes();
        let shards = client.ask("CLUSTER SHARDS").into_bytes();
        assert!(shards.len() > 100_000);
        client.check("MULTI", "+OK\r\n");
        for request in ["CLUSTER SLOTS", "PING", "CLUSTER SHARDS", "CLUSTER SLOTS"] {
            client.check(request, "+QUEUED\r\n");
        }
        let all = client.ask("EXEC").into_bytes();
        assert!(all == [b"*4\r\n", &slots[..], b"+PONG\r\n", &shards, &slots].concat());
        // A reply that is not wanted takes its parts with it.
        client.send("CLIENT REPLY SKIP\r\nCLUSTER SLOTS\r\nPING\r\n");
        client.expect("+PONG\r\n");
        client.send("CLIENT REPLY OFF\r\nCLUSTER SLOTS\r\nCLIENT REPLY ON\r\nCLUSTER SHARDS\r\n");
        client.expect("+OK\r\n");
        assert!(client.read_reply() == shards);
    }
    // Several at once, whose replies lie in one buffer.
    let slots = server.client().ask("CLUSTER SLOTS").into_bytes();
    let requests = b"PING\r\nCLUSTER SLOTS\r\nPING\r\n";
    let expected = [&b"+PONG\r\n"[..], &slots, b"+PONG\r\n"].concat();
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(&server, b"PING\r\n")).collect();
    streams.iter_mut().for_each(|stream| expect(stream, b"+PONG\r\n"));
    for _ in 0..3 {
        streams.iter_mut().for_each(|stream| stream.write_all(requests).unwrap());
        streams.iter_mut().for_each(|stream| expect(stream, &expected));
    }
}
