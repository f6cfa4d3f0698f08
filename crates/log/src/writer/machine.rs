//! The states of the writer, and what leads from one to the next.
//!
//! ```text
//!   write side   idle -> Write -> idle                         retry after a failure: SetLen, a second, again
//!                     -> Create -> [SetLen] -> List -> idle    the change of files: first, at a cut, after a failed sync
//!                     -> List -> idle                          a new base
//!   sync side    idle -> Sync -> idle                          after a failure: a change of files
//! ```

use super::{FailedCall, Failure, FileId, FsyncPolicy, Input, List, Ms, Output, Segment};
use crate::offset::LogOffset;
use std::collections::VecDeque;

/// A write that failed takes no more than about this with it.
const WRITE_BYTES_MAX: u64 = 1 << 20;

const RETRY_MS: u64 = 1000;
const SYNC_INTERVAL_MS: u64 = 1000;
/// Under `always`, replies wait no longer than this for a disk that fails.
const PATIENCE_MS: u64 = 10_000;

/// A place in the log, and where it is in the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    offset: LogOffset,
    file: FileId,
    position: u64,
}

/// The place after some frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Boundary {
    offset: LogOffset,
    ends_file: bool,
}

/// Current call of the log thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Write {
        to: LogOffset,
    },
    /// Cuts off what a failed write has left.
    Clean,
    /// A step of the change.
    Change,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Create,
    Cut,
    List,
}

/// Why the list of files changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// The first file, or a cut.
    NextFile,
    FailedSync,
    NewBase,
    /// A list that the start could not write. The files stay the same.
    Unlisted,
}

/// A change of the list of files.
struct Change {
    cause: Cause,
    stage: Stage,
    list: List,
    /// Place at which the log continues in a new file; none for a new base.
    next: Option<Mark>,
    /// Place at which the file that failed is cut.
    keep: Option<Mark>,
}

/// Something that fails, and since when.
struct Trouble {
    since: Ms,
    failure: Failure,
    /// Call that has to succeed before the trouble is over.
    awaits: FailedCall,
    /// Last moment at which the disk was found to be full.
    full_at: Option<Ms>,
    has_given_up: bool,
}

impl Trouble {
    fn new(failure: Failure, now: Ms) -> Trouble {
        let full_at = failure.is_full_disk().then_some(now);
        Trouble { since: now, failure, awaits: failure.call, full_at, has_given_up: false }
    }

    fn note(&mut self, failure: Failure, now: Ms) {
        self.failure = failure;
        if failure.is_full_disk() {
            self.full_at = Some(now);
        }
        if failure.call.rank() > self.awaits.rank() {
            self.awaits = failure.call;
        }
    }
}

pub struct AofWriter {
    policy: FsyncPolicy,
    /// Bytes that are kept for a sync that fails, before one is made ahead of its second.
    unsynced_bytes_max: u64,
    list: List,
    file_next: u64,
    start: LogOffset,
    /// Everything after `released`, in order; a written boundary stays until it is not needed any more.
    boundaries: VecDeque<Boundary>,
    collected: LogOffset,
    marks: Option<Marks>,
    announced: LogOffset,
    call: Option<Call>,
    /// The result of the call is of no more interest.
    is_call_stale: bool,
    change: Option<Change>,
    /// A sync under way covers this.
    syncing: Option<Mark>,
    /// A sync has failed, and the change that follows waits for the call.
    has_failed_sync: bool,
    new_base: Option<(u64, LogOffset)>,
    /// Files of the list that the coming base replaces. Until that base exists no file is listed.
    awaits_base: Option<Vec<FileId>>,
    synced_at: Ms,
    retry_at: Ms,
    trouble: Option<Trouble>,
    flush_to: Option<LogOffset>,
}

/// Progress in the file that is written.
#[derive(Clone, Copy, Debug)]
struct Marks {
    released: Mark,
    durable: Mark,
    written: Mark,
}

impl Marks {
    fn at(mark: Mark) -> Marks {
        Marks { released: mark, durable: mark, written: mark }
    }
}

