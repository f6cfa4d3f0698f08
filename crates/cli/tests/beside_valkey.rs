//! Equal replies to valkey-cli and to isotherm-cli: every byte of the output, the errors and the exit code
//! are compared.
//!
//! A server of our own says what a real one would seldom say. Needs `ISOTHERM_PEER_BIN`; a reported skip
//! without.

mod fake;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use fake::Fake;

fn peer(program: &str) -> Option<PathBuf> {
    match std::env::var_os("ISOTHERM_PEER_BIN") {
        Some(folder) => Some(PathBuf::from(folder).join(program)),
        None => {
            eprintln!("skipped: ISOTHERM_PEER_BIN does not say where Valkey's programs are");
            None
        }
    }
}

const OURS: &str = env!("CARGO_BIN_EXE_isotherm-cli");

/// Every kind of value, nested and empty, binary and odd. Big numbers, bulk errors and attributes are
/// missing: valkey-cli gives up on them.
const REPLIES: [&[u8]; 37] = [
    b"+OK\r\n",
    b"+\r\n",
    b"-ERR something is wrong\r\n",
    b"-WRONGTYPE \"quoted\" \\ and 'such'\r\n",
    b":0\r\n",
    b":-9223372036854775808\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$5\r\nhello\r\n",
    b"$12\r\na\0b\xff\n\r\t\x07\x08\"\\'\r\n",
    b"$6\r\n\xc3\xa4\xe2\x82\xac \r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*1\r\n*0\r\n",
    b"*1\r\n$1\r\na\r\n",
    b"*2\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n*1\r\n*1\r\n*1\r\n+deep\r\n",
    b"*3\r\n$-1\r\n-ERR inner\r\n:7\r\n",
    b"*11\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n*2\r\n:10\r\n:10\r\n:11\r\n",
    b"_\r\n",
    b"#t\r\n",
    b"#f\r\n",
    b",1.5\r\n",
    b",inf\r\n",
    b",-inf\r\n",
    b",1e+300\r\n",
    b"=9\r\ntxt:a\nb\"c\r\n",
    b"=4\r\nmkd:\r\n",
    b"~0\r\n",
    b"~3\r\n$1\r\na\r\n:2\r\n~1\r\n_\r\n",
    b"%0\r\n",
    b"%1\r\n$1\r\nk\r\n$1\r\nv\r\n",
    b"%2\r\n$1\r\nk\r\n*2\r\n:1\r\n:2\r\n$1\r\nl\r\n%1\r\n$1\r\nm\r\n*1\r\n:1\r\n",
    b"%3\r\n:1\r\n$1\r\nv\r\n#t\r\n,0.5\r\n_\r\n%0\r\n",
    b"%2\r\n*1\r\n:1\r\n+x\r\n-ERR key\r\n~2\r\n:1\r\n:2\r\n",
    b"%1\r\n$1\r\nk\r\n%2\r\n+a\r\n*1\r\n*2\r\n:1\r\n:2\r\n+b\r\n*0\r\n",
    b"*2\r\n%1\r\n$3\r\nttl\r\n:3\r\n~1\r\n*1\r\n#f\r\n",
    b"%10\r\n:1\r\n:1\r\n:2\r\n:1\r\n:3\r\n:1\r\n:4\r\n:1\r\n:5\r\n:1\r\n:6\r\n:1\r\n:7\r\n:1\r\n:8\r\n:1\r\n:9\r\n*2\r\n:1\r\n:2\r\n:10\r\n:1\r\n",
];

/// A client that takes longer waits for something that does not come.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(PartialEq)]
struct Said {
    out: String,
    err: String,
    code: Option<i32>,
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit {:?}\nout: {:?}\nerr: {:?}", self.code, self.out, self.err)
    }
}

