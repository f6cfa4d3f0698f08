//! Syncs of the writer, and its reaction to each failure, step by step.

use isotherm_log::LogOffset;
use isotherm_log::writer::{
    AofWriter, FailedCall, Failure, FileId, FsyncPolicy, Input, List, Ms, Output, Segment,
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

struct Steps {
    writer: AofWriter,
    now: Ms,
}

impl Steps {
    /// With its first file created and listed.
    fn new(policy: FsyncPolicy) -> Steps {
        let list = List { base: None, segments: Vec::new() };
        let mut steps = Steps { writer: AofWriter::new(policy, list, LogOffset(0), Ms(0)), now: Ms(0) };
        assert_eq!(steps.step(Input::Tick), [Output::Create { file: FileId(1) }]);
        assert_eq!(steps.step(Input::Done), [list_of(&[(1, 0, None)])]);
        assert_eq!(steps.step(Input::Done), []);
        steps
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.writer.step(input, self.now, &mut outputs);
        self.writer.check_invariants();
        outputs
    }

    fn pass(&mut self, ms: u64) -> Vec<Output> {
        self.now = Ms(self.now.0 + ms);
        self.step(Input::Tick)
    }
}

fn list_of(segments: &[(u64, u64, Option<u64>)]) -> Output {
    let segments = segments.iter().map(|(file, start, len)| Segment {
        file: FileId(*file),
        start: LogOffset(*start),
        len: *len,
    });
    Output::List(List { base: None, segments: segments.collect() })
}

fn write(file: u64, at: u64, from: u64, to: u64) -> Output {
    Output::Write { file: FileId(file), at, from: LogOffset(from), to: LogOffset(to) }
}

fn sync(file: u64) -> Output {
    Output::Sync { file: FileId(file) }
}

fn durable(offset: u64) -> [Output; 2] {
    [Output::Durable(LogOffset(offset)), Output::Release(LogOffset(offset))]
}

fn collected(offset: u64) -> Input {
    Input::Collected(LogOffset(offset))
}

#[test]
fn always_syncs_in_groups() {
    let mut steps = Steps::new(FsyncPolicy::Always);
    assert_eq!(steps.step(collected(10)), [write(1, 0, 0, 10)]);
    assert_eq!(steps.step(collected(20)), []);
    // The file has two bytes of framing after each write.
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), [write(1, 12, 10, 20), sync(1)]);
    assert_eq!(steps.step(collected(30)), []);
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), [write(1, 24, 20, 30)]);
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), []);
    // The sync covers what was written when it began; the next one all the rest.
    let [announced, released] = durable(10);
    assert_eq!(steps.step(Input::Synced), [announced, sync(1), released]);
    assert_eq!(steps.step(Input::Synced), durable(30));
}

/// A start found the disk full: nothing is written to the last file before the list is.
#[test]
fn a_list_that_the_start_could_not_write_comes_first() {
    for policy in [FsyncPolicy::Always, FsyncPolicy::EverySecond, FsyncPolicy::No] {
        let listed = |base, file, start, len| List {
            base: Some(base),
            segments: vec![Segment { file: FileId(file), start: LogOffset(start), len }],
        };
        let (list, mut outputs) = (listed(1, 3, 0, Some(50)), Vec::new());
        let mut writer = AofWriter::unlisted(policy, list, LogOffset(40), ENOSPC, &mut outputs);
        writer.skip_to(7);
        let mut steps = Steps { writer, now: Ms(0) };
        let failure = Failure { call: FailedCall::List, errno: ENOSPC };
        assert_eq!(outputs, [Output::RefuseWrites(failure)]);
        // Frames of no client, a cut and a base wait for it.
        for input in [collected(60), Input::FileEnd(LogOffset(60)), Input::Flush] {
            assert_eq!(steps.step(input), []);
        }
        assert_eq!(steps.step(Input::BaseSaved { base: 2, cut: LogOffset(60) }), []);
        assert_eq!(steps.pass(999), []);
        let list = Output::List(listed(1, 3, 0, None));
        assert_eq!(steps.pass(1), std::slice::from_ref(&list));
        assert_eq!(steps.step(Input::Failed { errno: EDQUOT }), []);
        assert_eq!(steps.writer.next_tick(), Some(Ms(2000)));
        assert_eq!(steps.pass(1000), [list]);
        assert_eq!(steps.step(Input::Done), [Output::AcceptWrites, write(3, 50, 40, 60)]);
        assert!(steps.step(Input::Wrote { file_bytes: 20 }).contains(&sync(3)));
        // The number after those that names have.
        assert!(steps.step(Input::Synced).contains(&Output::Create { file: FileId(8) }));
        steps.step(Input::Done);
        assert!(steps.step(Input::Done).contains(&Output::List(listed(2, 8, 60, None))));
    }
}

