use super::*;

const ID: &str = "0123456789012345678901234567890123456789";
const MARK: &str = "abcdefghijabcdefghijabcdefghijabcdefghij";

fn settings() -> Settings {
    Settings { port: 7001, version: "9.1.2", timeout_ms: 60_000, ..Settings::default() }
}

fn position(end: u64) -> Position {
    Position { id: ReplId::parse(ID.as_bytes()).expect("forty digits"), end: LogOffset(end) }
}

/// A machine, and what it has had to say.
struct Play {
    link: Link,
    now: Ms,
    /// The parts of the snapshot and of the stream.
    snapshot: Vec<u8>,
    stream: Vec<u8>,
}

impl Play {
    fn new(settings: Settings, position: Option<Position>) -> (Play, Vec<Output>) {
        let mut link = Link::new(settings.clone());
        let mut out = Vec::new();
        link.begin(settings, position, Ms(0), &mut out);
        (Play { link, now: Ms(0), snapshot: Vec::new(), stream: Vec::new() }, out)
    }

    /// Plays a link up to the reply to PSYNC.
    fn asked(position: Option<Position>) -> Play {
        let (mut play, _) = Play::new(settings(), position);
        play.step(Input::Connected);
        play.bytes(b"+PONG\r\n+OK\r\n-ERR unknown\r\n+OK\r\n");
        play
    }

    fn step(&mut self, input: Input<'_>) -> Vec<Output> {
        let bytes = if let Input::Bytes(bytes) = &input { bytes.to_vec() } else { Vec::new() };
        let mut out = Vec::new();
        self.link.step(input, self.now, &mut out);
        self.link.check_invariants();
        for output in &out {
            match output {
                Output::SnapshotBytes(range) => self.snapshot.extend_from_slice(&bytes[range.clone()]),
                Output::SnapshotEnds { mark_bytes } => {
                    self.snapshot.truncate(self.snapshot.len() - mark_bytes);
                }
                Output::Stream(range) => self.stream.extend_from_slice(&bytes[range.clone()]),
                _ => {}
            }
        }
        out
    }

    fn bytes(&mut self, bytes: &[u8]) -> Vec<Output> {
        self.step(Input::Bytes(bytes))
    }

    fn at(&mut self, ms: u64) -> Vec<Output> {
        self.now = Ms(ms);
        self.step(Input::Tick)
    }
}

