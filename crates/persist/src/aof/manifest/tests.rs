use super::*;
use isotherm_stdx::Prng;

#[track_caller]
fn refused(text: &str, what: &str) {
    let error = Manifest::parse(text.as_bytes()).expect_err("it is refused");
    assert_eq!(error.what, what, "{text:?}");
}

#[track_caller]
fn parsed(text: &str) -> Manifest {
    let manifest = Manifest::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    manifest.check_invariants();
    manifest
}

fn file(name: &str, seq: i64) -> AofFile {
    AofFile { name: name.as_bytes().to_vec(), seq, place: None }
}

#[test]
fn files_of_each_kind() {
    let text = "file appendonly.aof.2.base.rdb seq 2 type b\n\
                file appendonly.aof.1.incr.aof seq 1 type h\n\
                file appendonly.aof.4.incr.aof seq 4 type i\n\
                file appendonly.aof.5.incr.aof seq 5 type i\n";
    let manifest = parsed(text);
    assert_eq!(manifest.base, Some(file("appendonly.aof.2.base.rdb", 2)));
    assert_eq!(manifest.history, [file("appendonly.aof.1.incr.aof", 1)]);
    let incr = [file("appendonly.aof.4.incr.aof", 4), file("appendonly.aof.5.incr.aof", 5)];
    assert_eq!(manifest.incr, incr);
    assert_eq!(String::from_utf8(manifest.write()).expect("plain names"), text);
}

#[test]
fn what_valkey_takes_is_taken() {
    assert_eq!(parsed("# nothing\n"), Manifest::default());
    let one = |text: &str| parsed(text).incr.remove(0);
    assert_eq!(one("\t FILE a SEQ 1 Type i \r\n"), file("a", 1));
    assert_eq!(one("seq 7 type incr file a later more\n"), file("a", 7));
    assert_eq!(one("file a seq 12x type i\n"), file("a", 12));
    assert_eq!(one("file \"a b\\x21\" seq 1 type i\n"), file("a b!", 1));
    assert_eq!(one("file 'a b' seq 1 type i\n"), file("a b", 1));
    assert_eq!(one("file \"a\\x00/b\" seq 1 type i\n"), file("a", 1));
    assert_eq!(one("file a file b seq 1 type i\n"), file("b", 1));
    let comment = format!("#{}\nfile a seq 1 type i\n", "x".repeat(LINE_BYTES_MAX - 2));
    assert_eq!(one(&comment), file("a", 1));
}

#[test]
fn what_valkey_refuses_is_refused_in_its_words() {
    const INVALID: &str = "Invalid AOF manifest file format";
    const TOO_LONG: &str = "The AOF manifest file contains too long line";
    refused("", "Found an empty AOF manifest");
    refused("\n", INVALID);
    refused("  \n", INVALID);
    refused("file a seq 1 type i", TOO_LONG);
    refused("file a\0b seq 1 type i\n", TOO_LONG);
    refused(&format!("file {} seq 1 type i\n", "a".repeat(1010)), TOO_LONG);
    refused(&format!("#{}\nfile a seq 1 type i\n", "x".repeat(LINE_BYTES_MAX)), INVALID);
    refused("file a seq 1\n", INVALID);
    refused("file a seq 1 type\n", INVALID);
    refused("file a seq 1 type i more\n", INVALID);
    refused("file \"a seq 1 type i\n", INVALID);
    refused("file a seq 0 type i\n", INVALID);
    refused("file a seq x type i\n", INVALID);
    refused("file a seq 1 type \"\"\n", INVALID);
    refused("seq 1 type i more more\n", INVALID);
    refused("file ../a seq 1 type i\n", "File can't be a path, just a filename");
    refused("file 'a\\b' seq 1 type i\n", "File can't be a path, just a filename");
    refused("file a seq 1 type b\nfile b seq 2 type b\n", "Found duplicate base file information");
    refused("file a seq 2 type i\nfile a seq 2 type i\n", "Found a non-monotonic sequence number");
    refused("file a seq -2 type i\n", "Found a non-monotonic sequence number");
    refused("file a seq 1 type x\n", "Unknown AOF file type");
}

#[test]
fn an_error_names_its_line() {
    let error =
        Manifest::parse(b"# c\nfile a seq 1 type i\n  file b seq 1 type i \n").expect_err("not rising");
    let shown = "Reading the manifest file, at line 3\n>>> 'file b seq 1 type i'\n\
                 Found a non-monotonic sequence number";
    assert_eq!(error.to_string(), shown);
    let error = Manifest::parse(b"x").expect_err("no line end");
    assert_eq!(error.to_string(), "The AOF manifest file contains too long line");
}

