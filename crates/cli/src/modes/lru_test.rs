//! `--lru-test`: a cache at work, and how often it hits. Four fifths of the requests go to one fifth of the
//! keys.

use std::time::{Duration, Instant};

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::Fallible;
use crate::connection::push_request;
use crate::session::Session;
use crate::terminal::put;

const CYCLE: Duration = Duration::from_secs(1);
const PIPELINE: usize = 250;
/// The exponent of the power law that makes it 80:20.
const ALPHA: f64 = 6.2;

pub fn run(session: &mut Session, keys: i64) -> Fallible<i32> {
    let keys = keys.max(1).unsigned_abs();
    let mut prng = Prng::new(crate::seed());
    let lost = |_| "I/O error during LRU test".to_string();
    loop {
        let begun = Instant::now();
        let (mut hits, mut misses) = (0u64, 0u64);
        while begun.elapsed() < CYCLE {
            let mut requests = Vec::new();
            for _ in 0..PIPELINE {
                push_request(&mut requests, &["SET", &key(&mut prng, keys), "value"]);
            }
            for _ in 0..PIPELINE {
                push_request(&mut requests, &["GET", &key(&mut prng, keys)]);
            }
            let connection = session.connection()?;
            connection.write(&requests).map_err(lost)?;
            for i in 0..2 * PIPELINE {
                let reply = connection.read().map_err(lost)?;
                match reply {
                    _ if i < PIPELINE => {}
                    Value::Error(text) => eprintln!("{}", String::from_utf8_lossy(&text)),
                    reply if reply.is_null() => misses += 1,
                    _ => hits += 1,
                }
            }
        }
        let gets = hits + misses;
        let share = |part: u64| part as f64 / gets.max(1) as f64 * 100.0;
        put(format!(
            "{gets} Gets/sec | Hits: {hits} ({:.2}%) | Misses: {misses} ({:.2}%)\n",
            share(hits),
            share(misses)
        ));
    }
}

fn key(prng: &mut Prng, keys: u64) -> String {
    format!("lru:{}", power_law(prng, keys))
}

/// A number from 1 to `max`; low ones come often.
fn power_law(prng: &mut Prng, max: u64) -> u64 {
    let drawn = prng.next_u64() as f64 / u64::MAX as f64;
    let end = (max as f64 + 1.0).powf(ALPHA + 1.0);
    let high = ((end - 1.0) * drawn + 1.0).powf(1.0 / (ALPHA + 1.0));
    max.saturating_sub(high as u64) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_keys_takes_most_requests() {
        let mut prng = Prng::new(5);
        let drawn: Vec<u64> = (0..100_000).map(|_| power_law(&mut prng, 1000)).collect();
        assert!(drawn.iter().all(|key| (1..=1000).contains(key)));
        let low = drawn.iter().filter(|&&key| key <= 200).count();
        assert!((75_000..85_000).contains(&low), "{low} of 100,000");
    }
}
