use super::*;
use crate::aof::stream::{Item, StreamParser};
use isotherm_stdx::Prng;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Returns the end of the sound part of a file, and the words of its commands.
fn read(file: &[u8]) -> (usize, Vec<Vec<u8>>) {
    let mut parser = StreamParser::new(0, 1 << 20);
    let mut check = CommitCheck::new(Lines::WhereNeeded);
    let (mut from, mut sound, mut commands, mut sound_commands) = (0, 0, Vec::new(), 0);
    loop {
        let bytes = &file[from..];
        let Ok((item, taken)) = parser.next(bytes) else { break };
        if item == Item::NeedMore || check.item(from as u64, &bytes[..taken], item).is_err() {
            break;
        }
        if let Item::Command(_) = item {
            commands.extend(parser.args().iter().map(|arg| bytes[arg.clone()].to_vec()));
        }
        from += taken;
        if check.is_between_commits() && check.unused_from().is_none() {
            (sound, sound_commands) = (from, commands.len());
        }
    }
    commands.truncate(sound_commands);
    (sound, commands)
}

fn set(prng: &mut Prng) -> Vec<u8> {
    let value = vec![b'a' + prng.below(26) as u8; prng.below(900) as usize];
    let mut frame = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).into_bytes();
    frame.extend_from_slice(&value);
    frame.extend_from_slice(b"\r\n");
    frame
}

/// A file of several commits; where the last sync was, and each commit's end.
fn written(prng: &mut Prng) -> (Vec<u8>, usize, Vec<usize>) {
    let (mut file, mut synced, mut ends) = (Vec::new(), 0, Vec::new());
    for _ in 0..1 + prng.below(8) {
        let frames: Vec<Vec<u8>> = (0..1 + prng.below(4)).map(|_| set(prng)).collect();
        let len: usize = frames.iter().map(Vec::len).sum();
        if needs_header(file.len() as u64, len as u64) {
            let (at, synced) = (file.len() as u64, synced as u64);
            let filler = filler(at, synced, len as u64);
            let pieces = std::iter::once(filler).chain(frames.iter().map(Vec::as_slice));
            file.extend_from_slice(&header(at, synced, pieces));
            file.extend_from_slice(filler);
        }
        file.extend(frames.concat());
        ends.push(file.len());
        if prng.one_in(3) {
            synced = file.len();
        }
    }
    (file, synced, ends)
}

/// Returns the file after a power failure: each sector that was not synced holds the new bytes, their
/// beginning, or zeros.
fn crash(file: &[u8], synced: usize, prng: &mut Prng) -> Vec<u8> {
    let mut left = file.to_vec();
    for (number, sector) in left.chunks_mut(SECTOR).enumerate() {
        let keep = synced.saturating_sub(number * SECTOR).min(sector.len());
        let keep = match prng.below(4) {
            0 => keep,
            1 => keep + prng.below((sector.len() - keep) as u64 + 1) as usize,
            _ => sector.len(),
        };
        sector[keep..].fill(0);
    }
    left.truncate(synced + prng.below((file.len() - synced) as u64 + 1) as usize);
    left
}

#[test]
fn a_file_is_sound_to_its_end() {
    for seed in 0..500 {
        let (file, ..) = written(&mut Prng::new(seed));
        assert_eq!(read(&file).0, file.len(), "seed {seed}");
    }
}

#[test]
fn after_a_power_failure_what_is_read_is_what_was_written() {
    let mut cut = 0;
    for seed in 0..20_000 {
        let mut prng = Prng::new(seed);
        let (file, synced, _) = written(&mut prng);
        let left = crash(&file, synced, &mut prng);
        let (sound, commands) = read(&left);
        assert!(sound >= synced, "seed {seed}: what was synced is there");
        assert!(left[..sound] == file[..sound], "seed {seed}: no other bytes");
        assert!(read(&file).1.starts_with(&commands), "seed {seed}");
        assert!(
            !proves_durable(&left[sound..], sound as u64, sound as u64),
            "seed {seed}: torn, not damaged"
        );
        cut += usize::from(sound < file.len());
    }
    assert!(cut > 5_000, "{cut}");
}

#[test]
fn damage_of_what_was_durable_is_no_torn_tail() {
    let mut prng = Prng::new(1);
    let mut file = Vec::new();
    for synced in [0, 1] {
        let frames = [set(&mut prng), vec![b'#'; 600], b"\r\n".to_vec()].concat();
        let synced = if synced == 0 { 0 } else { file.len() as u64 };
        let line = header(file.len() as u64, synced, [frames.as_slice()].into_iter());
        file.extend_from_slice(&line);
        file.extend_from_slice(&frames);
    }
    assert_eq!(read(&file).0, file.len());
    file[300] ^= 1;
    assert_eq!(read(&file).0, 0);
    assert!(proves_durable(&file, 0, 0));
    // The line of another place, as in an old block, proves nothing.
    assert!(!proves_durable(&file, 512, 0));
}

