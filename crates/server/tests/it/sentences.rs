//! Sentences about commands are this server's own: COMMAND DOCS, the notes of COMMAND INFO and the lines of
//! HELP say none that a real Valkey says. Needs `ISOTHERM_PEER_BIN`.

use std::collections::BTreeSet;

use isotherm_probe::Client;
use isotherm_resp::reply_parse::Value;

use crate::common::Server;
use crate::peers;

/// Both servers have about a thousand.
const SENTENCES_MIN: usize = 700;

#[test]
fn no_sentence_is_that_of_valkey() {
    let Some(program) = peers::peer("valkey-server") else { return };
    // CLUSTER HELP is longer in a cluster.
    let options = ["--enable-debug-command", "yes", "--cluster-enabled", "yes"];
    let ours = Server::start(&options);
    let folder = std::env::temp_dir().join(format!("isotherm-sentences-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let theirs = peers::start_with(program, &folder, &options);
    let [mine, others] = [&ours, &theirs].map(|server| sentences(server.port));
    drop(theirs);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(mine.len() > SENTENCES_MIN && others.len() > SENTENCES_MIN, "{} {}", mine.len(), others.len());
    let same: Vec<&String> = mine.intersection(&others).collect();
    assert!(same.is_empty(), "{} sentences are the same: {same:#?}", same.len());
}

fn sentences(port: u16) -> BTreeSet<String> {
    let mut client = Client::connect(port).unwrap();
    let docs = client.call(&["COMMAND", "DOCS"]).unwrap();
    let mut containers = vec!["debug".to_string()];
    containers.extend(
        described(&docs)
            .filter(|(_, facts)| texts(facts).any(|fact| fact == "subcommands"))
            .map(|(name, _)| name),
    );
    let mut found: BTreeSet<String> = [docs, client.call(&["COMMAND"]).unwrap()]
        .iter()
        .flat_map(texts)
        .filter(|text| is_sentence(text))
        .collect();
    for container in containers {
        let help = client.call(&[&container, "HELP"]).unwrap();
        let indented = texts(&help).filter(|line| line.starts_with(' ') && is_sentence(line));
        found.extend(indented.map(|line| line.trim().to_string()));
    }
    found
}

/// Each command of COMMAND DOCS with what is said of it.
fn described(docs: &Value) -> impl Iterator<Item = (String, &Value)> {
    let Value::Array(items) = docs else { panic!("{docs}") };
    items.chunks_exact(2).map(|pair| (texts(&pair[0]).next().unwrap(), &pair[1]))
}

/// All strings, at every depth.
fn texts(value: &Value) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Bulk(text) | Value::Simple(text) => found.push(String::from_utf8(text.clone()).unwrap()),
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
    }
    found.into_iter()
}

/// Several words, and a plain one among them: no name, no syntax, no formula.
fn is_sentence(text: &str) -> bool {
    let is_plain = |word: &str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let words = || text.split_whitespace().map(|word| word.trim_end_matches(['.', ',', ':', ';']));
    words().count() > 1 && words().any(is_plain)
}
