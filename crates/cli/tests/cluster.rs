//! Following redirects through a cluster of two fake nodes, and how many questions that costs them.

mod fake;

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use fake::Fake;
use isotherm_stdx::Slot;

/// The requests to the two nodes.
#[derive(Default)]
struct Asked {
    moved: AtomicU64,
    maps: AtomicU64,
    done: AtomicU64,
    asking: AtomicU64,
}

/// The first node has the lower half of the slots, the second the upper.
fn two_nodes() -> ([u16; 2], Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let ports: Arc<OnceLock<[u16; 2]>> = Arc::new(OnceLock::new());
    let node = |mine: usize| {
        let (asked, ports) = (asked.clone(), ports.clone());
        Fake::start(move |_, args| answer(mine, ports.get().unwrap(), &asked, args)).port
    };
    let both = [node(0), node(1)];
    ports.set(both).unwrap();
    (both, asked)
}

fn answer(mine: usize, ports: &[u16; 2], asked: &Asked, args: &[Vec<u8>]) -> Vec<u8> {
    match args[0].to_ascii_lowercase().as_slice() {
        b"cluster" => {
            asked.maps.fetch_add(1, Ordering::Relaxed);
            let row = |first, last, port| {
                format!("*3\r\n:{first}\r\n:{last}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n")
            };
            ["*2\r\n".to_string(), row(0, 8191, ports[0]), row(8192, 16383, ports[1])].concat().into_bytes()
        }
        b"asking" => {
            asked.asking.fetch_add(1, Ordering::Relaxed);
            b"+OK\r\n".to_vec()
        }
        b"migrating" if mine == 0 => format!("-ASK 5 127.0.0.1:{}\r\n", ports[1]).into_bytes(),
        b"migrating" => b"+OK\r\n".to_vec(),
        _ => {
            let slot = Slot::of_key(&args[1]);
            let owner = usize::from(slot.get() >= 8192);
            if owner == mine {
                asked.done.fetch_add(1, Ordering::Relaxed);
                return b"+OK\r\n".to_vec();
            }
            asked.moved.fetch_add(1, Ordering::Relaxed);
            format!("-MOVED {} 127.0.0.1:{}\r\n", slot.get(), ports[owner]).into_bytes()
        }
    }
}

fn talk(port: u16, args: &[&str], lines: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_isotherm-cli"))
        .args(["-c", "-p", &port.to_string()])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn one_map_for_many_redirects() {
    let (ports, asked) = two_nodes();
    let lines: String = (0..300).map(|i| format!("set key:{i} x\n")).collect();
    let said = talk(ports[0], &[], &lines);
    assert_eq!(said.matches("OK\n").count(), 300);
    assert_eq!(asked.done.load(Ordering::Relaxed), 300);
    assert_eq!(asked.maps.load(Ordering::Relaxed), 1, "the map is asked for once");
    // Without the map half of 300 commands would have been redirected; it takes two to ask for it.
    assert_eq!(asked.moved.load(Ordering::Relaxed), 2);
    assert_eq!(said.matches("-> Redirected to slot").count(), 2);
}

#[test]
fn a_single_command_asks_for_no_map() {
    let (ports, asked) = two_nodes();
    for i in 0..10 {
        assert_eq!(talk(ports[0], &["set", &format!("key:{i}"), "x"], ""), "OK\n");
    }
    assert_eq!(asked.maps.load(Ordering::Relaxed), 0);
    assert!(asked.moved.load(Ordering::Relaxed) > 0);
}

#[test]
fn repeated_commands_are_redirected_once() {
    let (ports, asked) = two_nodes();
    let key = (0..).map(|i| i.to_string()).find(|key| Slot::of_key(key.as_bytes()).get() >= 8192).unwrap();
    assert_eq!(talk(ports[0], &["-r", "5", "set", &key, "x"], ""), "OK\n".repeat(5));
    assert_eq!((asked.moved.load(Ordering::Relaxed), asked.done.load(Ordering::Relaxed)), (1, 5));
}

#[test]
fn an_ask_is_followed_with_asking() {
    let (ports, asked) = two_nodes();
    assert_eq!(talk(ports[0], &["migrating", "k"], ""), "OK\n");
    assert_eq!(asked.asking.load(Ordering::Relaxed), 1);
}
