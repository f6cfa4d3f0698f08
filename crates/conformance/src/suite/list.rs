//! Tests of Valkey's suite that are run, and those of them that cannot pass, with reasons. `disk.txt` has the
//! format.

use crate::Fallible;
use std::collections::BTreeMap;

/// The tests of one file of the suite.
#[derive(Default, Debug)]
pub struct Unit {
    pub name: String,
    /// Tests to be run. If the list is empty, all are run.
    pub only: Vec<String>,
    pub skipped: Vec<Exception>,
    pub failing: Vec<Exception>,
    /// Parameters of all servers of the file, and their values.
    pub config: Vec<(String, String)>,
    /// Why the file does not come to its end.
    pub aborts: Option<String>,
}

#[derive(Debug)]
pub struct Exception {
    pub test: String,
    pub reason: String,
}

pub fn parse(text: &str) -> Fallible<Vec<Unit>> {
    let mut reasons = BTreeMap::new();
    let mut units: Vec<Unit> = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let wrong = |what: &str| format!("line {}: {what}: {line}", at + 1);
        let (kind, rest) = line.split_once(' ').ok_or_else(|| wrong("a word and a name are expected"))?;
        let two = || rest.split_once(' ').ok_or_else(|| wrong("a reason and a text are expected"));
        match kind {
            "reason" => _ = reasons.insert(two()?.0, two()?.1.trim()),
            "unit" => units.push(Unit { name: rest.to_string(), ..Unit::default() }),
            "config" => {
                let unit = units.last_mut().ok_or_else(|| wrong("it belongs to no unit"))?;
                let (name, value) = two()?;
                unit.config.push((name.to_string(), value.to_string()));
            }
            "aborts" => {
                let unit = units.last_mut().ok_or_else(|| wrong("it belongs to no unit"))?;
                unit.aborts = Some(reasons.get(rest).ok_or_else(|| wrong("no such reason"))?.to_string());
            }
            "only" | "skip" | "fails" => {
                let unit = units.last_mut().ok_or_else(|| wrong("it belongs to no unit"))?;
                if kind == "only" {
                    unit.only.push(rest.to_string());
                    continue;
                }
                let (word, test) = two()?;
                let reason = reasons.get(word).ok_or_else(|| wrong("no such reason"))?.to_string();
                let list = if kind == "skip" { &mut unit.skipped } else { &mut unit.failing };
                list.push(Exception { test: test.to_string(), reason });
            }
            _ => return Err(wrong("unknown word")),
        }
    }
    Ok(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_belong_to_the_unit_above() {
        let text = "# a comment\nreason a   needs a\n\nunit u/v\nonly one test\nonly two\nunit w\nskip a s t\nfails a f\n";
        let units = parse(text).unwrap();
        assert_eq!(units.len(), 2);
        assert_eq!((units[0].name.as_str(), units[0].only.len()), ("u/v", 2));
        assert_eq!(
            (units[1].skipped[0].test.as_str(), units[1].skipped[0].reason.as_str()),
            ("s t", "needs a")
        );
        assert_eq!(units[1].failing[0].test, "f");
        for wrong in ["only x", "unit u\nskip none x", "unit", "unit u\nother x"] {
            parse(wrong).unwrap_err();
        }
    }

    #[test]
    fn the_list_is_sound() {
        for unit in super::super::LISTS.iter().flat_map(|list| parse(list.1).unwrap()) {
            let all = unit.only.iter().chain(unit.skipped.iter().chain(&unit.failing).map(|one| &one.test));
            assert!(all.clone().all(|name| name == name.trim() && !name.starts_with('/')), "{}", unit.name);
        }
    }
}
