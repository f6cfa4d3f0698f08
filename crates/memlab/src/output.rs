//! Tables, and the four ways in which they are written: Markdown, CSV, JSON, a chart.

use std::fs;
use std::path::Path;

use isotherm_probe::{Fallible, wrapped};

use crate::options::Options;
use crate::svg;

#[derive(Debug, Default)]
pub struct Table {
    pub id: &'static str,
    pub title: String,
    pub notes: Vec<String>,
    pub head: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    pub chart: Option<Chart>,
}

/// Form of a table's chart, and the unit of its numbers.
#[derive(Clone, Copy, Debug)]
pub enum Chart {
    /// A bar for each number.
    Bars(&'static str),
    /// A line for each column of numbers, over the first.
    Lines(&'static str),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Text(String),
    /// A number, and its decimals.
    Number(f64, usize),
    Empty,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(value, decimals) => format!("{value:.decimals$}"),
            Cell::Empty => "-".to_string(),
        }
    }

    fn csv(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) if text.contains(['"', ',', '\n']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            other => other.shown(),
        }
    }

    fn json(&self) -> String {
        match self {
            Cell::Text(text) => quoted(text),
            Cell::Number(..) => self.shown(),
            Cell::Empty => "null".to_string(),
        }
    }
}

impl Table {
    pub fn new(id: &'static str, title: impl Into<String>, head: &[&str]) -> Table {
        let head = head.iter().map(|cell| cell.to_string()).collect();
        Table { id, title: title.into(), head, ..Table::default() }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.head.len(), "a row has a cell for each heading");
        self.rows.push(cells);
    }

    fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = format!("### {}\n\n", self.title);
        self.notes.iter().for_each(|note| text += &format!("{note}\n\n"));
        text += &line(self.head.clone());
        let rule = |at| if self.is_text(at) { "---" } else { "---:" }.to_string();
        text += &line((0..self.head.len()).map(rule).collect());
        self.rows.iter().for_each(|row| text += &line(row.iter().map(Cell::shown).collect()));
        text
    }

    /// Figures stand to the right.
    fn is_text(&self, column: usize) -> bool {
        self.rows.iter().all(|row| matches!(row[column], Cell::Text(_)))
    }

    fn csv(&self) -> String {
        let head = self.head.iter().map(|name| Cell::text(name.as_str()).csv());
        let mut text = head.collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            text += &(row.iter().map(Cell::csv).collect::<Vec<_>>().join(",") + "\n");
        }
        text
    }

    fn json(&self) -> String {
        let row = |row: &Vec<Cell>| {
            let fields =
                self.head.iter().zip(row).map(|(name, cell)| format!("{}: {}", quoted(name), cell.json()));
            format!("    {{{}}}", fields.collect::<Vec<_>>().join(", "))
        };
        let notes: Vec<String> = self.notes.iter().map(|note| quoted(note)).collect();
        let rows: Vec<String> = self.rows.iter().map(row).collect();
        format!(
            "{{\n  \"table\": {},\n  \"title\": {},\n  \"notes\": [{}],\n  \"rows\": [\n{}\n  ]\n}}\n",
            quoted(self.id),
            quoted(&self.title),
            notes.join(", "),
            rows.join(",\n")
        )
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

/// Prints the tables, and writes them where `--out` says. A file appears when it is whole.
pub fn publish(tables: &[Table], options: &Options) -> Fallible {
    for table in tables {
        println!("{}", wrapped(&table.markdown()));
    }
    let Some(folder) = &options.out else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    for table in tables {
        write(folder, table.id, "md", &wrapped(&table.markdown()))?;
        write(folder, table.id, "csv", &table.csv())?;
        write(folder, table.id, "json", &table.json())?;
        match table.chart {
            Some(Chart::Bars(unit)) => write(folder, table.id, "svg", &svg::bars(table, unit))?,
            Some(Chart::Lines(unit)) => write(folder, table.id, "svg", &svg::lines(table, unit))?,
            None => {}
        }
    }
    Ok(())
}

fn write(folder: &Path, name: &str, ending: &str, text: &str) -> Fallible {
    write_whole(&folder.join(format!("{name}.{ending}")), text)
}

/// Writes a file that is there with all of its text or as it was: it is written next to its place, and moved
/// there.
pub fn write_whole(file: &Path, text: &str) -> Fallible {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, file));
    written.map_err(|why| format!("cannot write {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("t", "A table", &["what", "bytes"]);
        table.row(vec![Cell::text("skip list, \"3.2\""), Cell::Number(102.24, 1)]);
        table.row(vec![Cell::text("none"), Cell::Empty]);
        table
    }

    #[test]
    fn all_forms_say_the_same() {
        let table = table();
        assert_eq!(
            table.markdown(),
            "### A table\n\n| what | bytes |\n| --- | ---: |\n| skip list, \"3.2\" | 102.2 |\n| none | - |\n"
        );
        assert_eq!(table.csv(), "what,bytes\n\"skip list, \"\"3.2\"\"\",102.2\nnone,\n");
        assert!(
            table.json().contains(r#"{"what": "skip list, \"3.2\"", "bytes": 102.2}"#),
            "{}",
            table.json()
        );
    }
}
