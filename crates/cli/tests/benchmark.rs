//! The load generator against a server that counts.

mod fake;

use std::collections::{BTreeSet, HashMap};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use fake::Fake;

/// The arrived requests: each with the connection that it came over.
type Heard = Arc<Mutex<Vec<(u64, Vec<Vec<u8>>)>>>;

fn counting() -> (Fake, Heard) {
    let heard = Heard::default();
    let ear = heard.clone();
    let fake = Fake::start(move |connection, args| {
        ear.lock().unwrap().push((connection, args.to_vec()));
        match args[0].as_slice() {
            b"CONFIG" => b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n".to_vec(),
            b"fail" => b"-ERR failed\r\n".to_vec(),
            b"pushed" => b">1\r\n+news\r\n+OK\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        }
    });
    (fake, heard)
}

fn benchmark(fake: &Fake, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isotherm-benchmark"))
        .args(["-p", &fake.port.to_string()])
        .args(line.split(' '))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How many requests of each name came in.
fn counts(heard: &Heard) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for (_, args) in heard.lock().unwrap().iter().filter(|(_, args)| args[0] != b"CONFIG") {
        *counts.entry(text(&args[0])).or_insert(0) += 1;
    }
    counts
}

#[track_caller]
fn check(line: &str, expected: &[(&str, usize)]) {
    let (fake, heard) = counting();
    let output = benchmark(&fake, line);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    let expected: HashMap<String, usize> =
        expected.iter().map(|(name, count)| (name.to_string(), *count)).collect();
    assert_eq!(counts(&heard), expected, "{line}");
}

#[test]
fn as_many_requests_as_asked_for() {
    check("-q -n 100 -c 5 cmd", &[("cmd", 100)]);
    check("-q -n 1000 -c 10 -P 10 cmd", &[("cmd", 1000)]);
    check("-q -n 1000 -c 7 --threads 3 -P 10 cmd", &[("cmd", 1000)]);
    check("-q -n 3 -c 50 cmd", &[("cmd", 3)]);
    // A batch is sent whole: 4 x 3 are the first number of requests that is not below 10.
    check("-q -n 10 -c 1 -P 3 cmd", &[("cmd", 12)]);
    check("-q -n 12 -c 1 -- one ; 3 three", &[("one", 3), ("three", 9)]);
    check("-q -n 50 -c 5 -k 0 cmd", &[("cmd", 50)]);
    check("-q -n 20 -c 2 pushed", &[("pushed", 20)]);
    check("-q -n 20 -c 2 --rps 1000 cmd", &[("cmd", 20)]);
}

#[test]
fn every_connection_is_greeted_once() {
    let (fake, heard) = counting();
    let output =
        benchmark(&fake, "-q -n 90 -c 3 -P 3 -a secret --user me --dbnum 4 -3 --enable-tracking cmd");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let heard = heard.lock().unwrap();
    let connections: BTreeSet<u64> =
        heard.iter().filter(|(_, args)| args[0] == b"cmd").map(|(connection, _)| *connection).collect();
    assert_eq!(connections.len(), 3);
    for connection in connections {
        let first: Vec<String> = heard
            .iter()
            .filter(|(other, _)| *other == connection)
            .map(|(_, args)| text(&args.join(&b' ')))
            .collect();
        let greeting = ["AUTH me secret", "HELLO 3", "CLIENT TRACKING on", "SELECT 4", "cmd"];
        assert_eq!(first[..5], greeting);
        assert!(first[4..].iter().all(|command| command == "cmd"));
    }
}

#[test]
fn a_large_batch_goes_out_whole_behind_the_greeting() {
    // More than a socket takes at once, so that the reply to SELECT comes before the batch is sent.
    let (fake, heard) = counting();
    let output = benchmark(&fake, "-q -n 200 -c 1 -P 100 -d 100000 --dbnum 1 cmd __data__");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let heard = heard.lock().unwrap();
    let sizes: Vec<usize> =
        heard.iter().filter(|(_, args)| args[0] == b"cmd").map(|(_, args)| args[1].len()).collect();
    assert_eq!(sizes, vec![100_000; 200]);
}

#[test]
fn numbers_are_filled_in() {
    let (fake, heard) = counting();
    let output = benchmark(&fake, "-q -n 50 -c 5 -r 50 --sequential cmd key:__rand_int__");
    assert!(output.status.success());
    let keys: BTreeSet<String> = heard
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, args)| args[0] == b"cmd")
        .map(|(_, args)| text(&args[1]))
        .collect();
    assert_eq!(keys, (0..50).map(|i| format!("key:{i:012}")).collect());
}

#[test]
fn an_error_ends_it() {
    let (fake, _) = counting();
    let output = benchmark(&fake, "-q -n 100 fail");
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(1), "Error from server: ERR failed\n")
    );
    let output = benchmark(&fake, "-p 1 -n 100 cmd");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "Could not connect to server at 127.0.0.1:1: Connection refused\n");
}

#[test]
fn reports() {
    let (fake, _) = counting();
    let csv = text(&benchmark(&fake, "-n 10 -c 1 --csv cmd a").stdout);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("\"test\",\"rps\"") && lines[1].starts_with("\"cmd a\",\"") && lines.len() == 2
    );
    assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
    let quiet = text(&benchmark(&fake, "-n 10 -c 1 -q cmd a").stdout);
    assert!(quiet.starts_with("cmd a: ") && quiet.contains(" requests per second, p50="), "{quiet}");
    let whole = text(&benchmark(&fake, "-n 10 -c 1 --duration 0 cmd a").stderr);
    assert!(whole.contains("mutually exclusive"));
    let whole = text(&benchmark(&fake, "-n 10 -c 1 --threads 2 cmd a").stdout);
    for part in [
        "====== cmd a ======\n  10 requests completed in",
        "threads: 2\n",
        "(cumulative count 10)",
        "Summary:\n",
    ] {
        assert!(whole.contains(part), "{part} in {whole}");
    }
}

#[test]
fn a_warm_up_comes_first_and_does_not_count() {
    let (fake, heard) = counting();
    let begun = std::time::Instant::now();
    let output = benchmark(&fake, "-n 100 -c 5 --warmup 1 cmd");
    assert!(begun.elapsed().as_secs_f64() >= 1.0);
    let said = text(&output.stdout);
    let reported: usize =
        said.split(" requests completed").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((100..110).contains(&reported), "{said}");
    assert!(counts(&heard)["cmd"] > 150);
    assert!(said.contains("Warming up cmd: rps="));
}
