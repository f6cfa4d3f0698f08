//! What was asked for on the command line.

use std::path::PathBuf;

use crate::Fallible;

pub const HELP: &str = "\
isotherm-memlab TABLE [options]

tables
  slot-index    bytes a key of the maps from slots to keys, beside documents 1 and 5
  size-classes  what allocators round to, and what a malloc costs by size, beside documents 1 and 4
  fragmentation the same writes on the server under each allocator, and churn, beside document 2
  arenas        many threads on few arenas, and what tuning does, beside document 4 (jemalloc)

options
  --scale 1/10         a tenth of the keys, blocks, operations
  --allocators A,B     jemalloc, mimalloc, tcmalloc, system (all four)
  --out FOLDER         TABLE.md, .csv, .json and .svg there, beside the Markdown on standard output
";

pub const ALLOCATORS: [&str; 4] = ["jemalloc", "mimalloc", "tcmalloc", "system"];

#[derive(Debug)]
pub struct Options {
    pub table: String,
    scale: (u64, u64),
    pub allocators: Vec<&'static str>,
    pub out: Option<PathBuf>,
}

impl Options {
    pub fn parse(args: &[String]) -> Fallible<Options> {
        let table = args.first().filter(|name| !name.starts_with('-')).cloned().ok_or(HELP)?;
        let mut options = Options { table, scale: (1, 1), allocators: ALLOCATORS.to_vec(), out: None };
        let mut args = args[1..].iter();
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} wants a value"));
            match flag.as_str() {
                "--scale" => options.scale = fraction(value()?)?,
                "--allocators" => {
                    options.allocators = value()?.split(',').map(allocator).collect::<Fallible<_>>()?;
                }
                "--out" => options.out = Some(value()?.into()),
                other => return Err(format!("no option called '{other}'\n\n{HELP}")),
            }
        }
        Ok(options)
    }

    pub fn scaled(&self, count: u64) -> u64 {
        (count * self.scale.0 / self.scale.1).max(1)
    }

    pub fn is_whole(&self) -> bool {
        self.scale.0 == self.scale.1
    }

    /// "at 1/10 of the size", or nothing.
    pub fn scale_note(&self) -> String {
        if self.is_whole() {
            String::new()
        } else {
            format!(", at {}/{} of the size", self.scale.0, self.scale.1)
        }
    }

    /// The command that makes the table again.
    pub fn command(&self) -> String {
        let mut line = format!("cargo run --release -p isotherm-memlab -- {}", self.table);
        if !self.is_whole() {
            line += &format!(" --scale {}/{}", self.scale.0, self.scale.1);
        }
        if self.allocators.len() < ALLOCATORS.len() {
            line += &format!(" --allocators {}", self.allocators.join(","));
        }
        line
    }
}

fn allocator(name: &str) -> Fallible<&'static str> {
    let found = ALLOCATORS.into_iter().find(|known| *known == name);
    found.ok_or_else(|| format!("no allocator called '{name}'; there are {}", ALLOCATORS.join(", ")))
}

fn fraction(text: &str) -> Fallible<(u64, u64)> {
    let (part, whole) = text.split_once('/').unwrap_or((text, "1"));
    match (part.parse(), whole.parse()) {
        (Ok(part), Ok(whole)) if part > 0 && whole > 0 && part <= whole => Ok((part, whole)),
        _ => Err(format!("'{text}' is no scale: 1/10 is one")),
    }
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
        assert_eq!(options.scaled(15_000_000), 1_500_000);
        assert_eq!(options.allocators, ["system", "jemalloc"]);
        assert_eq!(
            options.command(),
            "cargo run --release -p isotherm-memlab -- slot-index --scale 1/10 --allocators system,jemalloc"
        );
        for wrong in ["", "--scale 1/2", "x --scale 0", "x --scale 2/1", "x --allocators dlmalloc", "x --out"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
