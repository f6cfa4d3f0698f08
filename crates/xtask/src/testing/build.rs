//! One build for all that tests: the programs, the test programs, in one profile, by one command.
//!
//! Cargo unites the features of what it builds together, so two commands that name different packages compile
//! some crates twice. This one always names the whole workspace; when nothing has changed it takes a second.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Arguments;
use crate::{Fallible, place, run};

/// Optimised, with assertions, not linked as a whole (Cargo.toml has the reasons).
pub const PROFILE: &str = "ci";

/// A program that cargo has built.
#[derive(Debug, PartialEq)]
pub struct Program {
    /// Folder of its crate, and the name of the target: `server it`.
    pub name: String,
    /// The folder that cargo would run it in.
    pub folder: PathBuf,
    pub executable: PathBuf,
    pub is_test: bool,
}

/// Builds everything in the profile of the tests.
pub fn everything() -> Fallible<Vec<Program>> {
    build(&["--workspace", "--bins", "--tests"].map(str::to_string))
}

/// Builds everything, and returns the program of that name.
pub fn program(name: &str) -> Fallible<PathBuf> {
    everything()?;
    Ok(place::target().join(PROFILE).join(name))
}

/// The test programs that `arguments` choose.
pub fn tests(arguments: &Arguments) -> Fallible<Vec<Program>> {
    let programs = match arguments.is_whole() {
        true => everything()?,
        false => {
            let mut args = arguments.of_cargo.clone();
            if !args.iter().any(|arg| arg == "--test" || arg == "--bin" || arg == "--lib") {
                args.push("--tests".to_string());
            }
            if !args.iter().any(|arg| arg == "-p" || arg == "--package") {
                args.push("--workspace".to_string());
            }
            test_build(&args)?
        }
    };
    Ok(programs.into_iter().filter(|program| program.is_test).collect())
}

fn build(args: &[String]) -> Fallible<Vec<Program>> {
    messages(run::cargo().arg("build").args(args))
}

/// Builds as `cargo test` does: `--bin NAME` is that program's unit tests there.
fn test_build(args: &[String]) -> Fallible<Vec<Program>> {
    messages(run::cargo().args(["test", "--no-run"]).args(args))
}

/// Runs a build. Messages of the compiler go to standard error, as ever.
fn messages(command: &mut Command) -> Fallible<Vec<Program>> {
    command.args(["--profile", PROFILE, "--locked", "--message-format", "json-render-diagnostics"]);
    let built = command.stderr(Stdio::inherit()).output().map_err(|why| format!("cannot build: {why}"))?;
    if !built.status.success() {
        return Err("the programs and tests do not compile".to_string());
    }
    Ok(String::from_utf8_lossy(&built.stdout).lines().filter_map(artifact).collect())
}

/// A message of cargo about a program.
fn artifact(message: &str) -> Option<Program> {
    if !message.contains(r#""reason":"compiler-artifact""#) {
        return None;
    }
    let executable = PathBuf::from(text(message, r#""executable":""#)?);
    let manifest = text(message, r#""manifest_path":""#)?;
    let folder = Path::new(manifest).parent()?.to_path_buf();
    let (_, target) = message.split_once(r#""target":{"#)?;
    let name = format!("{} {}", folder.file_name()?.to_string_lossy(), text(target, r#""name":""#)?);
    let (_, profile) = message.split_once(r#""profile":{"#)?;
    let is_test = profile.split('}').next()?.contains(r#""test":true"#);
    Some(Program { name, folder, executable, is_test })
}

/// The text between `before` and the next quote. Paths with quotes in them are not supported.
fn text<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(before)?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(test: &str, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/a/crates/server/Cargo.toml","target":{{"name":"it","test":true}},"profile":{{"opt_level":"3","test":{test}}},"features":[],"executable":{executable}}}"#
        )
    }

    #[test]
    fn programs_are_found_among_the_messages_of_cargo() {
        let it = artifact(&message("true", r#""/a/target/ci/deps/it-1""#)).unwrap();
        assert_eq!((it.name.as_str(), it.is_test), ("server it", true));
        assert_eq!(it.folder, Path::new("/a/crates/server"));
        assert!(!artifact(&message("false", r#""/a/target/ci/isotherm-server""#)).unwrap().is_test);
        assert_eq!(artifact(&message("true", "null")), None);
    }
}
