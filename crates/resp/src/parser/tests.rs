use super::*;
use crate::request::{Args, ArgsBuf};
use isotherm_stdx::Prng;

/// Content of a stream: its requests, and the error that ends it.
#[derive(Debug, PartialEq, Default)]
struct Heard {
    requests: Vec<ArgsBuf>,
    error: Option<ProtocolError>,
    left: usize,
}

/// Feeds `stream` cut at `cuts`, the way a worker does: parse all complete requests of the buffer, keep the
/// rest.
fn hear(stream: &[u8], cuts: &[usize], limits: &Limits) -> Heard {
    let mut heard = Heard::default();
    let mut parser = Parser::new();
    let mut buf: Vec<u8> = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&stream.len()]) {
        buf.extend_from_slice(&stream[from..to]);
        from = to;
        let mut at = 0;
        // One list of spans for the whole batch, as a worker has it.
        let mut spans = vec![Span { start: 7, len: 7 }];
        loop {
            let first = spans.len();
            let parsed = parser.parse(&mut buf[at..], limits, &mut spans);
            assert!(parser.memory_bytes() <= 64 + buf.len() * 4, "memory follows the bytes that came");
            match parsed {
                Parsed::Request { consumed } => {
                    heard.requests.push(Args::new(&buf[at..], &spans[first..]).into());
                    at += consumed;
                }
                Parsed::Empty { consumed } => {
                    assert_eq!(spans.len(), first);
                    at += consumed;
                }
                Parsed::Incomplete { wanted } => {
                    assert!(wanted > 0);
                    assert_eq!(spans.len(), first, "an unfinished request leaves nothing behind");
                    break;
                }
                Parsed::Error(error) => {
                    heard.error = Some(error);
                    return heard;
                }
            }
            assert!(parser.is_idle());
        }
        buf.drain(..at);
    }
    heard.left = buf.len();
    heard
}

#[track_caller]
fn check(stream: &[u8], requests: &[&[&str]], error: Option<&str>) {
    let heard = hear(stream, &[], &Limits::default());
    let shown: Vec<Vec<String>> = heard
        .requests
        .iter()
        .map(|request| request.args().iter().map(|arg| arg.escape_ascii().to_string()).collect())
        .collect();
    assert_eq!(shown, requests, "{}", stream.escape_ascii());
    let text = heard.error.map(|error| error.text().escape_ascii().to_string().replace("\\'", "'"));
    assert_eq!(text.as_deref(), error.map(|text| format!("ERR Protocol error: {text}")).as_deref());
}