#[test]
fn where_all_commits_have_lines_other_commands_are_bad() {
    let mut check = CommitCheck::new(Lines::All);
    let command = Item::Command(crate::aof::stream::Command::Plain);
    assert_eq!(check.item(7, b"*1\r\n$4\r\nPING\r\n", command), Err(BadCommit { at: 7 }));
}

#[test]
fn commits_within_a_sector_have_no_line() {
    assert!(!needs_header(0, 511) && !needs_header(500, 11) && !needs_header(1024, 1));
    assert!(needs_header(0, 512) && needs_header(500, 12) && needs_header(511, 2));
}

#[test]
fn no_commit_ends_where_a_sector_does() {
    let mut filled = 0;
    for (at, synced, len) in (0..600).flat_map(|at| (400..1200).map(move |len| (at * 17, at, len))) {
        if needs_header(at, len) {
            let frames = vec![b'x'; len as usize];
            let filler = filler(at, synced, len);
            let line = header(at, synced, [filler, frames.as_slice()].into_iter());
            assert_ne!((at as usize + line.len() + filler.len() + frames.len()) % SECTOR, 0, "{at} {len}");
            filled += usize::from(!filler.is_empty());
        }
    }
    assert!(filled > 100, "{filled}");
}

/// A line without its end and the old bytes of the next block are one comment together.
#[test]
fn the_beginning_of_a_line_and_an_old_block_are_no_comment() {
    let old = b"vvvvvvvv\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n";
    for kept in 1..MARK.len() {
        let mut file = b"*1\r\n$4\r\nPING\r\n".repeat(SECTOR / 14);
        let sound = SECTOR - kept;
        file.truncate(sound - sound % 14);
        file.resize(sound - 2, b'#');
        file.extend_from_slice(b"\r\n");
        file.extend_from_slice(&MARK.as_bytes()[..kept]);
        file.extend_from_slice(old);
        let check = |is_ours: bool| {
            let mut check = CommitCheck::new(Lines::WhereNeeded);
            if is_ours {
                check.expect_lines();
            }
            check.item(sound as u64, &file[sound..sound + kept + 10], Item::Comment { line_bytes: kept + 8 })
        };
        assert_eq!(check(true), Err(BadCommit { at: sound as u64 }));
        assert_eq!(check(false), Ok(()), "another server's comment");
    }
    let mut check = CommitCheck::new(Lines::WhereNeeded);
    check.expect_lines();
    assert_eq!(check.item(500, b"#TS:1700000000\r\n", Item::Comment { line_bytes: 14 }), Ok(()));
}

#[test]
fn lines_that_are_none_are_bad() {
    let frames = b"*1\r\n$4\r\nPING\r\n";
    let good = String::from_utf8(header(0, 0, [&frames[..]].into_iter())).expect("ASCII");
    let sound = |line: &str| read(&[line.as_bytes(), frames].concat()).0;
    assert_eq!(sound(&good), good.len() + frames.len());
    let words: Vec<&str> = good.trim_end().split(' ').collect();
    for (at, bad) in
        [(2, "1"), (3, "0"), (3, "13"), (3, "-1"), (4, "x"), (4, "1"), (5, "0123456789abcdef"), (5, "0")]
    {
        let mut words = words.clone();
        words[at] = bad;
        assert_eq!(sound(&format!("{}\r\n", words.join(" "))), 0, "{words:?}");
    }
    assert_eq!(sound(&good.replace("\r\n", " more\r\n")), 0);
    assert_eq!(sound("# another comment\r\n"), 19 + frames.len());
}

#[test]
fn a_commit_is_checked_before_its_items_are_parsed() {
    let mut prng = Prng::new(3);
    let frames = [set(&mut prng), set(&mut prng), vec![b'x'; 600]].concat();
    let line = header(0, 0, [frames.as_slice()].into_iter());
    let comment = Item::Comment { line_bytes: line.len() - 2 };
    let begun = || {
        let mut check = CommitCheck::new(Lines::WhereNeeded);
        check.item(0, &line, comment).expect("a sound line");
        assert_eq!(check.rest_bytes(), frames.len() as u64);
        check
    };
    for portion in [1, 7, 512, frames.len()] {
        let mut check = begun();
        frames.chunks(portion).try_for_each(|bytes| check.feed(bytes)).expect("sound");
        assert!(check.rest_bytes() == 0 && check.is_between_commits() && check.end().is_none());
    }
    assert_eq!(begun().feed(&[&frames[..], b"x"].concat()), Err(BadCommit { at: 0 }), "longer");
    let mut bad = frames.clone();
    bad[700] ^= 1;
    assert_eq!(begun().feed(&bad), Err(BadCommit { at: 0 }));
}

