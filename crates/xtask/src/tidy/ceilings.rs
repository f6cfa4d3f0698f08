//! Ceilings: what the checkout has too much of is counted, and the count may only fall.
//!
//! `crates/xtask/ceilings.txt` holds a line for each measure. A count above its ceiling is a finding, and so is one below:
//! the ceiling is to be lowered to it (`cargo xtask tidy --lower` does), or what was won could be lost unseen.

use std::collections::HashMap;

use super::{File, Finding, Measure};
use super::{circles, hand_calls, impls, long, request_path, source, whole};

pub const TABLE: &str = "crates/xtask/ceilings.txt";

/// Places that a finding shows; the rest is a number.
const PLACES_SHOWN_MAX: usize = 12;

pub fn measures(files: &[File]) -> Vec<Measure> {
    let code = source::files(files);
    let counted = [
        circles::measures(&code),
        long::measures(files),
        impls::measures(&code),
        hand_calls::measures(&code),
        request_path::measures(&code),
    ];
    counted.into_iter().flatten().collect()
}

pub fn check(files: &[File]) -> Vec<Finding> {
    let table = files.iter().find(|file| file.path == TABLE).map_or("", |file| file.text.as_str());
    compare(table, &measures(files))
}

fn compare(table: &str, measures: &[Measure]) -> Vec<Finding> {
    let mut ceilings: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut findings = Vec::new();
    for (index, line) in table.lines().enumerate() {
        match ceiling(line) {
            Some((name, count)) => _ = ceilings.insert(name, (index + 1, count)),
            None if line.is_empty() || line.starts_with('#') => {}
            None => findings.push(finding(index + 1, "neither a name with a number nor a `#`".to_string())),
        }
    }
    for measure in measures {
        let Measure { name, count, .. } = measure;
        match ceilings.remove(name.as_str()) {
            Some((line, ceiling)) if *count > ceiling => {
                findings
                    .push(finding(line, format!("{name}: {count}, above {ceiling}: {}", places(measure))));
            }
            Some((line, ceiling)) if *count < ceiling => {
                findings
                    .push(finding(line, format!("{name}: lower the ceiling to {count} (`tidy --lower`)")));
            }
            None if *count > 0 => {
                findings.push(finding(0, format!("{name}: {count}, without a ceiling: {}", places(measure))));
            }
            _ => {}
        }
    }
    findings.extend(
        ceilings.iter().map(|(name, (line, _))| finding(*line, format!("{name}: nothing counts this"))),
    );
    findings
}

fn finding(line: usize, what: String) -> Finding {
    Finding { line, ..whole(TABLE, what) }
}

fn places(measure: &Measure) -> String {
    let shown: Vec<&str> = measure.places.iter().take(PLACES_SHOWN_MAX).map(String::as_str).collect();
    let more = measure.places.len() - shown.len();
    if more == 0 { shown.join(", ") } else { format!("{}, and {more} more", shown.join(", ")) }
}

/// A line of the table: the name may have blanks, the number stands last.
fn ceiling(line: &str) -> Option<(&str, usize)> {
    let (name, count) = line.rsplit_once(' ')?;
    Some((name.trim_end(), count.parse().ok()?)).filter(|_| !line.starts_with('#'))
}

/// The table with each ceiling lowered to what is counted; those that are exceeded stay.
pub fn lowered(table: &str, measures: &[Measure]) -> String {
    let lines = table.lines().map(|line| match ceiling(line) {
        Some((name, ceiling)) => {
            let count =
                measures.iter().find(|measure| measure.name == name).map_or(ceiling, |found| found.count);
            format!("{name} {}\n", count.min(ceiling))
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(count: usize) -> Measure {
        Measure { name: "circle a".to_string(), count, places: vec!["x.rs".to_string()] }
    }

    fn found(table: &str, count: usize) -> Vec<String> {
        compare(table, &[measure(count)]).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_count_is_at_its_ceiling() {
        assert_eq!(found("# files\ncircle a 3\n", 3), [""; 0]);
        assert_eq!(found("circle a 3\n", 4), ["circle a: 4, above 3: x.rs"]);
        assert_eq!(found("circle a 3\n", 2), ["circle a: lower the ceiling to 2 (`tidy --lower`)"]);
        assert_eq!(found("", 2), ["circle a: 2, without a ceiling: x.rs"]);
        assert_eq!(found("circle a 3\ncircle b 1\n", 3), ["circle b: nothing counts this"]);
        assert_eq!(found("circle a many\n", 0), ["neither a name with a number nor a `#`"]);
    }

    #[test]
    fn ceilings_are_lowered_and_never_raised() {
        assert_eq!(lowered("# files\ncircle a 3\n", &[measure(2)]), "# files\ncircle a 2\n");
        assert_eq!(lowered("circle a 3\n", &[measure(4)]), "circle a 3\n");
    }
}
