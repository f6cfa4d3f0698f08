//! One slot with very many keys and one hash with very many fields: does a save stop a command for long, and
//! does loading take more memory than the data?

use std::time::{Duration, Instant};

use isotherm_probe::command;
use isotherm_stdx::Prng;

use super::folder::Folder;
use super::save::wait_for_save;
use super::{Best, Figures, milliseconds, ratio, two_workers};
use crate::load::{Load, Until};
use crate::longest::Clock;
use crate::options::Options;
use crate::process::{SIDES, Server};
use crate::report::Table;
use crate::shape::Commands;
use crate::{Fallible, progress};

/// Number of keys with the same hash tag.
const KEYS: u64 = 5_000_000;
/// Number of fields of the hash.
const FIELDS: u64 = 10_000_000;
const FIELDS_PER_COMMAND: u64 = 10;
/// Commands between two looks at whether the save is still running.
const LOOK_EVERY: u64 = 200;

pub fn measure(options: &Options, table: &mut Table) -> Fallible {
    let (keys, fields) = (options.scaled(KEYS), options.scaled(FIELDS).next_multiple_of(FIELDS_PER_COMMAND));
    let (mut longest, mut memory) = (Figures::default(), Figures::default());
    for side in SIDES {
        let folder = Folder::new(options, "large")?;
        let setting = two_workers(options).with("dir", folder.text());
        {
            let server = Server::start(side, &setting, options)?;
            let mut filling = Filling { keys, next: 0 };
            let commands = keys + fields / FIELDS_PER_COMMAND;
            Load::fifty(server.port, 64).run(&mut filling, Until::Commands(commands))?;
            let ms = longest_during_a_save(&server, keys, fields)?;
            progress(&format!("large {}: longest command {ms:.2} ms of CPU", side.name()));
            longest.add(side, ms);
        }
        let server = Server::start(side, &setting, options)?;
        let there = server.client()?.dbsize()?;
        if there != keys + 1 {
            return Err(format!("{} has loaded {there} of {} keys", side.name(), keys + 1));
        }
        let peak = server.resident_bytes_max()?;
        server.settle(Duration::from_secs(20))?;
        let after = server.resident_bytes()?;
        let over = peak as f64 / after as f64;
        progress(&format!("large {}: {peak} B to load, {after} B after", side.name()));
        memory.add(side, over);
    }
    let what = format!(
        "a hash tag of {keys} keys, a hash of {fields} fields: longest command during BGSAVE, CPU clock"
    );
    longest.row(table, &what, Best::Least, milliseconds, "<= 1 ms");
    memory.row(table, "memory to load them over RSS afterwards", Best::Least, ratio, "<= 1.1 x");
    Ok(())
}

/// The keys of the tag, then the fields.
struct Filling {
    keys: u64,
    next: u64,
}

const VALUE: &[u8] = b"sixteen bytes ok";

impl Commands for Filling {
    fn write(&mut self, out: &mut Vec<u8>) {
        let number = self.next;
        self.next += 1;
        if number < self.keys {
            set(number, out);
            return;
        }
        let first = (number - self.keys) * FIELDS_PER_COMMAND;
        let names: Vec<String> = (first..first + FIELDS_PER_COMMAND).map(field).collect();
        let mut words: Vec<&[u8]> = vec![b"HSET", b"fields"];
        words.extend(names.iter().flat_map(|name| [name.as_bytes(), VALUE]));
        command(out, words.into_iter());
    }
}

fn field(number: u64) -> String {
    format!("field:{number:010}")
}

fn set(number: u64, out: &mut Vec<u8>) {
    command(out, [b"SET".as_slice(), format!("{{tag}}:{number:010}").as_bytes(), VALUE].into_iter());
}

/// Sends commands one at a time, alternately on a key and on a field, while a save runs.
fn longest_during_a_save(server: &Server, keys: u64, fields: u64) -> Fallible<f64> {
    let (mut client, mut asker) = (server.client()?, server.client()?);
    let mut clock = Clock::of_busiest(server, &mut client)?;
    let mut prng = Prng::new(7);
    let mut request = Vec::new();
    let mut longest_ns = 0;
    asker.call(&["BGSAVE"])?;
    let start = Instant::now();
    while asker.info("rdb_bgsave_in_progress")? != "0" && start.elapsed() < Duration::from_secs(120) {
        let mut before_ns = clock.read_ns()?;
        for number in 0..LOOK_EVERY {
            request.clear();
            if number % 2 == 0 {
                set(prng.below(keys), &mut request);
            } else {
                let name = field(prng.below(fields));
                command(&mut request, [b"HSET".as_slice(), b"fields", name.as_bytes(), VALUE].into_iter());
            }
            client.send(&request)?;
            client.read()?;
            let after_ns = clock.read_ns()?;
            longest_ns = longest_ns.max(after_ns - before_ns);
            before_ns = after_ns;
        }
    }
    wait_for_save(&mut asker)?;
    Ok(longest_ns as f64 / 1e6)
}
