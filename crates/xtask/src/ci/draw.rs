//! A choice that the commit's hash makes: another one with each landing, the same one each time a landing is
//! checked again.

use std::process::Command;

use crate::{place, run};

/// The hash of the commit that is checked out; without one, as in a source archive, a text that draws too.
pub fn commit() -> String {
    let git = run::quiet(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(place::root()));
    git.map_or("0".to_string(), |hash| hash.trim().to_string())
}

/// A number below `count`.
pub fn one_of(count: usize, commit: &str) -> usize {
    let digits: String = commit.chars().take_while(char::is_ascii_hexdigit).take(8).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0) as usize % count
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hash_draws_the_same_again_and_hashes_draw_all() {
        let drawn = |n: u64| super::one_of(3, &format!("{:08x}beef", n * 2_654_435_761 % (1 << 32)));
        assert_eq!(drawn(5), drawn(5));
        for wanted in 0..3 {
            assert!((0..20).any(|n| drawn(n) == wanted));
        }
        assert_eq!(super::one_of(3, "no hash"), 0);
    }
}
