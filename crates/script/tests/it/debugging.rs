//! Scripts that are debugged, step by step, with a host that suspends them in between.

use isotherm_resp::{Args, Protocol, Reply};
use isotherm_script::{Debugger, Ended, Interpreter, Progress};

use crate::model::{Model, eval_in, interpreter, limited, sha_of};

/// All that a session says, and the reply. Code is one word; after the last line the client sends no more.
fn session(lua: &mut Interpreter, model: &mut Model, body: &str, lines: &[&str]) -> (String, Ended) {
    let sha = sha_of(body);
    lua.compile(&sha, body.as_bytes()).unwrap();
    lua.debug(Debugger::new(body.as_bytes()));
    let (mut lines, mut said) = (lines.iter(), Vec::new());
    let mut reply = Reply::new(Protocol::Resp2);
    let mut progress = lua.run(&sha, Args::new(b"", &[]), 0, model, &mut reply);
    let ended = loop {
        if let Progress::Ended(ended) = progress {
            break ended;
        }
        let debugger = lua.debugger().unwrap();
        said.extend(debugger.take_output());
        if debugger.is_waiting() {
            match lines.next() {
                Some(line) => debugger.feed(&wire(line)),
                None => debugger.end_input(),
            }
        }
        progress = lua.resume(model, &mut reply);
    };
    said.extend(lua.take_debugger().unwrap().end());
    said.extend(&reply.out);
    (String::from_utf8_lossy(&said).into_owned(), ended)
}

fn wire(line: &str) -> Vec<u8> {
    let words: Vec<&str> = match line.strip_prefix("e ") {
        Some(code) => vec!["e", code],
        None => line.split(' ').collect(),
    };
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| out.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    out
}

fn said(body: &str, lines: &[&str]) -> String {
    session(&mut interpreter(), &mut Model::default(), body, lines).0
}

#[test]
fn commands_and_replies_are_shown_once_while_it_steps() {
    let mut model = Model::default();
    let body = "redis.call('set', 'k', 'v')\nreturn redis.call('get', 'k')";
    let (text, ended) = session(&mut interpreter(), &mut model, body, &["s", "c"]);
    assert_eq!(
        text,
        "*2\r\n+* Stopped at 1, stop reason = step over\r\n+-> 1   redis.call('set', 'k', 'v')\r\n\
         *4\r\n+<command> set k v\r\n+<reply> \"+OK\"\r\n+* Stopped at 2, stop reason = step over\r\n\
         +-> 2   return redis.call('get', 'k')\r\n*1\r\n+<endsession>\r\n$1\r\nv\r\n"
    );
    assert_eq!(ended, Ended::Returned);
    // Each was suspended, and tried again.
    assert!(model.suspensions > 2);
}

