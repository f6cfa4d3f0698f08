//! The sent data, held against the data that came: elements of queues, numbered messages, sums.
//!
//! ```text
//!   element   sent --+-- acknowledged --> is delivered once, or still there             else: lost, or twice
//!                    +-- refused       --> is nowhere                                   else: appeared
//!                    +-- unknown       --> is there at most once (the sender's connection ended before the reply)
//! ```
//! A consumer whose connection ends while it waits may have been served without a reply that arrived. The
//! elements that such consumers could have taken may be missing, and no more. Where a run throws data away on
//! purpose (FLUSHALL, eviction of any key) nothing is known to be lost, but still nothing may come twice or
//! from nowhere.

use std::collections::HashMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    Unknown,
    Acknowledged,
    Refused,
}

struct Element {
    sent: Sent,
    /// Number of times that the element was delivered or is still there.
    found: u32,
}

/// Elements that are delivered to one of many.
#[derive(Default)]
pub struct Elements {
    elements: HashMap<u64, Element>,
    unknown: Vec<u64>,
    /// Largest number of elements that consumers may have taken before their connections ended.
    gone_max: u64,
    /// Data is thrown away in this run.
    is_lossy: bool,
}

/// The elements of one kind that are named.
const NAMED_MAX: usize = 5;

impl Elements {
    pub fn new(is_lossy: bool) -> Elements {
        Elements { is_lossy, ..Elements::default() }
    }

    /// Before it is sent.
    pub fn send(&mut self, element: u64) {
        let before = self.elements.insert(element, Element { sent: Sent::Unknown, found: 0 });
        assert!(before.is_none(), "every element is sent once");
    }

    pub fn acknowledge(&mut self, element: u64) {
        self.settle(element, Sent::Acknowledged);
    }

    pub fn refuse(&mut self, element: u64) {
        self.settle(element, Sent::Refused);
    }

    fn settle(&mut self, element: u64, sent: Sent) {
        self.elements.get_mut(&element).expect("it was sent").sent = sent;
    }

    /// Records that an element was delivered, or is there at the end.
    pub fn find(&mut self, element: u64) {
        match self.elements.get_mut(&element) {
            Some(element) => element.found += 1,
            None => self.unknown.push(element),
        }
    }

    /// Notes that a consumer is gone which may have been given `count` elements.
    pub fn may_miss(&mut self, count: u64) {
        self.gone_max += count;
    }

    pub fn counts(&self) -> (usize, u64) {
        (self.elements.len(), self.elements.values().map(|element| u64::from(element.found)).sum())
    }

    /// Returns the faults, once all elements that are left have been found.
    pub fn verdict(&self) -> Vec<String> {
        let pick = |wrong: &dyn Fn(&Element) -> bool| -> Vec<u64> {
            self.elements.iter().filter(|(_, element)| wrong(element)).map(|(number, _)| *number).collect()
        };
        let mut lost = pick(&|element| element.sent == Sent::Acknowledged && element.found == 0);
        if self.is_lossy || lost.len() as u64 <= self.gone_max {
            lost.clear();
        }
        let twice = pick(&|element| element.found > 1);
        let refused = pick(&|element| element.sent == Sent::Refused && element.found > 0);
        let kinds = [
            ("acknowledged and gone", lost),
            ("delivered twice", twice),
            ("refused and yet there", refused),
            ("never sent", self.unknown.clone()),
        ];
        kinds
            .into_iter()
            .filter(|(_, which)| !which.is_empty())
            .map(|(what, which)| line(what, which))
            .collect()
    }
}

fn line(what: &str, mut which: Vec<u64>) -> String {
    which.sort_unstable();
    let shown: Vec<String> = which.iter().take(NAMED_MAX).map(|element| text_of(*element)).collect();
    format!("{} elements {what}: {}", which.len(), shown.join(" "))
}

/// An element is a sender's number and its count, and travels as text: `3-17`.
pub fn element(sender: usize, count: u64) -> u64 {
    (sender as u64) << 40 | count
}

pub fn text_of(element: u64) -> String {
    format!("{}-{}", element >> 40, element & ((1 << 40) - 1))
}

pub fn element_of(text: &[u8]) -> Option<u64> {
    let (sender, count) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some(element(sender.parse().ok()?, count.parse().ok()?))
}

/// Numbers that one reader gets of one sender: each once, in order, none left out.
#[derive(Default)]
pub struct Sequence {
    /// Everything above this has to come.
    from: Option<u64>,
    last: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A number came after this one.
    Order(u64),
    Missing(std::ops::RangeInclusive<u64>),
}

impl Sequence {
    /// The reader is there: what is sent from now on has to come. Up to `sent` it may have come too late.
    pub fn begin(&mut self, sent: u64) {
        self.from = Some(sent);
    }