fn sent(out: &[Output]) -> String {
    let sent = out.iter().filter_map(|output| match output {
        Output::Send(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    });
    let lines = sent.collect::<String>();
    lines
        .split("\r\n")
        .filter(|line| !line.starts_with(['*', '$']))
        .collect::<Vec<_>>()
        .join(" ")
        .trim_end()
        .into()
}

#[track_caller]
fn failure(out: &[Output]) -> &Failure {
    match out.last() {
        Some(Output::Close(failure)) => failure,
        other => panic!("{other:?} is no failure"),
    }
}

#[test]
fn the_words_of_the_handshake() {
    let all = Settings {
        password: Some((Some(b"ann".to_vec()), b"pw".to_vec())),
        address: Some(b"10.0.0.9".to_vec()),
        node_id: Some(b"ab".to_vec()),
        ..settings()
    };
    let (mut play, out) = Play::new(all, Some(position(99)));
    assert_eq!(out, [Output::Connect]);
    assert_eq!(play.link.phase(), Phase::Connecting);
    assert_eq!(sent(&play.step(Input::Connected)), "PING");
    assert_eq!(
        sent(&play.bytes(b"-NOAUTH Authentication required.\r\n")),
        "AUTH ann pw REPLCONF listening-port 7001 REPLCONF ip-address 10.0.0.9 REPLCONF capa eof capa psync2 REPLCONF \
         version 9.1.2 REPLCONF set-cluster-node-id ab"
    );
    assert_eq!(play.link.phase(), Phase::Handshake);
    // Line by line, in pieces.
    assert_eq!(play.bytes(b"+OK\r\n+O"), []);
    let out = play.bytes(b"K\r\n-ERR no\r\n+OK\r\n");
    assert_eq!(out, [Output::Say(Line::NotUnderstood("ip-address", "-ERR no".into()))]);
    let out = play.bytes(b"+OK\r\n-ERR Unknown node ab\r\n");
    let line = Line::NotUnderstood("set-cluster-node-id", "-ERR Unknown node ab".into());
    assert_eq!(out[0], Output::Say(line));
    assert_eq!(sent(&out[1..]), format!("PSYNC {ID} 100"));
    assert_eq!(sent(&Play::new(settings(), None).0.step(Input::Connected)), "PING");
}

#[test]
fn a_snapshot_of_known_length_and_the_stream_behind_it() {
    let mut play = Play::asked(None);
    play.bytes(b"\n\n");
    let out = play.bytes(format!("+FULLRESYNC {ID} 500\r\n").as_bytes());
    assert_eq!(out, [Output::Say(Line::Full(position(500))), Output::Full(position(500))]);
    assert_eq!(play.link.phase(), Phase::Transfer);
    let out = play.bytes(b"\n\n$10\r\nabc");
    assert_eq!(out, [Output::Snapshot { bytes: Some(10) }, Output::SnapshotBytes(7..10)]);
    let out = play.bytes(b"defghij*1\r\n");
    assert_eq!(
        out,
        [Output::SnapshotBytes(0..7), Output::SnapshotEnds { mark_bytes: 0 }, Output::Stream(7..11)]
    );
    assert_eq!((&play.snapshot[..], &play.stream[..]), (&b"abcdefghij"[..], &b"*1\r\n"[..]));
    // While it is loaded the primary gets empty lines, and silence is no matter.
    assert_eq!(play.at(1000), [Output::Send(b"\n".to_vec())]);
    assert_eq!(play.at(200_000), [Output::Send(b"\n".to_vec())]);
    assert_eq!(play.step(Input::Loaded), [Output::AckDue]);
    assert_eq!(play.link.phase(), Phase::Connected);
    assert_eq!(play.at(200_999), []);
    assert_eq!(play.at(201_000), [Output::AckDue]);
}

#[test]
fn a_snapshot_ends_with_its_mark() {
    for cut in 0..MARK.len() {
        let mut play = Play::asked(None);
        play.bytes(format!("+FULLRESYNC {ID} 0\r\n$EOF:{MARK}\r\n").as_bytes());
        // Almost the mark, and the mark where it does not come last.
        let data = format!("x{}{MARK}y", &MARK[..39]);
        play.bytes(data.as_bytes());
        play.bytes(&MARK.as_bytes()[..cut]);
        assert_eq!(play.link.phase(), Phase::Transfer);
        let out = play.bytes(&MARK.as_bytes()[cut..]);
        assert_eq!(out.last(), Some(&Output::SnapshotEnds { mark_bytes: MARK_BYTES }), "{cut}");
        assert_eq!(play.snapshot, data.as_bytes());
    }
}

#[test]
fn continuing() {
    let id = position(0).id;
    let other = ReplId::parse(MARK.as_bytes()).expect("forty letters");
    for (reply, named, renamed) in [
        ("+CONTINUE".to_string(), None, false),
        (format!("+CONTINUE {ID}"), Some(id), false),
        (format!("+CONTINUE {MARK}"), Some(other), true),
    ] {
        let mut play = Play::asked(Some(position(99)));
        let out = play.bytes(format!("{reply}\r\n*1\r\n").as_bytes());
        assert!(out.contains(&Output::Continue { id: named }), "{out:?}");
        assert_eq!(out.contains(&Output::Say(Line::Renamed(other))), renamed);
        assert_eq!(play.stream, b"*1\r\n");
        assert_eq!(play.link.phase(), Phase::Connected);
    }
}

/// Each malformed answer ends the attempt, and another one begins after a pause.
#[test]
fn bad_answers() {
    let check = |mut play: Play, bytes: &str, expected: Failure, pause_ms: u64| {
        let out = play.bytes(bytes.as_bytes());
        assert_eq!(failure(&out), &expected, "{bytes}");
        assert_eq!(play.link.phase(), Phase::Resting);
        assert_eq!(play.link.next_tick(), Ms(pause_ms), "{bytes}");
        assert!(!play.link.is_due(Ms(pause_ms.saturating_sub(1))) || pause_ms == 0);
        assert!(play.link.is_due(Ms(pause_ms)));
        assert_eq!(play.bytes(b"+PONG\r\n"), [], "what comes late is of no attempt");
    };
    let connected = || {
        let (mut play, _) = Play::new(settings(), None);
        play.step(Input::Connected);
        play
    };
    check(connected(), "-ERR no\r\n", Failure::Ping("-ERR no".into()), 1000);
    check(connected(), &"x".repeat(2000), Failure::LongLine, 1000);
    let asked = || Play::asked(Some(position(7)));
    let later = Failure::Later("-LOADING data".into());
    check(asked(), "-LOADING data\r\n", later, 1000);
    check(asked(), "-NOMASTERLINK x\r\n", Failure::Later("-NOMASTERLINK x".into()), 1000);
    check(asked(), "-ERR what\r\n", Failure::NoPsync("-ERR what".into()), 1000);
    check(asked(), "hello\r\n", Failure::Unexpected("hello".into()), 1000);
    for bad in [
        "+FULLRESYNC".to_string(),
        "+FULLRESYNC ? 7".into(),
        format!("+FULLRESYNC {ID}"),
        format!("+FULLRESYNC {ID} -1"),
        format!("+FULLRESYNC {ID} 1x"),
        format!("+FULLRESYNC {ID}0 1"),
    ] {
        check(asked(), &format!("{bad}\r\n"), Failure::BadFull(bad), 1000);
    }
    for bad in ["+CONTINUE 123", "+CONTINUED"] {
        check(asked(), &format!("{bad}\r\n"), Failure::BadContinue(bad.into()), 1000);
    }
    check(Play::asked(None), "+CONTINUE\r\n", Failure::BadContinue("+CONTINUE".into()), 1000);
    let full = || {
        let mut play = Play::asked(None);
        play.bytes(format!("+FULLRESYNC {ID} 0\r\n").as_bytes());
        play
    };
    check(full(), "-ERR disk\r\n", Failure::Aborted("ERR disk".into()), 0);
    for bad in ["$", "$x", "$-1", "$EOF:short", "*1", "$99999999999999999999"] {
        check(full(), &format!("{bad}\r\n"), Failure::BadHead(bad.into()), 0);
    }
}

#[test]
fn silence() {
    let check = |mut play: Play, timeout: Timeout| {
        assert_eq!(play.at(60_000), []);
        assert_eq!(failure(&play.at(60_001)), &Failure::Silence(timeout));
    };
    check(Play::new(settings(), None).0, Timeout::Connecting);
    check(Play::asked(None), Timeout::Connecting);
    let mut full = Play::asked(None);
    full.bytes(format!("+FULLRESYNC {ID} 0\r\n$5\r\nabc").as_bytes());
    check(full, Timeout::Snapshot);
    let mut stream = Play::asked(Some(position(0)));
    stream.bytes(b"+CONTINUE\r\n");
    assert_eq!(stream.at(60_000), [Output::AckDue]);
    assert_eq!(failure(&stream.at(60_001)), &Failure::Silence(Timeout::Stream));
    assert!(stream.link.is_due(stream.now), "a link that was up begins anew at once");
}

#[test]
fn pauses_between_attempts() {
    let (mut play, _) = Play::new(settings(), None);
    let mut out = Vec::new();
    // After a failed attempt the pause grows each time; after a link that breaks off later it hardly does.
    for expected in [1000, 2000, 4000, 8000, 16_000, 16_000] {
        play.step(Input::Connected);
        play.step(Input::GivenUp);
        assert_eq!(play.link.next_tick().0 - play.now.0, expected);
        play.now = play.link.next_tick();
        play.link.begin(settings(), None, play.now, &mut out);
    }
    for expected in [0, 100, 200, 400, 400] {
        play.step(Input::Connected);
        play.bytes(format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {ID} 0\r\n").as_bytes());
        assert_eq!(failure(&play.step(Input::Ended)), &Failure::Ended);
        assert_eq!(play.link.next_tick().0 - play.now.0, expected);
        play.link.begin(settings(), None, play.now, &mut out);
    }
    play.step(Input::Broken("no route"));
    assert_eq!(play.link.next_tick().0 - play.now.0, RETRY_MS);
}

#[test]
fn acknowledging() {
    let text = |bytes: Vec<u8>| sent(&[Output::Send(bytes)]);
    assert_eq!(text(ack(LogOffset(12), None)), "REPLCONF ACK 12");
    assert_eq!(text(ack(LogOffset(12), Some(LogOffset(7)))), "REPLCONF ACK 12 FACK 7");
}

#[test]
fn silence_is_acknowledged_once() {
    let mut play = Play::asked(Some(position(7)));
    assert!(play.step(Input::Quiet).is_empty(), "it does not follow yet");
    play.bytes(format!("+CONTINUE {ID}\r\n").as_bytes());
    assert!(play.step(Input::Quiet).is_empty(), "nothing has come");
    play.bytes(b"*1\r\n$4\r\nPING\r\n");
    assert_eq!(play.step(Input::Quiet), [Output::AckDue]);
    assert!(play.step(Input::Quiet).is_empty());
}

#[test]
fn a_node_that_hands_over_says_so() {
    let settings = Settings { hands_over: true, ..settings() };
    for (position, request) in [
        (Some(position(7)), format!("*4\r\n$5\r\nPSYNC\r\n$40\r\n{ID}\r\n$1\r\n8\r\n$8\r\nFAILOVER\r\n")),
        (None, "*3\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n".to_string()),
    ] {
        let (mut play, _) = Play::new(settings.clone(), position);
        play.step(Input::Connected);
        let out = play.bytes(b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n");
        assert!(out.contains(&Output::Send(request.into_bytes())), "{out:?}");
    }
}
