//! Dependencies are few and permissively licensed; the list of licences is deny.toml's, so that there is one.
//!
//! `cargo deny` checks more (advisories, sources), but is not on every machine; this needs Cargo alone.

use std::collections::BTreeSet;
use std::fs;

use crate::{Fallible, place, run};

/// Crates of others in the server's tree, build scripts included.
const FOREIGN_CRATES_MAX: usize = 41;

pub fn check() -> Fallible {
    let file = place::root().join("deny.toml");
    let text = fs::read_to_string(&file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    let allowed = allowed_by(&text)?;
    let whole = tree(&["--workspace", "--edges", "normal,build,dev"])?;
    for line in &whole {
        let (package, licence) =
            line.split_once('|').ok_or_else(|| format!("cargo tree printed '{line}'"))?;
        if !permits(licence, &allowed) {
            return Err(format!("{package} is licensed '{licence}', which deny.toml does not allow"));
        }
    }
    let server = tree(&["--package", "isotherm", "--edges", "normal,build"])?;
    let foreign = server.iter().filter(|line| !line.starts_with("isotherm")).count();
    println!("{} packages, all permissive; {foreign} of others in the server", whole.len());
    if foreign > FOREIGN_CRATES_MAX {
        return Err(format!(
            "the server's tree has {foreign} crates of others; {FOREIGN_CRATES_MAX} is the limit"
        ));
    }
    Ok(())
}

/// Each package once, as `name version|licence`.
fn tree(selection: &[&str]) -> Fallible<BTreeSet<String>> {
    let text = run::quiet(
        run::cargo().args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{l}"]).args(selection),
    )?;
    Ok(text
        .lines()
        .map(|line| line.trim_end_matches(" (*)").to_string())
        .filter(|line| !line.is_empty())
        .collect())
}

/// The list after `allow = ` in deny.toml.
fn allowed_by(text: &str) -> Fallible<Vec<&str>> {
    let list = text.split("\nallow = [").nth(1).and_then(|rest| rest.split(']').next());
    let list = list.ok_or("deny.toml has no list of licences: `allow = [...]`")?;
    Ok(list.split(',').map(|word| word.trim().trim_matches('"')).filter(|word| !word.is_empty()).collect())
}

/// Every part that is joined by AND offers an alternative that is allowed.
fn permits(licence: &str, allowed: &[&str]) -> bool {
    let alternatives = |part: &str| part.trim_matches(['(', ')']).replace('/', " OR ");
    licence
        .split(" AND ")
        .all(|part| alternatives(part).split(" OR ").any(|word| allowed.contains(&word.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_expressions() {
        let allowed = allowed_by("[licenses]\nallow = [\"MIT\", \"Unicode-3.0\"]\n").unwrap();
        assert!(
            permits("MIT", &allowed)
                && permits("GPL-3.0 OR MIT", &allowed)
                && permits("MIT/Apache-2.0", &allowed)
        );
        assert!(permits("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed));
        assert!(
            !permits("GPL-3.0", &allowed) && !permits("MIT AND GPL-3.0", &allowed) && !permits("", &allowed)
        );
    }
}
