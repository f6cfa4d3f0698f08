//! Probes: each connects anew, asks one thing, and leaves.

use std::time::{Duration, Instant};

use isotherm_probe::Client;

use crate::world::Severity;

/// Answers that come later are faults that the machine may have caused.
pub const LATE_MAX: Duration = Duration::from_secs(1);
/// Answers that have not come by now do not come.
pub const LOST_MAX: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(10);

pub struct Probes {
    port: u16,
    took: Vec<Duration>,
    pub faults: Vec<(Severity, String)>,
}

impl Probes {
    pub fn of(port: u16) -> Probes {
        Probes { port, took: Vec::new(), faults: Vec::new() }
    }

    /// Asks for PING until the time is over, or one probe finds no answer.
    pub fn ask_until(&mut self, until: Instant) {
        while Instant::now() < until && self.ask() {
            std::thread::sleep(PAUSE);
        }
    }

    fn ask(&mut self) -> bool {
        let begun = Instant::now();
        let answer = on_new_connection(self.port, &["PING"]);
        let took = begun.elapsed();
        self.took.push(took);
        self.note("PING", took, answer).is_some()
    }

    /// Returns the answer to one request on a new connection, `Err` with the text of an error; nothing if
    /// none has come.
    pub fn request(&mut self, words: &[&str]) -> Option<Result<(), String>> {
        let begun = Instant::now();
        let name = words.join(" ");
        let answer = on_new_connection(self.port, words);
        self.note(&name, begun.elapsed(), answer)
    }

    fn note(&mut self, name: &str, took: Duration, answer: Answer) -> Option<Result<(), String>> {
        let seconds = took.as_secs_f64();
        if let Answer::Missing(why) = &answer {
            self.faults
                .push((Severity::Wrong, format!("{name} on a new connection: {why} ({seconds:.1} s)")));
            return None;
        }
        if took > LATE_MAX {
            let what = format!("{name} on a new connection is answered after {seconds:.1} s");
            self.faults.push((Severity::Late, what));
        }
        match answer {
            Answer::Well => Some(Ok(())),
            Answer::Error(text) if name == "PING" && !text.starts_with("BUSY") => {
                self.faults.push((Severity::Wrong, format!("{name} is answered by {text}")));
                Some(Err(text))
            }
            Answer::Error(text) => Some(Err(text)),
            Answer::Missing(_) => None,
        }
    }

    pub fn summary(&self) -> String {
        let mut took = self.took.clone();
        took.sort_unstable();
        let ms = |took: Option<&Duration>| took.map_or(0.0, |took| took.as_secs_f64() * 1e3);
        let (median, longest) = (ms(took.get(took.len() / 2)), ms(took.last()));
        format!("{} probes, median {median:.1} ms, longest {longest:.1} ms", took.len())
    }
}

enum Answer {
    Well,
    Error(String),
    Missing(String),
}

fn on_new_connection(port: u16, words: &[&str]) -> Answer {
    let call = Client::connect_within(port, LOST_MAX).and_then(|mut client| client.call(words));
    match call {
        Ok(_) => Answer::Well,
        Err(why) => match why.strip_prefix(&format!("{}: ", words.join(" "))) {
            // Errors of sockets begin in lower case, codes of replies are in upper case.
            Some(text) if text.starts_with(|first: char| first.is_ascii_uppercase()) => {
                Answer::Error(text.to_string())
            }
            _ => Answer::Missing(why),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_judged_by_its_time_and_its_text() {
        let judged = |took: Duration, answer: Answer| {
            let mut probes = Probes::of(0);
            probes.note("PING", took, answer);
            probes.faults.first().map(|(severity, _)| *severity)
        };
        let (soon, late) = (LATE_MAX / 2, LATE_MAX * 2);
        assert_eq!(judged(soon, Answer::Well), None);
        assert_eq!(judged(late, Answer::Well), Some(Severity::Late));
        assert_eq!(judged(soon, Answer::Error("BUSY a script runs".into())), None);
        assert_eq!(judged(soon, Answer::Error("ERR other".into())), Some(Severity::Wrong));
        assert_eq!(judged(late, Answer::Missing("cannot read".into())), Some(Severity::Wrong));
    }

    #[test]
    fn a_connection_that_is_refused_is_no_answer() {
        let free = isotherm_probe::free_port().unwrap();
        assert!(matches!(on_new_connection(free, &["PING"]), Answer::Missing(_)));
    }
}