#[test]
fn every_second_syncs_once_a_second() {
    let mut steps = Steps::new(FsyncPolicy::EverySecond);
    steps.step(collected(10));
    assert_eq!(steps.step(Input::Wrote { file_bytes: 10 }), []);
    assert_eq!(steps.writer.next_tick(), Some(Ms(1000)));
    assert_eq!(steps.pass(999), []);
    assert_eq!(steps.pass(1), [sync(1)]);
    assert_eq!(steps.step(Input::Synced), durable(10));
    assert_eq!(steps.writer.next_tick(), None);
    assert_eq!(steps.pass(5000), [], "nothing was written");
}

#[test]
fn every_second_syncs_before_too_much_is_kept_for_it() {
    let mut steps = Steps::new(FsyncPolicy::EverySecond);
    steps.writer.set_unsynced_bytes_max(20);
    steps.step(collected(19));
    assert_eq!(steps.step(Input::Wrote { file_bytes: 19 }), []);
    assert_eq!(steps.step(collected(20)), [write(1, 19, 19, 20)]);
    assert_eq!(steps.step(Input::Wrote { file_bytes: 1 }), [sync(1)]);
    steps.step(collected(60));
    assert_eq!(steps.step(Input::Wrote { file_bytes: 40 }), [], "one at a time");
    let [announced, released] = durable(20);
    assert_eq!(steps.step(Input::Synced), [announced, sync(1), released]);
    assert_eq!(steps.step(Input::Synced), durable(60));
    assert_eq!(steps.writer.next_tick(), None);
}

#[test]
fn no_releases_what_is_written_and_syncs_when_asked() {
    let mut steps = Steps::new(FsyncPolicy::No);
    steps.step(collected(10));
    assert_eq!(steps.step(Input::Wrote { file_bytes: 10 }), [Output::Release(LogOffset(10))]);
    assert_eq!(steps.pass(5000), []);
    assert_eq!(steps.step(Input::Flush), [sync(1)]);
    assert_eq!(steps.step(Input::Synced), [Output::Durable(LogOffset(10)), Output::Flushed]);
    assert_eq!(steps.step(Input::Policy(FsyncPolicy::Always)), []);
}

#[test]
fn a_change_to_always_syncs_at_once() {
    let mut steps = Steps::new(FsyncPolicy::EverySecond);
    steps.step(collected(10));
    steps.step(Input::Wrote { file_bytes: 10 });
    assert_eq!(steps.step(Input::Policy(FsyncPolicy::Always)), [sync(1)]);
}

#[test]
fn a_failed_write_is_cut_off_and_repeated_each_second() {
    let mut steps = Steps::new(FsyncPolicy::EverySecond);
    steps.step(collected(10));
    steps.step(Input::Wrote { file_bytes: 11 });
    assert_eq!(steps.step(collected(20)), [write(1, 11, 10, 20)]);
    let failure = Failure { call: FailedCall::Write, errno: 28 };
    let cut = Output::SetLen { file: FileId(1), len: 11 };
    assert_eq!(steps.step(Input::Failed { errno: 28 }), [Output::RefuseWrites(failure), cut.clone()]);
    assert_eq!(steps.step(Input::Done), []);
    assert_eq!(steps.writer.failure(), Some(failure));
    assert_eq!(steps.step(collected(30)), [], "not before the second is over");
    assert_eq!(steps.pass(1000), [write(1, 11, 10, 30), sync(1)]);
    assert_eq!(steps.step(Input::Failed { errno: 28 }), [cut]);
    assert_eq!(steps.step(Input::Failed { errno: EIO }), [], "the cut may fail too");
    assert_eq!(steps.step(Input::Synced), durable(10), "what was written before is synced meanwhile");
    assert_eq!(steps.pass(1000), [write(1, 11, 10, 30)]);
    assert_eq!(steps.step(Input::Wrote { file_bytes: 21 }), [Output::AcceptWrites, sync(1)]);
    assert_eq!(steps.writer.failure(), None);
}

