//! Clients under TLS that do not continue, or send bytes that are no record.

use crate::common::{Client, encode, scaled, wait_until};
use crate::tls::{Files, TlsClient};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

fn hello(files: &Files) -> Vec<u8> {
    let config = files.client_config(Some("own"), rustls::ALL_VERSIONS);
    let mut session =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    hello
}

/// With ISOTHERM_SCALE=1 ten thousand.
#[test]
fn handshakes_that_do_not_go_on_are_closed() {
    let files = Files::make();
    let server = files.server(2, &["--maxclients", "12000"]);
    let mut plain = server.plain.client();
    let hello = hello(&files);
    let said = [&hello[..0], &hello[..hello.len() / 2], &hello[..]];
    let before = server.plain.resident_bytes();
    let count = scaled(10_000, 0.03);
    let halves: Vec<TcpStream> = (0..count)
        .map(|number| {
            let mut socket = server.socket();
            socket.write_all(said[number % 3]).unwrap();
            socket
        })
        .collect();
    wait_until("all are there", || plain.info("clients", "connected_clients") > count as u64);
    // Others are served meanwhile.
    let mut other = server.client(&files);
    for _ in 0..100 {
        other.check("PING", "+PONG\r\n");
        plain.check("PING", "+PONG\r\n");
    }
    let grown = server.plain.resident_bytes().saturating_sub(before) / count as u64;
    println!("{count} handshakes that do not go on: {grown} bytes of memory each");
    assert!(grown < 32 << 10, "{grown} bytes each");
    drop(other);
    wait_until("their time is over", || plain.info("clients", "connected_clients") == 1);
    server.client(&files).check("PING", "+PONG\r\n");
    for mut socket in halves {
        // Its output, and the end.
        let mut said = Vec::new();
        let _ = socket.read_to_end(&mut said);
        assert!(said.len() < 16 << 10);
    }
}

/// The next record that the client would send.
fn sealed(client: &mut TlsClient, request: &[u8]) -> Vec<u8> {
    client.stream.conn.writer().write_all(request).unwrap();
    let mut record = Vec::new();
    client.stream.conn.write_tls(&mut record).unwrap();
    record
}

fn expect_end(mut socket: &TcpStream, what: &str) {
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said);
    // An alert, and no reply.
    assert!(said.len() < 64, "{what}: {said:?}");
}

#[test]
fn a_record_that_is_wrong_ends_its_connection_alone() {
    let files = Files::make();
    let server = files.server(1, &[]);
    let mut plain = server.plain.client();
    let mut stays = server.client(&files);
    stays.check("PING", "+PONG\r\n");
    let request = encode(&["SET", "k", "v"]);
    type Change = fn(Vec<u8>) -> Vec<u8>;
    let changes: [(&str, Change); 8] = [
        ("too long by its header", |_| [&[0x17, 3, 3, 0x49, 0][..], &[0; 0x4900]].concat()),
        ("as long as there is", |_| [&[0x17, 3, 3, 0xff, 0xff][..], &[0; 0xffff]].concat()),
        ("of a kind that is none", |mut record| {
            record[0] = 0x99;
            record
        }),
        ("changed in its middle", |mut record| {
            record[9] ^= 1;
            record
        }),
        ("without its tag", |mut record| {
            record.truncate(record.len() - 16);
            let len = record.len() - 5;
            record[3..5].copy_from_slice(&(len as u16).to_be_bytes());
            record
        }),
        ("sent twice", |record| [&record[1..1], &record[..], &record[..]].concat()),
        ("plain text", |_| encode(&["SET", "k", "v"])),
        ("a hello again", |_| [&[0x16, 3, 3, 0, 4][..], &[1, 0, 0, 0]].concat()),
    ];
    for version in VERSIONS {
        for (what, change) in changes {
            plain.check("SET k before", "+OK\r\n");
            let mut client = server.client_with(files.client_config(Some("own"), &[version]));
            client.check("PING", "+PONG\r\n");
            let record = change(sealed(&mut client, &request));
            // It may be closed before it has sent all.
            let _ = client.stream.sock.write_all(&record);
            if what != "sent twice" {
                expect_end(&client.stream.sock, what);
                plain.check("GET k", "$6\r\nbefore\r\n");
            }
            wait_until(what, || plain.info("clients", "connected_clients") == 2);
        }
    }
    stays.check("PING", "+PONG\r\n");
}

#[test]
fn a_record_that_is_cut_is_waited_for_or_dropped() {
    let files = Files::make();
    let server = files.server(1, &[]);
    let mut plain: Client = server.plain.client();
    for version in VERSIONS {
        let mut client = server.client_with(files.client_config(Some("own"), &[version]));
        let id = client.id();
        let record = sealed(&mut client, &encode(&["SET", "k", "v"]));
        for cut in [1, 4, 5, 6, record.len() - 1] {
            plain.check("DEL k", if cut == 1 { ":0\r\n" } else { ":1\r\n" });
            let mut client = server.client_with(files.client_config(Some("own"), &[version]));
            client.check("PING", "+PONG\r\n");
            let record = sealed(&mut client, &encode(&["SET", "k", "v"]));
            client.stream.sock.write_all(&record[..cut]).unwrap();
            // The server answers others while it waits for the rest; with it the request is run.
            plain.check("EXISTS k", ":0\r\n");
            client.stream.sock.write_all(&record[cut..]).unwrap();
            client.expect("+OK\r\n");
            let more = sealed(&mut client, &encode(&["SET", "cut", "v"]));
            client.stream.sock.write_all(&more[..cut]).unwrap();
            client.stream.sock.shutdown(Shutdown::Write).unwrap();
            expect_end(&client.stream.sock, "cut");
            plain.check("EXISTS cut", ":0\r\n");
        }
        // One that waits can be killed.
        client.stream.sock.write_all(&record[..record.len() / 2]).unwrap();
        plain.check(&format!("CLIENT KILL ID {id}"), ":1\r\n");
        expect_end(&client.stream.sock, "killed");
        plain.check("DEL k", ":1\r\n");
    }
}