#[test]
fn what_it_shows_of_a_script() {
    let body = "local function f(n, ...)\n  local t = {n, {x = n}}\n  return t\nend\nlocal up = {true, 1.5}\nlocal r = f('a', 2)\nreturn r[1]";
    let lines = ["b 2", "c", "print", "p up", "p n", "p nothing", "p KEYS", "t", "s", "p t", "c"];
    let text = said(body, &lines);
    for part in [
        "+<value> n = a\r\n",
        "*1\r\n+<value> {true; 1.5; }\r\n",
        "*1\r\n+<value> a\r\n",
        "*1\r\n+No such variable.\r\n",
        "*1\r\n+<value> {}\r\n",
        "*4\r\n+In f:\r\n+->#2     local t = {n, {x = n}}\r\n+From top level:\r\n+   6   local r = f('a', 2)\r\n",
        "*1\r\n+<value> {a; {[x]=a; }; }\r\n",
        "*1\r\n+<endsession>\r\n$1\r\na\r\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn code_runs_beside_the_script() {
    let lines = [
        "e 1 + 1",
        "e return 5",
        "e redis.call('set', 'k', 'v')",
        "e x = 5",
        "e (",
        "e error({err = 'x'})",
        "e redis.breakpoint()",
        "e local f = function() return 7 end return coroutine.wrap(f)()",
        "redis incr k",
        "redis echo a",
        "r nosuch",
        "e nil",
        "c",
    ];
    let text = said("local a = 1\nreturn a", &lines);
    for part in [
        "*1\r\n+<retval> 2\r\n*1\r\n+<retval> 5\r\n*1\r\n+<retval> {[ok]=OK; }\r\n",
        "+<error> ldb_eval:1: Attempt to modify a readonly table\r\n",
        "+Error compiling code: ldb_eval:1: unexpected symbol near '<eof>'\r\n",
        "*1\r\n+<error> (null)\r\n",
        "*1\r\n+<retval> true\r\n*1\r\n+<retval> 7\r\n",
        "*3\r\n+<command> incr k\r\n+<reply> \"-ERR value is not an integer or out of range\"\r\n",
        "*2\r\n+<command> echo a\r\n+<reply> \"a\"\r\n",
        "*1\r\n+<retval> nil\r\n*2\r\n+* Stopped at 2, stop reason = server.breakpoint() called\r\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn it_fails_as_scripts_do() {
    let body = "local a = 1\nlocal b = a.x.y\nreturn b";
    let (text, ended) = session(&mut interpreter(), &mut Model::default(), body, &["s", "s"]);
    assert!(text.contains("-ERR user_script:2: attempt to index"), "{text}");
    assert_eq!(ended, Ended::Failed { is_counted: false });
    let text = said("local a = 1\nreturn a", &["abort"]);
    assert!(text.ends_with("-ERR script aborted for user request script: on @user_script:1.\r\n"), "{text}");
    let text = said(
        "local ok = pcall(function()\nlocal x = 1\nend)\nreturn tostring(ok)",
        &["s", "s", "s", "a", "c"],
    );
    assert!(text.ends_with("$5\r\nfalse\r\n"), "{text}");
}

#[test]
fn it_is_stopped_wherever_it_is() {
    let mut lua = interpreter();
    for lines in [
        &["c"][..],
        &["e while true do end"],
        &["e while true do pcall(error) end"],
        &["e while true do pcall(function() while true do end end) end"],
        &["e coroutine.wrap(function() while true do end end)()"],
        &["e redis.call('nosuch') while true do end", "c"],
        &["e xpcall(error, function() while true do end end)", "c"],
        // It waits for its user.
        &[],
    ] {
        let mut model = Model { stop_at: 40, ..Model::default() };
        let (text, ended) = session(&mut lua, &mut model, "local a = 1\nwhile true do a = 2 end", lines);
        assert!(text.contains("-ERR Script killed by user with SCRIPT KILL."), "{lines:?}\n{text}");
        assert_eq!(ended, Ended::Stopped, "{lines:?}");
        assert_eq!(eval_in(&mut lua, "return 1"), ":1\r\n");
    }
}

#[test]
fn a_session_that_is_dropped() {
    let mut lua = interpreter();
    let sha = sha_of("return 1");
    lua.compile(&sha, b"return 1").unwrap();
    lua.debug(Debugger::new(b"return 1"));
    let mut reply = Reply::new(Protocol::Resp2);
    while lua.run(&sha, Args::new(b"", &[]), 0, &mut Model::default(), &mut reply) != Progress::Suspended {}
    assert!(lua.is_suspended());
}

#[test]
fn memory_has_an_end() {
    let mut lua = limited(4 << 20);
    let body = "local t = {} for i = 1, 9 do t = {t, t, t, t} end\nlocal s = ('x'):rep(1500000)\nlocal u = {s, s}\nreturn 1";
    for lines in [&["s", "p t", "c"][..], &["s", "s", "s", "p u", "c"], &["s", "s", "e ('y'):rep(1e8)", "c"]]
    {
        let (text, _) = session(&mut lua, &mut Model::default(), body, lines);
        assert!(text.len() < 8 << 20 && text.contains("+<endsession>\r\n"), "{}", text.len());
        assert_eq!(eval_in(&mut lua, "return 1"), ":1\r\n");
    }
}
