//! A session of interleaved steps: all that is needed to repeat it, drawn from a seed.

use isotherm_stdx::Prng;

use crate::Fallible;
use crate::grammar::{Command, Grammar, Theme};
use crate::vocabulary::Vocabulary;

/// Connections whose commands meet. One more belongs to the operator.
pub const CONNECTIONS: usize = 5;
pub const OPERATOR: usize = CONNECTIONS;

/// A write on one connection.
#[derive(Clone, Debug)]
pub struct Step {
    pub connection: usize,
    pub commands: Vec<Command>,
    /// Is sent to a connection that waits in a blocking command, too: it runs when that has ended.
    pub insists: bool,
    /// Lasts until the connection waits for nothing: a time of the command ends by itself.
    pub ends: bool,
    /// Ends when the clock has gone on by a key's time to live.
    pub expires: bool,
}

/// Between empty servers and the next empty servers.
const STEPS: usize = 330;
const BATCH_MAX: u64 = 4;

/// Groups of the grammar that ordinary connections draw from.
const GROUPS: [&str; 7] = ["data", "blocking", "transactions", "pubsub", "tracking", "clients", "users"];

pub struct Source {
    ordinary: Grammar,
    operator: Grammar,
    vocabulary: Vocabulary,
}

impl Source {
    pub fn new() -> Fallible<Source> {
        let text = include_str!("grammar.txt");
        let of = |groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|group| group.to_string()).collect();
            Grammar::parse(text)?.restricted(&groups)
        };
        // No word of the grammar is a moment.
        let vocabulary = Vocabulary::new(0);
        Ok(Source { ordinary: of(&GROUPS)?, operator: of(&["operator"])?, vocabulary })
    }

    pub fn generate(&self, seed: u64) -> Vec<Step> {
        let mut prng = Prng::new(seed);
        let theme = self.ordinary.theme(&mut prng);
        let powers = self.operator.theme(&mut prng);
        let mut steps = beginning(&mut prng);
        while steps.len() < STEPS {
            match prng.below(80) {
                0 => steps.extend(self.pause(&mut prng, &theme)),
                1 | 2 => steps.push(short_lived(&mut prng)),
                3..=9 => {
                    let command = self.operator.draw(&powers, &mut prng, &self.vocabulary);
                    steps.push(step(OPERATOR, vec![command]));
                }
                draw => {
                    let connection = prng.below(CONNECTIONS as u64) as usize;
                    let count = if draw < 18 { 2 + prng.below(BATCH_MAX - 1) } else { 1 };
                    let mut commands: Vec<Command> =
                        (0..count).map(|_| self.command(&mut prng, &theme)).collect();
                    // Two connections with commands after those in which they wait would race.
                    let blocking = commands.iter().position(may_block);
                    commands.truncate(blocking.map_or(commands.len(), |at| at + 1));
                    let insists = prng.one_in(8);
                    steps.push(Step { insists, ..step(connection, commands) });
                }
            }
        }
        steps
    }

    fn command(&self, prng: &mut Prng, theme: &Theme) -> Command {
        self.ordinary.draw(theme, prng, &self.vocabulary)
    }

    /// Pauses writes. A single connection has one that waits: no order is promised in which several go on.
    fn pause(&self, prng: &mut Prng, theme: &Theme) -> Vec<Step> {
        let writer = prng.below(CONNECTIONS as u64) as usize;
        let reader = (writer + 1) % CONNECTIONS;
        // A time that ends by itself would not, while it is paused, and a second pause would last as long.
        let pauses =
            |command: &Command| command.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"PAUSE"));
        let written = std::iter::repeat_with(|| self.command(prng, theme))
            .find(|command| !ends_by_itself(command) && !pauses(command));
        let written = written.expect("most have no time");
        let read =
            *prng.pick(&[&["GET", "k1"][..], &["LRANGE", "l1", "0", "-1"], &["PING"], &["XLEN", "s1"]]);
        vec![
            step(OPERATOR, vec![words(&["CLIENT", "PAUSE", "1000000", "WRITE"])]),
            step(writer, vec![written]),
            step(reader, vec![words(read)]),
            step(OPERATOR, vec![words(&["CLIENT", "UNPAUSE"])]),
        ]
    }
}

/// Half of the connections speak RESP3; there are users, and mostly events.
fn beginning(prng: &mut Prng) -> Vec<Step> {
    let mut steps = Vec::new();
    for (user, password) in [("u1", ">p1"), ("u2", ">p2")] {
        steps.push(step(
            OPERATOR,
            vec![words(&["ACL", "SETUSER", user, "on", password, "+@all", "~*", "&*"])],
        ));
    }
    if !prng.one_in(3) {
        steps.push(step(OPERATOR, vec![words(&["CONFIG", "SET", "notify-keyspace-events", "KEA"])]));
    }
    for connection in 0..CONNECTIONS {
        if prng.one_in(2) {
            steps.push(step(connection, vec![words(&["HELLO", "3"])]));
        }
    }
    steps
}

fn short_lived(prng: &mut Prng) -> Step {
    let key = *prng.pick(&["k1", "k2", "l1", "s1"]);
    let connection = prng.below(CONNECTIONS as u64 + 1) as usize;
    Step { expires: true, ..step(connection, vec![words(&["SET", key, "x", "PX", "1"])]) }
}

pub fn step(connection: usize, commands: Vec<Command>) -> Step {
    let ends = commands.iter().any(ends_by_itself);
    Step { connection, commands, insists: false, ends, expires: false }
}

fn words(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns whether its connection may wait in it.
fn may_block(command: &Command) -> bool {
    const WAITS: [&[u8]; 2] = [b"WAIT", b"WAITAOF"];
    crate::session::may_wait(command) || WAITS.iter().any(|name| command[0].eq_ignore_ascii_case(name))
}

/// Waits for 20 ms, in the notation of its command.
fn ends_by_itself(command: &Command) -> bool {
    let is = |at: usize, word: &[u8]| command.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
    let is_blocking =
        command.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(b"BLOCK") && pair[1] == b"20");
    is_blocking || is(0, b"WAIT") && is(2, b"20") || command.iter().any(|arg| arg == b"0.02")
}

/// Splits steps into one for each command.
pub fn split(steps: &[Step]) -> Vec<Step> {
    let one = |from: &Step, command: &Command| {
        let split = step(from.connection, vec![command.clone()]);
        Step { insists: from.insists, expires: from.expires, ..split }
    };
    steps.iter().flat_map(|step| step.commands.iter().map(move |command| one(step, command))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_is_a_session_and_all_of_the_grammar_is_drawn() {
        let source = Source::new().unwrap();
        let shown = |seed| format!("{:?}", source.generate(seed));
        assert_eq!(shown(1), shown(1));
        assert_ne!(shown(1), shown(2));
        let names: BTreeSet<Vec<u8>> = (0..20)
            .flat_map(|seed| source.generate(seed))
            .flat_map(|step| step.commands)
            .map(|command| command[0].to_ascii_uppercase())
            .collect();
        assert!(names.len() > 80, "{names:?}");
    }

    #[test]
    fn times_that_end_are_known() {
        let ends = |text: &str| ends_by_itself(&words(&text.split(' ').collect::<Vec<_>>()));
        assert!(ends("BLPOP l1 0.02") && ends("XREAD block 20 STREAMS s1 $") && ends("WAIT 1 20"));
        assert!(!ends("BLPOP l1 0") && !ends("XREAD BLOCK 0 STREAMS s1 20") && !ends("WAIT 1 0"));
    }
}