#[test]
fn a_failed_sync_moves_what_is_not_durable_to_a_new_file() {
    let mut steps = Steps::new(FsyncPolicy::Always);
    steps.step(collected(10));
    steps.step(Input::Wrote { file_bytes: 12 });
    steps.step(Input::Synced);
    steps.step(collected(20));
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), [sync(1)]);
    assert_eq!(steps.step(collected(30)), [write(1, 24, 20, 30)]);
    let failure = Failure { call: FailedCall::Sync, errno: EIO };
    assert_eq!(steps.step(Input::SyncFailed { errno: EIO }), [Output::RefuseWrites(failure)]);
    // The write under way ends, and counts for nothing.
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), [Output::Create { file: FileId(2) }]);
    assert_eq!(steps.step(Input::Done), [Output::SetLen { file: FileId(1), len: 12 }]);
    assert_eq!(steps.step(Input::Done), [list_of(&[(1, 0, Some(12)), (2, 10, None)])]);
    assert_eq!(steps.step(Input::Done), [Output::Close { file: FileId(1) }, write(2, 0, 10, 30)]);
    assert_eq!(steps.step(Input::Wrote { file_bytes: 22 }), [sync(2)]);
    let [announced, released] = durable(30);
    assert_eq!(steps.step(Input::Synced), [announced, Output::AcceptWrites, released]);
}

#[test]
fn a_file_in_which_nothing_is_durable_is_dropped() {
    let mut steps = Steps::new(FsyncPolicy::Always);
    steps.step(collected(10));
    steps.step(Input::Wrote { file_bytes: 12 });
    let outputs = steps.step(Input::SyncFailed { errno: EIO });
    assert_eq!(outputs[1..], [Output::Create { file: FileId(2) }]);
    assert_eq!(steps.step(Input::Done), [list_of(&[(2, 0, None)])]);
    let (close, remove) = (Output::Close { file: FileId(1) }, Output::Remove { file: FileId(1) });
    assert_eq!(steps.step(Input::Done), [close, remove, write(2, 0, 0, 10)]);
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), [sync(2)]);
    // The second failure in a row waits, so that a broken disk does not fill with files.
    assert_eq!(steps.step(Input::SyncFailed { errno: EIO }), []);
    assert_eq!(steps.pass(1000), [Output::Create { file: FileId(3) }]);
}

#[test]
fn under_always_ten_seconds_of_failure_end_the_process() {
    for policy in [FsyncPolicy::Always, FsyncPolicy::EverySecond] {
        let mut steps = Steps::new(policy);
        steps.step(collected(10));
        let mut exits = Vec::new();
        for second in 0..=10 {
            exits.extend(steps.step(Input::Failed { errno: EIO }));
            exits.extend(steps.step(Input::Done));
            exits.retain(|output| matches!(output, Output::Exit(_)));
            assert!(second == 10 || exits.is_empty(), "after {second} s");
            assert_eq!(steps.pass(1000)[0], write(1, 0, 0, 10));
        }
        let failure = Failure { call: FailedCall::Write, errno: EIO };
        let expected = if policy == FsyncPolicy::Always { Some(&Output::Exit(failure)) } else { None };
        assert_eq!(exits.first(), expected);
    }
}

#[test]
fn a_full_disk_is_waited_for() {
    for policy in [FsyncPolicy::Always, FsyncPolicy::EverySecond] {
        let mut steps = Steps::new(policy);
        steps.step(collected(10));
        let mut given_up = Vec::new();
        for second in 0..=60 {
            let mut outputs = steps.step(Input::Failed { errno: [ENOSPC, EDQUOT][second % 2] });
            outputs.extend(steps.step(Input::Done));
            outputs.extend(steps.pass(1000));
            assert!(outputs.contains(&write(1, 0, 0, 10)));
            assert!(!outputs.iter().any(|output| matches!(output, Output::Exit(_))));
            given_up.extend(outputs.contains(&Output::GiveUp).then_some(second));
        }
        assert_eq!(given_up, if policy == FsyncPolicy::Always { vec![9] } else { vec![] });
        // From here on it is another failure, which has its own time.
        let mut exits = Vec::new();
        for _ in 0..9 {
            exits.extend(steps.step(Input::Failed { errno: EIO }));
            exits.extend(steps.step(Input::Done));
            steps.pass(1000);
        }
        assert!(!exits.iter().any(|output| matches!(output, Output::Exit(_))));
        assert!(steps.step(Input::Wrote { file_bytes: 12 }).contains(&Output::AcceptWrites));
    }
}

