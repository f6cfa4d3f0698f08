use super::*;
use isotherm_stdx::Prng;

const BULK_BYTES_MAX: usize = 1 << 20;

/// All items of a file as text, fed in pieces that the seed chooses; and how it ended.
fn read(file: &[u8], seed: u64) -> (Vec<String>, Result<End, StreamError>) {
    let mut prng = Prng::new(seed);
    let mut parser = StreamParser::new(0, BULK_BYTES_MAX);
    let (mut items, mut from, mut to) = (Vec::new(), 0, 0);
    loop {
        let bytes = &file[from..to];
        assert_eq!(parser.position(), from as u64);
        let (item, taken) = match parser.next(bytes) {
            Ok(found) => found,
            Err(error) => return (items, Err(error)),
        };
        parser.check_invariants();
        let text = |range: Range<usize>| bytes[range].escape_ascii().to_string();
        match item {
            Item::NeedMore if to == file.len() => return (items, Ok(parser.end(to - from))),
            Item::NeedMore => to = file.len().min(to + 1 + prng.below(9) as usize),
            Item::Comment { line_bytes } => items.push(text(0..line_bytes)),
            Item::Command(command) => {
                let words: Vec<String> = parser.args().iter().cloned().map(text).collect();
                let expected = match words[0].to_ascii_uppercase().as_str() {
                    "MULTI" => Command::Multi,
                    "EXEC" => Command::Exec,
                    _ => Command::Plain,
                };
                assert_eq!(command, expected);
                items.push(words.join(" "));
            }
        }
        from += taken;
    }
}

fn command(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{bulks}", words.len())
}

#[track_caller]
fn check(file: &str, expected: &[&str], end: Result<End, StreamError>) {
    for seed in 0..5 {
        let (items, ended) = read(file.as_bytes(), seed);
        assert_eq!((items, ended), (expected.iter().map(|item| item.to_string()).collect(), end), "{file:?}");
    }
}

fn truncated(valid_bytes: u64, in_transaction: bool) -> Result<End, StreamError> {
    Ok(End::Truncated { valid_bytes, in_transaction })
}

#[test]
fn commands_and_comments() {
    check("", &[], Ok(End::Complete));
    let file = format!("#TS:1700000000\r\n{}# a\n{}", command("SELECT 0"), command("SET k v"));
    check(&file, &["#TS:1700000000", "SELECT 0", "# a", "SET k v"], Ok(End::Complete));
    let file = command("multi") + &command("SET a b") + "#c\r\n" + &command("EXEC");
    check(&file, &["multi", "SET a b", "#c", "EXEC"], Ok(End::Complete));
    check("*2\r\n$0\r\n\r\n$2\r\n\r\n\r\n", &[" \\r\\n"], Ok(End::Complete));
    assert_eq!(timestamp(b"#TS:1700000000"), Some(1_700_000_000));
    assert_eq!(timestamp(b"#TS:soon"), None);
    assert_eq!(timestamp(b"# a"), None);
}

#[test]
fn a_file_that_was_being_written_ends_behind_its_last_whole_item() {
    let whole = command("SET a b") + "#c\r\n";
    let next = command("SET key value");
    for cut in 1..next.len() {
        let file = whole.clone() + &next[..cut];
        check(&file, &["SET a b", "#c"], truncated(whole.len() as u64, false));
    }
    check(&(whole.clone() + "#TS:17"), &["SET a b", "#c"], truncated(whole.len() as u64, false));
}

#[test]
fn an_unfinished_transaction_is_cut_at_its_multi() {
    let before = command("SET a b");
    let valid_bytes = before.len() as u64;
    let open = before.clone() + &command("MULTI") + &command("SET c d");
    check(&open, &["SET a b", "MULTI", "SET c d"], truncated(valid_bytes, true));
    let torn = open.clone() + "*1\r\n$4\r\nEX";
    check(&torn, &["SET a b", "MULTI", "SET c d"], truncated(valid_bytes, true));
}

#[test]
fn faults_name_their_byte() {
    let whole = command("SET a b");
    let at = |extra: u64| whole.len() as u64 + extra;
    let fails = |tail: &str, at: u64, fault: StreamFault| {
        check(&(whole.clone() + tail), &["SET a b"], Err(StreamError { at, fault }));
    };
    fails("\0\0\0\0", at(0), StreamFault::Prefix { expected: b'*', got: 0 });
    fails("PING\r\n", at(0), StreamFault::Prefix { expected: b'*', got: b'P' });
    fails("*1\r\n:1\r\n", at(4), StreamFault::Prefix { expected: b'$', got: b':' });
    fails("*0\r\n", at(0), StreamFault::Length);
    fails("*-1\r\n", at(0), StreamFault::Length);
    fails("*x\r\n", at(0), StreamFault::Length);
    fails("*01\r\n", at(0), StreamFault::Length);
    fails("*9223372036854775807\r\n", at(0), StreamFault::Length);
    fails("*1\r\n$9223372036854775807\r\n", at(4), StreamFault::Length);
    fails("*1\r\n$1048577\r\n", at(4), StreamFault::Length);
    fails("*1\n$1\r\n", at(2), StreamFault::LineEnd(*b"\n$"));
    fails("*1\r\n$1\r\nabc\r\n", at(9), StreamFault::LineEnd(*b"bc"));
    fails(&format!("#{}\r\n", "x".repeat(1100)), at(0), StreamFault::LongComment);
    fails(&command("EXEC"), at(0), StreamFault::ExecWithoutMulti);
    let nested = whole.clone() + &command("MULTI") + &command("MULTI");
    let error = Err(StreamError { at: at(15), fault: StreamFault::NestedMulti });
    check(&nested, &["SET a b", "MULTI"], error);
    let error = StreamError { at: 0x1f, fault: StreamFault::LineEnd([0, 0xab]) };
    assert_eq!(error.to_string(), "0x              1f: Expected \\r\\n, got: 00ab");
}

/// The number of arguments takes no memory, and neither does a length, before the bytes are there.
#[test]
fn announced_lengths_take_no_memory() {
    let mut parser = StreamParser::new(0, usize::MAX);
    let bytes = b"*2147483647\r\n$1\r\na\r\n$9223372036854775800\r\nx";
    assert_eq!(parser.next(bytes), Ok((Item::NeedMore, 0)));
    assert!(parser.args.capacity() < 16);
}

#[test]
fn mutated_files_are_read_to_a_fault_or_an_end_that_can_be_kept() {
    let good = command("SELECT 0") + "#TS:1\r\n" + &command("MULTI") + &command("SET k v") + &command("EXEC");
    let mut prng = Prng::new(7);
    for seed in 0..20_000 {
        let mut file = good.repeat(2).into_bytes();
        for _ in 0..1 + prng.below(3) {
            let at = prng.below(file.len() as u64) as usize;
            match prng.below(3) {
                0 => file[at] = prng.below(256) as u8,
                1 => file.truncate(at.max(1)),
                _ => file[at] ^= 1 << prng.below(8),
            }
        }
        let (items, end) = read(&file, seed);
        if let Ok(End::Truncated { valid_bytes, .. }) = end {
            file.truncate(valid_bytes as usize);
            let (again, end) = read(&file, seed);
            assert_eq!(end, Ok(End::Complete));
            assert!(items.starts_with(&again));
        }
    }
}
