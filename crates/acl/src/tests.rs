//! Rules, what they permit, and how they are shown.

use super::*;
use isotherm_stdx::Prng;
use std::sync::Arc;

const READ: u32 = 1;
const WRITE: u32 = 2;
const SLOW: u32 = 4;
const CATEGORIES: &[(u32, &str)] = &[(READ, "read"), (WRITE, "write"), (SLOW, "slow")];
const NONE: Defaults = Defaults { all_channels: false };

fn table() -> CommandTable {
    let row = |name: &str, categories: u32, subcommands: u16| CommandRow {
        name: name.into(),
        categories,
        subcommands,
        is_subcommand: name.contains('|'),
    };
    let rows = vec![
        row("get", READ, 0),
        row("set", WRITE, 0),
        row("keys", READ | SLOW, 0),
        row("select", 0, 0),
        row("config", SLOW, 2),
        row("config|get", SLOW | READ, 0),
        row("config|set", SLOW | WRITE, 0),
        row("publish", 0, 0),
    ];
    CommandTable::new(rows, CATEGORIES)
}

fn user(rules: &str) -> User {
    try_user(rules).unwrap_or_else(|text| panic!("{rules}: {text}"))
}

fn try_user(rules: &str) -> Result<User, String> {
    let words: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
    let user = User::new(b"ann", &table(), NONE).changed(words, &table(), NONE);
    user.map_err(|error| String::from_utf8(error.text()).expect("text"))
}

fn shown(rules: &str) -> String {
    String::from_utf8(user(rules).show()).expect("text")
}

struct Case<'a> {
    command: &'a str,
    argument: Option<&'a str>,
    keys: &'a [(&'a str, Access)],
    database: u32,
}

fn check(user: &User, case: &Case<'_>) -> Result<(), Denial> {
    let keys = case.keys.iter().enumerate();
    let keys: Vec<AskedKey<'_>> = keys
        .map(|(at, (name, access))| AskedKey { at: at + 1, name: name.as_bytes(), access: *access })
        .collect();
    user.check(&Asked {
        command: table().find(case.command.as_bytes()).expect("a command"),
        is_free: false,
        first_argument: case.argument.map(str::as_bytes),
        databases: AskedDatabases::Current(case.database),
        keys: &keys,
        channels: &[],
        channels_are_patterns: false,
    })
}

#[test]
fn the_shown_form_is_the_shortest() {
    for (rules, expected) in [
        ("", "off resetchannels -@all"),
        ("on nopass ~* &* +@all", "on nopass ~* &* +@all"),
        ("+@all -@all +get", "off resetchannels -@all +get"),
        ("+get +get -get", "off resetchannels -@all -get"),
        ("+@read +GET -keys", "off resetchannels -@all +@read +get -keys"),
        ("+config|get +config", "off resetchannels -@all +config"),
        ("+config|get -config|set", "off resetchannels -@all +config|get -config|set"),
        ("+select|0 +SELECT|0 +select|1", "off resetchannels -@all +select|0 +select|1"),
        ("+select|0 -select", "off resetchannels -@all -select"),
        ("%R~a %W~a %RW~b %rw~c", "off ~a ~b ~c resetchannels -@all"),
        ("~a ~b ~a", "off ~a ~b resetchannels -@all"),
        ("db=3,1,3", "off resetchannels db=1,3 -@all"),
        ("db=1 resetdbs", "off resetchannels resetdbs -@all"),
        ("db=1 alldbs", "off resetchannels -@all"),
        ("&a &a", "off resetchannels &a -@all"),
        ("(+get ~a) (&x)", "off resetchannels -@all (~a resetchannels -@all +get) (resetchannels &x -@all)"),
        ("(+get) clearselectors", "off resetchannels -@all"),
        ("on +get ~a (+set) reset", "off resetchannels -@all"),
        ("sanitize-payload skip-sanitize-payload", "off resetchannels -@all"),
        ("allcommands allkeys allchannels", "off ~* &* +@all"),
        ("nocommands resetkeys", "off resetchannels -@all"),
    ] {
        assert_eq!(shown(rules), expected, "{rules}");
    }
    let hash = PasswordHash::of(b"a").hex();
    assert_eq!(shown(">a >a >b <b"), format!("off #{hash} resetchannels -@all"));
    assert_eq!(shown(&format!("#{hash} nopass")), "off nopass resetchannels -@all");
}

