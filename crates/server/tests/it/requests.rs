//! Requests in any pieces and of any size; wrong ones; and clients that are slow, silent or rude.

use crate::common;
use crate::common::{Client, OnDrop, Server, encode, field, wait_until};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const OK: &str = "+OK\r\n";
const MB: usize = 1 << 20;
/// A client that has left so much unread is stopped soon, at 16 MB, while no other takes much.
const STOPPED_BYTES: u64 = 10 << 20;

/// Some requests of every form, and the replies to them.
fn mixed(requests: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut bytes, mut replies) = (Vec::new(), Vec::new());
    for number in 0..requests {
        let value = "v".repeat(number * 37 % 500);
        bytes.extend(encode(&["SET", &format!("key:{number}"), &value]));
        bytes.extend_from_slice(format!("GET \"key:{number}\"\r\n\r\n*0\r\n*-1\r\n").as_bytes());
        replies.extend_from_slice(format!("+OK\r\n${}\r\n{value}\r\n", value.len()).as_bytes());
    }
    (bytes, replies)
}

#[test]
fn pipelines_in_pieces_of_any_size() {
    let server = Server::with_workers(2, &[]);
    for (requests, piece) in [(5, 1), (20, 2), (20, 3), (50, 7), (200, 100), (500, 16_384), (500, 70_000)] {
        let mut client = server.client();
        let (bytes, replies) = mixed(requests);
        bytes.chunks(piece).for_each(|part| client.send(part));
        let mut got = vec![0; replies.len()];
        client.stream.read_exact(&mut got).unwrap();
        assert!(got == replies, "{requests} requests in pieces of {piece}");
        client.check("PING", "+PONG\r\n");
    }
}

#[test]
fn a_byte_now_and_then() {
    let server = Server::start(&[]);
    let (mut slow, mut other) = (server.client(), server.client());
    for byte in encode(&["SET", "slow", "value"]) {
        slow.send([byte]);
        std::thread::sleep(Duration::from_millis(2));
        other.check("PING", "+PONG\r\n");
    }
    slow.expect(OK);
    slow.check("GET slow", "$5\r\nvalue\r\n");
}

#[test]
fn values_of_any_size() {
    let server = Server::with_workers(2, &[]);
    let mut client = server.client();
    for size in
        [0, 1, 44, 45, 4096, 16_383, 16_384, 32 << 10, (64 << 10) - 40, 64 << 10, 100_000, MB, 20 * MB]
    {
        let value: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
        let mut bytes = encode(&[b"SET", &b"k"[..], &value]);
        bytes.extend(encode(&["STRLEN", "k"]));
        bytes.extend(encode(&["GET", "k"]));
        client.send(&bytes);
        client.expect(OK);
        client.expect(&format!(":{size}\r\n"));
        let got = client.read_reply();
        assert!(got == [format!("${size}\r\n").as_bytes(), &value, b"\r\n"].concat(), "{size}");
    }
}

/// A client that writes all of a long pipeline before it reads: the server has to take it.
#[test]
fn a_whole_pipeline_before_the_first_read() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check(&format!("SET k {}", "v".repeat(100)), OK);
    // 1,000,000 x 20 B of requests: more than the sockets hold. The replies are five times that.
    let requests = 1_000_000;
    client.send(encode(&["GET", "k"]).repeat(requests));
    let mut got = vec![0; requests * 108];
    client.stream.read_exact(&mut got).unwrap();
    assert!(got.chunks(108).all(|reply| reply.starts_with(b"$100\r\nv") && reply.ends_with(b"v\r\n")));
    client.check("PING", "+PONG\r\n");
}

/// A client that never reads costs a bounded amount, and disturbs no other; if it reads after all, it gets
/// everything.
#[test]
fn who_never_reads_is_stopped() {
    let server = Server::start(&[]);
    let (mut rude, mut other) = (server.client(), server.client());
    other.check(&format!("SET k {}", "v".repeat(MB)), OK);
    let before = server.resident_bytes();
    let requests = 1000;
    let id = rude.id();
    let pipeline = encode(&["GET", "k"]).repeat(requests);
    rude.send(&pipeline);
    wait_until("it is stopped", || other.unread_bytes(id) > STOPPED_BYTES);
    other.check("PING", "+PONG\r\n");
    // 16 MB stop it, while no other client takes much; what the socket has taken is the system's.
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 24 * MB as u64, "{} MB", grown >> 20);
    let cpu = server.cpu();
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.cpu() - cpu < Duration::from_millis(150), "a stopped client takes CPU time");
    for _ in 0..requests {
        let mut reply = vec![0; MB + 12];
        rude.stream.read_exact(&mut reply).unwrap();
        assert!(reply.starts_with(b"$1048576\r\nvv") && reply.ends_with(b"v\r\n"));
    }
    rude.check("PING", "+PONG\r\n");
}

