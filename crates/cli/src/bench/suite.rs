//! The tests that run when no command is given.

use super::options::Options;
use super::template::{Data, Template};

/// A test by its title, and the names by which `-t` chooses it.
pub struct Case {
    pub title: &'static str,
    names: &'static [&'static str],
    pub command: Vec<Vec<u8>>,
    /// Bytes to send as they are, instead of the command.
    inline: Option<&'static [u8]>,
    /// Commands to run once before.
    pub before: Vec<Vec<Vec<u8>>>,
}

impl Case {
    pub fn template(&self) -> Template {
        match self.inline {
            Some(bytes) => Template::new(bytes.to_vec(), 1),
            None => Template::of(&self.command),
        }
    }

    pub fn is_wanted(&self, options: &Options) -> bool {
        self.names.iter().any(|name| options.wants(name))
    }
}

/// Every test in its order. Lists and sets are filled by the tests before those that empty them.
pub fn cases(options: &Options, data: &mut Data) -> Vec<Case> {
    let value = data.draw(options.data_bytes);
    let tag = if options.cluster { ":{tag}" } else { "" };
    let words = |line: &str| -> Vec<Vec<u8>> {
        line.split(' ')
            .map(|word| match word {
                "__data__" => value.clone(),
                _ => word.replace("{T}", tag).into_bytes(),
            })
            .collect()
    };
    let case = |title, names, line: &str| Case {
        title,
        names,
        command: words(line),
        inline: None,
        before: Vec::new(),
    };
    let score = if options.keyspace.is_some() { "__rand_int__" } else { "0" };
    let key = "key{T}:__rand_int__";
    let ten_pairs = format!("MSET{}", format!(" {key} __data__").repeat(10));
    let ten_keys = format!("MGET{}", format!(" {key}").repeat(10));
    let mut cases = vec![
        Case { inline: Some(b"PING\r\n"), ..case("PING_INLINE", &["ping_inline", "ping"], "PING") },
        case("PING_MBULK", &["ping_mbulk", "ping"], "PING"),
        case("SET", &["set"], &format!("SET {key} __data__")),
        case("GET", &["get"], &format!("GET {key}")),
        case("INCR", &["incr"], "INCR counter{T}:__rand_int__"),
        case("LPUSH", &["lpush"], "LPUSH mylist{T} __data__"),
        case("RPUSH", &["rpush"], "RPUSH mylist{T} __data__"),
        case("LPOP", &["lpop"], "LPOP mylist{T}"),
        case("RPOP", &["rpop"], "RPOP mylist{T}"),
        case("SADD", &["sadd"], "SADD myset{T} element:__rand_int__"),
        case("HSET", &["hset"], "HSET myhash{T} element:__rand_int__ __data__"),
        case("SPOP", &["spop"], "SPOP myset{T}"),
        case("ZADD", &["zadd"], &format!("ZADD myzset{{T}} {score} element:__rand_1st__")),
        case("ZPOPMIN", &["zpopmin"], "ZPOPMIN myzset{T}"),
        case(
            "LPUSH (needed to benchmark LRANGE)",
            &["lrange", "lrange_100", "lrange_300", "lrange_500", "lrange_600"],
            "LPUSH mylist{T} __data__",
        ),
        case("LRANGE_100 (first 100 elements)", &["lrange", "lrange_100"], "LRANGE mylist{T} 0 99"),
        case("LRANGE_300 (first 300 elements)", &["lrange", "lrange_300"], "LRANGE mylist{T} 0 299"),
        case("LRANGE_500 (first 500 elements)", &["lrange", "lrange_500"], "LRANGE mylist{T} 0 499"),
        case("LRANGE_600 (first 600 elements)", &["lrange", "lrange_600"], "LRANGE mylist{T} 0 599"),
        case("MSET (10 keys)", &["mset"], &ten_pairs),
        case("MGET (10 keys)", &["mget"], &ten_keys),
        case("XADD", &["xadd"], "XADD mystream{T} * myfield __data__"),
    ];
    cases.extend(function_cases(options));
    cases.retain(|case| case.is_wanted(options));
    cases
}

fn function_cases(options: &Options) -> [Case; 2] {
    let load = |functions, keys| {
        ["FUNCTION", "LOAD", "REPLACE"]
            .map(|word| word.as_bytes().to_vec())
            .into_iter()
            .chain([library(functions, keys).into_bytes()])
            .collect::<Vec<_>>()
    };
    let keys = options.fcall_keys;
    let mut call = vec![b"FCALL".to_vec(), b"foo1".to_vec(), keys.to_string().into_bytes()];
    let tag = if options.cluster { ":{tag}" } else { "" };
    call.extend((0..keys).map(|i| format!("key{tag}:{i}").into_bytes()));
    [
        Case {
            title: "FUNCTION LOAD",
            names: &["function_load"],
            command: load(options.functions, false),
            inline: None,
            before: Vec::new(),
        },
        Case {
            title: "FCALL",
            names: &["fcall"],
            command: call,
            inline: None,
            before: vec![load(1, keys > 0)],
        },
    ]
}

/// A library of functions that do nothing.
fn library(functions: usize, with_keys: bool) -> String {
    let (parameters, result) = if with_keys { ("keys, args", "keys[0]") } else { ("", "0") };
    let mut text = "#!lua name=benchlib\n".to_string();
    for i in (1..=functions).rev() {
        text += &format!("local function foo{i}({parameters})\nreturn {result}\nend\n");
        text += &format!("server.register_function('foo{i}', foo{i})\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(tests: Option<&str>) -> Vec<&'static str> {
        let tests = tests.map(|tests| tests.split(',').map(str::to_string).collect());
        let options = Options { tests, ..Options::default() };
        cases(&options, &mut Data::default()).iter().map(|case| case.title).collect()
    }

    #[test]
    fn names_choose() {
        assert_eq!(titles(None).len(), 24);
        assert_eq!(titles(Some("ping,get")), ["PING_INLINE", "PING_MBULK", "GET"]);
        assert_eq!(titles(Some("lrange_300")).len(), 2);
        assert!(titles(Some("nonsense")).is_empty());
    }

    #[test]
    fn commands_carry_their_data_and_tags() {
        let options = Options { data_bytes: 7, cluster: true, keyspace: Some(5), ..Options::default() };
        let cases = cases(&options, &mut Data::default());
        let command = |title: &str| {
            let case = cases.iter().find(|case| case.title == title).unwrap();
            case.command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        let set = command("SET");
        assert_eq!((set[1].as_str(), set[2].len()), ("key:{tag}:__rand_int__", 7));
        assert_eq!(command("ZADD")[1..3], ["myzset:{tag}", "__rand_int__"]);
        assert_eq!(command("MSET (10 keys)").len(), 21);
        assert!(library(2, true).contains("foo2(keys, args)\nreturn keys[0]\nend\n"));
    }
}
