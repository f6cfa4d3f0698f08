//! The grammar of `grammar.txt`, and how a random command is drawn from it.
//!
//! A production is a list of alternatives; an alternative is a sequence of parts. Drawing walks the tree once
//! and pushes arguments; what a built-in gives is decided by `Vocabulary`.

use std::collections::HashMap;
use std::iter::Peekable;

use isotherm_stdx::Prng;

use crate::vocabulary::Vocabulary;

pub type Command = Vec<Vec<u8>>;

pub struct Grammar {
    productions: HashMap<String, Vec<Sequence>>,
    commands: Vec<Entry>,
}

struct Entry {
    group: String,
    weight: u64,
    body: Vec<Sequence>,
}

type Sequence = Vec<Part>;

enum Part {
    Word(String),
    Named(String),
    Perhaps(Vec<Sequence>),
    /// Repetition, from zero times up to this number.
    Repeated(Vec<Sequence>, u64),
    OneOf(Vec<Sequence>),
}

const REPEATS_MAX: u64 = 3;
/// Highest number of repetitions of `{{ ... }}`, enough for a collection to leave its first encoding.
const MANY_REPEATS_MAX: u64 = 150;

/// Chances of the commands in a session, one for each entry, in the order of the grammar.
pub struct Theme {
    tickets: Vec<u64>,
}

impl Grammar {
    /// Draws the theme of a session. Of three sessions, one mixes all groups, so that types collide. The
    /// others mostly use one or two groups, so that their data grows, and use the rest now and then. The
    /// chance of a group does not depend on how many lines it has.
    pub fn theme(&self, prng: &mut Prng) -> Theme {
        let mut groups: Vec<&str> = self.commands.iter().map(|entry| entry.group.as_str()).collect();
        groups.dedup();
        let dwelt = if prng.one_in(3) { [""; 2] } else { [*prng.pick(&groups), *prng.pick(&groups)] };
        let total = |group: &str| {
            self.commands.iter().filter(|entry| entry.group == group).map(|entry| entry.weight).sum::<u64>()
        };
        const SCALE: u64 = 100_000;
        const DWELLING: u64 = 12;
        let tickets = self.commands.iter().map(|entry| {
            let factor = if dwelt.contains(&entry.group.as_str()) { DWELLING } else { 1 };
            factor * SCALE * entry.weight / total(&entry.group)
        });
        Theme { tickets: tickets.collect() }
    }

    /// The grammar of this crate, restricted to `groups` (all of them if there are none).
    pub fn of_groups(groups: &[String]) -> Result<Grammar, String> {
        Grammar::parse(include_str!("grammar.txt"))?.restricted(groups)
    }

    /// Leaves the commands of other groups out.
    pub fn restricted(self, groups: &[String]) -> Result<Grammar, String> {
        let mut grammar = self;
        if !groups.is_empty() {
            if let Some(group) =
                groups.iter().find(|group| grammar.commands.iter().all(|entry| entry.group != **group))
            {
                return Err(format!("no such group: {group}"));
            }
            grammar.commands.retain(|entry| groups.contains(&entry.group));
        }
        Ok(grammar)
    }

    pub fn parse(text: &str) -> Result<Grammar, String> {
        let mut grammar = Grammar { productions: HashMap::new(), commands: Vec::new() };
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        for line in lines {
            grammar.parse_line(line).ok_or_else(|| format!("grammar: {line}"))?;
        }
        grammar.check_names()?;
        Ok(grammar)
    }

    fn parse_line(&mut self, line: &str) -> Option<()> {
        if line.starts_with('<') {
            let (name, body) = line.split_once('=')?;
            let name = name.trim().strip_prefix('<')?.strip_suffix('>')?;
            self.productions.insert(name.to_string(), parse_body(body)?);
        } else {
            let (head, body) = line.split_once(':')?;
            let (group, weight) = head.split_once(' ')?;
            let weight = weight.trim().parse().ok()?;
            self.commands.push(Entry { group: group.to_string(), weight, body: parse_body(body)? });
        }
        Some(())
    }

    /// Every name stands for something.
    fn check_names(&self) -> Result<(), String> {
        let mut bodies: Vec<&Vec<Sequence>> = self.commands.iter().map(|entry| &entry.body).collect();
        bodies.extend(self.productions.values());
        while let Some(body) = bodies.pop() {
            for part in body.iter().flatten() {
                match part {
                    Part::Word(_) => {}
                    Part::Named(name) => {
                        if !self.productions.contains_key(name) && !Vocabulary::knows(name) {
                            return Err(format!("grammar: <{name}> is nothing"));
                        }
                    }
                    Part::Perhaps(body) | Part::Repeated(body, _) | Part::OneOf(body) => bodies.push(body),
                }
            }
        }
        Ok(())
    }