/// Clients that read late get everything, also if several are ready at once, and if requests stop in the
/// middle of a batch: inline ones, whose quotes are decoded where they lie, come out right when they run
/// later.
#[test]
fn who_reads_late_gets_everything() {
    let server = Server::start(&[]);
    let mut other = server.client();
    let value = "v".repeat(4 * MB);
    other.check(&format!("SET k {value}"), OK);
    let before = server.resident_bytes();
    let mut rude: Vec<_> = (0..8).map(|_| server.client()).collect();
    let ids: Vec<u64> = rude.iter_mut().map(|client| client.id()).collect();
    let line = "GET \"\\x6b\"\r\nECHO 'it\\'s \"so\"'\r\n";
    for client in &mut rude {
        client.send(line.repeat(20));
    }
    wait_until("all have replies that they do not read", || ids.iter().all(|id| other.unread_bytes(*id) > 0));
    other.check("PING", "+PONG\r\n");
    let grown = server.resident_bytes().saturating_sub(before);
    // 64 MB together, a reply of 4 MB more for each, and what the allocator keeps of others; all of them are
    // 640 MB.
    assert!(grown < 128 * MB as u64, "{} MB", grown >> 20);
    for client in &mut rude {
        for _ in 0..20 {
            let mut reply = vec![0; value.len() + 12];
            client.stream.read_exact(&mut reply).unwrap();
            assert!(reply.starts_with(b"$4194304\r\nvv") && reply.ends_with(b"v\r\n"));
            let mut reply = [0; 15];
            client.stream.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"$9\r\nit's \"so\"\r\n");
        }
        client.check("PING", "+PONG\r\n");
    }
}

#[test]
fn who_never_reads_may_leave() {
    let server = Server::start(&[]);
    let mut other = server.client();
    other.check(&format!("SET k {}", "v".repeat(MB)), OK);
    for _ in 0..3 {
        let mut rude = server.client();
        let id = rude.id();
        rude.send(encode(&["GET", "k"]).repeat(100));
        wait_until("it is stopped", || other.unread_bytes(id) > STOPPED_BYTES);
    }
    wait_for_clients(&mut other, 1);
}

fn wait_for_clients(client: &mut common::Client, count: u64) {
    wait_until(&format!("{count} clients"), || client.info("clients", "connected_clients") == count);
}

#[test]
fn output_limits_close() {
    let server = Server::start(&["--client-output-buffer-limit", "normal 2mb 0 0"]);
    let (mut rude, mut other) = (server.client(), server.client());
    other.check(&format!("SET k {}", "v".repeat(MB)), OK);
    rude.send(encode(&["GET", "k"]).repeat(30));
    wait_for_clients(&mut other, 1);
    server.wait_for_log("closed for overcoming of output buffer limits");
    other.check("PING", "+PONG\r\n");
}

/// Judged before anything is written, so that it does not depend on the client's speed; a transaction runs to
/// its end.
#[test]
fn output_limits_count_what_is_not_written_yet() {
    let server = Server::start(&["--client-output-buffer-limit", "normal 100000 0 0"]);
    let mut other = server.client();
    other.check(&format!("SET k {}", "v".repeat(10_000)), OK);
    let mut client = server.client();
    client.send(encode(&["GET", "k"]).repeat(8));
    (0..8).for_each(|_| assert!(client.read_reply().starts_with(b"$10000")));
    client.send(encode(&["GET", "k"]).repeat(15));
    client.expect_end();
    let mut client = server.client();
    let mut transaction = encode(&["MULTI"]);
    transaction.extend(encode(&["GET", "k"]).repeat(15));
    transaction.extend(encode(&["SET", "end", "reached"]));
    transaction.extend(encode(&["EXEC"]));
    client.send(transaction);
    client.read_to_end();
    other.check("GET end", "$7\r\nreached\r\n");
    wait_for_clients(&mut other, 1);
}