#[test]
fn wrong_rules_are_refused_by_name() {
    let hash = "0".repeat(64);
    for (rules, rule, error) in [
        ("+nosuch", "+nosuch", RuleError::UnknownCommand),
        ("-@nosuch", "-@nosuch", RuleError::UnknownCommand),
        ("-select|0", "-select|0", RuleError::UnknownCommand),
        ("+config|nosuch", "+config|nosuch", RuleError::UnknownCommand),
        ("+config|", "+config|", RuleError::Syntax),
        ("+config|get|x", "+config|get|x", RuleError::ArgumentOfSubcommand),
        ("~* ~a", "~a", RuleError::PatternAfterAll),
        ("&* &a", "&a", RuleError::ChannelAfterAll),
        ("%~a", "%~a", RuleError::Syntax),
        ("%RR~a", "%RR~a", RuleError::Syntax),
        ("%X~a", "%X~a", RuleError::Syntax),
        ("db=", "db=", RuleError::Syntax),
        ("db=1,,2", "db=1,,2", RuleError::Syntax),
        ("db=1,", "db=1,", RuleError::Syntax),
        ("db=x", "db=x", RuleError::Syntax),
        ("db=-1", "db=-1", RuleError::DatabaseRange),
        ("db=2147483648", "db=2147483648", RuleError::DatabaseRange),
        ("db=99999999999999999999999", "db=99999999999999999999999", RuleError::DatabaseRange),
        ("<x", "<x", RuleError::NoSuchPassword),
        ("#abc", "#abc", RuleError::BadHash),
        ("nonsense", "nonsense", RuleError::Syntax),
        ("(+nosuch)", "(+nosuch)", RuleError::UnknownCommand),
        ("(on)", "(on)", RuleError::Syntax),
        ("~a\tb", "~a\tb", RuleError::Syntax),
    ] {
        let expected = format!("Error in ACL SETUSER modifier '{rule}': {}", error.text());
        assert_eq!(try_user(rules).err(), Some(expected), "{rules}");
    }
    assert!(try_user(&format!("!{hash}")).is_err());
    let open = "Unmatched parenthesis in acl selector starting at '(+get'.";
    assert_eq!(try_user("on (+get ~a").err().as_deref(), Some(open));
}

#[test]
fn denials_are_ranked() {
    let user = user("on db=0 +get ~a (db=0 +get +set ~b) (db=0 +get ~a ~c)");
    let case = |command, keys, database| Case { command, argument: None, keys, database };
    let denied = |reason, at| Err(Denial { reason, at });
    assert_eq!(check(&user, &case("get", &[("a", Access::READ)], 0)), Ok(()));
    assert_eq!(check(&user, &case("set", &[("b", Access::WRITE)], 0)), Ok(()));
    assert_eq!(check(&user, &case("get", &[("x", Access::READ)], 1)), denied(Reason::Database, 0));
    assert_eq!(check(&user, &case("keys", &[], 0)), denied(Reason::Command, 0));
    assert_eq!(check(&user, &case("set", &[("a", Access::WRITE)], 0)), denied(Reason::Key, 1));
    let two: &[_] = &[("a", Access::READ), ("x", Access::READ)];
    assert_eq!(check(&user, &case("get", two, 0)), denied(Reason::Key, 2));
}

#[test]
fn first_arguments() {
    let user = user("+select|0");
    let select = |argument| check(&user, &Case { command: "select", argument, keys: &[], database: 0 });
    assert!(select(Some("0")).is_ok() && select(Some("1")).is_err() && select(None).is_err());
}

