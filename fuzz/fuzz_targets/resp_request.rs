//! Any bytes, cut anywhere: the parser must not panic, must hear the same requests as from the whole, and
//! must hold no more memory than the bytes account for. The requests that it hears, written as requests
//! again, must be heard again.
#![no_main]

use isotherm_resp::{Args, ArgsBuf, Limits, Parsed, Parser, ProtocolError, Span};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [settings, piece, stream @ ..] = input else { return };
    let limits = Limits {
        authenticated: settings & 1 == 0,
        bulk_bytes_max: if settings & 2 == 0 { 512 << 20 } else { 100 },
        multibulk_len_max: if settings & 4 == 0 { i64::from(i32::MAX) } else { 20 },
        ..Limits::default()
    };
    // Whether a line is too long depends on how much of it has arrived: left to the unit tests.
    if stream.len() > limits.inline_bytes_max {
        return;
    }
    let whole = hear(stream, stream.len().max(1), &limits);
    let pieces = hear(stream, usize::from(*piece).max(1), &limits);
    assert_eq!(whole, pieces);

    let mut again = Vec::new();
    whole.0.iter().for_each(|request| push_request(&mut again, request.args()));
    let lenient = Limits::default();
    assert_eq!(hear(&again, again.len().max(1), &lenient), (whole.0, None));
});

fn hear(stream: &[u8], piece: usize, limits: &Limits) -> (Vec<ArgsBuf>, Option<ProtocolError>) {
    let mut parser = Parser::new();
    let mut buf: Vec<u8> = Vec::new();
    let mut requests = Vec::new();
    let mut spans: Vec<Span> = Vec::new();
    for bytes in stream.chunks(piece) {
        buf.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            spans.clear();
            let parsed = parser.parse(&mut buf[at..], limits, &mut spans);
            assert!(parser.memory_bytes() <= 64 + 4 * stream.len());
            match parsed {
                Parsed::Request { consumed } => {
                    requests.push(ArgsBuf::from(Args::new(&buf[at..], &spans)));
                    at += consumed;
                }
                Parsed::Empty { consumed } => at += consumed,
                Parsed::Incomplete { wanted } => {
                    assert!(wanted > 0);
                    break;
                }
                Parsed::Error(error) => return (requests, Some(error)),
            }
        }
        buf.drain(..at);
    }
    (requests, None)
}

fn push_request(out: &mut Vec<u8>, args: Args<'_>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args.iter() {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}