    pub fn draw(&self, theme: &Theme, prng: &mut Prng, vocabulary: &Vocabulary) -> Command {
        let mut ticket = prng.below(theme.tickets.iter().sum());
        let drawn = theme.tickets.iter().position(|tickets| match ticket.checked_sub(*tickets) {
            Some(rest) => {
                ticket = rest;
                false
            }
            None => true,
        });
        let drawn = &self.commands[drawn.expect("the ticket is below the sum")];
        let mut command = Command::new();
        self.expand(&drawn.body, prng, vocabulary, &mut command);
        command
    }

    fn expand(&self, body: &[Sequence], prng: &mut Prng, vocabulary: &Vocabulary, command: &mut Command) {
        for part in prng.pick(body) {
            match part {
                Part::Word(word) if prng.one_in(8) => command.push(word.to_lowercase().into_bytes()),
                Part::Word(word) => command.push(word.clone().into_bytes()),
                Part::Named(name) => match self.productions.get(name) {
                    Some(body) => self.expand(body, prng, vocabulary, command),
                    None => command.push(vocabulary.draw(name, prng)),
                },
                Part::OneOf(body) => self.expand(body, prng, vocabulary, command),
                Part::Perhaps(body) => {
                    if prng.one_in(2) {
                        self.expand(body, prng, vocabulary, command);
                    }
                }
                Part::Repeated(body, times_max) => {
                    for _ in 0..prng.below(times_max + 1) {
                        self.expand(body, prng, vocabulary, command);
                    }
                }
            }
        }
    }
}

fn parse_body(text: &str) -> Option<Vec<Sequence>> {
    let mut tokens = text.split_whitespace().peekable();
    let body = parse_alternatives(&mut tokens)?;
    tokens.next().is_none().then_some(body)
}

/// Reads up to the end, or to a closing bracket, which stays.
fn parse_alternatives<'t>(tokens: &mut Peekable<impl Iterator<Item = &'t str>>) -> Option<Vec<Sequence>> {
    let mut body = vec![Sequence::new()];
    while let Some(token) = tokens.next_if(|token| !matches!(*token, "]" | "}" | "}}" | ")")) {
        let part = match token {
            "|" => {
                body.push(Sequence::new());
                continue;
            }
            "[" | "{" | "{{" | "(" => {
                let inner = parse_alternatives(tokens)?;
                match (token, tokens.next()?) {
                    ("[", "]") => Part::Perhaps(inner),
                    ("{", "}") => Part::Repeated(inner, REPEATS_MAX),
                    ("{{", "}}") => Part::Repeated(inner, MANY_REPEATS_MAX),
                    ("(", ")") => Part::OneOf(inner),
                    _ => return None,
                }
            }
            name if name.starts_with('<') => {
                Part::Named(name.strip_prefix('<')?.strip_suffix('>')?.to_string())
            }
            word => Part::Word(word.to_string()),
        };
        body.last_mut().expect("it begins with one").push(part);
    }
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_of_this_crate_is_sound() {
        let grammar = Grammar::of_groups(&[]).unwrap();
        let mut prng = Prng::new(1);
        let vocabulary = Vocabulary::new(1_700_000_000_000);
        let mut names = std::collections::HashSet::new();
        for _ in 0..200 {
            let theme = grammar.theme(&mut prng);
            for _ in 0..200 {
                let command = grammar.draw(&theme, &mut prng, &vocabulary);
                names.insert(command[0].to_ascii_uppercase());
            }
        }
        assert!(names.len() > 200, "{}", names.len());
    }

    #[test]
    fn mistakes_in_a_grammar_are_found() {
        for text in [
            "x 1: GET <nothing>",
            "x 1: ( GET",
            "x 1: GET )",
            "x 1: ( GET ]",
            "x: GET",
            "x one: GET",
            "<x = A",
            "x 1: {{ GET }",
        ] {
            assert!(Grammar::parse(text).is_err(), "{text}");
        }
        assert!(Grammar::of_groups(&["no such".to_string()]).is_err());
    }

    #[test]
    fn parts_are_drawn() {
        let grammar = Grammar::parse("<y> = B | C\ng 1: A ( <y> | { D } ) [ E ]").unwrap();
        let mut prng = Prng::new(3);
        let vocabulary = Vocabulary::new(0);
        let theme = grammar.theme(&mut prng);
        let drawn: std::collections::BTreeSet<String> = (0..500)
            .map(|_| {
                let command = grammar.draw(&theme, &mut prng, &vocabulary);
                command.iter().map(|arg| String::from_utf8_lossy(arg).to_uppercase()).collect()
            })
            .collect();
        let expected = ["A", "AB", "ABE", "AC", "ACE", "AD", "ADD", "ADDD", "ADDDE", "ADDE", "ADE", "AE"];
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), expected);
    }
}
