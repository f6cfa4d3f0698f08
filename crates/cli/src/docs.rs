//! Facts about commands: their names, arguments and summaries, for help, completion and hints.
//!
//! The server reports it by COMMAND DOCS, so a person sees exactly what this server has. Where there is no
//! server, or an old one, a list that came with the program does (`docs.txt`):
//!
//! ```text
//! zrandmember|sorted-set|6.2.0|Returns one or more random members from a sorted set.
//!  key:word
//!  options:block optional
//!   count:integer
//!   withscores:pure-token token=WITHSCORES optional
//! ```

use std::collections::BTreeSet;

use isotherm_resp::reply_parse::Value;

use crate::options::Options;
use crate::session::Session;

static BUILT_IN: &str = include_str!("docs.txt");

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Single word with any content.
    Word,
    Integer,
    Double,
    PureToken,
    OneOf,
    Block,
}

impl Kind {
    fn parse(name: &str) -> Kind {
        match name {
            "integer" | "unix-time" => Kind::Integer,
            "double" => Kind::Double,
            "pure-token" => Kind::PureToken,
            "oneof" => Kind::OneOf,
            "block" => Kind::Block,
            _ => Kind::Word,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arg {
    /// Text that is shown for the argument.
    pub shown: String,
    pub kind: Kind,
    /// The literal in front of it; may be empty.
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    /// The token is repeated with each value.
    pub multiple_token: bool,
    pub inner: Vec<Arg>,
}

impl Arg {
    fn new() -> Arg {
        Arg {
            shown: String::new(),
            kind: Kind::Word,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            inner: Vec::new(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Name of the command in capitals: a single word, or two for a subcommand.
    pub words: Vec<String>,
    pub group: String,
    pub since: String,
    pub summary: String,
    pub args: Vec<Arg>,
}

impl Entry {
    pub fn full_name(&self) -> String {
        self.words.join(" ")
    }
}

/// Every command, ordered by name.
#[derive(Default)]
pub struct Docs {
    pub entries: Vec<Entry>,
}

impl Docs {
    /// Asks the server, over a connection of its own, so that nothing shows or changes in the session.
    pub fn fetch(options: &Options) -> Docs {
        let mut session = Session::new(Options { show_pushes: false, db: 0, ..options.clone() });
        if !session.connect(true) {
            return Docs::built_in();
        }
        let reply =
            session.connection().ok().and_then(|connection| connection.call(&["COMMAND", "DOCS"]).ok());
        reply.as_ref().and_then(Docs::from_reply).unwrap_or_else(Docs::built_in)
    }

    pub fn built_in() -> Docs {
        parse_list(BUILT_IN)
    }

    /// Reads a reply to COMMAND DOCS. Returns `None` if the reply has another form, or is empty.
    pub fn from_reply(reply: &Value) -> Option<Docs> {
        let mut entries = Vec::new();
        for (name, facts) in pairs(reply)? {
            collect(&text(name)?, None, facts, &mut entries)?;
        }
        entries.sort_by_key(Entry::full_name);
        (!entries.is_empty()).then_some(Docs { entries })
    }

    pub fn groups(&self) -> BTreeSet<&str> {
        self.entries.iter().map(|entry| entry.group.as_str()).collect()
    }

    /// The command that most of these words name.
    pub fn find(&self, words: &[Vec<u8>]) -> Option<&Entry> {
        let named = |entry: &&Entry| {
            entry.words.len() <= words.len()
                && entry
                    .words
                    .iter()
                    .zip(words)
                    .all(|(name, word)| name.as_bytes().eq_ignore_ascii_case(word))
        };
        // Of several of the same length the first counts, as names are unique in all but case.
        self.entries.iter().filter(named).max_by_key(|entry| entry.words.len())
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

/// A map of RESP3, or the list that RESP2 makes of it.
fn pairs(value: &Value) -> Option<Vec<(&Value, &Value)>> {
    match value {
        Value::Map(pairs) => Some(pairs.iter().map(|(key, value)| (key, value)).collect()),
        Value::Array(items) => Some(items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect()),
        _ => None,
    }
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => &[],
    }
}

/// Adds a command and its subcommands.
fn collect(name: &str, sub: Option<&str>, facts: &Value, entries: &mut Vec<Entry>) -> Option<()> {
    let mut words = vec![name.to_ascii_uppercase()];
    // A subcommand is called `config|set`.
    words.extend(sub.map(|sub| sub.rsplit('|').next().unwrap_or(sub).to_ascii_uppercase()));
    let at = entries.len();
    entries.push(Entry {
        words,
        group: String::new(),
        since: String::new(),
        summary: String::new(),
        args: Vec::new(),
    });
    for (fact, value) in pairs(facts)? {
        match text(fact)?.as_str() {
            "summary" => entries[at].summary = text(value)?,
            "since" => entries[at].since = text(value)?,
            "group" => entries[at].group = text(value)?,
            "arguments" => entries[at].args = items(value).iter().map(arg).collect::<Option<_>>()?,
            "subcommands" => {
                for (sub, facts) in pairs(value)? {
                    collect(name, Some(&text(sub)?), facts, entries)?;
                }
            }
            _ => {}
        }
    }
    Some(())
}

fn arg(facts: &Value) -> Option<Arg> {
    let mut arg = Arg::new();
    let mut name = String::new();
    for (fact, value) in pairs(facts)? {
        match text(fact)?.as_str() {
            "name" => name = text(value)?,
            "display_text" => arg.shown = text(value)?,
            "token" => arg.token = Some(text(value)?),
            "type" => arg.kind = Kind::parse(&text(value)?),
            "arguments" => arg.inner = items(value).iter().map(self::arg).collect::<Option<_>>()?,
            "flags" => {
                for flag in items(value) {
                    set_flag(&mut arg, &text(flag)?);
                }
            }
            _ => {}
        }
    }
    if arg.shown.is_empty() {
        arg.shown = name;
    }
    Some(arg)
}

fn set_flag(arg: &mut Arg, flag: &str) {
    match flag {
        "optional" => arg.optional = true,
        "multiple" => arg.multiple = true,
        "multiple_token" => arg.multiple_token = true,
        _ => {}
    }
}

fn parse_list(list: &str) -> Docs {
    let mut entries: Vec<Entry> = Vec::new();
    for line in list.lines() {
        let depth = line.bytes().take_while(|&byte| byte == b' ').count();
        if depth == 0 {
            let mut fields = line.splitn(4, '|').map(str::to_string);
            let mut field = || fields.next().unwrap_or_default();
            let words = field().split(' ').map(str::to_ascii_uppercase).collect();
            entries.push(Entry { words, group: field(), since: field(), summary: field(), args: Vec::new() });
        } else if let Some(entry) = entries.last_mut() {
            let mut level = &mut entry.args;
            for _ in 1..depth {
                level = &mut level.last_mut().expect("an inner argument follows its outer one").inner;
            }
            level.push(parse_arg(&line[depth..]));
        }
    }
    Docs { entries }
}

fn parse_arg(line: &str) -> Arg {
    let mut arg = Arg::new();
    let mut words = line.split(' ');
    let (name, kind) = words.next().and_then(|word| word.rsplit_once(':')).unwrap_or((line, ""));
    arg.shown = name.to_string();
    arg.kind = Kind::parse(kind);
    for word in words {
        match word.strip_prefix("token=") {
            Some(token) => arg.token = Some(token.to_string()),
            None => set_flag(&mut arg, word),
        }
    }
    arg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_is_whole() {
        let docs = Docs::built_in();
        assert!(docs.entries.len() > 300);
        assert!(docs.entries.is_sorted_by_key(Entry::full_name));
        for entry in &docs.entries {
            assert!(!entry.summary.is_empty() && !entry.group.is_empty(), "{}", entry.full_name());
        }
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(docs.find(&words("config SET a b")).unwrap().full_name(), "CONFIG SET");
        assert_eq!(docs.find(&words("config nonsense")).unwrap().full_name(), "CONFIG");
        assert!(docs.find(&words("nonsense")).is_none());
        assert!(docs.groups().contains("sorted-set"));
    }

    #[test]
    fn a_list_is_read_with_its_levels() {
        let docs = parse_list(
            "a b|g|1.0.0|s\n k:key\n o:block token= optional multiple\n  i:integer multiple_token\n x:word\n",
        );
        let entry = &docs.entries[0];
        assert_eq!((entry.words.as_slice(), entry.args.len()), (&["A".to_string(), "B".to_string()][..], 3));
        let block = &entry.args[1];
        assert_eq!((block.token.as_deref(), block.optional, block.multiple), (Some(""), true, true));
        assert_eq!((block.inner[0].kind, block.inner[0].multiple_token), (Kind::Integer, true));
    }
}
