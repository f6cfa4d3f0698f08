use super::*;

/// Every user is right.
const ANY: CheckUser = |_, _| Ok(());

fn lines(arguments: &[&str]) -> String {
    let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
    String::from_utf8(command_line(&arguments, true).lines).expect("text")
}

#[test]
fn the_command_line_becomes_lines() {
    let check = |arguments: &[&str], expected: &str| assert_eq!(lines(arguments), expected, "{arguments:?}");
    check(&["--port", "7000", "--bind", "127.0.0.1", "::1"], "port \"7000\" \nbind \"127.0.0.1\" \"::1\" ");
    check(&["--port 7000", "--loglevel verbose"], "port 7000 \nloglevel verbose ");
    check(&["--save", "--loglevel", "verbose"], "save \"\"\nloglevel \"verbose\" ");
    check(&["--save"], "save \"\"");
    check(&["--save", "", "--port", "1"], "save \"\" \nport \"1\" ");
    check(&["--proc-title-template", "--x", "--port", "1"], "proc-title-template \"--x\" \nport \"1\" ");
    check(&["--logfile", "a\"b\n\u{e9}"], "logfile \"a\\\"b\\x0a\\xc3\\xa9\" ");
    check(&["loglevel", "debug"], "\"loglevel\" \"debug\" ");
    let stdin = |arguments: &[&str], first: bool| {
        let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
        command_line(&arguments, first).stdin
    };
    assert!(stdin(&["-"], true));
    assert!(stdin(&["--port", "1", "-"], true));
    assert!(stdin(&["-", "--port", "1"], true));
    assert!(!stdin(&["-", "--port", "1"], false), "behind a file only the last place counts");
    assert!(!stdin(&["--bind", "-", "x"], true));
}

fn read(text: &str) -> Result<Config, String> {
    let config = Config::default();
    let mut rename = |from: &[u8], to: &[u8]| match (from, to) {
        (b"GET", b"fetch" | b"") => Ok(()),
        _ => Err("not this one"),
    };
    let result = Reader::new(&config, &mut rename, ANY, None).read(text.as_bytes());
    match result {
        Ok(()) => Ok(config),
        Err(StartError::Config(text)) => Err(String::from_utf8(text).expect("text")),
        Err(StartError::Log(line)) => Err(line),
    }
}

#[track_caller]
fn check(text: &str, name: &str, expected: &str) {
    let config = read(text).unwrap_or_else(|error| panic!("{error}"));
    let shown = config.get(&[name.as_bytes()]);
    assert_eq!(String::from_utf8_lossy(&shown[0].1), expected, "{text:?}");
}

#[test]
fn good_lines() {
    check("port 7000", "port", "7000");
    check("port 7000\nPORT 7001\r\n", "port", "7001");
    check("\n  # a comment\n\tport   \"7002\"  ", "port", "7002");
    check("bind 127.0.0.1 -::1", "bind", "127.0.0.1 -::1");
    check("bind \"127.0.0.1 -::1\"", "bind", "127.0.0.1 -::1");
    check("bind \"\"", "bind", "");
    check("save \"\"\nsave \"\"", "save", "");
    check("", "save", "3600 1 300 100 60 10000");
    check("save 900 1\nsave 300 10 60 100", "save", "900 1 300 10 60 100");
    check("save 900 1\nsave \"\"", "save", "");
    check("save \"\"\nsave 5 1", "save", "5 1");
    check("", "swap-load-rule", "");
    check("ssdb-load-rule 1 100\nssdb-load-rule 10 800", "swap-load-rule", "1 100 10 800");
    check("slave-priority 9", "replica-priority", "9");
    check(
        "client-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit pubsub 0 0 0",
        "client-output-buffer-limit",
        "normal 1 2 3 slave 268435456 67108864 60 pubsub 0 0 0",
    );
    check("requirepass 'it\\'s'", "requirepass", "it's");
    check("maxmemory 1gb\nio-threads-do-reads yes\ndynamic-hz no", "maxmemory", "1073741824");
    check("databases 4", "databases", "4");
    check("hz 10000", "hz", "500");
}

#[track_caller]
fn refused(text: &str, line: usize, shown: &str, reason: &str) {
    let expected = format!(
        "\n*** FATAL CONFIG FILE ERROR (Version {VERSION}) ***\nReading the configuration file, at line {line}\n>>> \
         '{shown}'\n{reason}\n"
    );
    assert_eq!(read(text).err(), Some(expected), "{text:?}");
}

#[test]
fn wrong_lines() {
    let bad = "Bad directive or wrong number of arguments";
    refused("\nfoo bar\n", 2, "foo bar", bad);
    refused("port", 1, "port", "wrong number of arguments");
    refused("  port 1 2", 1, "port 1 2", "wrong number of arguments");
    refused("port x", 1, "port x", "argument couldn't be parsed into an integer");
    refused("requirepass \"x", 1, "requirepass \"x", "Unbalanced quotes in configuration line");
    refused("dynamic-hz", 1, "dynamic-hz", bad);
    refused("include", 1, "include", bad);
    refused("sentinel", 1, "sentinel", "there is no sentinel mode");
    refused("sentinel monitor", 1, "sentinel monitor", "sentinel directive while not in sentinel mode");
    refused("a.b", 1, "a.b", "Module config specified without value");
    refused("save 900", 1, "save 900", "Invalid save parameters");
    refused("tls-port 65536", 1, "tls-port 65536", "argument must be between 0 and 65535 inclusive");
    let no_log = read("logfile /no/such/folder/log").err().expect("an error");
    assert!(no_log.ends_with(") ***\nCan't open the log file: No such file or directory\n"), "{no_log}");
}