#[test]
fn a_file_ends_at_the_cut_and_is_synced_before_the_next_is_listed() {
    let mut steps = Steps::new(FsyncPolicy::EverySecond);
    assert_eq!(steps.step(collected(10)), [write(1, 0, 0, 10)]);
    steps.step(Input::FileEnd(LogOffset(10)));
    steps.step(collected(20));
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), [sync(1)]);
    let [announced, released] = durable(10);
    assert_eq!(steps.step(Input::Synced), [announced, Output::Create { file: FileId(2) }, released]);
    assert_eq!(steps.writer.file_at(LogOffset(10)), None);
    assert_eq!(steps.step(Input::Done), [list_of(&[(1, 0, Some(12)), (2, 10, None)])]);
    assert_eq!(steps.step(Input::Done), [Output::Close { file: FileId(1) }, write(2, 0, 10, 20)]);
    assert_eq!(steps.writer.file_at(LogOffset(10)), Some(FileId(2)));
    steps.step(Input::Wrote { file_bytes: 12 });
    // The base of that cut replaces the first file.
    let outputs = steps.step(Input::BaseSaved { base: 7, cut: LogOffset(10) });
    let segments = vec![Segment { file: FileId(2), start: LogOffset(10), len: None }];
    assert_eq!(outputs, [Output::List(List { base: Some(7), segments })]);
    assert_eq!(steps.step(Input::Done), [Output::Remove { file: FileId(1) }]);
}

#[test]
fn each_cut_ends_a_file_and_be_it_empty() {
    let mut steps = Steps::new(FsyncPolicy::Always);
    for file in 2..4 {
        assert_eq!(steps.step(Input::FileEnd(LogOffset(0))), [Output::Create { file: FileId(file) }]);
        let empty = (1..file).map(|file| (file, 0, Some(0)));
        let listed: Vec<_> = empty.chain([(file, 0, None)]).collect();
        assert_eq!(steps.step(Input::Done), [list_of(&listed)]);
        assert_eq!(steps.step(Input::Done), [Output::Close { file: FileId(file - 1) }]);
        assert_eq!(steps.writer.file_at(LogOffset(0)), Some(FileId(file)));
    }
    // A base of that place replaces the empty ones too.
    let segments = vec![Segment { file: FileId(3), start: LogOffset(0), len: None }];
    let outputs = steps.step(Input::BaseSaved { base: 7, cut: LogOffset(0) });
    assert_eq!(outputs, [Output::List(List { base: Some(7), segments })]);
    assert_eq!(steps.step(Input::Done), [1, 2].map(|file| Output::Remove { file: FileId(file) }));
    assert_eq!(steps.step(collected(10)), [write(3, 0, 0, 10)]);
}

#[test]
fn the_first_cut_of_a_writer_that_awaits_its_base_is_where_its_first_file_begins() {
    for is_late in [false, true] {
        let (none, start) = (List { base: None, segments: Vec::new() }, LogOffset(100));
        let writer = AofWriter::awaiting_base(FsyncPolicy::Always, none, start, Ms(0));
        let mut steps = Steps { writer, now: Ms(0) };
        let first = if is_late { Input::Tick } else { Input::FileEnd(start) };
        assert_eq!(steps.step(first), [Output::Create { file: FileId(1) }]);
        assert_eq!(steps.step(Input::Done), []);
        if is_late {
            assert_eq!(steps.step(Input::FileEnd(start)), []);
        }
        assert_eq!(steps.step(collected(110)), [write(1, 0, 100, 110)]);
    }
}

#[test]
fn a_list_that_fails_is_tried_again_and_nothing_is_written_before() {
    let list = List { base: Some(3), segments: Vec::new() };
    let writer = AofWriter::new(FsyncPolicy::Always, list, LogOffset(5), Ms(0));
    let mut steps = Steps { writer, now: Ms(0) };
    assert_eq!(steps.step(collected(10)), [Output::Create { file: FileId(1) }]);
    let failure = Failure { call: FailedCall::Create, errno: EIO };
    assert_eq!(steps.step(Input::Failed { errno: EIO }), [Output::RefuseWrites(failure)]);
    assert_eq!(steps.pass(1000), [Output::Create { file: FileId(1) }]);
    steps.step(Input::Done);
    assert_eq!(steps.step(Input::Failed { errno: EIO }), []);
    assert_eq!(steps.pass(1000).len(), 1, "the list again");
    assert_eq!(steps.step(Input::Done), [Output::AcceptWrites, write(1, 0, 5, 10)]);
}

