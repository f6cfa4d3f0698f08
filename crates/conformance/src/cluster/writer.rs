//! One of the programs `writer` in `crates/conformance/clients`: it writes, compares, and stops to read all
//! of its keys when it is asked.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use isotherm_stdx::Slot;

use crate::Fallible;

/// A writer answers within this time.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Lines on its standard error.
const COMPLAINTS_KEPT: usize = 12;

/// Work of a writer.
pub struct Load {
    pub keys: usize,
    /// Operations a second.
    pub pace: usize,
    /// Slots of the keys: the first key is in the first slot, the second in the second, and so on in turn.
    pub slots: Vec<u16>,
    /// Interval at which the topology is reloaded in any case, for libraries that do not look for another
    /// topology when a node is gone.
    pub reload_seconds: usize,
}

impl Load {
    /// A hash tag of each slot.
    fn tags(&self) -> String {
        let mut tags: HashMap<u16, String> = HashMap::new();
        let mut numbers = 0..u32::MAX;
        while !self.slots.iter().all(|slot| tags.contains_key(slot)) {
            for number in numbers.by_ref().take(Slot::COUNT) {
                let tag = number.to_string();
                tags.entry(Slot::of_key(tag.as_bytes()).get()).or_insert(tag);
            }
        }
        let tags: Vec<&str> = self.slots.iter().map(|slot| tags[slot].as_str()).collect();
        tags.join(",")
    }
}

pub struct Writer {
    pub name: &'static str,
    child: Child,
    input: ChildStdin,
    /// Lines that it says.
    said: Receiver<String>,
    /// The last lines on its standard error.
    complaints: Arc<Mutex<VecDeque<String>>>,
}

/// Counts of a writer's work so far.
pub struct Checked {
    pub operations: u64,
    pub errors: u64,
    /// Number of the writer's keys that are present.
    pub keys: i64,
    /// Clients that it has made because the library had lost its way.
    pub renewed: u64,
}

impl Writer {
    /// `port`: of a node.
    pub fn start(name: &'static str, mut command: Command, port: u16, load: &Load) -> Fallible<Writer> {
        let prefix = format!("{name}-");
        let [keys, pace, seconds] =
            [load.keys, load.pace, load.reload_seconds].map(|number| number.to_string());
        command.args([port.to_string(), prefix, keys, pace, load.tags(), seconds]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("cannot run the writer of {name}: {why}"))?;
        let input = child.stdin.take().expect("the input is piped");
        let output = BufReader::new(child.stdout.take().expect("the output is piped"));
        let (sender, said) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let errors = BufReader::new(child.stderr.take().expect("the errors are piped"));
        let complaints = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&complaints);
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > COMPLAINTS_KEPT {
                    kept.pop_front();
                }
            }
        });
        let writer = Writer { name, child, input, said, complaints };
        writer.expect("ready")?;
        Ok(writer)
    }

    /// Makes the writer stop, and compare all of its keys.
    pub fn begin_check(&mut self) -> Fallible {
        self.say("check")
    }

    pub fn checked(&self) -> Fallible<Checked> {
        let line = self.expect("checked ")?;
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        Ok(Checked { operations: next(), errors: next(), keys: next() as i64, renewed: next() })
    }

    pub fn go_on(&mut self) -> Fallible {
        self.say("go")
    }

    fn say(&mut self, word: &str) -> Fallible {
        writeln!(self.input, "{word}")
            .map_err(|why| format!("the writer of {} is gone: {why}{}", self.name, self.last_words()))
    }

    /// Returns the lines that the writer has printed and that were not read yet. They usually say why it
    /// ended.
    fn last_words(&self) -> String {
        let complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = self.said.try_iter().chain(complaints.iter().cloned());
        lines.map(|line| format!("\n{line}")).collect()
    }

    /// Reads the next line, and returns its part after `start`.
    fn expect(&self, start: &str) -> Fallible<String> {
        match self.said.recv_timeout(ANSWER_TIME) {
            Ok(line) => match line.strip_prefix(start) {
                Some(rest) => Ok(rest.to_string()),
                None => Err(format!("{}: {line}", self.name)),
            },
            Err(RecvTimeoutError::Timeout) => Err(format!("the writer of {} hangs", self.name)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("the writer of {} has ended{}", self.name, self.last_words()))
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It may be gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tag_lies_in_its_slot() {
        let load = Load { keys: 1, pace: 1, reload_seconds: 1, slots: vec![0, 16383, 7, 5461] };
        let tags = load.tags();
        let slots: Vec<u16> = tags.split(',').map(|tag| Slot::of_key(tag.as_bytes()).get()).collect();
        assert_eq!(slots, load.slots);
    }
}
