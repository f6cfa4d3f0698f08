//! Claims of COMPARE.md and docs/metrics.md, held against a running server.
//!
//! In the table of features each name in backticks shows a feature: words in capitals are a command, other
//! words a parameter or a field of INFO. In the table of metrics a row says whether its metrics are served.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::common::{Client, Server, encode, free_port, wait_until};

/// Rows that need no name: the licence is none of the server's, and modules are what it has not.
const ROWS_WITHOUT_NAMES: [&str; 1] = ["licence"];

fn document(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// Rows of the table below a heading, cut into cells.
fn rows<'t>(text: &'t str, heading: &str) -> Vec<Vec<&'t str>> {
    let (_, part) = text.split_once(heading).unwrap_or_else(|| panic!("no {heading:?}"));
    let table =
        part.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns whether the server has a command, parameter or field of INFO of this name.
fn is_there(client: &mut Client, name: &str) -> bool {
    let first = name.split(' ').next().unwrap_or_default();
    if first.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') {
        let command = name.to_ascii_lowercase().replace(' ', "|");
        client.send(encode(&["COMMAND", "INFO", &command]));
        return client.read_reply().len() > "*1\r\n$-1\r\n".len();
    }
    let parameter = client.ask(&format!("CONFIG GET {name}"));
    !parameter.starts_with("*0\r\n") || client.ask("INFO everything").contains(&format!("\n{name}:"))
}

#[test]
fn features_have_commands_parameters_or_fields() {
    // Fields of the append-only file are there with one.
    let server = Server::start(&["--appendonly", "yes"]);
    let mut client = server.client();
    wait_until("the data is loaded", || client.info("persistence", "loading") == 0);
    assert!(!is_there(&mut client, "GETT") && !is_there(&mut client, "CLUSTER MEAT"));
    assert!(!is_there(&mut client, "maxmemori") && is_there(&mut client, "redis_version"));
    let text = document("COMPARE.md");
    let rows = rows(&text, "## What each can do");
    assert!(rows.len() >= 15, "{} rows", rows.len());
    let mut missing = Vec::new();
    for row in &rows {
        let names: Vec<&str> = row[..2].iter().flat_map(|cell| names(cell)).collect();
        if names.is_empty() && !ROWS_WITHOUT_NAMES.contains(&row[0]) {
            missing.push(format!("{}: no name shows it", row[0]));
        }
        let absent = names.iter().filter(|name| !is_there(&mut client, name));
        missing.extend(absent.map(|name| format!("{}: there is no `{name}`", row[0])));
        if names == ["COMMAND COUNT"] {
            let count = client.ask_number("COMMAND COUNT").to_string();
            assert_eq!(row[1], count, "the number of commands");
        }
    }
    assert!(missing.is_empty(), "COMPARE.md: {missing:#?}");
}

/// The part of a name before what stands for several: `redis_key_` of `redis_key_*`, `a` of `a{b}`.
fn stem(name: &str) -> (&str, bool) {
    match name.find(['*', '{']) {
        Some(at) => (&name[..at], true),
        None => (name, false),
    }
}

fn is_served(served: &BTreeSet<String>, name: &str) -> bool {
    match stem(name) {
        (stem, true) => served.iter().any(|metric| metric.starts_with(stem)),
        (name, false) => served.contains(name),
    }
}

/// Names of all metrics of a server whose condition is as usual as it can be: with an append-only file and a
/// key.
fn served() -> BTreeSet<String> {
    let port = free_port();
    let server = Server::with_metrics(
        1,
        port,
        &["--appendonly", "yes", "--latency-monitor-threshold", "1", "--enable-debug-command", "yes"],
    );
    let mut client = server.client();
    wait_until("the data is loaded", || client.info("persistence", "loading") == 0);
    client.check("SET key value", "+OK\r\n");
    client.check("DEBUG SLEEP 0.01", "+OK\r\n");
    assert!(client.ask("LPUSH key value").starts_with('-'));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.filter_map(|line| line.split(' ').next()).map(str::to_string).collect()
}

#[test]
fn metrics_are_served_as_their_page_says() {
    let served = served();
    assert!(served.len() > 100 && !is_served(&served, "redis_no_such_metric"));
    let text = document("docs/metrics.md");
    let mut false_claims = Vec::new();
    for row in rows(&text, "redis_exporter as of") {
        let is_absent = row[1].starts_with("not");
        for name in names(row[0]).filter(|name| name.starts_with("redis_")) {
            if is_absent && is_served(&served, name) {
                false_claims.push(format!("{name} is served; the page: {}", row[1]));
            }
            let is_claimed = row[1] == "served" || row[1].starts_with("served, ");
            if is_claimed && !is_served(&served, name) {
                false_claims.push(format!("{name} is not served; the page: {}", row[1]));
            }
        }
    }
    let named: Vec<&str> = names(&text).filter(|name| name.starts_with("isotherm_")).collect();
    for metric in served.iter().filter(|metric| metric.starts_with("isotherm_")) {
        let is_named = named.iter().any(|name| match stem(name) {
            (stem, true) => metric.starts_with(stem),
            (name, false) => metric == name,
        });
        if !is_named {
            false_claims.push(format!("{metric} is served; the page does not name it"));
        }
    }
    assert!(false_claims.is_empty(), "docs/metrics.md: {false_claims:#?}");
}