#[test]
fn under_no_a_failed_sync_asks_for_a_base() {
    let mut steps = Steps::new(FsyncPolicy::No);
    steps.step(collected(10));
    steps.step(Input::Wrote { file_bytes: 12 });
    assert_eq!(steps.step(Input::FileEnd(LogOffset(10))), [sync(1)]);
    let outputs = steps.step(Input::SyncFailed { errno: EIO });
    assert_eq!(outputs[1..], [Output::BaseNeeded, Output::Create { file: FileId(2) }]);
    steps.step(Input::Done);
    assert_eq!(steps.step(Input::Done), [list_of(&[(1, 0, Some(12)), (2, 10, None)])]);
    assert_eq!(steps.step(Input::Done), [Output::Close { file: FileId(1) }, Output::AcceptWrites]);
}

#[test]
fn a_base_that_is_being_listed_when_a_sync_fails_is_listed_later() {
    let mut steps = Steps::new(FsyncPolicy::Always);
    steps.step(collected(10));
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), [sync(1)]);
    let listed = steps.step(Input::BaseSaved { base: 7, cut: LogOffset(0) });
    assert!(matches!(&listed[..], [Output::List(List { base: Some(7), .. })]));
    steps.step(Input::SyncFailed { errno: EIO });
    // Whether the list was written or not: the next one counts.
    assert_eq!(steps.step(Input::Done), [Output::Create { file: FileId(2) }]);
    assert_eq!(steps.step(Input::Done), [list_of(&[(2, 0, None)])]);
    let outputs = steps.step(Input::Done);
    assert!(matches!(outputs.last(), Some(Output::List(List { base: Some(7), .. }))), "{outputs:?}");
    assert_eq!(steps.step(Input::Done), [write(2, 0, 0, 10)]);
}

#[test]
fn a_writer_that_awaits_its_base_lists_nothing_before() {
    let segment = |file, start, len| Segment { file: FileId(file), start: LogOffset(start), len };
    // Of another history: its offsets mean nothing here.
    let before = List { base: Some(1), segments: vec![segment(4, 1_000, None)] };
    let writer = AofWriter::awaiting_base(FsyncPolicy::Always, before, LogOffset(100), Ms(0));
    let mut steps = Steps { writer, now: Ms(0) };
    assert_eq!(steps.step(collected(110)), [Output::Create { file: FileId(5) }]);
    assert_eq!(steps.step(Input::Done), [write(5, 0, 100, 110)]);
    assert_eq!(steps.step(Input::Wrote { file_bytes: 12 }), [sync(5)]);
    assert_eq!(steps.step(Input::Synced), [Output::Release(LogOffset(110))], "not durable yet");
    steps.step(Input::FileEnd(LogOffset(110)));
    assert_eq!(steps.step(Input::Done), [Output::Close { file: FileId(5) }]);
    steps.step(collected(120));
    steps.step(Input::Wrote { file_bytes: 12 });
    assert_eq!(steps.step(Input::SyncFailed { errno: EIO })[1..], [Output::Create { file: FileId(7) }]);
    let outputs = steps.step(Input::Done);
    let (close, remove) = (Output::Close { file: FileId(6) }, Output::Remove { file: FileId(6) });
    assert_eq!(outputs, [close, remove, write(7, 0, 110, 120)]);
    let outputs = steps.step(Input::BaseSaved { base: 9, cut: LogOffset(110) });
    assert_eq!(outputs, []);
    let segments = vec![segment(7, 110, None)];
    let outputs = steps.step(Input::Wrote { file_bytes: 12 });
    assert_eq!(outputs, [Output::List(List { base: Some(9), segments }), sync(7)]);
    let removed = [FileId(5), FileId(4)].map(|file| Output::Remove { file });
    let announced = Output::Durable(LogOffset(110));
    assert_eq!(steps.step(Input::Done), [&removed[..], &[announced]].concat());
    let [announced, released] = durable(120);
    assert_eq!(steps.step(Input::Synced), [announced, Output::AcceptWrites, released]);
}
