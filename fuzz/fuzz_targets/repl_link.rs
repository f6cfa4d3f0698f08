//! Any bytes from a primary: no panic, the same whatever the pieces, and nothing of a snapshot without its
//! end.
#![no_main]

use isotherm_log::LogOffset;
use isotherm_log::writer::Ms;
use isotherm_replication::ReplId;
use isotherm_replication::link::{Input, Link, Output, Phase, Position, Settings};
use libfuzzer_sys::fuzz_target;

/// The outcome of an attempt: the parts of the snapshot and of the stream, and what was said and sent.
#[derive(Default, PartialEq, Eq, Debug)]
struct Seen {
    snapshot: Vec<u8>,
    stream: Vec<u8>,
    rest: Vec<Output>,
}

/// Also whether a snapshot may end with a mark, which is looked for where the bytes that came together end.
fn play(bytes: &[u8], piece_bytes: usize, asks: bool) -> (Seen, bool) {
    let settings = Settings { timeout_ms: 1000, ..Settings::default() };
    let id = ReplId::parse(&[b'0'; ReplId::LEN]).expect("forty digits");
    let position = asks.then_some(Position { id, end: LogOffset(7) });
    let (mut link, mut out, mut seen) = (Link::new(settings.clone()), Vec::new(), Seen::default());
    let mut has_mark = false;
    link.begin(settings, position, Ms(0), &mut out);
    link.step(Input::Connected, Ms(0), &mut out);
    for piece in bytes.chunks(piece_bytes) {
        link.step(Input::Bytes(piece), Ms(1), &mut out);
        link.check_invariants();
        for output in out.drain(..) {
            match output {
                Output::SnapshotBytes(range) => seen.snapshot.extend_from_slice(&piece[range]),
                Output::Stream(range) => {
                    assert!(matches!(link.phase(), Phase::Transfer | Phase::Connected));
                    seen.stream.extend_from_slice(&piece[range]);
                }
                Output::SnapshotEnds { mark_bytes } => {
                    assert!(mark_bytes <= seen.snapshot.len());
                    seen.rest.push(Output::SnapshotEnds { mark_bytes });
                }
                Output::Snapshot { bytes } => {
                    has_mark |= bytes.is_none();
                    seen.rest.push(Output::Snapshot { bytes });
                }
                output => seen.rest.push(output),
            }
        }
    }
    (seen, has_mark)
}

fuzz_target!(|input: &[u8]| {
    let [piece, bytes @ ..] = input else { return };
    let asks = piece % 2 == 0;
    let (at_once, has_mark) = play(bytes, usize::MAX >> 1, asks);
    let (in_pieces, _) = play(bytes, usize::from(*piece) + 1, asks);
    if !has_mark {
        assert_eq!(at_once, in_pieces);
    }
});
