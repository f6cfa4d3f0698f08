use super::*;

const SCRIPT: &[u8] = b"#!lua\nlocal a = 1\r\nreturn a\n\n";

fn wire(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| out.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    out
}

/// Returns a debugger that is stopped at this line and whose output so far was taken.
fn at(line: i64) -> Debugger {
    let mut debugger = Debugger::new(SCRIPT);
    assert!(debugger.reach(line, true));
    debugger.take_output();
    debugger
}

fn said(debugger: &mut Debugger) -> String {
    String::from_utf8(debugger.take_output()).unwrap()
}

#[test]
fn it_stops_where_it_was_asked_to() {
    let mut debugger = Debugger::new(SCRIPT);
    assert!(!debugger.reach(1, false) && debugger.reach(2, true));
    assert_eq!(
        said(&mut debugger),
        "*2\r\n+* Stopped at 2, stop reason = step over\r\n+-> 2   local a = 1 \r\n"
    );
    debugger.feed(&wire("c"));
    assert_eq!(debugger.next(), Some(Action::GoOn));
    assert!(!debugger.reach(3, true));
    debugger.break_next();
    assert!(debugger.reach(3, true) && said(&mut debugger).contains("server.breakpoint() called"));
    debugger.feed(&[wire("b 2"), wire("c")].concat());
    assert_eq!(debugger.next(), Some(Action::GoOn));
    assert_eq!(said(&mut debugger), "*3\r\n+   1   #!lua\r\n+  #2   local a = 1 \r\n+-> 3   return a\r\n");
    assert!(debugger.reach(2, true) && said(&mut debugger).contains("break point\r\n+->#2"));
    assert_eq!(String::from_utf8(debugger.end()).unwrap(), "*1\r\n+<endsession>\r\n");
}

#[test]
fn it_waits_for_a_whole_command() {
    let mut debugger = at(2);
    let step = wire("print a");
    for (count, byte) in step.iter().enumerate() {
        assert!(debugger.next().is_none() && debugger.is_waiting(), "{count}");
        debugger.feed(&[*byte]);
    }
    assert_eq!((debugger.next(), debugger.text()), (Some(Action::Print), &b"a"[..]));
    assert!(!debugger.is_waiting());
    debugger.log(b"<value> 1\r\n2");
    assert_eq!(debugger.next(), None);
    assert_eq!(said(&mut debugger), "*1\r\n+<value> 1  2\r\n");
}

#[test]
fn what_is_no_command_ends_it() {
    let long = format!("*1\r\n$1025\r\n{}\r\n", "x".repeat(1025));
    let much = vec![b'*'; (1 << 20) + 1];
    let cases: [(&[u8], &str); 8] = [
        (b"help\r\n", "protocol error"),
        (b"*0\r\n", "protocol error"),
        (b"*1025\r\n", "protocol error"),
        (b"*x\r\n", "protocol error"),
        (b"*1\r\n:1\r\n", "protocol error"),
        (b"*1\r\n$0\r\n\r\n", "protocol error"),
        (long.as_bytes(), "protocol error"),
        (&much, "max client buffer reached"),
    ];
    for (bytes, why) in cases {
        let mut debugger = at(2);
        debugger.feed(bytes);
        assert_eq!(
            debugger.next(),
            Some(Action::Fail(why)),
            "{}",
            bytes[..9.min(bytes.len())].escape_ascii()
        );
        // After it the session may continue, if the script catches the error.
        debugger.feed(&wire("c"));
        assert_eq!(debugger.next(), Some(Action::GoOn));
    }
}

#[test]
fn any_bytes_are_survived() {
    let mut prng = isotherm_stdx::Prng::new(7);
    let pieces: [&[u8]; 12] =
        [b"*", b"$", b"1", b"2", b"\r\n", b"-", b"x", b"\0", b"list", b"b", b"99999999999999999999", b"\xff"];
    for _ in 0..20_000 {
        let mut debugger = at(2);
        for _ in 0..prng.below(20) {
            debugger.feed(pieces[prng.below(pieces.len() as u64) as usize]);
        }
        for _ in 0..3 {
            let _ = debugger.next();
        }
        let out = debugger.end();
        assert!(out.ends_with(b"+<endsession>\r\n"));
    }
}

#[test]
fn a_client_that_leaves() {
    let mut debugger = at(2);
    debugger.feed(&[wire("b 3"), wire("s")].concat());
    debugger.end_input();
    // The commands that it has sent are carried out; after them nothing stops the script.
    assert_eq!(debugger.next(), Some(Action::GoOn));
    assert!(!debugger.reach(3, true));
    let mut debugger = at(2);
    debugger.feed(&wire("s"));
    debugger.leave();
    assert_eq!(debugger.next(), Some(Action::GoOn));
    debugger.break_next();
    assert!(!debugger.reach(3, true));
}

#[test]
fn a_client_that_does_not_read() {
    let mut debugger = at(2);
    debugger.feed(&wire("help").repeat(1000));
    assert_eq!(debugger.next(), None);
    let first = debugger.take_output().len();
    assert!(first > OUT_BYTES_MAX && first < 2 * OUT_BYTES_MAX && debugger.has_input());
    debugger.hold(true);
    assert_eq!(debugger.next(), None);
    assert!(debugger.is_waiting() && debugger.take_output().is_empty());
    debugger.hold(false);
    assert_eq!(debugger.next(), None);
    assert!(!debugger.take_output().is_empty());
    debugger.hold(true);
    debugger.leave();
    assert_eq!(debugger.next(), Some(Action::GoOn));
}

#[test]
fn what_is_logged_has_an_end() {
    let mut debugger = at(2);
    for _ in 0..100 {
        debugger.log(&[b'x'; 100_000]);
    }
    let end = debugger.end();
    assert!(end.len() < LOG_BYTES_MAX + 1000);
    let text = String::from_utf8(end).unwrap();
    assert!(
        text.ends_with("+<hint> What follows was left out: it is too much.\r\n+<endsession>\r\n"),
        "{}",
        &text[text.len() - 90..]
    );
    assert_eq!(text.lines().count() - 1, text.lines().next().unwrap()[1..].parse().unwrap());
}

#[test]
fn replies_for_people() {
    let cases: [(&str, &str); 14] = [
        (":5\r\n", "5"),
        ("+OK\r\n", "\"+OK\""),
        ("-ERR no\r\n", "\"-ERR no\""),
        ("$-1\r\n", "NULL"),
        ("*-1\r\n", "NULL"),
        ("$3\r\na\"\n\r\n", "\"a\\\"\\n\""),
        ("*0\r\n", "[]"),
        ("*3\r\n$1\r\na\r\n*1\r\n:1\r\n$-1\r\n", "[\"a\",[1],NULL]"),
        ("%1\r\n$1\r\nk\r\n$1\r\nv\r\n", "{\"k\" => \"v\"}"),
        ("~2\r\n:1\r\n:2\r\n", "~(1,2)"),
        ("_\r\n", "(null)"),
        ("#t\r\n", "#true"),
        (",1.5\r\n", "(double) 1.5"),
        // Valkey shows nothing of these either; nor of what is cut off.
        ("=5\r\ntxt:a\r\n", ""),
    ];
    for (reply, shown) in cases {
        let mut out = Vec::new();
        push_reply(&mut out, reply.as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), shown, "{reply:?}");
        for end in 0..reply.len() {
            push_reply(&mut Vec::new(), &reply.as_bytes()[..end]);
        }
    }
    push_reply(&mut Vec::new(), &b"*1\r\n".repeat(100_000));
}
