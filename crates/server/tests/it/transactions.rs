//! MULTI, EXEC, DISCARD, WATCH and UNWATCH over sockets, with one worker and with several.

use crate::common::{HOLD, Server, encode, wait_until};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const QUEUED: &str = "+QUEUED\r\n";
const OK: &str = "+OK\r\n";

fn on_both(test: impl Fn(&Server)) {
    for workers in [1, 3] {
        test(&Server::with_workers(workers, &["--enable-debug-command", "local"]));
    }
}

#[test]
fn a_queue_runs_as_one() {
    on_both(|server| {
        let mut client = server.client();
        client.check("MULTI", OK);
        client.check("SET a 1", QUEUED);
        client.check("INCR a", QUEUED);
        client.check("MSET b 2 c 3 d 4 e 5", QUEUED);
        client.check("SELECT 1", QUEUED);
        client.check("SET a other", QUEUED);
        client.check("DBSIZE", QUEUED);
        client.check("PING", QUEUED);
        client.check("EXEC", "*7\r\n+OK\r\n:2\r\n+OK\r\n+OK\r\n+OK\r\n:1\r\n+PONG\r\n");
        client.check("GET a", "$5\r\nother\r\n");
        client.check("SELECT 0", OK);
        client.check("MGET a b c d e", "*5\r\n$1\r\n2\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n$1\r\n5\r\n");
        client.check("MULTI", OK);
        client.check("EXEC", "*0\r\n");
    });
}

#[test]
fn an_error_inside_stops_nothing() {
    on_both(|server| {
        let mut client = server.client();
        client.check("MULTI", OK);
        client.check("SET a word", QUEUED);
        client.check("INCR a", QUEUED);
        client.check("SET b 1", QUEUED);
        client.check("EXEC", "*3\r\n+OK\r\n-ERR value is not an integer or out of range\r\n+OK\r\n");
        client.check("GET b", "$1\r\n1\r\n");
    });
}

#[test]
fn what_cannot_be_queued_aborts() {
    let abort = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    on_both(|server| {
        let mut client = server.client();
        let wrong = [
            ("NONSENSE x", "-ERR unknown command 'NONSENSE', with args beginning with: 'x' \r\n"),
            ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
            ("CONFIG NONSENSE", "-ERR unknown subcommand 'NONSENSE'. Try CONFIG HELP.\r\n"),
            ("MULTI", "-ERR Command 'multi' not allowed inside a transaction\r\n"),
            ("WATCH a", "-ERR Command 'watch' not allowed inside a transaction\r\n"),
        ];
        for (request, error) in wrong {
            client.check("MULTI", OK);
            client.check("SET a 1", QUEUED);
            client.check(request, error);
            client.check("SET b 1", QUEUED);
            client.check("EXEC", abort);
            client.check("EXISTS a b", ":0\r\n");
        }
        client.check("EXEC", "-ERR EXEC without MULTI\r\n");
        client.check("DISCARD", "-ERR DISCARD without MULTI\r\n");
    });
}

#[test]
fn discard_forgets_queue_and_watches() {
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        client.check("WATCH a", OK);
        client.check("MULTI", OK);
        client.check("SET a 1", QUEUED);
        client.check("DISCARD", OK);
        client.check("GET a", "$-1\r\n");
        other.check("SET a 2", OK);
        client.check("MULTI", OK);
        client.check("GET a", QUEUED);
        client.check("EXEC", "*1\r\n$1\r\n2\r\n");
    });
}

#[test]
fn a_watched_change_cancels() {
    let changes = [
        "SET a new",
        "DEL a",
        "APPEND a x",
        "EXPIRE a 100",
        "RENAME a z",
        "RENAME b a",
        "COPY b a REPLACE",
        "MOVE a 3",
        "FLUSHDB",
        "FLUSHALL",
        "SWAPDB 0 1",
    ];
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        for change in changes {
            other.ask("FLUSHALL");
            other.check("MSET a old b old", OK);
            client.check("WATCH c a c", OK);
            let reply = other.ask(change);
            assert!(!reply.starts_with('-'), "{change}: {reply}");
            client.check("MULTI", OK);
            client.check("SET mine 1", QUEUED);
            client.check("EXEC", "*-1\r\n");
            client.check("EXISTS mine", ":0\r\n");
        }
        // Reading, touching others, or looking at the same name elsewhere is no change.
        other.ask("FLUSHALL");
        other.check("MSET a old b old", OK);
        client.check("WATCH a", OK);
        for request in ["GET a", "SET b new", "TTL a", "SELECT 5", "SET a elsewhere", "SELECT 0", "PERSIST a"]
        {
            assert!(!other.ask(request).starts_with('-'), "{request}");
        }
        client.check("MULTI", OK);
        client.check("PING", QUEUED);
        client.check("EXEC", "*1\r\n+PONG\r\n");
        // EXEC has forgotten the watch; so does UNWATCH.
        client.check("WATCH a", OK);
        other.check("SET a newer", OK);
        client.check("UNWATCH", OK);
        client.check("MULTI", OK);
        client.check("PING", QUEUED);
        client.check("EXEC", "*1\r\n+PONG\r\n");
    });
}