#[test]
fn complete_requests() {
    check(b"*1\r\n$4\r\nPING\r\n", &[&["PING"]], None);
    check(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n", &[&["SET", "k", ""]], None);
    check(b"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n", &[&["ECHO", "a\\r\\nb"]], None);
    check(b"*1\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n", &[&["a"], &["b"]], None);
    check(b"ping\r\n", &[&["ping"]], None);
    check(b"ping\n", &[&["ping"]], None);
    check(b"  set a  \"b c\" \r\n", &[&["set", "a", "b c"]], None);
    check(b"a\r\n*1\r\n$1\r\nb\r\nc\r\n", &[&["a"], &["b"], &["c"]], None);
    for length in [9, 10, 99, 100, 999, 1000, 9999, 10000, 99999, 100_000, 1_000_000] {
        let body = "x".repeat(length);
        let stream = format!("*2\r\n$4\r\nECHO\r\n${length}\r\n{body}\r\n");
        check(stream.as_bytes(), &[&["ECHO", &body]], None);
    }
}

#[test]
fn nothing_to_run() {
    for stream in
        [&b"\r\n"[..], b"\n", b"   \r\n", b"*0\r\n", b"*-1\r\n", b"*-10\r\n", b"*-9223372036854775808\r\n"]
    {
        check(&[stream, b"*1\r\n$4\r\nping\r\n"].concat(), &[&["ping"]], None);
    }
}

#[test]
fn what_is_wrong_and_how_it_is_called() {
    let multibulk = Some("invalid multibulk length");
    let bulk = Some("invalid bulk length");
    let crlf = Some("invalid CRLF in request");
    check(b"*3000000000\r\n", &[], multibulk);
    check(b"*2147483648\r\n", &[], multibulk);
    check(b"*x\r\n", &[], multibulk);
    check(b"*\r\n", &[], multibulk);
    check(b"*01\r\n", &[], multibulk);
    check(b"*+1\r\n", &[], multibulk);
    check(b"*3x\n$3\r\n", &[], multibulk);
    check(b"*3\rx", &[], crlf);
    check(b"*1\r\nfoo\r\n", &[], Some("expected '$', got 'f'"));
    check(b"*1\r\n\xff\r\n", &[], Some("expected '$', got '\\xff'"));
    check(b"*1\r\n\r\n", &[], Some("expected '$', got '\\r'"));
    check(b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n", &[], Some("expected '$', got 'f'"));
    check(b"*1\r\n$-1\r\n", &[], bulk);
    check(b"*1\r\n$-10\r\n", &[], bulk);
    check(b"*1\r\n$536870913\r\n", &[], bulk);
    check(b"*1\r\n$2000000000000\r\n", &[], bulk);
    check(b"*1\r\n$blabla\r\n", &[], bulk);
    check(b"*1\r\n$3x\nSET\r\n", &[], bulk);
    check(b"*1\r\n$3\rxSET\r\n", &[], crlf);
    check(b"*1\r\n$3\r\nSETxx", &[], crlf);
    check(b"*1\r\n$3\r\nSET\rx", &[], crlf);
    check(b"*1\r\n$3\r\nSETx\n", &[], crlf);
    check(b"set foo 'b'a'r\r\nping\r\n", &[], Some("unbalanced quotes in request"));
    check(b"*1\r\n$4\r\nping\r\n*x\r\n", &[&["ping"]], multibulk);
}

#[test]
fn lines_that_never_end() {
    let too_long = [b'A'; (64 << 10) + 1];
    let after = |start: &[u8], n: usize| [start, &too_long[..n]].concat();
    let max = 64 << 10;
    check(&after(b"", max), &[], None);
    check(&after(b"", max + 1), &[], Some("too big inline request"));
    check(&after(b"\0", max), &[], Some("too big inline request"));
    check(&after(b"a\0\n", max), &[], Some("too big inline request"));
    check(&after(b"*", max), &[], Some("too big mbulk count string"));
    check(&after(b"*\0", max), &[], Some("too big mbulk count string"));
    check(&after(b"*1\r\n$", max), &[], Some("too big bulk count string"));
    check(&after(b"*1\r\n$\0", max), &[], Some("too big bulk count string"));
    // A line that does end is judged by what it says, however long it is.
    let long_line = [&after(b"", max + 1), &b"\r\n"[..]].concat();
    assert_eq!(hear(&long_line, &[], &Limits::default()).requests.len(), 1);
}

#[test]
fn unauthenticated_clients_may_send_little() {
    let unauthenticated = Limits { authenticated: false, ..Limits::default() };
    let error = |stream: &[u8]| hear(stream, &[], &unauthenticated).error.map(|error| error.to_string());
    assert_eq!(error(b"*10\r\n"), None);
    assert_eq!(error(b"*11\r\n").unwrap(), "ERR Protocol error: unauthenticated multibulk length");
    assert_eq!(error(b"*1\r\n$16384\r\n"), None);
    assert_eq!(error(b"*1\r\n$16385\r\n").unwrap(), "ERR Protocol error: unauthenticated bulk length");
    let small = Limits { multibulk_len_max: 3, bulk_bytes_max: 5, ..Limits::default() };
    assert_eq!(hear(b"*4\r\n", &[], &small).error, Some(ProtocolError::InvalidMultibulkLength));
    assert_eq!(hear(b"*1\r\n$6\r\n", &[], &small).error, Some(ProtocolError::InvalidBulkLength));
}

#[test]
fn a_request_beyond_32_bits_is_refused() {
    let limits = Limits { bulk_bytes_max: 8 << 30, ..Limits::default() };
    assert_eq!(hear(b"*1\r\n$4294967295\r\n", &[], &limits).error, Some(ProtocolError::BigRequest));
    assert_eq!(hear(b"*1\r\n$4294000000\r\n", &[], &limits).error, None);
}

#[test]
fn announced_lengths_take_no_memory() {
    let mut parser = Parser::new();
    let mut spans = Vec::new();
    let mut bytes = b"*2147483647\r\n$536870912\r\n".to_vec();
    let parsed = parser.parse(&mut bytes, &Limits::default(), &mut spans);
    assert_eq!(parsed, Parsed::Incomplete { wanted: (512 << 20) + 2 });
    assert_eq!((parser.memory_bytes(), spans.capacity()), (0, 0));
}

/// A stream of valid requests of both kinds.
fn random_stream(prng: &mut Prng) -> (Vec<u8>, Vec<ArgsBuf>) {
    let mut stream = Vec::new();
    let mut requests = Vec::new();
    for _ in 0..1 + prng.below(5) {
        match prng.below(8) {
            0 => stream.extend_from_slice(b"\r\n"),
            1 => stream.extend_from_slice(b"*0\r\n"),
            2 => {
                stream.extend_from_slice(b"  set \"a \\x41\\n\"b 'c\\'' \r\n");
                requests.push(ArgsBuf::from_slices(&[b"set", b"a A\nb", b"c'"]));
            }
            _ => {
                let args: Vec<Vec<u8>> = (0..1 + prng.below(12))
                    .map(|_| {
                        let length = if prng.one_in(10) { prng.below(300) } else { prng.below(12) };
                        (0..length).map(|_| *prng.pick(b"\r\n$*ab\0 1")).collect()
                    })
                    .collect();
                stream.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
                for arg in &args {
                    stream.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                    stream.extend_from_slice(arg);
                    stream.extend_from_slice(b"\r\n");
                }
                requests.push(args.iter().map(Vec::as_slice).collect());
            }
        }
    }
    (stream, requests)
}

#[test]
fn the_same_requests_wherever_the_stream_is_cut() {
    let mut prng = Prng::new(2);
    for round in 0..2000 {
        let (stream, requests) = random_stream(&mut prng);
        let expected = Heard { requests, error: None, left: 0 };
        assert_eq!(hear(&stream, &[], &Limits::default()), expected, "round {round}, whole");
        let bytes: Vec<usize> = (0..stream.len()).collect();
        assert_eq!(hear(&stream, &bytes, &Limits::default()), expected, "round {round}, single bytes");
        let mut cuts: Vec<usize> =
            (0..prng.below(6)).map(|_| prng.below(stream.len() as u64) as usize).collect();
        cuts.sort_unstable();
        assert_eq!(hear(&stream, &cuts, &Limits::default()), expected, "round {round}, cut at {cuts:?}");
    }
}

#[test]
fn damaged_streams_are_judged_alike_wherever_they_are_cut() {
    let mut prng = Prng::new(4);
    let mut errors = 0;
    for round in 0..5000 {
        let (mut stream, _) = random_stream(&mut prng);
        for _ in 0..1 + prng.below(3) {
            let at = prng.below(stream.len() as u64) as usize;
            stream[at] = *prng.pick(b"\r\n$*-09a\0\" ");
        }
        // Short limits, so that the "too big" errors depend on nothing but the line itself.
        let whole = hear(&stream, &[], &Limits::default());
        errors += u32::from(whole.error.is_some());
        let cut = prng.below(stream.len() as u64) as usize;
        assert_eq!(
            hear(&stream, &[cut], &Limits::default()),
            whole,
            "round {round}: {}",
            stream.escape_ascii()
        );
    }
    assert!(errors > 1000, "most damage must be noticed: {errors}");
}

#[test]
fn a_million_arguments_byte_by_byte_take_linear_time() {
    let mut stream = b"*1000001\r\n".to_vec();
    (0..1_000_001).for_each(|_| stream.extend_from_slice(b"$1\r\nx\r\n"));
    let mut parser = Parser::new();
    let mut spans = Vec::new();
    // The buffer is one and grows; only the parser's own work is under test.
    for end in (1..stream.len()).step_by(3) {
        let parsed = parser.parse(&mut stream[..end], &Limits::default(), &mut spans);
        assert!(matches!(parsed, Parsed::Incomplete { .. }));
    }
    let length = stream.len();
    assert_eq!(
        parser.parse(&mut stream, &Limits::default(), &mut spans),
        Parsed::Request { consumed: length }
    );
    assert_eq!(spans.len(), 1_000_001);
    assert_eq!(parser.memory_bytes(), 0);
}