#[test]
fn wrong_requests_are_answered_and_closed() {
    let server = Server::start(&[]);
    let big_line = [&b"x"[..]; 70_000].concat();
    let cases: &[(&[u8], &str)] = &[
        (b"*a\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*99999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*2147483648\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\nPING\r\n", "-ERR Protocol error: expected '$', got 'P'\r\n"),
        (b"*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$abc\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$4\r\nPINGxx\r\n", "-ERR Protocol error: invalid CRLF in request\r\n"),
        (b"SET \"k\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (&big_line, "-ERR Protocol error: too big inline request\r\n"),
    ];
    for (bytes, error) in cases {
        let mut client = server.client();
        // Requests before it are answered as well, and those after it are not.
        client.send(encode(&["PING"]));
        client.expect("+PONG\r\n");
        client.send(bytes);
        assert_eq!(String::from_utf8_lossy(&client.read_to_end()), **error);
    }
    let mut client = server.client();
    client.send(b"PING\r\n*1\r\n$x\r\nPING\r\n");
    assert_eq!(client.read_to_end(), b"+PONG\r\n-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn announced_lengths_take_no_memory() {
    let server = Server::start(&[]);
    let before = server.resident_bytes();
    let mut clients: Vec<_> = (0..100).map(|_| server.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        match at % 2 {
            0 => client.send(b"*1000000\r\n"),
            _ => client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc"),
        }
    }
    server.client().check("PING", "+PONG\r\n");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 4 * MB as u64, "{} KB for 100 clients", grown >> 10);
    drop(clients);
    wait_for_clients(&mut server.client(), 1);
}

#[test]
fn many_arguments_in_small_pieces() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let arguments = 200_000;
    let mut bytes = format!("*{}\r\n$3\r\nDEL\r\n", arguments + 1).into_bytes();
    (0..arguments).for_each(|number| bytes.extend_from_slice(format!("$6\r\n{number:06}\r\n").as_bytes()));
    let cpu = server.cpu();
    for piece in bytes.chunks(500) {
        client.send(piece);
    }
    client.expect(":0\r\n");
    let cpu = server.cpu() - cpu;
    assert!(cpu < Duration::from_secs(3), "{cpu:?} for {} KB", bytes.len() >> 10);
}

#[test]
fn query_buffers_are_limited() {
    let server = Server::start(&["--client-query-buffer-limit", "1mb"]);
    let mut client = server.client();
    client.send(b"*2\r\n$4\r\nECHO\r\n$10000000\r\n");
    let mut sent = 0;
    while sent < 5 * MB && client.stream.write_all(&[b'x'; 10_000]).is_ok() {
        sent += 10_000;
    }
    client.expect_end();
    server.wait_for_log("max query buffer length");
    // The queue of a transaction is limited too.
    let mut client = server.client();
    client.check("MULTI", OK);
    let request = encode(&["SET", "k", &"v".repeat(100_000)]);
    for _ in 0..30 {
        if client.stream.write_all(&request).is_err() {
            break;
        }
    }
    let replies = client.read_to_end();
    assert!(replies.len() < 30 * "+QUEUED\r\n".len(), "closed before the end");
    server.client().check("DBSIZE", ":0\r\n");
}

#[test]
fn unauthenticated_clients_may_not_send_much() {
    let server = Server::start(&["--requirepass", "secret"]);
    let cases: [(&[u8], &str); 2] = [
        (b"*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
    ];
    for (bytes, error) in cases {
        let mut client = server.client();
        client.send(bytes);
        assert_eq!(String::from_utf8_lossy(&client.read_to_end()), error);
    }
    let mut client = server.client();
    client.check("GET k", "-NOAUTH Authentication required.\r\n");
    client.check("NONSENSE", "-NOAUTH Authentication required.\r\n");
    // AUTH and what follows it come together.
    let mut bytes = encode(&["AUTH", "secret"]);
    bytes.extend(encode(&["SET", "k", &"v".repeat(20_000)]));
    client.send(bytes);
    client.expect(OK);
    client.expect(OK);
}

#[test]
fn half_closed_sockets_get_their_replies() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.check(&format!("SET k {}", "v".repeat(MB)), OK);
    client.send(encode(&["GET", "k"]).repeat(20));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end().len(), 20 * (MB + 12));
    wait_for_clients(&mut server.client(), 1);
}