#[test]
fn a_large_command_without_a_line_is_of_another_writer() {
    let plain = Item::Command(crate::aof::stream::Command::Plain);
    let frames = [b'x'; 600];
    let line = header(600, 0, [&frames[..]].into_iter());
    let mut check = CommitCheck::new(Lines::WhereNeeded);
    assert!(!check.has_lines(), "no line yet");
    check.item(0, &[b'x'; 600], plain).expect("without a line");
    check.item(600, &line, Item::Comment { line_bytes: line.len() - 2 }).expect("a sound line");
    check.feed(&frames).expect("sound");
    assert!(check.has_lines());
    check.item(2048, &[b'x'; 512], plain).expect("it needs no line");
    assert!(check.has_lines());
    check.item(2560, &[b'x'; 513], plain).expect("without a line");
    assert!(!check.has_lines());
}

/// A prepared file of several commits; what of it is synced, and what it held when it was created.
fn prepared(prng: &mut Prng) -> (Vec<u8>, usize, Vec<u8>) {
    let sectors = 60;
    let mut before = prepared_head(sectors * SECTOR_BYTES).to_vec();
    (1..sectors).for_each(|_| before.extend_from_slice(&unused_sector()));
    let (mut file, mut at, mut synced) = (before.clone(), SECTOR, SECTOR);
    for _ in 0..prng.below(8) {
        let mut frames: Vec<u8> = (0..1 + prng.below(3)).flat_map(|_| set(prng)).collect();
        let pad = padding(at as u64, synced as u64, frames.len() as u64);
        frames.extend_from_slice(&pad);
        let commit = [header(at as u64, synced as u64, [frames.as_slice()].into_iter()), frames].concat();
        assert!(commit.len().is_multiple_of(SECTOR), "whole sectors");
        file[at..at + commit.len()].copy_from_slice(&commit);
        at += commit.len();
        if prng.one_in(2) {
            synced = at;
        }
    }
    (file, synced, before)
}

#[test]
fn of_a_prepared_file_a_crash_leaves_what_was_synced_and_a_prefix() {
    let mut cut = 0;
    for seed in 0..3_000 {
        let mut prng = Prng::new(seed);
        let (file, synced, before) = prepared(&mut prng);
        let mut left = file.clone();
        for sector in synced / SECTOR..file.len() / SECTOR {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            let kept = [SECTOR, 0, prng.below(SECTOR as u64) as usize][prng.below(3) as usize];
            left[range.start + kept..range.end].copy_from_slice(&before[range.start + kept..range.end]);
        }
        let (sound, commands) = read(&left);
        assert!(sound >= synced && left[..sound] == file[..sound], "seed {seed}: {sound} of {synced}");
        assert!(read(&file).1.starts_with(&commands), "seed {seed}");
        assert!(!proves_durable(&left[sound..], sound as u64, sound as u64), "seed {seed}: torn");
        cut += usize::from(commands.len() < read(&file).1.len());
    }
    assert!(cut > 1_000, "{cut}");
}

#[test]
fn padding_is_comments_that_every_loader_skips() {
    for len in (1..1300_u64).chain(9_000..12_000).chain(99_000..101_000) {
        for (at, synced) in [(512, 0), (1024, 512), (102_400, 99_840)] {
            let pad = padding(at, synced, len);
            let frames = [vec![b'x'; len as usize], pad.clone()].concat();
            let commit = header(at, synced, [frames.as_slice()].into_iter()).len() + frames.len();
            assert!(commit.is_multiple_of(SECTOR), "{len}");
            let mut parser = StreamParser::new(0, 1);
            let (mut from, mut comments) = (0, 0);
            while from < pad.len() {
                let (item, taken) = parser.next(&pad[from..]).expect("a comment");
                assert!(matches!(item, Item::Comment { .. }) && taken > 2, "{len}");
                (from, comments) = (from + taken, comments + 1);
            }
            assert!(comments <= 2);
        }
    }
}

#[test]
fn what_another_server_appends_to_a_prepared_file_is_read() {
    let mut prng = Prng::new(9);
    for _ in 0..200 {
        let (mut file, synced, _) = prepared(&mut prng);
        let more = [b"#TS:1700000000\r\n".to_vec(), set(&mut prng)].concat();
        if prng.one_in(2) {
            file.truncate(read(&file).0.max(synced));
        }
        let before = read(&file).1.len();
        file.extend_from_slice(&more);
        let (sound, commands) = read(&file);
        assert!(sound == file.len() && commands.len() == before + 3);
    }
}
