//! Libraries of functions go from file to file, byte for byte, and their functions run.

use crate::aof::{Data, kill, wire};
use crate::common::{Client, encode, wait_until};
use isotherm_stdx::crc64::crc64;

const CODE: [&str; 3] = [
    "#!lua name=first\nserver.register_function('f', function(keys, args) return 1 end)",
    "#!lua name=second\nserver.register_function('g', function() return 2 end) -- \x00\x7f\n",
    "#!lua name=third\nserver.register_function('h', function() return 3 end)",
];

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn base(data: &Data, end: &str) -> Vec<u8> {
    let is_base = |name: &str| name.contains(".base.") && name.ends_with(end);
    let names = std::fs::read_dir(data.0.join("appendonlydir")).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    std::fs::read(data.file(&names.find(|name| is_base(name)).expect("a base"))).unwrap()
}

/// The reply to FUNCTION DUMP in Valkey.
fn payload(codes: &[&str]) -> Vec<u8> {
    let mut payload = Vec::new();
    for code in codes {
        payload.extend_from_slice(&[245, 0x40 | (code.len() >> 8) as u8, code.len() as u8]);
        payload.extend_from_slice(code.as_bytes());
    }
    payload.extend_from_slice(&11u16.to_le_bytes());
    let sum = crc64(0, &payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    payload
}

fn log_with_libraries() -> Vec<u8> {
    let function = |words: &[&[u8]]| {
        let head = format!("*{}\r\n", words.len() + 1).into_bytes();
        let words = [&[&b"FUNCTION"[..]], words].concat();
        let text =
            words.iter().map(|word| [format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
        [head, text.collect::<Vec<_>>().concat()].concat()
    };
    let other = "#!lua name=gone\nserver.register_function('gone', function() end)";
    [
        function(&[b"LOAD", other.as_bytes()]),
        function(&[b"FLUSH"]),
        wire(&["SELECT 0", "SET k v"]),
        function(&[b"LOAD", CODE[0].as_bytes()]),
        wire(&["MULTI", "SET t 1"]),
        function(&[b"LOAD", b"REPLACE", CODE[1].as_bytes()]),
        wire(&["EXEC"]),
        function(&[b"LOAD", other.as_bytes()]),
        function(&[b"DELETE", b"gone"]),
        function(&[b"RESTORE", &payload(&[CODE[2], CODE[0]]), b"REPLACE"]),
    ]
    .concat()
}

fn check_functions(client: &mut Client) {
    client.check("FCALL f 0", ":1\r\n");
    client.check("FCALL g 0", ":2\r\n");
    client.check("FCALL h 0", ":3\r\n");
    client.check("FCALL gone 0", "-ERR Function not found\r\n");
}

#[test]
fn they_go_from_file_to_file() {
    let data = Data::new();
    data.write_log(&[&log_with_libraries()]);
    let mut server = data.start(2, &[]);
    let mut client = server.client();
    assert_eq!(client.info("memory", "number_of_libraries"), 3);
    assert_eq!(client.ask("GET t"), "$1\r\n1\r\n");
    for (preamble, end) in [("yes", ".rdb"), ("no", ".aof"), ("yes", ".rdb")] {
        client.ask(&format!("CONFIG SET aof-use-rdb-preamble {preamble} rdbcompression no"));
        client.ask("BGREWRITEAOF");
        wait_until("it is rewritten", || {
            client.info("persistence", "aof_rewrite_in_progress") == 0
                && client.info("persistence", "aof_rewrite_scheduled") == 0
        });
        let base = base(&data, end);
        CODE.iter().for_each(|code| assert!(has(&base, code.as_bytes()), "{end}: {code}"));
        kill(&mut server);
        server = data.start(2, &[]);
        client = server.client();
        assert_eq!(client.info("memory", "number_of_libraries"), 3);
        assert_eq!(client.ask("GET k"), "$1\r\nv\r\n");
        check_functions(&mut client);
    }
    for reload in ["DEBUG RELOAD", "DEBUG LOADAOF", "DEBUG RELOAD NOSAVE"] {
        assert_eq!(client.ask(reload), "+OK\r\n");
        assert_eq!(client.info("memory", "number_of_libraries"), 3, "{reload}");
        check_functions(&mut client);
    }
    assert_eq!(client.ask("FLUSHALL"), "+OK\r\n");
    assert_eq!(client.info("memory", "number_of_libraries"), 3);
    assert_eq!(client.ask("DEBUG CHECK-INVARIANTS"), "+OK\r\n");
}

#[test]
fn what_is_no_library_ends_the_start() {
    let check = |bytes: Vec<u8>, expected: &str| {
        let data = Data::new();
        data.write_log(&[&bytes]);
        let log = data.fails_to_start();
        assert!(log.contains(expected), "{expected}: {log}");
    };
    check(encode(&["FUNCTION", "LOAD", "return 1"]), "Missing library metadata");
    let twice = [encode(&["FUNCTION", "LOAD", CODE[2]]), encode(&["FUNCTION", "LOAD", CODE[2]])].concat();
    check(twice, "Library 'third' already exists");
    check(encode(&["FUNCTION", "RESTORE", "0123456789abcdef"]), "DUMP payload version or checksum are wrong");
    check(encode(&["FUNCTION", "LOAD"]), "wrong number of arguments for 'FUNCTION'");
}