#[test]
fn quit_answers_and_closes() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send(b"PING\r\nQUIT\r\nPING\r\n");
    assert_eq!(client.read_to_end(), b"+PONG\r\n+OK\r\n");
}

#[test]
fn http_is_not_spoken_here() {
    let server = Server::start(&[]);
    for request in ["POST / HTTP/1.1\r\n", "Host: localhost\r\n"] {
        let mut client = server.client();
        client.send(request);
        client.expect_end();
    }
    server.wait_for_log("Possible SECURITY ATTACK detected");
}

#[test]
fn a_flood_of_one_client_leaves_room_for_others() {
    let server = Server::start(&[]);
    let flood = server.client().stream;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopping = OnDrop(|| stop.store(true, Relaxed));
        let mut writer = flood.try_clone().unwrap();
        let stop = &stop;
        scope.spawn(move || {
            let requests = encode(&["PING"]).repeat(10_000);
            while !stop.load(Relaxed) && writer.write_all(&requests).is_ok() {}
            let _ = writer.shutdown(std::net::Shutdown::Both);
        });
        let mut reader = flood;
        scope.spawn(move || {
            let mut bytes = vec![0; MB];
            while matches!(reader.read(&mut bytes), Ok(count) if count > 0) {}
        });
        // A client reads with a timeout: it fails where the flood is served alone.
        let mut other = server.client();
        (0..100).for_each(|_| other.check("PING", "+PONG\r\n"));
    });
}

/// The bytes that a request still lacked say nothing about the next one, also when its reply stops the
/// connection.
#[test]
fn a_small_request_behind_a_large_one_whose_reply_waited() {
    /// A last piece that is read into the connection's own bytes, and larger than the next request.
    const LAST: usize = 30_000;
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.id();
    let value = "v".repeat(40 * MB);
    let request = encode(&["ECHO", &value]);
    let (first, last) = request.split_at(request.len() - LAST);
    client.send(first);
    // The two bytes after the value are in the last piece.
    let arrived = value.len() - (LAST - 2);
    wait_until("it is read", || other.listed(&format!("id={id}"), "qbuf") == Some(arrived.to_string()));
    client.send(last);
    wait_until("its reply waits", || other.unread_bytes(id) > STOPPED_BYTES);
    let mut reply = vec![0; value.len() + "$41943040\r\n\r\n".len()];
    client.stream.read_exact(&mut reply).unwrap();
    client.check("PING", "+PONG\r\n");
}

/// Requests that take long do not keep the others of their worker waiting until the last of them has run.
#[test]
fn a_long_pipeline_is_run_in_parts() {
    const SLEEP: [&str; 3] = ["DEBUG", "SLEEP", "0.002"];
    let server = Server::start(&["--enable-debug-command", "local"]);
    // A batch, several batches, and more than one read.
    for (sleeps, value) in [(20, "v".to_string()), (100, "v".to_string()), (100, "v".repeat(2000))] {
        let (mut holder, mut flood, mut other) = (server.client(), server.client(), server.client());
        let mut requests = Vec::new();
        for _ in 0..sleeps {
            requests.extend([encode(&SLEEP), encode(&["ECHO", &value])].concat());
        }
        requests.extend(encode(&["INCR", "done"]));
        other.check("DEL done", if sleeps == 20 { ":0\r\n" } else { ":1\r\n" });
        // The worker is busy, so that both wait for it, in this order.
        server.hold_all_locks(&mut holder, &[]);
        flood.send(&requests);
        other.send(encode(&["EXISTS", "done"]));
        holder.expect("*2\r\n+OK\r\n+OK\r\n");
        other.expect(":0\r\n");
        for _ in 0..sleeps {
            flood.expect(OK);
            flood.expect(&format!("${}\r\n{value}\r\n", value.len()));
        }
        flood.expect(":1\r\n");
    }
}

