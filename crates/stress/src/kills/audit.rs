//! After a start: up to which number are the writes of each client there, and is that enough?

use std::time::{Duration, Instant};

use isotherm_probe::Client;
use isotherm_resp::reply_parse::Value;

use super::writing::{KINDS, Shows, Writer, count_up_to, last_of, request};
use crate::Fallible;

/// Collects faults, and finds the age of the oldest answer that is lost. The writers continue after the
/// numbers that are there.
pub fn audit(
    client: &mut Client,
    writers: &mut [Writer],
    killed: Option<Instant>,
    may_lose: Option<Duration>,
) -> Fallible<(Vec<String>, Duration)> {
    let mut faults = Vec::new();
    let mut there = Vec::with_capacity(writers.len());
    for writer in writers.iter() {
        let number = number_of(&observe(client, writer.client)?, writer.client, &mut faults);
        if number > writer.last {
            faults.push(format!(
                "c{}: {number} is there, {} was the last that was sent",
                writer.client, writer.last
            ));
        }
        there.push(number);
    }
    let mut oldest_lost = Duration::ZERO;
    if let Some(killed) = killed {
        let newest = newest_present(writers, &there);
        for (writer, &number) in writers.iter().zip(&there) {
            for sent in writer.recent.iter().filter(|sent| sent.number > number) {
                let Some(answered) = sent.answered else { continue };
                let age = killed.saturating_duration_since(answered);
                oldest_lost = oldest_lost.max(age);
                let missing = format!(
                    "c{}: {} was answered {age:?} before the kill and is gone",
                    writer.client, sent.number
                );
                if may_lose.is_none_or(|longest| age > longest) {
                    faults.push(missing);
                } else if newest.is_some_and(|newest| answered < newest) {
                    faults.push(format!("{missing}, and something is there that was sent after its answer"));
                }
            }
            if writer.recent.front().is_some_and(|oldest| oldest.number > number + 1) {
                faults.push(format!("c{}: only {number} is there", writer.client));
            }
        }
    }
    for (writer, number) in writers.iter_mut().zip(there) {
        writer.go_on_from(number);
    }
    Ok((faults, oldest_lost))
}

/// Returns when the newest of the writes that are present was sent.
fn newest_present(writers: &[Writer], there: &[u64]) -> Option<Instant> {
    let of_one = |(writer, number): (&Writer, &u64)| {
        writer.recent.iter().find(|sent| sent.number == *number).map(|sent| sent.sent)
    };
    writers.iter().zip(there).filter_map(of_one).max()
}

/// Values in the keys of a client: the kind, the meaning of the number, and the number.
type Observed = Vec<(usize, Shows, u64)>;

fn observe(client: &mut Client, number: usize) -> Fallible<Observed> {
    let reads = KINDS
        .iter()
        .enumerate()
        .flat_map(|(kind, about)| about.reads.iter().map(move |(template, shows)| (kind, *template, *shows)));
    let mut out = Vec::new();
    reads.clone().for_each(|(_, template, _)| request(&mut out, template, number, 0));
    client.send(&out)?;
    reads.map(|(kind, template, shows)| Ok((kind, shows, figure(&client.read()?, template)?))).collect()
}

fn figure(value: &Value, template: &str) -> Fallible<u64> {
    let unexpected = || format!("{template}: {value:?}");
    match value {
        Value::NullBulk | Value::Null | Value::NullArray => Ok(0),
        Value::Integer(number) => u64::try_from(*number).map_err(|_| unexpected()),
        Value::Bulk(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(unexpected)
        }
        Value::Array(values) => values.first().map_or(Ok(0), |first| figure(first, template)),
        _ => Err(unexpected()),
    }
}

/// The last number of a client that is there. That all below it are there, and no transaction in part, is
/// checked.
fn number_of(observed: &Observed, client: usize, faults: &mut Vec<String>) -> u64 {
    let last = |&(kind, shows, figure): &(usize, Shows, u64)| match shows {
        Shows::Last => figure,
        Shows::Count => last_of(figure, kind),
    };
    let number = observed.iter().map(last).max().unwrap_or(0);
    for &(kind, shows, figure) in observed {
        let count = count_up_to(number, kind);
        let wanted = match shows {
            Shows::Last => last_of(count, kind),
            Shows::Count => count,
        };
        if figure != wanted {
            let what = KINDS[kind].writes[0];
            faults.push(format!(
                "c{client}: {number} is there, but of '{what}' {shows:?} is {figure}, not {wanted}"
            ));
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(number: u64) -> Observed {
        let reads = KINDS
            .iter()
            .enumerate()
            .flat_map(|(kind, about)| about.reads.iter().map(move |(_, shows)| (kind, *shows)));
        let figure = |(kind, shows)| {
            let count = count_up_to(number, kind);
            (kind, shows, if shows == Shows::Last { last_of(count, kind) } else { count })
        };
        reads.map(figure).collect()
    }

    #[test]
    fn a_prefix_is_found_and_a_hole_is_a_fault() {
        for number in 0..40 {
            let mut faults = Vec::new();
            assert_eq!(number_of(&state(number), 0, &mut faults), number);
            assert_eq!(faults, [""; 0]);
        }
        for at in 0..state(30).len() {
            let mut holed = state(30);
            holed[at].2 -= 1;
            let mut faults = Vec::new();
            number_of(&holed, 0, &mut faults);
            assert!(!faults.is_empty(), "{at}");
        }
    }
}
