//! Options of the command line. An invalid option is reported in one line.

use std::path::PathBuf;

use isotherm_probe::{Fallible, Scale};

use crate::{SUBJECTS, Subject};

pub const HELP: &str = "\
isotherm-memlab TABLE [options]

tables
  slot-index    bytes per key of maps from slots to keys, beside documents 1 and 5
  size-classes  rounding of allocators, and the cost of malloc by size, beside documents 1 and 4
  fragmentation the same writes on the server under each allocator, and churn, beside document 2
  keyspace      bytes per key on the server, and by the number of keys, beside document 5
  arenas        many threads on few arenas, and the effect of tuning, beside document 4 (jemalloc)
  cluster-slots the reply to CLUSTER SLOTS of 100 primaries, made in three ways, beside document 3

options
  --scale 1/10         a tenth of the keys, blocks, operations
  --allocators A,B     jemalloc, mimalloc, tcmalloc, system (all four)
  --only A,B           only these tables of a subject that has several (size-classes-time, churn, growth, ...)
  --keys N,M           keyspace: exactly these numbers of keys, instead of the document's writes
  --peers              keyspace: Valkey and Redis in the same run, installed for it if needed
  --rounds N           arenas: rounds of all settings (15)
  --kept FOLDER        stores figures of finished cases: the next run continues where this one was stopped
  --binaries FOLDER    built programs: isotherm-memlab-jemalloc, isotherm-server-jemalloc, ...
  --out FOLDER         also writes the tables there, as .md, .csv, .json and .svg
";

pub const ALLOCATORS: [&str; 4] = ["jemalloc", "mimalloc", "tcmalloc", "system"];

pub struct Options {
    pub subject: &'static Subject,
    pub scale: Scale,
    pub allocators: Vec<&'static str>,
    only: Vec<&'static str>,
    pub keys: Vec<u64>,
    pub peers: bool,
    pub rounds: usize,
    pub kept: Option<PathBuf>,
    pub binaries: Option<PathBuf>,
    pub out: Option<PathBuf>,
}

impl Options {
    pub fn parse(args: &[String]) -> Fallible<Options> {
        let (name, rest) = args.split_first().ok_or("which table? --help names them")?;
        let subject = SUBJECTS.iter().find(|subject| subject.name == name);
        let subject = subject.ok_or_else(|| {
            format!("no table called '{name}'; there are {}", SUBJECTS.map(|subject| subject.name).join(", "))
        })?;
        let mut options = Options {
            subject,
            scale: Scale::FULL,
            allocators: ALLOCATORS.to_vec(),
            only: Vec::new(),
            keys: Vec::new(),
            peers: false,
            rounds: 15,
            kept: None,
            binaries: None,
            out: None,
        };
        let mut rest = rest.iter();
        while let Some(flag) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{flag} wants a value"));
            match flag.as_str() {
                "--scale" => options.scale = Scale::parse(value()?)?,
                "--allocators" => options.allocators = allocators(value()?)?,
                "--only" => options.only = some_of("table", subject.tables, value()?)?,
                "--keys" => options.keys = value()?.split(',').map(number).collect::<Fallible<_>>()?,
                "--peers" => options.peers = true,
                "--rounds" => options.rounds = number(value()?)? as usize,
                "--kept" => options.kept = Some(value()?.into()),
                "--binaries" => options.binaries = Some(value()?.into()),
                "--out" => options.out = Some(value()?.into()),
                other => return Err(format!("no option called '{other}'; --help names them")),
            }
        }
        if subject.name != "keyspace" && (options.peers || !options.keys.is_empty()) {
            return Err("--keys and --peers belong to the table keyspace".to_string());
        }
        Ok(options)
    }

    pub fn wants(&self, table: &str) -> bool {
        self.only.is_empty() || self.only.contains(&table)
    }

    /// The command that makes the table again.
    pub fn command(&self) -> String {
        let mut line =
            format!("cargo run --release -p isotherm-memlab -- {}{}", self.subject.name, self.scale.option());
        if self.allocators.len() < ALLOCATORS.len() {
            line += &format!(" --allocators {}", self.allocators.join(","));
        }
        if !self.keys.is_empty() {
            let keys: Vec<String> = self.keys.iter().map(u64::to_string).collect();
            line += &format!(" --keys {}", keys.join(","));
        }
        if self.peers {
            line += " --peers";
        }
        line
    }
}

fn allocators(text: &str) -> Fallible<Vec<&'static str>> {
    if text == "all" { Ok(ALLOCATORS.to_vec()) } else { some_of("allocator", &ALLOCATORS, text) }
}

fn some_of(what: &str, known: &[&'static str], text: &str) -> Fallible<Vec<&'static str>> {
    let one = |name: &str| {
        let found = known.iter().find(|known| **known == name).copied();
        found.ok_or_else(|| format!("no {what} called '{name}'; there are {}", known.join(", ")))
    };
    text.split(',').map(one).collect()
}

/// A number that something is counted by: at least one.
fn number(text: &str) -> Fallible<u64> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("'{text}' is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Fallible<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Options::parse(&words)
    }

    #[test]
    fn a_command_line() {
        let options = parse("slot-index --scale 1/10 --allocators system,jemalloc").unwrap();
        assert_eq!(options.scale.of(15_000_000), 1_500_000);
        assert_eq!(options.allocators, ["system", "jemalloc"]);
        assert_eq!(
            options.command(),
            "cargo run --release -p isotherm-memlab -- slot-index --scale 1/10 --allocators system,jemalloc"
        );
        let options = parse("keyspace --peers --keys 100,2000 --allocators all --only keyspace").unwrap();
        assert_eq!(options.keys, [100, 2000]);
        assert!(options.wants("keyspace") && !options.wants("growth"));
        assert_eq!(
            options.command(),
            "cargo run --release -p isotherm-memlab -- keyspace --keys 100,2000 --peers"
        );
    }

    #[test]
    fn what_makes_no_sense_is_reported_in_one_line() {
        for (line, says) in [
            ("", "which table?"),
            ("--scale 1/2", "no table called '--scale'"),
            ("slots", "there are slot-index, size-classes"),
            ("arenas --scale 0", "'0' is no scale"),
            ("arenas --scale", "--scale wants a value"),
            ("arenas --allocators dlmalloc", "no allocator called 'dlmalloc'"),
            ("arenas --only churn", "no table called 'churn'"),
            ("arenas --rounds 0", "'0' is no number"),
            ("arenas --peers", "belong to the table keyspace"),
            ("keyspace --keys 10,", "'' is no number"),
            ("keyspace --fast", "no option called '--fast'"),
        ] {
            let why = parse(line).err().expect(line);
            assert!(why.contains(says) && !why.contains('\n'), "{line}: {why}");
        }
    }

    #[test]
    fn the_help_names_every_table() {
        for subject in &SUBJECTS {
            assert!(HELP.contains(&format!("\n  {} ", subject.name)), "{}", subject.name);
        }
    }
}
