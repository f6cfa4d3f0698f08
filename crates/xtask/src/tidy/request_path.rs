//! Things that the way of a request has too many of: places that run commands, names compared, states of a
//! connection.

use super::{File, Measure, has_word};

/// Crates that a request passes.
const CRATES: [&str; 3] = ["engine", "node", "server"];

/// Folders of the server that answer questions about commands rather than run them.
const ELSEWHERE: [&str; 4] = ["admin", "config", "info", "metrics"];

/// Takes files without comments and strings.
pub fn measures(code: &[File]) -> Vec<Measure> {
    let is_ours = |path: &str| CRATES.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
    let server: Vec<&File> = code.iter().filter(|file| is_ours(&file.path)).collect();
    let on_path: Vec<&File> = server
        .iter()
        .copied()
        .filter(|file| !ELSEWHERE.iter().any(|folder| file.path.contains(&format!("/src/{folder}/"))))
        .collect();
    vec![
        Measure::of_places("places in server that build a Call".to_string(), lines(&server, builds_a_call)),
        Measure::of_places("places that name Handler::Exec".to_string(), lines(&server, names_exec)),
        Measure::of_places("names of commands compared".to_string(), lines(&on_path, compares_a_name)),
        Measure::of_places("bools in Connection".to_string(), bools_in_connection(&server)),
    ]
}

fn lines(files: &[&File], counts: fn(&str) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for file in files {
        let found = file.text.lines().enumerate().filter(|(_, line)| counts(line));
        places.extend(found.map(|(index, _)| format!("{}:{}", file.path, index + 1)));
    }
    places
}

fn builds_a_call(line: &str) -> bool {
    let declares = ["impl", "struct", "->"].iter().any(|word| line.contains(word));
    !declares && has_word(line, "Call") && line.contains("Call {")
}

fn names_exec(line: &str) -> bool {
    line.contains("Handler::Exec") && !line.contains("Handler::Exec(")
}

/// `command.name == ..`, `matches!(&*entry.name, ..)`, `match &*spec.name {`,
/// `WORDS.contains(&&*command.name)`.
fn compares_a_name(line: &str) -> bool {
    let named = ["command", "entry", "spec"]
        .iter()
        .flat_map(|owner| ["name", "parent"].map(|field| format!("{owner}.{field}")));
    named.into_iter().any(|name| {
        line.match_indices(&name).any(|(at, _)| {
            let (before, after) = (&line[..at], line[at + name.len()..].trim_start());
            let compared = after.starts_with("==") || after.starts_with("!=");
            let before = before.trim_end_matches(['&', '*']);
            compared
                || ["== ", "!= ", "match ", "matches!(", "contains("].iter().any(|end| before.ends_with(end))
        })
    })
}

/// Fields of the type `bool` between `struct Connection` and its closing brace.
fn bools_in_connection(server: &[&File]) -> Vec<String> {
    let mut places = Vec::new();
    for file in server {
        let mut inside = false;
        for (index, line) in file.text.lines().enumerate() {
            inside |= has_word(line, "Connection") && has_word(line, "struct");
            if inside && line.trim_end().ends_with(": bool,") {
                places.push(format!("{}:{}", file.path, index + 1));
            }
            inside &= line != "}";
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Vec<usize> {
        let file = File { path: "crates/server/src/a.rs".to_string(), text: text.to_string() };
        measures(&[file]).iter().map(Measure::count).collect()
    }

    #[test]
    fn each_has_its_places() {
        assert_eq!(counts("handler(&mut Call {\nlet mut call = AdminCall {\nimpl Call {\n"), [1, 0, 0, 0]);
        assert_eq!(counts("Handler::Exec => {}\nSome(Handler::Exec) | None => {}\n"), [0, 2, 0, 0]);
        assert_eq!(
            counts(
                "if spec.name == x {\nmatches!(&*command.name, x)\nlet n = command.name;\nf(&command.name)\n"
            ),
            [0, 0, 2, 0]
        );
        assert_eq!(
            counts("pub struct Connection {\n    a: bool,\n    b: u8,\n}\nstruct Other {\n    c: bool,\n}\n"),
            [0, 0, 0, 1]
        );
    }
}
