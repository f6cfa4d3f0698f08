//! Choices of the command line of `cargo xtask test`: packages and programs for cargo, tests for the
//! programs.

use crate::Fallible;

/// Options of cargo with a value after them.
const WITH_VALUE: [&str; 7] = ["-p", "--package", "--exclude", "--test", "--bin", "--features", "-j"];

/// `cargo xtask test [--simulations-elsewhere] [OPTIONS OF CARGO] [NAME] [-- OPTIONS OF THE TESTS]`.
#[derive(Debug, Default, PartialEq)]
pub struct Arguments {
    /// Words for `cargo test`: `-p isotherm --test it`.
    pub of_cargo: Vec<String>,
    /// Words for each test program: names, and what stands after `--`.
    pub of_programs: Vec<String>,
    /// Leaves out the simulations of the server, which `cargo xtask sim` runs with these seeds and more.
    pub without_simulations: bool,
}

impl Arguments {
    pub fn parse(args: &[String]) -> Fallible<Arguments> {
        let mut parsed = Arguments::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--" => parsed.of_programs.extend(args.by_ref().cloned()),
                "--simulations-elsewhere" => parsed.without_simulations = true,
                "--profile" | "--release" => {
                    return Err(format!("{arg}: the tests have one profile, `{}`", super::build::PROFILE));
                }
                option if WITH_VALUE.contains(&option) => {
                    let value = args.next().ok_or_else(|| format!("{option} wants a value"))?;
                    parsed.of_cargo.extend([arg.clone(), value.clone()]);
                }
                option if option.starts_with('-') => parsed.of_cargo.push(arg.clone()),
                _ => parsed.of_programs.push(arg.clone()),
            }
        }
        Ok(parsed)
    }

    /// Returns whether everything is built: a part of the workspace has other features, and so other builds.
    pub fn is_whole(&self) -> bool {
        self.of_cargo.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Arguments {
        Arguments::parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn packages_go_to_cargo_and_names_to_the_tests() {
        let parsed = parse("-p isotherm --test it swap:: -- --nocapture");
        assert_eq!(parsed.of_cargo, ["-p", "isotherm", "--test", "it"]);
        assert_eq!(parsed.of_programs, ["swap::", "--nocapture"]);
        assert!(!parsed.is_whole() && parse("swap::").is_whole());
    }

    #[test]
    fn another_profile_is_refused() {
        assert!(Arguments::parse(&["--release".to_string()]).is_err());
        assert!(Arguments::parse(&["-p".to_string()]).is_err());
    }
}