#[test]
fn time_changes_watched_keys() {
    // Long enough that a WATCH comes in time, also on a busy machine.
    const ALIVE: Duration = Duration::from_millis(1000);
    let is_over = || std::thread::sleep(ALIVE + Duration::from_millis(20));
    on_both(|server| {
        let (mut client, mut other) = (server.client(), server.client());
        other.check("DEBUG SET-ACTIVE-EXPIRE 0", OK);
        // Alive at WATCH, past its time at EXEC.
        client.check(&format!("SET a 1 PX {}", ALIVE.as_millis()), OK);
        client.check("WATCH a", OK);
        is_over();
        client.check("MULTI", OK);
        client.check("PING", QUEUED);
        client.check("EXEC", "*-1\r\n");
        // Past its time at WATCH already: nothing is lost.
        client.check("SET b 1 PX 1", OK);
        std::thread::sleep(Duration::from_millis(20));
        client.check("WATCH b", OK);
        client.check("MULTI", OK);
        client.check("PING", QUEUED);
        client.check("EXEC", "*1\r\n+PONG\r\n");
        // And one that leaves because a command meets it.
        client.check(&format!("SET c 1 PX {}", ALIVE.as_millis()), OK);
        client.check("WATCH c", OK);
        is_over();
        other.check("GET c", "$-1\r\n");
        client.check("MULTI", OK);
        client.check("PING", QUEUED);
        client.check("EXEC", "*-1\r\n");
    });
}

#[test]
fn leaving_in_the_middle_leaves_nothing_behind() {
    on_both(|server| {
        let mut other = server.client();
        for _ in 0..50 {
            let mut client = server.client();
            client.check("WATCH a b c", OK);
            client.check("MULTI", OK);
            client.check("SET a gone", QUEUED);
        }
        let mut client = server.client();
        client.check("WATCH a", OK);
        client.check("MULTI", OK);
        client.check("SET a 1", QUEUED);
        client.check("RESET", "+RESET\r\n");
        client.check("EXEC", "-ERR EXEC without MULTI\r\n");
        other.check("SET a 2", OK);
        other.check("GET a", "$1\r\n2\r\n");
        wait_until("no client watches", || other.info("clients", "watching_clients") == 0);
    });
}

/// Two clients move amounts between accounts under WATCH; the sum never changes.
#[test]
fn optimistic_locking_keeps_the_sum() {
    let server = Server::with_workers(3, &[]);
    /// Of one client, were nearly all of them to fail.
    const ATTEMPTS_MAX: usize = 20_000;
    let accounts = 8;
    let mut setup = server.client();
    for account in 0..accounts {
        setup.check(&format!("SET account:{account} 100"), OK);
    }
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            let server = &server;
            scope.spawn(move || {
                let mut prng = isotherm_stdx::Prng::new(seed);
                let mut client = server.client();
                let mut done = 0;
                for _ in 0..ATTEMPTS_MAX {
                    if done == 200 {
                        break;
                    }
                    let (from, to) = (prng.below(accounts), prng.below(accounts));
                    let amount = prng.below(10);
                    client.check(&format!("WATCH account:{from} account:{to}"), OK);
                    let balance: i64 =
                        client.ask(&format!("GET account:{from}")).lines().nth(1).unwrap().parse().unwrap();
                    if balance < amount as i64 {
                        client.check("UNWATCH", OK);
                        continue;
                    }
                    client.check("MULTI", OK);
                    client.check(&format!("DECRBY account:{from} {amount}"), QUEUED);
                    client.check(&format!("INCRBY account:{to} {amount}"), QUEUED);
                    done += usize::from(client.ask("EXEC").starts_with("*2"));
                }
                assert_eq!(done, 200, "a transaction fails only because another has succeeded");
            });
        }
        // A reader in between sees the whole sum.
        for _ in 0..200 {
            let names: Vec<String> = (0..accounts).map(|account| format!("account:{account}")).collect();
            let reply = setup.ask(&format!("MGET {}", names.join(" ")));
            let numbers: Vec<i64> =
                reply.lines().skip(2).step_by(2).map(|line| line.parse().unwrap()).collect();
            assert_eq!(numbers.len(), accounts as usize);
            assert_eq!(numbers.iter().sum::<i64>(), 100 * accounts as i64, "{numbers:?}");
            assert!(numbers.iter().all(|number| *number >= 0), "{numbers:?}");
        }
    });
}