impl AofWriter {
    /// A writer that begins with a new file at `start`, after those of `list`.
    pub fn new(policy: FsyncPolicy, list: List, start: LogOffset, now: Ms) -> AofWriter {
        AofWriter {
            policy,
            unsynced_bytes_max: u64::MAX,
            file_next: list.segments.last().map_or(1, |segment| segment.file.0 + 1),
            list,
            start,
            boundaries: VecDeque::new(),
            collected: start,
            marks: None,
            announced: start,
            call: None,
            is_call_stale: false,
            change: None,
            syncing: None,
            has_failed_sync: false,
            new_base: None,
            awaits_base: None,
            synced_at: now,
            retry_at: now,
            trouble: None,
            flush_to: None,
        }
    }

    /// A writer that continues in the last file of `list`, which has been cut to its length and synced, or
    /// with the first file. The log ends at `end`.
    pub fn resume(policy: FsyncPolicy, mut list: List, end: LogOffset, now: Ms) -> AofWriter {
        let Some(last) = list.segments.last_mut() else { return AofWriter::new(policy, list, end, now) };
        let position = last.len.take().expect("its length");
        let mark = Mark { offset: end, file: last.file, position };
        AofWriter { marks: Some(Marks::at(mark)), ..AofWriter::new(policy, list, end, now) }
    }

    /// A writer that continues so after the list could not be written: nothing is written to the last file
    /// before that has succeeded. Without a file the first one is listed before a byte is written.
    pub fn unlisted(
        policy: FsyncPolicy,
        list: List,
        end: LogOffset,
        errno: i32,
        outputs: &mut Vec<Output>,
    ) -> AofWriter {
        let mut writer = AofWriter::resume(policy, list, end, Ms(0));
        if writer.marks.is_some() {
            let (cause, stage, list) = (Cause::Unlisted, Stage::List, writer.list.clone());
            writer.change = Some(Change { cause, stage, list, next: None, keep: None });
            writer.call = Some(Call::Change);
            writer.failed(errno, Ms(0), outputs);
        }
        writer
    }

    /// A writer that is switched on while there is data: its files are listed with the first base, and until
    /// then `before` is what a start reads. Nothing is announced as durable before.
    pub fn awaiting_base(policy: FsyncPolicy, before: List, start: LogOffset, now: Ms) -> AofWriter {
        let file_next = before.segments.last().map_or(1, |segment| segment.file.0 + 1);
        let old = before.segments.iter().map(|segment| segment.file).collect();
        let list = List { base: None, segments: Vec::new() };
        AofWriter { file_next, awaits_base: Some(old), ..AofWriter::new(policy, list, start, now) }
    }

    /// Leaves out the numbers up to this one: names of listed files have them.
    pub fn skip_to(&mut self, number: u64) {
        self.file_next = self.file_next.max(number + 1);
    }

    /// Bounds the bytes that are written and not synced under `everysec`, which are kept in memory. One sync
    /// is under way at most: more of them come while it takes.
    pub fn set_unsynced_bytes_max(&mut self, bytes: u64) {
        self.unsynced_bytes_max = bytes;
    }

    /// Takes one input; `outputs` gets what is to be done, in its order.
    pub fn step(&mut self, input: Input, now: Ms, outputs: &mut Vec<Output>) {
        match input {
            Input::Tick => {}
            Input::Collected(offset) => self.collect(Boundary { offset, ends_file: false }),
            Input::FileEnd(offset) => self.collect(Boundary { offset, ends_file: true }),
            Input::BaseSaved { base, cut } => self.new_base = Some((base, cut)),
            Input::Policy(policy) => self.policy = policy,
            Input::Flush => self.flush_to = Some(self.collected),
            Input::Wrote { file_bytes } => self.wrote(file_bytes, outputs),
            Input::Done => self.done(outputs),
            Input::Failed { errno } => self.failed(errno, now, outputs),
            Input::Synced => self.synced(outputs),
            Input::SyncFailed { errno } => self.sync_failed(errno, now, outputs),
        }
        self.go_on_writing(outputs, now);
        self.go_on_syncing(outputs, now);
        self.release(outputs);
        self.check_flush(outputs);
        self.check_patience(now, outputs);
    }

