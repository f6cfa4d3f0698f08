//! Ceilings: what the checkout has too much of is counted, and the count may only fall.
//!
//! `crates/xtask/ceilings.txt` holds a line for each measure. A count above its ceiling is a finding, and so
//! is one below: the ceiling is to be lowered to it (`cargo xtask tidy --lower` does), or what was won could
//! be lost unseen. Nothing raises one: `tidy --new` only adds lines for measures without a line, as those of
//! a new crate.

use std::collections::HashMap;

use super::{File, Finding, Measure};
use super::{circles, config_ids, doc_comments, hand_calls, impls, long, request_path, source, whole, wide};

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
        config_ids::measures(files),
        doc_comments::measures(files),
        wide::measures(files),
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
        let (name, count, places) = (&measure.name, measure.count(), places(measure));
        match ceilings.remove(name.as_str()) {
            Some((line, ceiling)) if count > ceiling => {
                findings.push(finding(line, format!("{name}: {count}, above {ceiling}: {places}")));
            }
            Some((line, ceiling)) if count < ceiling => {
                findings
                    .push(finding(line, format!("{name}: lower the ceiling to {count} (`tidy --lower`)")));
            }
            None if count > measure.allowed => {
                let without = match measure.allowed {
                    0 => "without a ceiling (`tidy --new`)".to_string(),
                    allowed => format!("where {allowed} are enough"),
                };
                findings.push(finding(0, format!("{name}: {count}, {without}: {places}")));
            }
            _ => {}
        }
    }
    findings.extend(
        ceilings
            .iter()
            .map(|(name, (line, _))| finding(*line, format!("{name}: nothing counts this (`tidy --lower`)"))),
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

/// The table with each ceiling lowered to what is counted, without those that nothing counts; exceeded ones
/// stay.
pub fn lowered(table: &str, measures: &[Measure]) -> String {
    let lines = table.lines().filter_map(|line| match ceiling(line) {
        Some((name, ceiling)) => {
            let found = measures.iter().find(|measure| measure.name == name)?;
            Some(format!("{name} {}\n", found.count().min(ceiling)))
        }
        None => Some(format!("{line}\n")),
    });
    lines.collect()
}

/// The table with a ceiling for each measure that has none: after those of the same kind, which differ after
/// a comma, or at the end. Types in too many files get none: such a line is written by hand, and seen in
/// review.
pub fn with_new(table: &str, measures: &[Measure]) -> String {
    let kind = |name: &str| name.split_once(", ").map_or(name, |(kind, _)| kind).to_string();
    let mut lines: Vec<String> = table.lines().map(str::to_string).collect();
    for measure in measures.iter().filter(|measure| measure.count() > 0 && measure.allowed == 0) {
        let names = || lines.iter().map(|line| ceiling(line).map(|(name, _)| name));
        if names().any(|name| name == Some(&measure.name)) {
            continue;
        }
        let same = names().rposition(|name| name.is_some_and(|name| kind(name) == kind(&measure.name)));
        let at = same.map_or(lines.len(), |last| last + 1);
        lines.splice(at..at, ["#".to_string(), format!("{} {}", measure.name, measure.count())]);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// All places of the measures whose names have this part.
pub fn places_of(part: &str, measures: &[Measure]) -> String {
    let mut text = String::new();
    for measure in measures.iter().filter(|measure| measure.name.contains(part)) {
        text.push_str(&format!("{}: {}\n", measure.name, measure.count()));
        text.extend(measure.places.iter().map(|place| format!("  {place}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(count: usize) -> Measure {
        named("circle a", count)
    }

    fn named(name: &str, count: usize) -> Measure {
        Measure::of_places(name.to_string(), vec!["x.rs".to_string(); count])
    }

    fn found(table: &str, count: usize) -> Vec<String> {
        compare(table, &[measure(count)]).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_count_is_at_its_ceiling() {
        assert_eq!(found("# files\ncircle a 3\n", 3), [""; 0]);
        assert_eq!(found("circle a 3\n", 4), ["circle a: 4, above 3: x.rs, x.rs, x.rs, x.rs"]);
        assert_eq!(found("circle a 3\n", 2), ["circle a: lower the ceiling to 2 (`tidy --lower`)"]);
        assert_eq!(found("", 2), ["circle a: 2, without a ceiling (`tidy --new`): x.rs, x.rs"]);
        assert_eq!(found("circle a 3\ncircle b 1\n", 3), ["circle b: nothing counts this (`tidy --lower`)"]);
        assert_eq!(found("circle a many\n", 0), ["neither a name with a number nor a `#`"]);
    }

    #[test]
    fn ceilings_are_lowered_and_never_raised() {
        assert_eq!(lowered("# files\ncircle a 3\n", &[measure(2)]), "# files\ncircle a 2\n");
        assert_eq!(lowered("circle a 3\n", &[measure(4)]), "circle a 3\n");
        assert_eq!(lowered("circle a 3\n#\ncircle b 1\n", &[measure(3)]), "circle a 3\n#\n");
    }

    #[test]
    fn a_few_need_no_ceiling_where_a_few_are_enough() {
        let measure = |count| [Measure { allowed: 2, ..measure(count) }];
        let what = |count| -> Vec<String> {
            compare("", &measure(count)).into_iter().map(|finding| finding.what).collect()
        };
        assert_eq!(what(2), [""; 0]);
        assert_eq!(what(3), ["circle a: 3, where 2 are enough: x.rs, x.rs, x.rs"]);
        assert_eq!(with_new("", &measure(3)), "");
    }

    #[test]
    fn new_ceilings_stand_with_their_kind_and_raise_none() {
        let counted = [named("long, a", 4), named("long, b", 2), named("wide", 1), named("deep", 0)];
        assert_eq!(with_new("long, a 3\n#\nx 5\n", &counted), "long, a 3\n#\nlong, b 2\n#\nx 5\n#\nwide 1\n");
    }

    #[test]
    fn all_places_of_a_measure_are_shown() {
        assert_eq!(places_of("le a", &[measure(2), named("b", 1)]), "circle a: 2\n  x.rs\n  x.rs\n");
    }
}