#[test]
fn a_pipeline_of_transactions() {
    on_both(|server| {
        let mut client = server.client();
        let mut bytes = Vec::new();
        for number in 0..100 {
            bytes.extend(encode(&["MULTI"]));
            bytes.extend(encode(&["SET", &format!("k{number}"), "v"]));
            bytes.extend(encode(&["GET", &format!("k{number}")]));
            bytes.extend(encode(&["EXEC"]));
        }
        client.send(bytes);
        for _ in 0..100 {
            client.expect(OK);
            client.expect(QUEUED);
            client.expect(QUEUED);
            client.expect("*2\r\n+OK\r\n$1\r\nv\r\n");
        }
        client.check("DBSIZE", ":100\r\n");
    });
}

/// EXEC sees the state when it runs, not when it began to wait for its locks.
#[test]
fn time_is_read_when_the_locks_are_had() {
    let server = Server::with_workers(2, &["--enable-debug-command", "local"]);
    // Connections of two workers: the second of a pair waits while the first sleeps under all locks.
    let mut clients = [server.client(), server.client()];
    let mut observer = server.client();
    clients.iter_mut().for_each(|client| client.check("PING", "+PONG\r\n"));
    clients[1].check("MULTI", OK);
    clients[1].check("SET k v PX 100000", QUEUED);
    clients[1].check("GET gone", QUEUED);
    observer.check(&format!("SET gone v PX {}", HOLD.as_millis() * 3 / 4), OK);
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    server.hold_all_locks(&mut clients[0], &[]);
    clients[1].send(encode(&["EXEC"]));
    clients[0].expect("*2\r\n+OK\r\n+OK\r\n");
    clients[1].expect("*2\r\n+OK\r\n$-1\r\n");
    // Its time counts from the moment at which it had the locks.
    let due_ms = observer.ask_number("PEXPIRETIME k");
    let earliest_ms = (begun + HOLD).as_millis() as i64 + 100_000;
    assert!(due_ms >= earliest_ms, "{} ms too early", earliest_ms - due_ms);
}

/// Very many keys are watched, and forgotten by each of the ways, while others use theirs.
#[test]
fn very_many_keys_are_watched() {
    const KEYS: usize = 30_000;
    on_both(|server| {
        let mut other = server.client();
        let mut words = vec!["WATCH".to_string()];
        words.extend((0..KEYS).map(|number| format!("key:{number}")));
        let watch = encode(&words);
        let cpu = server.cpu();
        let mut client = server.client();
        // The end of EXEC, successful and not; UNWATCH; the connection's end.
        for (changed, reply) in [("key:77", "*-1\r\n"), ("other", "*1\r\n+OK\r\n")] {
            client.send(&watch);
            client.expect(OK);
            // Keys that are watched already are watched once.
            client.send(&watch);
            client.expect(OK);
            assert_eq!(other.info("clients", "total_watched_keys"), KEYS as u64);
            other.check(&format!("SET {changed} v"), OK);
            client.check("MULTI", OK);
            client.check("SET mine v", QUEUED);
            client.check("EXEC", reply);
        }
        client.send(&watch);
        client.expect(OK);
        client.check("UNWATCH", OK);
        client.send(&watch);
        client.expect(OK);
        other.check("SWAPDB 0 1", OK);
        other.check("FLUSHALL", OK);
        drop(client);
        let used = server.cpu() - cpu;
        assert!(used < Duration::from_secs(4), "{used:?}");
    });
}

/// CONFIG SET takes all locks for some parameters: EXEC waits for that before it has its own, not while it
/// holds them.
#[test]
fn a_transaction_may_change_parameters_beside_another_client() {
    let server = Server::with_workers(2, &["--enable-debug-command", "yes"]);
    // Connections of two workers.
    let [mut transaction, mut other] = [server.client(), server.client()];
    [&mut transaction, &mut other].into_iter().for_each(|client| client.check("PING", "+PONG\r\n"));
    server.hold_all_locks(&mut transaction, &["CONFIG SET maxclients 500", "CONFIG GET maxclients"]);
    other.check("CONFIG SET maxmemory-policy allkeys-lfu", OK);
    transaction.expect("*4\r\n+OK\r\n+OK\r\n+OK\r\n*2\r\n$10\r\nmaxclients\r\n$3\r\n500\r\n");
    other.check("CONFIG GET maxmemory-policy", "*2\r\n$16\r\nmaxmemory-policy\r\n$11\r\nallkeys-lfu\r\n");
}