    /// Returns the time at which `Tick` is next of use, if nothing else happens.
    pub fn next_tick(&self) -> Option<Ms> {
        let retry = self.trouble.as_ref().map(|_| self.retry_at);
        let sync = (self.policy == FsyncPolicy::EverySecond && self.unsynced().is_some())
            .then_some(Ms(self.synced_at.0 + SYNC_INTERVAL_MS));
        retry.into_iter().chain(sync).min()
    }

    /// Returns the start of the file that is being created or listed.
    pub fn next_file_start(&self) -> Option<LogOffset> {
        self.change.as_ref()?.next.map(|next| next.offset)
    }

    /// The file that begins at a cut, once it is listed.
    pub fn file_at(&self, start: LogOffset) -> Option<FileId> {
        let found = self.list.segments.iter().rev().find(|segment| segment.start == start);
        found.map(|segment| segment.file)
    }

    pub fn durable(&self) -> LogOffset {
        self.announced
    }

    /// Returns the list that the manifest has.
    pub fn list(&self) -> &List {
        &self.list
    }

    /// Returns how many bytes of the file that is written are durable.
    pub fn durable_bytes(&self) -> u64 {
        self.marks.map_or(0, |marks| marks.durable.position)
    }

    pub fn written(&self) -> LogOffset {
        self.marks.map_or(self.start, |marks| marks.written.offset)
    }

    /// Returns whether a base is awaited. Until it exists, nothing that the writer writes counts.
    pub fn is_awaiting_base(&self) -> bool {
        self.awaits_base.is_some()
    }

    /// Returns the bytes of the log in the listed files.
    pub fn log_bytes(&self) -> u64 {
        let complete: u64 = self.list.segments.iter().filter_map(|segment| segment.len).sum();
        complete + self.marks.map_or(0, |marks| marks.written.position)
    }

    pub fn failure(&self) -> Option<Failure> {
        self.trouble.as_ref().map(|trouble| trouble.failure)
    }

    fn collect(&mut self, boundary: Boundary) {
        assert!(boundary.offset >= self.collected, "the log only grows");
        self.collected = boundary.offset;
        self.boundaries.push_back(boundary);
    }

    // The write side.

    fn go_on_writing(&mut self, outputs: &mut Vec<Output>, now: Ms) {
        if self.call.is_some() || self.trouble.is_some() && now < self.retry_at {
            return;
        }
        self.begin_change(outputs);
        if let Some(change) = &self.change {
            let output = match change.stage {
                Stage::Create => change.next.map(|next| Output::Create { file: next.file }),
                Stage::Cut => change.keep.map(|keep| Output::SetLen { file: keep.file, len: keep.position }),
                Stage::List => Some(Output::List(change.list.clone())),
            };
            outputs.push(output.expect("each stage has what it needs"));
            self.call = Some(Call::Change);
            return;
        }
        let written = self.marks.expect("without a file there is a change").written;
        if let Some(to) = self.write_end(written.offset) {
            let Mark { offset: from, file, position: at } = written;
            outputs.push(Output::Write { file, at, from, to });
            self.call = Some(Call::Write { to });
        }
    }

    /// Returns the end of the next write: it covers whole frames, does not go over the end of a file, and
    /// does not go far beyond the maximum.
    fn write_end(&self, from: LogOffset) -> Option<LogOffset> {
        if self.is_at_file_end() {
            return None;
        }
        let first = self.boundaries.partition_point(|boundary| boundary.offset <= from);
        let mut end = None;
        for boundary in self.boundaries.range(first..) {
            if end.is_some() && boundary.offset - from > WRITE_BYTES_MAX {
                break;
            }
            end = Some(boundary.offset);
            if boundary.ends_file {
                break;
            }
        }
        end
    }

    /// The file is complete: what follows belongs to another.
    fn is_at_file_end(&self) -> bool {
        let Some(Marks { written, .. }) = self.marks else { return false };
        let first = self.boundaries.partition_point(|boundary| boundary.offset < written.offset);
        let mut here =
            self.boundaries.range(first..).take_while(|boundary| boundary.offset == written.offset);
        here.any(|boundary| boundary.ends_file)
    }

