//! `isotherm-benchmark`: load for a server, and how it bore it.

use std::sync::Arc;

use isotherm_cli::bench::engine::Test;
use isotherm_cli::bench::nodes::{Nodes, open};
use isotherm_cli::bench::options::{Options, USAGE};
use isotherm_cli::bench::report::{CSV_HEAD, ProgressLine, Saving, report, roles};
use isotherm_cli::bench::suite::{Case, cases};
use isotherm_cli::bench::template::{Data, Numbers, Template};
use isotherm_cli::options::Ending;
use isotherm_cli::terminal::{put, read_stdin};
use isotherm_cli::{Fallible, VERSION};
use isotherm_resp::reply_parse::Value;

fn main() {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(options) => options,
        Err(Ending::Usage) => return put(USAGE),
        Err(Ending::Version) => return put(format!("isotherm-benchmark {VERSION}\n")),
        Err(Ending::Wrong(why)) => {
            eprintln!("{why}");
            std::process::exit(1);
        }
    };
    if let Err(why) = run(options) {
        eprintln!("{why}");
        std::process::exit(1);
    }
}

struct Bench {
    options: Options,
    saving: Option<Saving>,
    nodes: Option<Arc<Nodes>>,
}

fn run(mut options: Options) -> Fallible {
    let nodes = if options.cluster { Some(Arc::new(find_nodes(&options)?)) } else { None };
    if let Some(nodes) = &nodes {
        options.threads = if options.threads == 0 { nodes.list.len() } else { options.threads };
    }
    let saving = if nodes.is_none() { saving_of(&options)? } else { None };
    if !options.keepalive {
        eprintln!(
            "WARNING: Keepalive disabled. Many connections one after the other may use up the ports of this machine."
        );
    }
    if !options.command.is_empty() && options.tests.is_some() {
        eprintln!("WARNING: Option -t is ignored.");
    }
    let mut bench = Bench { options, saving, nodes };
    if bench.options.idle {
        return bench.idle();
    }
    if bench.options.csv {
        put(CSV_HEAD);
    }
    if bench.options.command.is_empty() { bench.suite() } else { bench.custom() }
}

fn find_nodes(options: &Options) -> Fallible<Nodes> {
    let nodes = Nodes::fetch(&options.address, &options.login, options.dial, options.read_from)?;
    put(format!("Cluster has {} {} nodes:\n\n", nodes.list.len(), roles(options.read_from)));
    for (i, node) in nodes.list.iter().enumerate() {
        let role = if node.replica { "Replica" } else { "Primary" };
        put(format!("Node {i}({role}): {} {}\n", node.id, node.address));
    }
    put("\n");
    Ok(nodes)
}

/// Reads the persistence settings of the server, which matter for writes.
fn saving_of(options: &Options) -> Fallible<Option<Saving>> {
    let mut connection = open(&options.address, &options.login, options.dial)?;
    let mut values = Vec::new();
    for name in ["save", "appendonly"] {
        match connection.call(&["CONFIG", "GET", name]) {
            Ok(Value::Array(pair)) => match pair.as_slice() {
                [_, Value::Bulk(value), ..] => values.push(String::from_utf8_lossy(value).into_owned()),
                _ => break,
            },
            Ok(Value::Error(error)) if error.starts_with(b"NOAUTH") => {
                let error = String::from_utf8_lossy(&error);
                return Err(format!("Node {} replied with error:\n{error}", options.address));
            }
            _ => break,
        }
    }
    match <[String; 2]>::try_from(values) {
        Ok([save, appendonly]) => Ok(Some(Saving { save, appendonly })),
        Err(_) => {
            eprintln!("WARNING: Could not fetch server CONFIG");
            Ok(None)
        }
    }
}

impl Bench {
    fn measure(&self, title: &str, template: Template) -> Fallible {
        let options = self.options.clone();
        let numbers = Numbers::new(options.keyspace.unwrap_or(0), options.sequential);
        let csv = options.csv;
        let test = Test::new(options, template, numbers, self.nodes.clone());
        let mut line = ProgressLine::new(title);
        let outcome = test.run(|test, progress| {
            if !csv {
                line.show(test, progress);
            }
        });
        line.clear();
        report(title, &self.options, self.saving.as_ref(), self.nodes.as_deref(), &outcome?);
        Ok(())
    }

    /// The command of the command line.
    fn custom(&mut self) -> Fallible {
        let mut words = self.options.command.clone();
        let title = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
        if self.options.stdin_last {
            words.push(read_stdin()?);
        }
        let template = Template::sequence(&words, self.options.data_bytes, &mut Data::default());
        if template.commands == 0 {
            return Err("There is no command between the ';'".to_string());
        }
        self.options.data_bytes = template.len();
        loop {
            self.measure(&title, template.clone())?;
            if !self.options.forever {
                return Ok(());
            }
        }
    }

    fn suite(&self) -> Fallible {
        let mut data = Data::default();
        loop {
            for case in cases(&self.options, &mut data) {
                if self.options.tests.is_none() && !self.server_knows(&case)? {
                    let name = String::from_utf8_lossy(&case.command[0]);
                    // COMPAT(tools): isotherm-benchmark without -t reports tests whose command the server
                    // does not know as skipped. Why: it serves every server of the protocol.
                    eprintln!("skipped: {}: the server does not know {name}", case.title);
                    continue;
                }
                for command in &case.before {
                    let mut connection = open(&self.options.address, &self.options.login, self.options.dial)?;
                    connection.call(command).map_err(|why| format!("Error: {why}"))?;
                }
                self.measure(case.title, case.template())?;
            }
            if !self.options.forever {
                return Ok(());
            }
        }
    }

    /// Returns whether the server knows the command of a test that the user did not name.
    fn server_knows(&self, case: &Case) -> Fallible<bool> {
        let mut connection = open(&self.options.address, &self.options.login, self.options.dial)?;
        let asked = [b"COMMAND".as_slice(), b"INFO", &case.command[0]];
        let reply = connection.call(&asked).map_err(|why| format!("Error: {why}"))?;
        Ok(!matches!(reply, Value::Array(infos) if infos.first().is_some_and(Value::is_null)))
    }

    /// Only connections.
    fn idle(&self) -> Fallible {
        let clients = self.options.clients;
        put(format!("Creating {clients} idle connections and waiting forever (Ctrl+C when done)\n"));
        let template = Template::of(&["PING"]);
        Test::new(self.options.clone(), template, Numbers::new(0, false), self.nodes.clone()).wait_for_ever()
    }
}
