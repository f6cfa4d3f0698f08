//! Any command there is: drawn from what COMMAND DOCS says of arguments, so a new command is drawn without a
//! change here.
//!
//! Arguments are a tree of blocks, choices, tokens and values; whatever may come several times comes as often
//! as the first number of keys, fields or ids in the request says. Values are few and small, so that commands
//! meet each other's traces and nothing that is O(N) has much to do. Some commands belong to lanes of their
//! own, or would end the run.

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::plan::DBS_ANY;

/// Commands that are not drawn, with the reason.
const NOT_DRAWN: [(&str, &str); 32] = [
    ("shutdown", "ends the server"),
    ("debug", "`control` has it"),
    ("flushall", "`control` has it"),
    ("config|set", "`control` has it"),
    ("config|rewrite", "there is no file"),
    ("client|kill", "`control` has it"),
    ("client|pause", "`control` has it"),
    ("client|unpause", "`control` has it"),
    ("client|unblock", "`control` has it"),
    ("client|reply", "`torn` has it: replies could not be counted"),
    ("reset", "`torn` has it: it leaves the database"),
    ("select", "the lane has chosen a database"),
    ("quit", "`torn` has it"),
    ("monitor", "`torn` has it: replies could not be counted"),
    ("subscribe", "`messages` has it: replies could not be counted"),
    ("psubscribe", "as subscribe"),
    ("ssubscribe", "as subscribe"),
    ("unsubscribe", "as subscribe"),
    ("punsubscribe", "as subscribe"),
    ("sunsubscribe", "as subscribe"),
    ("pfselftest", "takes its time on purpose"),
    ("memory|profile", "writes files"),
    // Of servers that have more than this one.
    ("replicaof", "a replica refuses writes"),
    ("slaveof", "a replica refuses writes"),
    ("failover", "a replica refuses writes"),
    ("sync", "ends in a stream that is no reply"),
    ("psync", "ends in a stream that is no reply"),
    ("replconf", "says nothing"),
    ("acl", "may forbid the run"),
    ("wait", "waits for replicas"),
    ("waitaof", "waits for a file"),
    ("client|no-evict", "a lane decides whom a limit may meet"),
];

#[derive(Debug)]
struct Argument {
    name: String,
    kind: String,
    token: Option<String>,
    is_optional: bool,
    is_multiple: bool,
    inner: Vec<Argument>,
}

#[derive(Debug)]
struct Command {
    name: Vec<String>,
    group: String,
    arguments: Vec<Argument>,
}

pub struct Grammar {
    commands: Vec<Command>,
}

impl Grammar {
    /// Reads the grammar from a reply to COMMAND DOCS.
    pub fn of(docs: &Value) -> Grammar {
        let mut commands = Vec::new();
        for (name, doc) in pairs(docs) {
            read_command(&name, doc, &mut commands);
        }
        commands.retain(|command| {
            let name = command.name.join("|");
            !NOT_DRAWN.iter().any(|(other, _)| *other == name || *other == command.name[0])
        });
        Grammar { commands }
    }

    pub fn commands(&self) -> usize {
        self.commands.len()
    }

    pub fn draw(&self, prng: &mut Prng) -> Vec<Vec<u8>> {
        let command = prng.pick(&self.commands);
        let mut request: Vec<Vec<u8>> = command.name.iter().map(|word| word.clone().into_bytes()).collect();
        let mut drawing = Drawing {
            prng,
            times: 1,
            // Lengths and offsets here are memory taken.
            is_small: matches!(command.group.as_str(), "string" | "bitmap"),
            // Quadratic in the lengths of its values: it gets keys of its own, which hold little.
            is_short: command.name[0] == "lcs",
        };
        drawing.times = 1 + drawing.prng.below(3) as usize;
        command.arguments.iter().for_each(|argument| drawing.draw(argument, &mut request));
        // Now and then one word too few or too many.
        if prng.one_in(25) {
            let at = 1 + prng.below(request.len() as u64) as usize;
            if at < request.len() { drop(request.remove(at)) } else { request.push(b"junk".to_vec()) }
        }
        request
    }
}

struct Drawing<'a> {
    prng: &'a mut Prng,
    times: usize,
    is_small: bool,
    is_short: bool,
}