    /// A file begins at `start`. A cut there that comes later ends it, empty as it is.
    fn pass_file_ends(&mut self, start: LogOffset) {
        let first = self.boundaries.partition_point(|boundary| boundary.offset < start);
        let here = self.boundaries.range_mut(first..).take_while(|boundary| boundary.offset == start);
        here.for_each(|boundary| boundary.ends_file = false);
    }

    /// Begins the change of the list that has to come before the next write, if there is one.
    fn begin_change(&mut self, outputs: &mut Vec<Output>) {
        if std::mem::take(&mut self.has_failed_sync) {
            self.change = Some(self.restart(outputs));
        }
        if self.change.is_some() {
            return;
        }
        let Some(Marks { durable, written, .. }) = self.marks else {
            self.change = Some(self.next_file(self.list.clone(), None, self.start));
            return;
        };
        if self.awaits_base.is_some() && written.offset == self.start {
            // The cut of the first base: the first file begins there.
            self.pass_file_ends(written.offset);
        }
        if self.is_at_file_end() {
            if durable == written {
                self.change = Some(self.next_file(self.list.clone(), Some(written), written.offset));
            }
        } else if let Some((base, cut)) = self.new_base
            && let Some(first) = self.file_at(cut)
        {
            let mut list = self.list.clone();
            list.base = Some(base);
            list.segments.retain(|segment| segment.file >= first);
            self.change =
                Some(Change { cause: Cause::NewBase, stage: Stage::List, list, next: None, keep: None });
        }
    }

    /// A new file after those of `list`. The last of them ends at `end`.
    fn next_file(&mut self, mut list: List, end: Option<Mark>, start: LogOffset) -> Change {
        self.pass_file_ends(start);
        let file = FileId(self.file_next);
        self.file_next += 1;
        if let (Some(last), Some(end)) = (list.segments.last_mut(), end) {
            last.len = Some(end.position);
        }
        list.segments.push(Segment { file, start, len: None });
        let next = Some(Mark { offset: start, file, position: 0 });
        Change { cause: Cause::NextFile, stage: Stage::Create, list, next, keep: None }
    }

    /// After a failed sync: what is not durable goes to a new file.
    fn restart(&mut self, outputs: &mut Vec<Output>) -> Change {
        let Marks { durable, released, .. } = self.marks.expect("a file was synced");
        let mut keep = Some(durable);
        if released.offset > durable.offset {
            // Memory has it no more, and the old file may have it or not.
            outputs.push(Output::BaseNeeded);
            keep = Some(released);
        }
        let mut list = self.list.clone();
        let start = keep.map_or(durable.offset, |keep| keep.offset);
        if keep.is_some_and(|keep| keep.position == 0) {
            list.segments.pop();
            keep = None;
        }
        Change { cause: Cause::FailedSync, keep, ..self.next_file(list, keep, start) }
    }

    fn wrote(&mut self, file_bytes: u64, outputs: &mut Vec<Output>) {
        let Some(Call::Write { to }) = self.call.take() else { panic!("no write was under way") };
        if std::mem::take(&mut self.is_call_stale) {
            return;
        }
        let written = &mut self.marks.as_mut().expect("a file is written").written;
        (written.offset, written.position) = (to, written.position + file_bytes);
        self.recover(FailedCall::Write, outputs);
    }

    fn done(&mut self, outputs: &mut Vec<Output>) {
        let call = self.call.take().expect("a call was under way");
        if std::mem::take(&mut self.is_call_stale) || call == Call::Clean {
            return;
        }
        let change = self.change.as_mut().expect("a change was under way");
        let is_unlisted = self.awaits_base.is_some() && change.cause != Cause::NewBase;
        change.stage = match change.stage {
            Stage::Create if change.keep.is_some() => Stage::Cut,
            Stage::Create | Stage::Cut if !is_unlisted => Stage::List,
            Stage::Create | Stage::Cut | Stage::List => return self.end_change(outputs),
        };
    }

