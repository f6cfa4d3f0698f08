//! Checks that have to pass before a change is shown to others, part by part: format, tidy, licences, lints,
//! tests.

use crate::{Fallible, licences, needs, place, run, testing};

const PARTS: [&str; 5] = ["format", "tidy", "licences", "lints", "tests"];

/// Runs all parts, or those that are named.
pub fn check(args: &[String]) -> Fallible {
    if let Some(unknown) = args.iter().find(|name| !PARTS.contains(&name.as_str())) {
        return Err(format!("'{unknown}' is none of {}", PARTS.join(", ")));
    }
    needs::check()?;
    let is_chosen = |part: &&str| args.is_empty() || args.iter().any(|name| name == part);
    PARTS.into_iter().filter(is_chosen).try_for_each(|part| {
        run::step(part, || match part {
            "format" => format(),
            "tidy" => tidy(&[]),
            "licences" => licences::check(),
            "lints" => lints(),
            _ => testing::test(&[]),
        })
    })
}

/// The workspace of the fuzz targets is one of its own.
fn format() -> Fallible {
    run::loud(run::cargo().args(["fmt", "--all", "--check"]))?;
    run::loud(run::cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
}

fn lints() -> Fallible {
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    run::loud(run::cargo().args(clippy))
}

/// The rules of the house, or one of their reports; ceilings may be changed before the rules are checked.
pub fn tidy(args: &[String]) -> Fallible {
    let root = place::root();
    match args {
        [flag, rest @ ..] if flag == "--circles" => {
            print!("{}", crate::tidy::circles(&root, rest));
            return Ok(());
        }
        [flag, part] if flag == "--places" => {
            print!("{}", crate::tidy::places(&root, part));
            return Ok(());
        }
        [flag] if flag == "--lower" => crate::tidy::lower(&root)?,
        [flag] if flag == "--new" => crate::tidy::add_new(&root)?,
        [] => {}
        _ => {
            let usage = "usage: cargo xtask tidy [--lower | --new | --places NAME | --circles [--followed] [CRATE ..]]";
            return Err(usage.to_string());
        }
    }
    let findings = crate::tidy::findings(&root);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() { Ok(()) } else { Err(format!("tidy: {} findings", findings.len())) }
}
