use super::*;
use crate::ReplId;

const END: LogOffset = LogOffset(1000);

fn psync() -> SyncRequest {
    SyncRequest::Psync { id: Some(ReplId::new([1; 20])), text: b"x".to_vec(), from: 1, failover: false }
}

fn full(request: &SyncRequest) -> Feed {
    Feed::full(&Announced::default(), request, Ms(0))
}

#[test]
fn a_stream_waits_for_the_first_ack() {
    let mut feed = full(&psync());
    assert_eq!((feed.state().name(), feed.tick(Ms(1000), 60_000)), ("wait_bgsave", Act::SendNewline));
    feed.cut(Transfer::Stream);
    assert_eq!(feed.tick(Ms(2000), 60_000), Act::Nothing, "a newline would be part of the snapshot");
    assert_eq!(feed.snapshot_sent(Ms(3000)), Act::Nothing);
    assert_eq!((feed.state().name(), feed.state().is_online()), ("online", true));
    assert_eq!(feed.ack(LogOffset(900), Some(LogOffset(800)), END, Ms(4000)), Act::SendLog);
    assert_eq!(feed.ack(LogOffset(950), None, END, Ms(4001)), Act::Nothing);
    assert_eq!((feed.acked(), feed.synced()), (LogOffset(950), LogOffset(800)));
    feed.check_invariants(END);
}

/// An acknowledgement may come before this node has noticed the end of the snapshot, because the replica has
/// read the mark already.
#[test]
fn an_ack_may_be_early() {
    let mut feed = full(&psync());
    feed.cut(Transfer::Stream);
    assert_eq!(feed.ack(LogOffset(0), None, END, Ms(2500)), Act::Nothing);
    assert_eq!(feed.snapshot_sent(Ms(3000)), Act::SendLog);
    assert_eq!(feed.state(), FeedState::Online);
}

#[test]
fn a_file_is_followed_by_the_log() {
    let mut feed = full(&psync());
    feed.cut(Transfer::File);
    assert_eq!(feed.tick(Ms(1), 0), Act::SendNewline);
    feed.file_is_there();
    assert_eq!(feed.state().name(), "send_bulk");
    assert_eq!(
        feed.tick(Ms(100_000), 0),
        Act::Nothing,
        "the disk has the file, nothing waits for the replica"
    );
    assert_eq!(feed.snapshot_sent(Ms(3)), Act::SendLog);
}

#[test]
fn snapshot_only() {
    let announced = Announced { wants_snapshot_only: true, ..Announced::default() };
    let mut feed = Feed::full(&announced, &SyncRequest::Sync, Ms(0));
    feed.cut(Transfer::Stream);
    assert_eq!(feed.snapshot_sent(Ms(3)), Act::Close(Closing::HasSnapshot));
    assert_eq!(feed.state().name(), "rdb_transmitted");
    feed.check_invariants(END);
}

#[test]
fn acks_that_cannot_be() {
    let mut feed = Feed::resumed(&Announced::default(), &psync(), Ms(0));
    feed.ack(LogOffset(1001), Some(LogOffset(5000)), END, Ms(1));
    assert_eq!((feed.acked(), feed.synced()), (LogOffset(0), LogOffset(0)));
    feed.ack(END, Some(END), END, Ms(1));
    feed.ack(LogOffset(7), Some(LogOffset(7)), END, Ms(2));
    assert_eq!((feed.acked(), feed.synced(), feed.heard()), (END, END, Ms(2)));
}

#[test]
fn silence() {
    let mut feed = Feed::resumed(&Announced::default(), &psync(), Ms(0));
    assert_eq!(feed.tick(Ms(5000), 5000), Act::Nothing);
    assert_eq!(feed.tick(Ms(5001), 5000), Act::Close(Closing::SilentOnline));
    feed.ack(END, None, END, Ms(5001));
    assert_eq!(feed.tick(Ms(5002), 5000), Act::Nothing);
    let mut old = Feed::resumed(&Announced::default(), &SyncRequest::Sync, Ms(0));
    assert_eq!(old.tick(Ms(50_000), 5000), Act::Nothing, "it never says anything");
    let mut slow = full(&psync());
    slow.cut(Transfer::Stream);
    slow.note_taken(true, Ms(10));
    slow.note_taken(true, Ms(4000));
    assert_eq!(slow.tick(Ms(5011), 5000), Act::Close(Closing::SilentInSync));
    slow.note_taken(false, Ms(5011));
    assert_eq!(slow.tick(Ms(90_000), 5000), Act::Nothing);
}