    fn end_change(&mut self, outputs: &mut Vec<Output>) {
        let change = self.change.take().expect("it has ended");
        let before = std::mem::replace(&mut self.list, change.list);
        if let (Some(marks), Some(_)) = (&self.marks, change.next) {
            outputs.push(Output::Close { file: marks.written.file });
        }
        for segment in &before.segments {
            if !self.list.segments.iter().any(|kept| kept.file == segment.file) {
                outputs.push(Output::Remove { file: segment.file });
            }
        }
        match change.next {
            Some(next) => {
                let is_all = next.offset == self.collected;
                self.marks = Some(Marks::at(next));
                let is_restarted = change.cause == Cause::FailedSync && is_all;
                self.recover(if is_restarted { FailedCall::Sync } else { FailedCall::List }, outputs);
            }
            None if change.cause == Cause::Unlisted => self.recover(FailedCall::List, outputs),
            None => {
                self.new_base = None;
                let old = self.awaits_base.take().unwrap_or_default();
                outputs.extend(old.into_iter().map(|file| Output::Remove { file }));
                self.announce(outputs);
                self.recover(FailedCall::List, outputs);
            }
        }
    }

    fn failed(&mut self, errno: i32, now: Ms, outputs: &mut Vec<Output>) {
        let call = self.call.take().expect("a call was under way");
        self.retry_at = Ms(now.0 + RETRY_MS);
        let is_stale = std::mem::take(&mut self.is_call_stale);
        let stage = self.change.as_ref().map(|change| change.stage);
        match (call, stage) {
            _ if is_stale => self.retry_at = now,
            (Call::Write { .. }, _) => {
                self.refuse(Failure { call: FailedCall::Write, errno }, now, outputs);
                let Mark { file, position: len, .. } = self.marks.expect("a file is written").written;
                outputs.push(Output::SetLen { file, len });
                self.call = Some(Call::Clean);
            }
            // The next try writes over what was to be cut off.
            (Call::Clean, _) => {}
            // The list has the length that counts.
            (Call::Change, Some(Stage::Cut)) => {
                self.retry_at = now;
                self.call = Some(call);
                self.done(outputs);
            }
            (Call::Change, Some(Stage::Create)) => {
                self.refuse(Failure { call: FailedCall::Create, errno }, now, outputs);
            }
            (Call::Change, _) => self.refuse(Failure { call: FailedCall::List, errno }, now, outputs),
        }
    }

    // The sync side.

    /// Returns the place up to which the next sync makes the file durable, if something was written and is
    /// not durable.
    fn unsynced(&self) -> Option<Mark> {
        let Marks { durable, written, .. } = self.marks?;
        (durable.offset < written.offset).then_some(written)
    }

    fn go_on_syncing(&mut self, outputs: &mut Vec<Output>, now: Ms) {
        if self.syncing.is_some() || self.is_restarting() {
            return;
        }
        let Some(target) = self.unsynced() else { return };
        let is_due = match self.policy {
            FsyncPolicy::Always => true,
            FsyncPolicy::EverySecond => {
                let durable = self.marks.map_or(target.offset, |marks| marks.durable.offset);
                let bytes = target.offset.0 - durable.0;
                now.0 >= self.synced_at.0 + SYNC_INTERVAL_MS || bytes >= self.unsynced_bytes_max
            }
            FsyncPolicy::No => false,
        };
        let is_awaited = self.trouble.as_ref().is_some_and(|trouble| trouble.awaits == FailedCall::Sync);
        if is_due || is_awaited || self.is_at_file_end() || self.flush_to.is_some() {
            outputs.push(Output::Sync { file: target.file });
            self.syncing = Some(target);
            self.synced_at = now;
        }
    }

    /// A sync has failed, and the next file is not listed yet: the marks are of a file that gets nothing any
    /// more.
    fn is_restarting(&self) -> bool {
        let restarts = |change: &Change| change.cause == Cause::FailedSync;
        self.has_failed_sync || self.change.as_ref().is_some_and(restarts)
    }

    fn synced(&mut self, outputs: &mut Vec<Output>) {
        let target = self.syncing.take().expect("a sync was under way");
        self.marks.as_mut().expect("a file was synced").durable = target;
        self.announce(outputs);
        self.recover(FailedCall::Sync, outputs);
    }

