//! HELP and the TAB key, from what is known of commands.

use crate::VERSION;
use crate::docs::{Docs, Entry};
use crate::hint::syntax;

const ABOUT: &str = "\
To get help about commands type:
      \"help @<group>\" to get a list of commands in <group>
      \"help <command>\" for help on <command>
      \"help <tab>\" to get a list of possible help topics
      \"quit\" to exit

To set isotherm-cli preferences:
      \":set hints\" enable online hints
      \":set nohints\" disable online hints
Set your preferences in ~/.isothermclirc
";

/// Returns the output of HELP with these words.
pub fn help(docs: &Docs, words: &[Vec<u8>]) -> String {
    let Some(first) = words.first() else { return format!("isotherm-cli {VERSION}\n{ABOUT}") };
    let mut out = String::new();
    for entry in &docs.entries {
        match first.strip_prefix(b"@") {
            Some(group) if entry.group.as_bytes().eq_ignore_ascii_case(group) => {
                describe(&mut out, entry, false)
            }
            None if begins_with(entry, words) => describe(&mut out, entry, true),
            _ => {}
        }
    }
    out + "\r\n"
}

fn begins_with(entry: &Entry, words: &[Vec<u8>]) -> bool {
    words.len() <= entry.words.len()
        && entry.words.iter().zip(words).all(|(name, word)| name.as_bytes().eq_ignore_ascii_case(word))
}

fn describe(out: &mut String, entry: &Entry, with_group: bool) {
    let name = entry.full_name();
    out.push_str(&format!("\r\n  \x1b[1m{name}\x1b[0m \x1b[90m{}\x1b[0m\r\n", syntax(entry)));
    out.push_str(&format!("  \x1b[33msummary:\x1b[0m {}\r\n", entry.summary));
    out.push_str(&format!("  \x1b[33msince:\x1b[0m {}\r\n", entry.since));
    if with_group {
        out.push_str(&format!("  \x1b[33mgroup:\x1b[0m {}\r\n", entry.group));
    }
}

/// The lines that a line may become.
pub fn completions(docs: &Docs, line: &str) -> Vec<String> {
    let asks_for_help = line.get(..5).is_some_and(|front| front.eq_ignore_ascii_case("help "));
    let start = if asks_for_help { line.len() - line[5..].trim_start().len() } else { 0 };
    let (kept, begun) = line.split_at(start);
    let mut names: Vec<String> = docs.entries.iter().map(Entry::full_name).collect();
    if asks_for_help {
        names.extend(docs.groups().iter().map(|group| format!("@{group}")));
    }
    let fits = |name: &String| name.get(..begun.len()).is_some_and(|front| front.eq_ignore_ascii_case(begun));
    names.into_iter().filter(fits).map(|name| format!("{kept}{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn help_on_a_command_a_group_and_nothing() {
        let docs = Docs::built_in();
        let get = help(&docs, &words("get"));
        assert!(get.starts_with("\r\n  \x1b[1mGET\x1b[0m \x1b[90mkey\x1b[0m\r\n"), "{get:?}");
        assert!(get.contains("group:\x1b[0m string\r\n"));
        assert!(help(&docs, &words("config")).contains("CONFIG SET"), "subcommands too");
        let group = help(&docs, &words("@LIST"));
        assert!(group.contains("LPUSH") && !group.contains("\x1b[1mGET") && !group.contains("group:"));
        assert_eq!(help(&docs, &words("nonsense")), "\r\n");
        assert!(help(&docs, &[]).contains("help @<group>"));
    }

    #[test]
    fn completion() {
        let docs = Docs::built_in();
        assert_eq!(completions(&docs, "getra"), ["GETRANGE"]);
        assert_eq!(completions(&docs, "config re"), ["CONFIG RESETSTAT", "CONFIG REWRITE"]);
        assert_eq!(completions(&docs, "help @sorted"), ["help @sorted-set"]);
        assert!(completions(&docs, "@sorted").is_empty());
    }
}
