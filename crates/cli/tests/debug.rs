//! A script is debugged with isotherm-cli, by a server that says what a real one would.

mod fake;

use std::io::Write;
use std::process::{Command, Stdio};

use fake::Fake;

/// The replies of a session of two lines.
fn says(_: u64, words: &[Vec<u8>]) -> Vec<u8> {
    let line = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
    let said = match line.as_str() {
        "SCRIPT DEBUG sync lua" => "+OK\r\n",
        "SCRIPT DEBUG yes lua" => "-ERR not in a copy\r\n",
        "EVAL foo( 0" => "*1\r\n+<endsession>\r\n-ERR it does not compile\r\n",
        _ if line.starts_with("EVAL ") => {
            assert_eq!(line, "EVAL local a\nreturn 1\n 1 k x");
            "*2\r\n+* Stopped at 1, stop reason = step over\r\n+-> 1   local a\r\n"
        }
        "s" => "*1\r\n+-> 2   return 1\r\n",
        "e  1 + 'a  b'" => "*1\r\n+<retval> 7\r\n",
        "c" => "*2\r\n+<debug> line 2: x\r\n+<endsession>\r\n:1\r\n",
        "PING" => "+PONG\r\n",
        _ => panic!("it was not asked for: {line}"),
    };
    said.as_bytes().to_vec()
}

/// Runs the client. Returns its output, its errors, and its code.
fn run(mode: &str, script: &str, input: &str) -> (String, String, i32) {
    let fake = Fake::start(says);
    let file =
        std::env::temp_dir().join(format!("isotherm-cli-debug-{}-{}.lua", std::process::id(), fake.port));
    std::fs::write(&file, script).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_isotherm-cli"));
    command.args(["-p", &fake.port.to_string(), mode, "--eval"]).arg(&file);
    if script != "foo(" {
        command.args(["k", ",", "x"]);
    }
    command.env("ISOTHERMCLI_HISTFILE", "/dev/null").env_remove("FAKETTY");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that ends at once reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

const SCRIPT: &str = "local a\nreturn 1\n";
const BANNER: &str = "Lua debugging session started, please use:\nquit    -- End the session.\n\
                      restart -- Restart the script in debug mode again.\nhelp    -- Show Lua script debugging commands.\n\n";
const BEGUN: &str = "* Stopped at 1, stop reason = step over\n-> 1   local a\n";

#[test]
fn a_session_and_one_more() {
    let (out, err, code) = run(
        "--ldb-sync-mode",
        SCRIPT,
        "s\n\ne  1 + 'a  b'\n2 s\nprint \"\n:set hints\nrestart\ns\nc\nPING\nrestart\nquit\ns\n",
    );
    let end = "<debug> line 2: x\n\n(integer) 1\n\n(Lua debugging session ended)\n\nPONG\n";
    let expected = [
        BANNER,
        BEGUN,
        "-> 2   return 1\n<retval> 7\n-> 2   return 1\n-> 2   return 1\nInvalid argument(s)\n",
        "\n",
        BANNER,
        BEGUN,
        "-> 2   return 1\n",
        end,
        "\n",
        BANNER,
        BEGUN,
    ];
    assert_eq!((out.as_str(), err.as_str(), code), (&*expected.concat(), "", 0));
}

#[test]
fn what_does_not_begin() {
    let (out, err, code) = run("--ldb-sync-mode", "foo(", "s\n");
    let said = "\nEval debugging session can't start:\n(error) ERR it does not compile\n";
    assert_eq!((out, err.as_str(), code), ([BANNER, said].concat(), "", 0));
    let (out, err, code) = run("--ldb", SCRIPT, "s\n");
    assert_eq!((out.as_str(), code), (BANNER, 1));
    assert!(err.starts_with("ERR not in a copy\n") && err.contains("--ldb-sync-mode"), "{err}");
}