    fn announce(&mut self, outputs: &mut Vec<Output>) {
        let durable = self.marks.map_or(self.announced, |marks| marks.durable.offset);
        if self.awaits_base.is_none() && durable > self.announced {
            self.announced = durable;
            outputs.push(Output::Durable(durable));
        }
    }

    fn sync_failed(&mut self, errno: i32, now: Ms, outputs: &mut Vec<Output>) {
        self.syncing.take().expect("a sync was under way");
        // The first try is made at once: another file may be on another part of the disk.
        self.retry_at = if self.trouble.is_some() { Ms(now.0 + RETRY_MS) } else { now };
        self.refuse(Failure { call: FailedCall::Sync, errno }, now, outputs);
        self.has_failed_sync = true;
        self.is_call_stale = self.call.is_some();
        // A new base waits; another change is not under way while something is to be synced.
        self.change = None;
    }

    // Outputs for others.

    fn refuse(&mut self, failure: Failure, now: Ms, outputs: &mut Vec<Output>) {
        match &mut self.trouble {
            Some(trouble) => trouble.note(failure, now),
            None => {
                outputs.push(Output::RefuseWrites(failure));
                self.trouble = Some(Trouble::new(failure, now));
            }
        }
    }

    /// A call of this kind has succeeded; a list stands for the creation before it.
    fn recover(&mut self, after: FailedCall, outputs: &mut Vec<Output>) {
        let is_over = self.trouble.as_ref().is_some_and(|trouble| match trouble.awaits {
            FailedCall::Create => after == FailedCall::List,
            awaited => after == awaited,
        });
        if is_over {
            self.trouble = None;
            outputs.push(Output::AcceptWrites);
        }
    }

    fn release(&mut self, outputs: &mut Vec<Output>) {
        let is_restarting = self.is_restarting();
        let Some(marks) = &mut self.marks else { return };
        let safe = if self.policy == FsyncPolicy::No { marks.written } else { marks.durable };
        if is_restarting || safe.offset <= marks.released.offset {
            return;
        }
        marks.released = safe;
        outputs.push(Output::Release(safe.offset));
        while self.boundaries.front().is_some_and(|boundary| boundary.offset < safe.offset) {
            self.boundaries.pop_front();
        }
    }

    fn check_flush(&mut self, outputs: &mut Vec<Output>) {
        if self.flush_to.is_some_and(|to| to <= self.announced) {
            self.flush_to = None;
            outputs.push(Output::Flushed);
        }
    }

    /// Under `always` nothing can be answered while the disk fails. One that is full is waited for: another
    /// start would not find room.
    fn check_patience(&mut self, now: Ms, outputs: &mut Vec<Output>) {
        let Some(trouble) = self.trouble.as_mut().filter(|_| self.policy == FsyncPolicy::Always) else {
            return;
        };
        let is_over = |since: Ms| now.0 >= since.0 + PATIENCE_MS;
        if trouble.failure.is_full_disk() {
            if is_over(trouble.since) && !std::mem::replace(&mut trouble.has_given_up, true) {
                outputs.push(Output::GiveUp);
            }
        } else if is_over(trouble.full_at.unwrap_or(trouble.since)) {
            outputs.push(Output::Exit(trouble.failure));
        }
    }

    pub fn check_invariants(&self) {
        let segments = &self.list.segments;
        assert!(segments.is_sorted_by(|a, b| a.file < b.file && a.start <= b.start), "{segments:?}");
        assert!(segments.iter().rev().skip(1).all(|segment| segment.len.is_some()), "{segments:?}");
        let Some(Marks { released, durable, written }) = self.marks else { return };
        assert!(durable.offset <= written.offset && written.offset <= self.collected);
        assert!(released.offset <= written.offset);
        assert!(durable.file == written.file && released.file == written.file);
        assert_eq!(segments.last().map(|segment| segment.file), Some(written.file));
        assert!(self.announced <= durable.offset);
        assert!(self.syncing.is_none_or(|target| target.file == written.file));
    }
}