    /// The first number may be any that is not missed yet: a reader may come late.
    pub fn hear(&mut self, number: u64) -> Result<(), Broken> {
        let result = match (self.last, self.from) {
            (Some(last), _) if number <= last => Err(Broken::Order(last)),
            (Some(last), _) if number > last + 1 => Err(Broken::Missing(last + 1..=number - 1)),
            (None, Some(from)) if number > from + 1 => Err(Broken::Missing(from + 1..=number - 1)),
            _ => Ok(()),
        };
        self.last = Some(number);
        result
    }

    /// Returns the missing numbers, if all numbers up to `sent` have been sent and should have come.
    pub fn missing(&self, sent: u64) -> Option<std::ops::RangeInclusive<u64>> {
        let reached = self.last.or(self.from)?;
        (reached < sent).then(|| reached + 1..=sent)
    }
}

/// A counter that only grows: what was acknowledged is in it, and what was never sent is not.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum {
    pub sent: i64,
    pub acknowledged: i64,
}

impl Sum {
    pub fn verdict(&self, value: i64) -> Option<String> {
        let Sum { sent, acknowledged } = *self;
        (value < acknowledged || value > sent)
            .then(|| format!("is {value}, with {acknowledged} acknowledged and {sent} sent"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(acknowledged: &[u64], found: &[u64]) -> Elements {
        let mut elements = Elements::default();
        for number in acknowledged {
            elements.send(*number);
            elements.acknowledge(*number);
        }
        found.iter().for_each(|number| elements.find(*number));
        elements
    }

    #[test]
    fn all_delivered_is_well() {
        assert_eq!(ledger(&[1, 2, 3], &[3, 1, 2]).verdict(), [""; 0]);
    }

    #[test]
    fn a_lost_one_is_seen() {
        let elements = ledger(&[element(4, 1), element(4, 2)], &[element(4, 1)]);
        assert_eq!(elements.verdict(), ["1 elements acknowledged and gone: 4-2"]);
    }

    #[test]
    fn of_a_consumer_that_is_gone_as_much_may_be_missing_as_it_could_take() {
        let mut elements = ledger(&[1, 2, 3], &[1]);
        elements.may_miss(1);
        assert_eq!(elements.verdict().len(), 1);
        elements.may_miss(1);
        assert_eq!(elements.verdict(), [""; 0]);
    }

    #[test]
    fn a_duplicate_and_an_unknown_element_are_seen_even_where_data_is_thrown_away() {
        let mut elements = ledger(&[1, 2], &[1, 1, 9]);
        elements.is_lossy = true;
        assert_eq!(elements.verdict(), ["1 elements delivered twice: 0-1", "1 elements never sent: 0-9"]);
    }

    #[test]
    fn what_was_refused_is_nowhere_and_what_is_unknown_is_where_it_likes() {
        let mut elements = Elements::default();
        elements.send(1);
        elements.send(2);
        elements.refuse(1);
        assert_eq!(elements.verdict(), [""; 0]);
        elements.find(2);
        assert_eq!(elements.verdict(), [""; 0]);
        elements.find(1);
        assert_eq!(elements.verdict(), ["1 elements refused and yet there: 0-1"]);
    }

    #[test]
    fn elements_travel_as_text() {
        assert_eq!(element_of(text_of(element(7, 123)).as_bytes()), Some(element(7, 123)));
        assert_eq!(element_of(b"7"), None);
    }

    #[test]
    fn a_gap_and_a_repetition_are_seen() {
        let mut sequence = Sequence::default();
        assert!([5, 6, 7].into_iter().all(|number| sequence.hear(number).is_ok()));
        assert_eq!(sequence.hear(9), Err(Broken::Missing(8..=8)));
        assert_eq!(sequence.hear(9), Err(Broken::Order(9)));
        assert_eq!((sequence.missing(9), sequence.missing(11)), (None, Some(10..=11)));
    }

    #[test]
    fn what_was_sent_after_a_reader_had_come_is_missed_before_it_has_heard_anything() {
        let mut sequence = Sequence::default();
        assert_eq!(sequence.missing(3), None, "it is not known to be there");
        sequence.begin(3);
        assert_eq!((sequence.missing(3), sequence.missing(5)), (None, Some(4..=5)));
        assert_eq!(sequence.hear(6), Err(Broken::Missing(4..=5)));
        let mut sequence = Sequence::default();
        sequence.begin(3);
        assert_eq!(sequence.hear(3), Ok(()), "it was under way");
        assert_eq!(sequence.hear(4), Ok(()));
    }

    #[test]
    fn a_sum_lies_between_what_was_acknowledged_and_what_was_sent() {
        let sum = Sum { sent: 10, acknowledged: 8 };
        assert_eq!([8, 9, 10].map(|value| sum.verdict(value)), [None, None, None]);
        assert!(sum.verdict(7).is_some() && sum.verdict(11).is_some());
    }
}
