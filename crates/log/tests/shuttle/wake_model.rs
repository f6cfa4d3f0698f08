//! The reader's sleep against appends: a wake-up that is lost leaves the reader parked, which shuttle reports
//! as a deadlock.

use crate::wire::Plan;
use crate::{Reader, explore};
use isotherm_log::{Log, LogOffset};
use shuttle::thread;
use std::sync::Arc;

const ITERATIONS: usize = 5000;
const APPENDERS: u64 = 2;
const BATCHES: u64 = 2;

fn run(rest: impl Fn(&Log, &Reader) + Send + 'static) {
    let world = Arc::new((Log::new(LogOffset(0), u64::MAX), Reader::default()));
    let plan = Plan { database: 0, then: None, padding: 1, is_stream: true };
    let goal = LogOffset(plan.stream(0).len() as u64 * APPENDERS * BATCHES);
    let reader = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let (log, reader) = &*world;
            reader.is(thread::current());
            loop {
                log.collect(|_| {});
                if log.collected() == goal {
                    return;
                }
                rest(log, reader);
            }
        })
    };
    let appenders = (0..APPENDERS).map(|_| {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            for number in 0..BATCHES {
                world.0.append_stream(&plan.stream(number), 0);
                world.1.wake();
            }
        })
    });
    let threads: Vec<_> = appenders.chain([reader]).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
}

fn has_more(log: &Log) -> bool {
    log.collected() < log.end()
}

#[test]
fn no_wake_up_is_lost() {
    explore(ITERATIONS, || {
        run(|log, reader| {
            reader.is_asleep.set(0);
            if !has_more(log) {
                thread::park();
            }
        });
    });
}

/// The check can fail: a reader that looks before it sets the mark sleeps although frames were appended
/// between the two.
#[test]
#[should_panic(expected = "deadlock")]
fn a_look_before_the_mark_is_found() {
    explore(ITERATIONS, || {
        run(|log, reader| {
            if !has_more(log) {
                reader.is_asleep.set(0);
                thread::park();
            }
        });
    });
}
