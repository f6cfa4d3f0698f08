//! Random numbers from the system, for names and secrets.

use std::fs::File;
use std::io::Read;

use super::log::os_text;

pub fn random_bytes<const LEN: usize>() -> Result<[u8; LEN], String> {
    let mut bytes = [0; LEN];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(|error| format!("Can't read random numbers: {}", os_text(&error)))
}
