//! Tables, on the screen and in docs/benchmarks.md.
//!
//! The document is a row of sections between markers, one for each table, so that a run of one table replaces
//! that one only:
//!
//! ```text
//! <!-- memory -->
//! ### Memory ...
//! <!-- /memory -->
//! ```

use isotherm_probe::wrapped;
use std::fs;
use std::process::Command;

use crate::Fallible;
use crate::instructions;
use crate::options::Options;
use crate::process::Side;

const DOCUMENT: &str = "docs/benchmarks.md";

const OPENING: &str = "\
# Benchmarks

Measured by `cargo xtask bench`, Isotherm beside Valkey on the same machine in the same run. Each table names the command
that reproduces it. CPU times are those of all threads of the server, from the kernel's scheduler; memory is resident memory
(RSS) unless it says otherwise. Compare the ratios: the absolute times are those of one machine.
";

pub struct Table {
    /// Names the section in the document.
    pub id: &'static str,
    pub title: String,
    /// Notes on what was measured, and on how to measure it again.
    pub notes: Vec<String>,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(id: &'static str, title: impl Into<String>, head: &[&str]) -> Table {
        let head = head.iter().map(|cell| cell.to_string()).collect();
        Table { id, title: title.into(), notes: Vec::new(), head, rows: Vec::new() }
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(N, self.head.len(), "a row has a cell for each heading");
        self.rows.push(cells.to_vec());
    }

    fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", self.title);
        for note in &self.notes {
            text.push_str(note);
            text.push_str("\n\n");
        }
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        text.push_str(&line(&self.head));
        // The first column is text, the others are figures.
        let rule: Vec<String> = (0..self.head.len())
            .map(|column| if column == 0 { "---".into() } else { "---:".into() })
            .collect();
        text.push_str(&line(&rule));
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
}

/// Prints the tables; with `--write` the document gets them as well.
pub fn publish(tables: &[Table], options: &Options, command_line: &str) -> Fallible {
    let tables: Vec<&Table> = tables.iter().filter(|table| !table.rows.is_empty()).collect();
    let about = about(options);
    println!("{about}\n");
    for table in &tables {
        println!("{}", table.markdown());
    }
    if !options.write {
        return Ok(());
    }
    let old = fs::read_to_string(DOCUMENT).unwrap_or_default();
    let mut text = if old.contains("<!-- ") { old } else { OPENING.to_string() };
    for table in tables {
        let section = format!("{}\n`{command_line}`\n\n{about}\n", table.markdown());
        text = with_section(&text, table.id, &section);
    }
    fs::write(DOCUMENT, wrapped(&text)).map_err(|why| format!("cannot write {DOCUMENT}: {why}"))?;
    println!("written to {DOCUMENT}");
    Ok(())
}

/// The document with this section replaced, or added at its end.
fn with_section(text: &str, id: &str, section: &str) -> String {
    let (open, close) = (format!("<!-- {id} -->\n"), format!("<!-- /{id} -->\n"));
    let whole = format!("{open}{section}{close}");
    match (text.find(&open), text.find(&close)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{whole}{}", &text[..from], &text[to + close.len()..])
        }
        _ => format!("{}\n\n{whole}", text.trim_end()),
    }
}

/// The machine and the versions, in one paragraph.
fn about(options: &Options) -> String {
    let word = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_string();
    let processor = word("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1).map(str::to_string))
        .unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let cores = &options.cores;
    let memory_gb = word("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(0.0, |kb| kb / 1024.0 / 1024.0);
    let load = word("/proc/loadavg").split(' ').next().unwrap_or_default().to_string();
    format!(
        "{}, cores {cores}, {memory_gb:.0} GB, Linux {}, load average {load}; {}; {}; {}.",
        processor,
        word("/proc/sys/kernel/osrelease"),
        first_words(&mut Command::new(options.program(Side::Isotherm)), "--version"),
        match options.kind.as_str() {
            instructions::KIND => "no Valkey".to_string(),
            _ => first_words(&mut Command::new(options.program(Side::Valkey)), "--version"),
        },
        said(Command::new("date").args(["-u", "+%F"])),
    )
}

fn first_words(command: &mut Command, argument: &str) -> String {
    let text = said(command.arg(argument));
    text.split_whitespace().take(5).collect::<Vec<_>>().join(" ")
}

fn said(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_added_once_and_replaced_after() {
        let once = with_section("# Head\n", "memory", "one\n");
        assert_eq!(once, "# Head\n\n<!-- memory -->\none\n<!-- /memory -->\n");
        let twice = with_section(&with_section(&once, "speed", "s\n"), "memory", "two\n");
        assert_eq!(
            twice,
            "# Head\n\n<!-- memory -->\ntwo\n<!-- /memory -->\n\n<!-- speed -->\ns\n<!-- /speed -->\n"
        );
    }

    #[test]
    fn markdown_has_a_cell_for_each_heading() {
        let mut table = Table::new("t", "Title", &["what", "Valkey"]);
        table.row(["GET".into(), "1.0".into()]);
        assert_eq!(table.markdown(), "### Title\n\n| what | Valkey |\n| --- | ---: |\n| GET | 1.0 |\n");
    }
}
