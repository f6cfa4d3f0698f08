//! The servers of the tables that need real ones: ours under each allocator, and the peers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use isotherm_probe::{Ahead, Fallible, Server};

use crate::course;
use crate::variants::{Variants, cargo};

/// A server that can be started, again and again.
pub struct Contender {
    pub name: &'static str,
    pub allocator: &'static str,
    pub program: PathBuf,
    /// Valkey and Redis keep a table a slot only as members of a cluster; Isotherm always works by slots.
    cluster: bool,
}

impl Contender {
    pub fn ours(variants: &Variants) -> Fallible<Vec<Contender>> {
        let one = |allocator| {
            let program = variants.binary(allocator)?.to_path_buf();
            Ok(Contender { name: "Isotherm", allocator, program, cluster: false })
        };
        variants.names().into_iter().map(one).collect()
    }

    /// Valkey and Redis as `cargo xtask peers` installs them, and what cannot be had here.
    pub fn peers() -> Fallible<(Vec<Contender>, Vec<String>)> {
        let (mut found, mut notes) = (Vec::new(), Vec::new());
        for (name, word, program) in [("Valkey", "bin", "valkey-server"), ("Redis", "redis", "")] {
            match installed(word) {
                Ok(place) => {
                    let program = if program.is_empty() { place } else { place.join(program) };
                    found.push(Contender { name, allocator: "its own jemalloc", program, cluster: true });
                }
                Err(why) => notes.push(format!("Skipped: {name}: {why}")),
            }
        }
        Ok((found, notes))
    }

    pub fn label(&self) -> String {
        if self.cluster { self.name.to_string() } else { format!("{}, {}", self.name, self.allocator) }
    }

    /// With one worker (`io-threads 1`), all slots and no persistence.
    pub fn start(&self) -> Fallible<Server> {
        let mut arguments = vec!["--io-threads".to_string(), "1".to_string()];
        if self.cluster {
            arguments.extend(["--cluster-enabled".to_string(), "yes".to_string()]);
        }
        let scratch = scratch();
        let server = Server::start(self.name, Command::new(&self.program), &arguments, &scratch)?;
        if self.cluster {
            server.own_all_slots()?;
        }
        Ok(server)
    }
}

fn scratch() -> PathBuf {
    std::env::temp_dir().join(format!("isotherm-memlab-{}", std::process::id()))
}

/// Each server takes its own folder along; what is left is empty, or was never made.
pub fn remove_scratch() {
    let _ = std::fs::remove_dir(scratch());
}

/// Returns the place that `cargo xtask peers WORD` prints. Its progress is shown to the user.
fn installed(word: &str) -> Fallible<PathBuf> {
    let output = Command::new(cargo()?)
        .args(["xtask", "peers", word])
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|why| format!("cannot run cargo: {why}"))?;
    if !output.status.success() {
        return Err(format!("`cargo xtask peers {word}` failed"));
    }
    let place = String::from_utf8_lossy(&output.stdout);
    Ok(Path::new(place.trim()).to_path_buf())
}

/// Memory of a server once it has come to rest.
#[derive(Clone, Copy)]
pub struct Weight {
    pub used_bytes: u64,
    pub rss_bytes: u64,
}

impl Weight {
    pub fn at_rest(server: &Server) -> Fallible<Weight> {
        server.settle(Duration::from_secs(20))?;
        Weight::now(server)
    }

    pub fn now(server: &Server) -> Fallible<Weight> {
        Ok(Weight { used_bytes: server.client()?.used_memory_bytes()?, rss_bytes: server.resident_bytes()? })
    }
}

/// A connection to fill it by.
pub fn ahead(server: &Server) -> Fallible<Ahead> {
    Ok(Ahead::of(server.client()?))
}

/// SETs the key of each number, with a value of these bytes.
pub fn set_all(
    ahead: &mut Ahead,
    numbers: impl Iterator<Item = u64>,
    value: impl Fn(u64) -> usize,
) -> Fallible<u64> {
    /// Steps between two looks whether this shall go on.
    const STEPS: u64 = 1 << 14;
    let bytes = [b'v'; VALUE_BYTES_MAX];
    let mut payload_bytes = 0;
    for (step, number) in (0u64..).zip(numbers) {
        let value = &bytes[..value(number)];
        payload_bytes += (KEY_BYTES + value.len()) as u64;
        ahead.send(&[b"SET", &key(number), value])?;
        if step % STEPS == 0 {
            course::check()?;
        }
    }
    ahead.finish()?;
    Ok(payload_bytes)
}

pub const KEY_BYTES: usize = 16;
pub const VALUE_BYTES_MAX: usize = 2048;

/// "key:000000000042", as valkey-benchmark has it.
pub fn key(mut number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key:000000000000";
    for digit in key[4..].iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_numbers() {
        assert_eq!(&key(42), b"key:000000000042");
        assert_eq!(&key(999_999_999_999), b"key:999999999999");
    }
}