#[test]
fn channels() {
    let before = user("resetchannels &a* &b");
    assert!(user("&a* &b &c").keeps_channels_of(&before) && !user("&a*").keeps_channels_of(&before));
    assert!(user("&*").keeps_channels_of(&before) && !before.keeps_channels_of(&user("&*")));
    assert!(before.may_listen(b"ab", false) && before.may_listen(b"a*", true));
    assert!(!before.may_listen(b"ab", true) && !before.may_listen(b"c", false));
}

#[test]
fn passwords_admit() {
    assert!(user("on >a >b").admits(b"b") && !user("on >a").admits(b"b") && !user(">a").admits(b"a"));
    assert!(user("on nopass").admits(b"x") && !user("nopass").admits(b"x"));
    let changed = user("on >a").with_password(b"c");
    assert!(changed.admits(b"c") && !changed.admits(b"a") && changed.with_password(b"").admits(b"z"));
}

/// A random rule, right or wrong.
fn random_rule(random: &mut Prng, depth: u32) -> String {
    let commands =
        ["get", "set", "keys", "select", "config", "config|get", "config|set", "publish", "nosuch"];
    // No lone star: given by `%RW~*` it is shown as `~*`, which says more. That is Valkey's form.
    let word = |random: &mut Prng| -> String {
        let len = random.below(4);
        let word: String = (0..len).map(|_| *random.pick(&['a', 'b', '*', '?', '[', ']', '\\'])).collect();
        if word == "*" { "a*".into() } else { word }
    };
    match random.below(if depth == 0 { 20 } else { 18 }) {
        0..=3 => format!("{}{}", random.pick(&["+", "-"]), random.pick(&commands)),
        4 => format!("+select|{}", random.below(3)),
        5 | 6 => {
            format!("{}@{}", random.pick(&["+", "-"]), random.pick(&["read", "write", "slow", "all", "x"]))
        }
        7..=9 => format!("{}{}", random.pick(&["~", "%R~", "%W~", "%RW~", "%~"]), word(random)),
        10 => format!("&{}", word(random)),
        11 => format!("db={},{}", random.below(4), random.below(4)),
        12 => random.pick(&["allkeys", "resetkeys", "~*"]).to_string(),
        13 => random.pick(&["allchannels", "resetchannels", "&*"]).to_string(),
        14 => random.pick(&["alldbs", "resetdbs"]).to_string(),
        15 | 16 => random.pick(&["on", "off", "nopass", "resetpass", ">a", "<a", ">b"]).to_string(),
        17 => random.pick(&["clearselectors", "reset", ""]).to_string(),
        _ => {
            let rules: Vec<_> = (0..random.below(4)).map(|_| random_rule(random, 1)).collect();
            format!("({})", rules.join(" "))
        }
    }
}

/// The rules that a user shows make the same user: it shows the same again, and decides the same.
#[test]
fn the_shown_form_is_read_back() {
    let (mut random, table) = (Prng::new(1), table());
    for _ in 0..4_000 {
        let mut user = User::new(b"ann", &table, NONE);
        for _ in 0..random.below(12) {
            let rule = random_rule(&mut random, 0);
            if let Ok(changed) = user.changed([rule.as_bytes()], &table, NONE) {
                user = changed;
            }
        }
        let shown = user.show();
        let words: Vec<&[u8]> = shown.split(|&byte| byte == b' ').collect();
        let again = User::new(b"ann", &table, NONE).changed(words, &table, NONE);
        let again = again.unwrap_or_else(|error| panic!("{:?}", String::from_utf8_lossy(&error.text())));
        assert_eq!(String::from_utf8_lossy(&again.show()), String::from_utf8_lossy(&shown));
        assert_eq!(again.permits_everything(), user.permits_everything());
        for _ in 0..40 {
            let key: String = (0..random.below(4)).map(|_| *random.pick(&['a', 'b', '['])).collect();
            let access = *random.pick(&[Access::READ, Access::WRITE, Access::ALL, Access::NONE]);
            let case = Case {
                command: random.pick::<&str>(&["get", "set", "keys", "select", "config|get", "publish"]),
                argument: Some(random.pick::<&str>(&["0", "1"])),
                keys: &[(&key, access)],
                database: random.below(4) as u32,
            };
            let (before, after) = (check(&user, &case), check(&again, &case));
            assert_eq!(before, after, "{}: {} {key}", String::from_utf8_lossy(&shown), case.command);
            assert!(!user.permits_everything() || before.is_ok());
        }
    }
}

