//! Reduction of hundreds of steps that end in a difference to the few that make it.
//!
//! First every command becomes a step of its own (unless the difference needs them in one write); then pieces
//! are left out, halves first and single steps last, as long as some difference remains. Each attempt starts
//! from empty servers.

use crate::session::Step;

/// Attempts: each is a run of at most the whole session.
const ATTEMPTS_MAX: usize = 400;

/// `differs` runs steps and gives the number of the one that showed a difference.
pub fn shrink(steps: Vec<Step>, differs: impl FnMut(&[Step]) -> Option<usize>) -> Vec<Step> {
    shorten(split(&steps), steps, ATTEMPTS_MAX, differs)
}

/// Shortens `pieces`, or `steps` where these do not differ in pieces, by `attempts_max` runs at most.
pub fn shorten<T: Clone>(
    pieces: Vec<T>,
    steps: Vec<T>,
    attempts_max: usize,
    mut differs: impl FnMut(&[T]) -> Option<usize>,
) -> Vec<T> {
    let mut attempts = 0;
    let mut attempt = |steps: &[T]| {
        attempts += 1;
        if attempts > attempts_max { None } else { differs(steps).map(|last| steps[..=last].to_vec()) }
    };
    let mut best = match attempt(&pieces) {
        Some(shorter) => shorter,
        None => match attempt(&steps) {
            Some(shorter) => shorter,
            None => return steps,
        },
    };
    let mut size = best.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        let mut shortened = false;
        while start < best.len() {
            let end = (start + size).min(best.len());
            let candidate: Vec<T> = best[..start].iter().chain(&best[end..]).cloned().collect();
            match attempt(&candidate) {
                Some(shorter) => {
                    best = shorter;
                    shortened = true;
                }
                None => start = end,
            }
        }
        if size > 1 || !shortened {
            size /= 2;
        }
    }
    best
}

fn split(steps: &[Step]) -> Vec<Step> {
    steps
        .iter()
        .flat_map(|step| match step {
            Step::Commands { connection, commands } => commands
                .iter()
                .map(|command| Step::Commands { connection: *connection, commands: vec![command.clone()] })
                .collect(),
            other => vec![other.clone()],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(word: &str) -> Step {
        Step::Commands { connection: 0, commands: vec![vec![word.as_bytes().to_vec()]] }
    }

    fn words(steps: &[Step]) -> Vec<String> {
        steps
            .iter()
            .flat_map(|step| match step {
                Step::Commands { commands, .. } => commands.clone(),
                _ => Vec::new(),
            })
            .map(|command| String::from_utf8(command[0].clone()).unwrap())
            .collect()
    }

    #[test]
    fn only_what_is_needed_remains() {
        let mut steps: Vec<Step> = (0..100).map(|i| command(&format!("noise{i}"))).collect();
        steps[17] = command("cause");
        steps.insert(
            60,
            Step::Commands { connection: 1, commands: vec![vec![b"x".to_vec()], vec![b"effect".to_vec()]] },
        );
        let differs = |steps: &[Step]| {
            let words = words(steps);
            let cause = words.iter().position(|word| word == "cause")?;
            // The words' places are the steps' places here: every step of a candidate holds one command.
            words.iter().position(|word| word == "effect").filter(|effect| *effect > cause)
        };
        assert_eq!(words(&shrink(steps, differs)), ["cause", "effect"]);
    }

    #[test]
    fn what_does_not_repeat_is_left_alone() {
        let steps: Vec<Step> = (0..5).map(|i| command(&i.to_string())).collect();
        assert_eq!(shrink(steps, |_| None).len(), 5);
    }
}