#[test]
fn a_score_of_minus_zero_is_kept_in_large_sets() {
    // The packed form of small sets knows no sign of zero, in Valkey neither.
    let server = Server::start(&["--save", ""]);
    let mut client = server.client();
    let members: String = (0..300).map(|number| format!(" -{number} m{number}")).collect();
    client.check(&format!("ZADD z{members}"), ":300\r\n");
    client.check("ZSCORE z m0", "$2\r\n-0\r\n");
    client.check("ZUNIONSTORE union 1 z", ":300\r\n");
    client.check("ZSCORE union m0", "$2\r\n-0\r\n");
    client.check("ZRANGESTORE range z 0 -1", ":300\r\n");
    client.check("ZSCORE range m0", "$2\r\n-0\r\n");
    let dump = client.ask_bytes("DUMP z");
    client.send(crate::common::encode(&[&b"RESTORE"[..], b"copy", b"0", &dump]));
    client.expect("+OK\r\n");
    client.check("ZSCORE copy m0", "$2\r\n-0\r\n");
}

/// Counts reads and sends of `batches`, each sent by one call after the replies to the one before have come.
fn reads_and_sends(asking: &mut Client, client: &mut Client, batches: &[&[u8]]) -> (u64, u64) {
    let mut counts = || {
        let info = asking.ask("INFO stats");
        (field(&info, "total_reads_processed"), field(&info, "total_writes_processed"))
    };
    let before = counts();
    for batch in batches {
        client.send(batch);
        (0..PIPELINE).for_each(|_| drop(client.read_reply()));
    }
    let after = counts();
    // The second INFO was read, and the first was answered.
    (after.0 - before.0 - 1, after.1 - before.1 - 1)
}

const PIPELINE: usize = 32;

/// A pipeline of HSETs of `request_bytes` bytes each, from 47 to 136.
fn hsets(request_bytes: usize) -> Vec<u8> {
    let value = "v".repeat(request_bytes - 37);
    let bytes: Vec<u8> =
        (0..PIPELINE).flat_map(|number| encode(&["HSET", "h", &format!("f{number:02}"), &value])).collect();
    assert_eq!(bytes.len(), PIPELINE * request_bytes);
    bytes
}

/// Checks batches too that do not fit where the requests of several connections are read together: 2 KB, with
/// 64 B a request.
#[test]
fn a_pipeline_is_read_and_answered_at_once() {
    const BATCHES: u64 = 20;
    let server = Server::start(&[]);
    let mut asking = server.client();
    let sizes = [59, 63, 64, 65, 80, 100, 121, 127, 128, 129];
    let small = encode(&["PING"]).repeat(PIPELINE);
    for batch in sizes.map(hsets).iter().chain([&small]) {
        let mut client = server.client();
        // From the first batch the server learns how much comes.
        reads_and_sends(&mut asking, &mut client, &[batch]);
        let (reads, sends) = reads_and_sends(&mut asking, &mut client, &[batch.as_slice(); BATCHES as usize]);
        // The system may deliver one in two parts, now and then.
        let few = BATCHES..=BATCHES + 4;
        assert!(
            few.contains(&reads) && few.contains(&sends),
            "{} B: {reads} reads, {sends} sends",
            batch.len()
        );
    }
}

/// Only where the requests of several connections are read together is a pipeline of 3 KB read in two parts.
#[test]
fn who_sends_little_again_is_read_with_others_again() {
    const ROUNDS: usize = 20;
    let server = Server::start(&[]);
    let (mut asking, mut client) = (server.client(), server.client());
    let (large, small) = (hsets(100), encode(&["PING"]).repeat(PIPELINE));
    let one_small = [large.as_slice(), &small].repeat(ROUNDS);
    let (reads, sends) = reads_and_sends(&mut asking, &mut client, &one_small);
    let expected = 3 * ROUNDS as u64..=3 * ROUNDS as u64 + 4;
    assert!(expected.contains(&reads) && expected.contains(&sends), "{reads} reads, {sends} sends");
}

/// More than the buffer of the worker.
#[test]
fn a_pipeline_of_70_kb_is_read_in_large_pieces() {
    const BATCHES: usize = 20;
    let server = Server::start(&[]);
    let (mut asking, mut client) = (server.client(), server.client());
    let batch = encode(&["HSET", "h", "f", &"v".repeat(2150)]).repeat(PIPELINE);
    assert!(batch.len() > 69_000);
    let (reads, sends) = reads_and_sends(&mut asking, &mut client, &[batch.as_slice(); BATCHES]);
    println!("{reads} {sends}");
    let few = 2 * BATCHES as u64..=4 * BATCHES as u64;
    assert!(few.contains(&reads) && few.contains(&sends), "{reads} reads, {sends} sends");
}