#[test]
fn a_file_is_read_whole_or_not_at_all() {
    let table = table();
    let text = b"user ann on >a ~a +get\n\n  user bob off (+set ~b)\t\r\n";
    let users = parse_file(text, "users.acl", &table, NONE).expect("it is right");
    let lines: Vec<_> = users.iter().map(|user| String::from_utf8(user.line()).expect("text")).collect();
    assert_eq!(lines[1], "user bob off resetchannels -@all (~b resetchannels -@all +set)");
    let wrong =
        b"user ann on\nnonsense\nuser a\tb on\nuser ann off\nuser c +nosuch +get ~* ~a ~b\nuser d (+get";
    let errors = parse_file(wrong, "f", &table, NONE).expect_err("it is wrong");
    assert_eq!(
        String::from_utf8_lossy(&errors),
        "f:2 should start with user keyword followed by the username. 'f:3: username 'a\tb' contains invalid characters. \
         WARNING: Duplicate user 'ann' found on line 4. f:5: Error in applying operation '+nosuch': Unknown command or category \
         name in ACL. f:5: Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
         effect. Try 'resetkeys' to start with an empty list of patterns. f:6: Unmatched parenthesis in selector definition.\
         WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    );
}

#[test]
fn the_default_user_stays() {
    let mut users = Users::new(&table());
    assert!(users.default_user().permits_everything());
    let before = Arc::clone(users.default_user());
    users.put(users.default_user().with_password(b"x"));
    assert!(!Arc::ptr_eq(&before, users.default_user()) && !users.remove(DEFAULT_USER));
    let digest = users.digest();
    users.put(user("on"));
    assert_ne!(users.digest(), digest);
    assert!(users.remove(b"ann") && !users.remove(b"ann"));
    assert_eq!((users.digest(), digest.len()), (digest, 64));
}

/// Processor time of this thread, which other programs do not lengthen.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or_default() / 1e9
}

/// Each of tens of thousands of passwords, patterns or rules costs as much as one of few: less than a second
/// in all. Where a list is gone through for each, they take some twenty.
#[test]
fn very_many_rules_are_no_more_work_each() {
    const COUNT: usize = if cfg!(miri) { 50 } else { 64_000 };
    let before = cpu_seconds();
    let rules = |make: fn(usize) -> String| (0..COUNT).map(make).collect::<Vec<_>>().join(" ");
    let hashes = rules(|at| format!("#{at:064x}"));
    let no_hashes = rules(|at| format!("!{at:064x}"));
    let parts = rules(|at| format!("+get|Part{at}"));
    let patterns = rules(|at| format!("~key{at}:*"));
    let user = user(&format!("{hashes} {parts} {patterns}"));
    assert_eq!(user.password_count(), COUNT);
    let shown = String::from_utf8(user.show()).unwrap();
    assert!(shown.contains("#0") && shown.ends_with(&format!("+get|part{}", COUNT - 1)), "{}", shown.len());
    let get = table().find(b"get").unwrap();
    let asked = |argument: &'static [u8]| Asked {
        command: get,
        is_free: false,
        first_argument: Some(argument),
        databases: AskedDatabases::None,
        keys: &[],
        channels: &[],
        channels_are_patterns: false,
    };
    assert!(user.check(&asked(b"PART7")).is_ok() && user.check(&asked(b"part")).is_err());
    let words = format!("{no_hashes} +get");
    let changed = user.changed(words.split(' ').map(str::as_bytes), &table(), NONE).unwrap();
    assert_eq!(changed.password_count(), 0);
    assert!(changed.show().ends_with(b" -@all +get"));
    let spent = cpu_seconds() - before;
    assert!(spent < 8.0, "{spent} s");
}