/// Runs a client and takes down what it says. Names are the only thing that may differ.
fn run(program: &Path, terminal: bool, args: &[&str], input: &[u8], environment: &[(&str, &str)]) -> Said {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
        .env("TERM", "dumb")
        .env_remove("FAKETTY")
        .env_remove("REDISCLI_AUTH")
        .env_remove("VALKEYCLI_AUTH");
    command.envs(environment.iter().copied());
    if terminal {
        command.env("FAKETTY", "1");
    }
    let mut child = command.spawn().unwrap();
    // One that has no use for its input may be gone before it is written.
    let written = child.stdin.take().unwrap().write_all(input);
    assert!(written.is_ok() || written.is_err_and(|why| why.kind() == ErrorKind::BrokenPipe));
    let (sender, ended) = mpsc::channel();
    let id = child.id();
    std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    let Ok(output) = ended.recv_timeout(CLIENT_TIMEOUT) else {
        panic!("{} {args:?} (process {id}) does not end", program.display());
    };
    let text = |bytes: Vec<u8>| {
        let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
        text.replace("valkey-cli", "isotherm-cli").replace("Valkey", "Isotherm")
    };
    Said { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
}

#[track_caller]
fn compare(valkey: &Path, terminal: bool, args: &[&str], input: &[u8], environment: &[(&str, &str)]) {
    let theirs = run(valkey, terminal, args, input, environment);
    let ours = run(Path::new(OURS), terminal, args, input, environment);
    assert!(
        ours == theirs,
        "{args:?}, terminal: {terminal}, input {}\n--- ours\n{ours}\n--- theirs\n{theirs}",
        input.escape_ascii()
    );
}

#[test]
fn every_reply_in_every_form() {
    let Some(valkey) = peer("valkey-cli") else { return };
    let forms: [&[&str]; 9] = [
        &[],
        &["-3"],
        &["--raw"],
        &["--no-raw"],
        &["--csv"],
        &["--json"],
        &["--quoted-json"],
        &["--json", "-2"],
        &["-e", "-d", "|", "-D", "<end>"],
    ];
    let fake = Fake::start(|_, args| match args[0].as_slice() {
        b"reply" => REPLIES[String::from_utf8_lossy(&args[1]).parse::<usize>().unwrap()].to_vec(),
        _ => b"-ERR unknown command\r\n".to_vec(),
    });
    let port = fake.port.to_string();
    for number in (0..REPLIES.len()).map(|number| number.to_string()) {
        for form in forms {
            for terminal in [false, true] {
                let args = [&["-p", &port], form, &["reply", &number]].concat();
                compare(&valkey, terminal, &args, b"", &[]);
            }
        }
    }
}

/// A server of few words, for what has to do with the way of a command and not with the look of its reply.
fn few_words(_: u64, args: &[Vec<u8>]) -> Vec<u8> {
    let word = |at: usize| args.get(at).map(|arg| arg.to_ascii_lowercase()).unwrap_or_default();
    match word(0).as_slice() {
        b"echo" => [format!("${}\r\n", args[1].len()).as_bytes(), &args[1], b"\r\n"].concat(),
        b"auth" if args.last().unwrap() != b"secret" => {
            b"-WRONGPASS invalid username-password pair\r\n".to_vec()
        }
        b"select" if args[1] == b"99" => b"-ERR DB index is out of range\r\n".to_vec(),
        b"info" | b"lolwut" => b"$13\r\n# Server\r\na:1\r\n".to_vec(),
        b"client" => b"=12\r\ntxt:id=1\na=2\r\n".to_vec(),
        b"bye" => Vec::new(),
        b"pushed" => {
            b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n>2\r\n+other\r\n:1\r\n+after\r\n"
                .to_vec()
        }
        b"subscribe" => b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n".to_vec(),
        b"multi" | b"discard" | b"auth" | b"select" | b"reset" => b"+OK\r\n".to_vec(),
        b"exec" => b"*2\r\n:1\r\n$1\r\na\r\n".to_vec(),
        b"get" => b"+QUEUED\r\n".to_vec(),
        b"fail" => b"-ERR failed\r\n".to_vec(),
        _ => format!("-ERR unknown command '{}'\r\n", String::from_utf8_lossy(&args[0])).into_bytes(),
    }
}

#[test]
fn the_way_of_a_command() {
    let Some(valkey) = peer("valkey-cli") else { return };
    let fake = Fake::start(few_words);
    let port = fake.port.to_string();
    let cases: [(&[&str], &[u8]); 29] = [
        (&["echo", "a b"], b""),
        (&["-r", "3", "echo", "a"], b""),
        (&["-x", "echo"], b"from \0 input\n"),
        (&["-X", "tag", "echo", "tag"], b"from input\n"),
        (&["-X", "tag", "echo", "other"], b"from input\n"),
        (&["--quoted-input", "echo", "\"a\\x00b\""], b""),
        (&["--quoted-input", "echo", "\"a"], b""),
        (&["--quoted-input", "echo", "\"a\" \"b\""], b""),
        (&["-e", "fail"], b""),
        (&["fail"], b""),
        (&["-e", "-r", "3", "fail"], b""),
        (&["-n", "5", "echo", "a"], b""),
        (&["-n", "99", "echo", "a"], b""),
        (&["--no-auth-warning", "-a", "secret", "echo", "a"], b""),
        (&["--no-auth-warning", "-a", "wrong", "echo", "a"], b""),
        (&["--no-auth-warning", "--user", "u", "--pass", "wrong", "-n", "5", "echo", "a"], b""),
        (&["info"], b""),
        (&["INFO", "all"], b""),
        (&["client", "list"], b""),
        (&["client", "getname"], b""),
        (&["bye"], b""),
        (&["-3", "pushed"], b""),
        (&["-3", "--show-pushes", "yes", "pushed"], b""),
        (&["-3", "--show-pushes", "no", "pushed"], b""),
        (&["--json", "--show-pushes", "y", "pushed"], b""),
        (&["-X"], b""),
        (&["-x", "-X", "t", "echo"], b""),
        (&["--nonsense"], b""),
        (&["-p", "x", "echo", "a"], b""),
    ];
    for (args, input) in cases {
        for terminal in [false, true] {
            compare(&valkey, terminal, &[&["-p", &port], args].concat(), input, &[]);
        }
    }
    let uri = format!("redis://u:secret@127.0.0.1:{port}/7");
    compare(&valkey, false, &["--no-auth-warning", "-u", &uri, "echo", "a"], b"", &[]);
    compare(&valkey, false, &["-p", &port, "echo", "a"], b"", &[("REDISCLI_AUTH", "wrong")]);
    compare(
        &valkey,
        false,
        &["-p", &port, "echo", "a"],
        b"",
        &[("VALKEYCLI_AUTH", "secret"), ("REDISCLI_AUTH", "wrong")],
    );
    compare(&valkey, false, &["-s", "there-is-no-such-socket", "echo", "a"], b"", &[]);
    compare(&valkey, false, &["-p", "1", "echo", "a"], b"", &[]);
}

#[test]
fn conversations_over_a_pipe() {
    let Some(valkey) = peer("valkey-cli") else { return };
    let fake = Fake::start(few_words);
    let port = fake.port.to_string();
    let conversations: [&[u8]; 10] = [
        b"echo a\n\n  \necho \"b \\x41\" \necho 'c",
        b"echo \"unbalanced\n3 echo a\n0 echo a\n-1 echo a\n99999999999999999999 echo a\n",
        b"multi\nget a\nclient list\nexec\ninfo\n",
        b"select 3\nselect 99\nauth wrong\nauth secret\nreset\n",
        b":get pubsub\n:set nonsense\n:get nonsense\n:nonsense\n:set hints\n",
        b"fail\nbye\necho again\n",
        b"hello 3\npushed\nget a\n",
        b"restart\nclear now\nconnect 127.0.0.1\nquit\necho never\n",
        b"subscribe a\n:get pubsub\nquit\n",
        b"shutdown\nexit\n",
    ];
    for conversation in conversations {
        for terminal in [false, true] {
            compare(&valkey, terminal, &["-p", &port], conversation, &[]);
        }
    }
}