#[test]
fn included_files() {
    let folder = std::env::temp_dir().join(format!("isotherm-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("a.conf"), "port 1\nmaxmemory 7").unwrap();
    std::fs::write(path("b.conf"), "port 2").unwrap();
    std::fs::write(path(".hidden.conf"), "port 3").unwrap();
    std::fs::write(path("again"), format!("include {}", path("again"))).unwrap();
    check(&format!("include {}\nport 9", path("a.conf")), "port", "9");
    check(&format!("include {}", path("*.conf")), "port", "2");
    check(&format!("include {}", path("*.conf")), "maxmemory", "7");
    check(&format!("include {}", path("none*")), "port", "6379");
    let missing = read(&format!("include {}", path("none"))).err();
    let expected =
        format!("Fatal error, can't open config file '{}': No such file or directory", path("none"));
    assert_eq!(missing, Some(expected));
    let endless = read(&format!("include {}", path("again"))).err().expect("an error");
    assert!(endless.ends_with("Too many files include each other\n"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_user_of_an_included_file_can_be_defined_again_behind_it() {
    let folder = std::env::temp_dir().join(format!("isotherm-config-users-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let include = format!("include {}", folder.join("users.conf").display());
    std::fs::write(folder.join("users.conf"), "user ann on\nuser bob on\n").unwrap();
    let users = |text: String, given: &str| {
        let file = Origin { path: folder.join("a"), folder: folder.clone(), given: given.into() };
        let tried = dry::try_out(text.as_bytes(), &file, &mut |_, _| Ok(()), ANY);
        tried.map_err(|error| error.reason()).map(|tried| {
            let lines = tried.users.iter().map(|words| String::from_utf8(words.join(&b' ')).unwrap());
            lines.collect::<Vec<_>>()
        })
    };
    let again = "Error in user declaration 'ann': Duplicate user found. A user can only be defined once in config files";
    let ann_and = |given: &str| users("user ann off".into(), given);
    assert_eq!(ann_and("\nuser ann on"), Ok(vec!["ann on".to_string()]), "the command line wins");
    assert_eq!(ann_and(&format!("\n{include}")), Ok(vec!["ann on".to_string(), "bob on".into()]));
    assert!(ann_and("\nuser ann on\nuser ann off").is_err_and(|why| why.ends_with(again)));
    for (text, expected) in [
        (format!("{include}\nuser ann off"), Ok(vec!["ann off", "bob on"])),
        (format!("user ann off\n{include}"), Err(again)),
        (format!("{include}\nuser ann off\nuser ann on"), Err(again)),
        (format!("{include}\n{include}"), Err(again)),
        (format!("{include}\ninclude none"), Err("none': No such file or directory")),
        ("include users.conf".into(), Ok(vec!["ann on", "bob on"])),
        (format!("dir /\n{include}\ninclude users.conf"), Err("No such file or directory")),
    ] {
        match (users(text.clone(), ""), expected) {
            (Ok(users), Ok(expected)) => assert_eq!(users, expected, "{text}"),
            (Err(why), Err(expected)) => assert!(why.ends_with(expected), "{text}: {why}"),
            (got, _) => panic!("{text}: {got:?}"),
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn words_before_the_options() {
    let start = |argument: &str| load(&[argument.into()], &mut |_, _| Ok(()), ANY);
    for argument in ["-v", "--version"] {
        assert!(matches!(start(argument), Ok(Start::Version)), "{argument}");
    }
    assert!(matches!(start("--layout"), Ok(Start::Layout)));
    assert!(matches!(start("-h"), Ok(Start::Say(text)) if text.starts_with("Usage: ./isotherm-server")));
    let Ok(Start::Run(loaded)) =
        load(&["--port".into(), "7000".into(), "--io-threads".into(), "3".into()], &mut |_, _| Ok(()), ANY)
    else {
        panic!("a start")
    };
    assert_eq!((loaded.config.port(), loaded.config.workers()), (7000, 3));
    assert!(loaded.file.is_none() && !loaded.nothing_given);
    let Ok(Start::Run(loaded)) = load(&[], &mut |_, _| Ok(()), ANY) else { panic!("a start") };
    assert!(loaded.nothing_given && loaded.config.workers() >= 1);
    let Err(StartError::Log(line)) = load(&["/no/such.conf".into()], &mut |_, _| Ok(()), ANY) else {
        panic!("no start")
    };
    assert_eq!(line, "Fatal error, can't open config file '/no/such.conf': No such file or directory");
}