#[test]
fn comments_of_ours() {
    let files = "file a.4.incr.aof seq 4 type i\nfile a.5.incr.aof seq 5 type i\n";
    let replid = "replid 8371445ee47ffb2b7dc8ed0b3c2b8c1e5e1a5c38";
    // In one line or several, before the files or after them.
    let text = format!(
        "#isotherm {replid}\n#isotherm incr 4 start 901 len 77120\n{files}#isotherm incr 5 start 78021\n"
    );
    let manifest = parsed(&text);
    let places = manifest.incr.iter().map(|file| file.place).collect::<Vec<_>>();
    let place = |start, len| Some(Place { start, len });
    assert_eq!(places, [place(901, Some(77120)), place(78021, None)]);
    let written = format!("{files}#isotherm {replid} incr 4 start 901 len 77120 incr 5 start 78021");
    assert_eq!(String::from_utf8(manifest.write()).expect("plain names"), written);
    assert_eq!(parsed(&written), manifest);
    let appended = format!("{written}file a.6.incr.aof seq 6 type i\n");
    assert!(Manifest::parse(appended.as_bytes()).is_err(), "a line without its own line is not skipped");
    for comment in ["incr 4 start", "incr x start 1", "incr 4 start -1", "incr 4 start 1 len", "replid short"]
    {
        let text = format!("#isotherm {comment}\n");
        assert!(Manifest::parse(text.as_bytes()).is_err(), "{comment}");
    }
    assert_eq!(parsed("#isotherm incr 9 start 1\n#isotherm later thing\n# else\n"), Manifest::default());
}

#[test]
fn the_end_of_a_log_is_a_comment() {
    for rdb in [RdbMark::None, RdbMark::Unknown, RdbMark::File { bytes: 176, sum: 0x83 }] {
        let log = (rdb != RdbMark::None).then_some(0x83);
        let ended = Some(Ended { seconds: 1_764_316_800, rdb, log });
        let mut manifest = Manifest { ended, ..Manifest::default() };
        assert_eq!(Manifest::parse(&manifest.write()), Ok(manifest.clone()));
        manifest.add_incr(&Names::new(b"a"), 3, Some(Place { start: 0, len: None }));
        assert_eq!(Manifest::parse(&manifest.write()), Ok(manifest));
    }
    let running = Manifest { run: Some(0x83), ..Manifest::default() };
    assert_eq!(Manifest::parse(&running.write()), Ok(running));
    let text = "#isotherm ended 1764316800 rdb 176-0000000000000083";
    assert_eq!(parsed(text).ended.map(|ended| ended.rdb), Some(RdbMark::File { bytes: 176, sum: 0x83 }));
    for comment in [
        "ended",
        "ended 5",
        "ended x rdb none",
        "ended 5 rdb 1",
        "ended 5 rdb 1-x",
        "ended 5 rdb none log x",
        "run x",
        "run",
    ] {
        assert!(Manifest::parse(format!("#isotherm {comment}\n").as_bytes()).is_err(), "{comment}");
    }
    let nothing = Manifest::default().write();
    assert!(Manifest::parse(&nothing).is_ok_and(|manifest| manifest.lists_nothing()));
}

#[test]
fn many_places_take_several_lines() {
    let names = Names::new(b"a");
    let mut manifest = Manifest::default();
    for seq in 1..=200 {
        manifest.add_incr(&names, seq, Some(Place { start: seq as u64 * 1000, len: Some(1000) }));
    }
    let text = manifest.write();
    assert!(text.split(|byte| *byte == b'\n').all(|line| line.len() < LINE_BYTES_MAX));
    assert_eq!(Manifest::parse(&text), Ok(manifest));
}

#[test]
fn a_rewrite_step_by_step() {
    let names = Names::new(b"my aof");
    let mut manifest = Manifest::default();
    manifest.replace_base(&names, 1, true);
    manifest.add_incr(&names, 1, Some(Place { start: 0, len: Some(10) }));
    manifest.add_incr(&names, 2, None);
    manifest.replace_base(&names, 2, false);
    manifest.retire_incr(2);
    manifest.check_invariants();
    let text = "file \"my aof.2.base.aof\" seq 2 type b\n\
                file \"my aof.1.incr.aof\" seq 1 type h\n\
                file \"my aof.1.base.rdb\" seq 1 type h\n\
                file \"my aof.2.incr.aof\" seq 2 type i\n";
    assert_eq!(String::from_utf8(manifest.write()).expect("plain names"), text);
    assert_eq!(names.manifest(), b"my aof.manifest");
    assert_eq!(names.temp_manifest(), b"temp-my aof.manifest");
    assert_eq!(names.temp_incr(), b"temp-my aof.incr");
}

#[test]
fn any_name_comes_back() {
    let mut prng = Prng::new(1);
    for _ in 0..20_000 {
        let alphabet = b"ab \"'\n\t\r\x07\x08\x01\xff#$";
        let name: Vec<u8> = (0..1 + prng.below(12)).map(|_| *prng.pick(alphabet)).collect();
        let manifest = Manifest { incr: vec![AofFile { name, seq: 1, place: None }], ..Manifest::default() };
        assert_eq!(Manifest::parse(&manifest.write()), Ok(manifest));
    }
}

#[test]
fn any_bytes_parse_or_are_refused() {
    let mut prng = Prng::new(2);
    let words: [&[u8]; 14] = [
        b"file",
        b"seq",
        b"type",
        b" ",
        b" ",
        b" ",
        b"\n",
        b"1",
        b"2",
        b"b",
        b"i",
        b"h",
        b"#isotherm incr 1 start 2",
        b"\"",
    ];
    let mut good = 0;
    for _ in 0..100_000 {
        let mut text: Vec<u8> = Vec::new();
        for _ in 0..prng.below(30) {
            text.extend_from_slice(words[prng.below(words.len() as u64) as usize]);
        }
        if let Ok(manifest) = Manifest::parse(&text) {
            manifest.check_invariants();
            let again = Manifest::parse(&manifest.write());
            assert!(again == Ok(manifest.clone()) || manifest == Manifest::default(), "{text:?}");
            good += 1;
        }
    }
    assert!(good > 10, "{good}");
}