impl Drawing<'_> {
    fn draw(&mut self, argument: &Argument, request: &mut Vec<Vec<u8>>) {
        if argument.is_optional && !self.prng.one_in(2) {
            return;
        }
        if let Some(token) = &argument.token {
            request.push(token.clone().into_bytes());
        }
        let times = if argument.is_multiple { self.times } else { 1 };
        for _ in 0..times {
            match argument.kind.as_str() {
                "pure-token" => {}
                "oneof" if argument.inner.is_empty() => {}
                "oneof" => {
                    let at = self.prng.below(argument.inner.len() as u64) as usize;
                    self.draw(&argument.inner[at], request);
                }
                "block" => argument.inner.iter().for_each(|inner| self.draw(inner, request)),
                kind => request.push(self.value(kind, &argument.name).into_bytes()),
            }
        }
    }

    fn value(&mut self, kind: &str, name: &str) -> String {
        let prng = &mut *self.prng;
        match kind {
            "key" if self.is_short => format!("short:{}", prng.below(3)),
            "key" => format!("{}{}", prng.pick(&["a:", "b:", "{tag}"]), prng.below(40)),
            "pattern" => prng.pick(&["*", "a:*", "?:1*", "{tag}*", "[ab]:?", "none"]).to_string(),
            "unix-time" if name.contains("milli") => (super::lanes::now_ms() + prng.below(2000)).to_string(),
            "unix-time" => (super::lanes::now_ms() / 1000 + prng.below(3)).to_string(),
            "double" if name == "timeout" => format!("0.{:02}", 1 + prng.below(30)),
            "double" => prng.pick(&["0", "1", "-1.5", "3.25", "1e3", "13.36", "38.1"]).to_string(),
            "integer" => self.integer(name),
            _ if name == "timeout" => format!("0.{:02}", 1 + prng.below(30)),
            _ if name == "id" || name.ends_with("-id") => {
                prng.pick(&["0", "$", "1-1", "*", "0-0", "5-5", "+", "-"]).to_string()
            }
            _ if name == "group" => prng.pick(&["g1", "g2"]).to_string(),
            _ if name == "username" => "default".to_string(),
            _ if self.is_short => "short".to_string(),
            _ if prng.one_in(30) => "long ".repeat(1 + prng.below(1000) as usize),
            _ => format!("w{}", prng.below(200)),
        }
    }

    fn integer(&mut self, name: &str) -> String {
        let prng = &mut *self.prng;
        if name.starts_with("num") {
            return self.times.to_string();
        }
        if name.contains("db") || matches!(name, "index1" | "index2") {
            return (DBS_ANY.start as u64 + prng.below(DBS_ANY.len() as u64)).to_string();
        }
        if name == "timeout" {
            return "1".to_string();
        }
        if name.contains("milli") {
            return (1 + prng.below(500)).to_string();
        }
        if name.contains("seconds") {
            return prng.below(3).to_string();
        }
        if prng.one_in(20) && !self.is_small {
            return prng.pick(&["9223372036854775807", "4294967296", "2147483647"]).to_string();
        }
        prng.pick(&["-2", "-1", "0", "1", "1", "2", "3", "7", "10", "100", "1000", "20000"]).to_string()
    }
}

fn read_command(name: &str, doc: &Value, into: &mut Vec<Command>) {
    let fields = pairs(doc);
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
    if let Some(subcommands) = field("subcommands") {
        pairs(subcommands).into_iter().for_each(|(name, doc)| read_command(&name, doc, into));
        return;
    }
    let arguments = field("arguments").map_or(Vec::new(), read_arguments);
    let group = field("group").and_then(text).unwrap_or_default();
    into.push(Command { name: name.split('|').map(str::to_string).collect(), group, arguments });
}

fn read_arguments(list: &Value) -> Vec<Argument> {
    let Value::Array(items) = list else { return Vec::new() };
    items.iter().map(read_argument).collect()
}

fn read_argument(item: &Value) -> Argument {
    let fields = pairs(item);
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
    let flags: Vec<String> = match field("flags") {
        Some(Value::Array(flags) | Value::Set(flags)) => flags.iter().filter_map(text).collect(),
        _ => Vec::new(),
    };
    let has = |flag: &str| flags.iter().any(|other| other == flag);
    Argument {
        name: field("name").and_then(text).unwrap_or_default(),
        kind: field("type").and_then(text).unwrap_or_default(),
        token: field("token").and_then(text),
        is_optional: has("optional"),
        is_multiple: has("multiple"),
        inner: field("arguments").map_or(Vec::new(), read_arguments),
    }
}

/// A map as RESP2 writes it, in one list.
fn pairs(value: &Value) -> Vec<(String, &Value)> {
    let Value::Array(items) = value else { return Vec::new() };
    items.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, &pair[1]))).collect()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(text) | Value::Simple(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn list(items: &[Value]) -> Value {
        Value::Array(items.to_vec())
    }

    fn argument(name: &str, kind: &str, more: &[Value]) -> Value {
        list(&[&[bulk("name"), bulk(name), bulk("type"), bulk(kind)], more].concat())
    }

    #[test]
    fn a_command_is_drawn_from_its_documentation() {
        let many = [bulk("flags"), list(&[bulk("multiple")])];
        let arguments = list(&[
            argument("timeout", "double", &[]),
            argument("numkeys", "integer", &[]),
            argument("key", "key", &many),
            argument(
                "where",
                "oneof",
                &[
                    bulk("arguments"),
                    list(&[
                        argument("left", "pure-token", &[bulk("token"), bulk("LEFT")]),
                        argument("right", "pure-token", &[bulk("token"), bulk("RIGHT")]),
                    ]),
                ],
            ),
        ]);
        let docs = list(&[
            bulk("blmpop"),
            list(&[bulk("group"), bulk("list"), bulk("arguments"), arguments]),
            bulk("shutdown"),
            list(&[]),
            bulk("config"),
            list(&[
                bulk("subcommands"),
                list(&[bulk("config|set"), list(&[]), bulk("config|get"), list(&[])]),
            ]),
        ]);
        let grammar = Grammar::of(&docs);
        let names: Vec<String> = grammar.commands.iter().map(|command| command.name.join(" ")).collect();
        assert_eq!(names, ["blmpop", "config get"]);
        let mut prng = Prng::new(1);
        let mut whole = 0;
        for _ in 0..500 {
            let words = grammar.draw(&mut prng);
            let Some(keys) =
                words.get(2).and_then(|word| std::str::from_utf8(word).ok()?.parse::<usize>().ok())
            else {
                continue;
            };
            let is_end = |word: &Vec<u8>| *word == b"LEFT" || *word == b"RIGHT";
            whole += usize::from(words.len() == 4 + keys && words.last().is_some_and(is_end));
        }
        assert!(whole > 200, "{whole}");
    }
}
