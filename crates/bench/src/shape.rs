//! Requests: a verb, the keys it meets and the values it carries. One seed sends the same bytes to both
//! servers.
//!
//! ```text
//! named   key:000000000042                 16 B, as valkey-benchmark names them
//! binary  16 bytes scrambled from 42       any byte may occur in them
//! ```

use isotherm_probe::command;
use isotherm_stdx::Prng;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Verb {
    Get,
    Set,
    /// SET with a time to live, a different one for each key, a day and more ahead.
    SetWithTtl,
    /// SET with an absolute time.
    SetAt {
        unix_ms: u64,
    },
    Del,
    Incr,
    Append,
    /// MSET of this number of keys.
    Mset(usize),
}

#[derive(Clone, Copy)]
pub enum Keys {
    Named,
    Binary,
}

/// Order in which the numbers `0..count` are used.
#[derive(Clone, Copy)]
pub enum Order {
    Ascending,
    Uniform,
    /// Each once, in no order that a table could like.
    Shuffled,
}

#[derive(Clone, Copy)]
pub enum Values {
    /// Fixed size in bytes.
    Fixed(usize),
    /// A size drawn anew for each command.
    Between(usize, usize),
    /// A size that belongs to the key: the same whenever it is asked for.
    ByKey(usize, usize),
    /// The key's number as text, which INCR understands.
    Number,
}

/// Whatever writes one command after the other.
pub trait Commands {
    /// Appends the next command.
    fn write(&mut self, out: &mut Vec<u8>);
}

/// A stream of commands.
pub struct Shape {
    verb: Verb,
    keys: Keys,
    order: Order,
    values: Values,
    first: u64,
    count: u64,
    next: u64,
    stride: u64,
    prng: Prng,
    /// Random bytes that values are cut from.
    noise: Vec<u8>,
}

const NOISE_BYTES: usize = 1 << 20;

impl Shape {
    pub fn new(verb: Verb, count: u64) -> Shape {
        let mut prng = Prng::new(0x1507_4e72);
        let noise = (0..NOISE_BYTES / 8).flat_map(|_| prng.next_u64().to_le_bytes()).collect();
        let stride = stride_through(count);
        Shape {
            verb,
            keys: Keys::Named,
            order: Order::Ascending,
            values: Values::Fixed(16),
            first: 0,
            count,
            next: 0,
            stride,
            prng,
            noise,
        }
    }

    pub fn keys(mut self, keys: Keys) -> Shape {
        self.keys = keys;
        self
    }

    pub fn order(mut self, order: Order) -> Shape {
        self.order = order;
        self
    }

    pub fn values(mut self, values: Values) -> Shape {
        self.values = values;
        self
    }

    /// The keys begin at this number instead of 0.
    pub fn first(mut self, first: u64) -> Shape {
        self.first = first;
        self
    }

    pub fn seed(mut self, seed: u64) -> Shape {
        self.prng = Prng::new(seed);
        self
    }

    fn write_with_key(&mut self, out: &mut Vec<u8>) {
        let number = self.draw();
        let key = key(self.keys, number);
        let (at, value_bytes) = self.value(number);
        let text = number.to_string();
        let value = match self.values {
            Values::Number => text.as_bytes(),
            _ => &self.noise[at..at + value_bytes],
        };
        match self.verb {
            Verb::Get => command(out, [b"GET", key.as_slice()].into_iter()),
            Verb::Del => command(out, [b"DEL", key.as_slice()].into_iter()),
            Verb::Incr => command(out, [b"INCR", key.as_slice()].into_iter()),
            Verb::Append => command(out, [b"APPEND", key.as_slice(), value].into_iter()),
            Verb::Set => command(out, [b"SET", key.as_slice(), value].into_iter()),
            Verb::SetWithTtl => {
                let ttl_ms = (86_400_000 + scramble(number) % 86_400_000).to_string();
                command(out, [b"SET", key.as_slice(), value, b"PX", ttl_ms.as_bytes()].into_iter());
            }
            Verb::SetAt { unix_ms } => {
                let at = unix_ms.to_string();
                command(out, [b"SET", key.as_slice(), value, b"PXAT", at.as_bytes()].into_iter());
            }
            Verb::Mset(_) => unreachable!("written elsewhere"),
        }
    }

    fn write_mset(&mut self, keys: usize, out: &mut Vec<u8>) {
        let (at, value_bytes) = self.value(0);
        let names: Vec<[u8; 16]> = (0..keys).map(|_| key(self.keys, self.draw())).collect();
        let value = &self.noise[at..at + value_bytes];
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        words.extend(names.iter().flat_map(|name| [name.as_slice(), value]));
        command(out, words.into_iter());
    }

    fn draw(&mut self) -> u64 {
        let number = match self.order {
            Order::Ascending => self.next,
            Order::Uniform => self.prng.below(self.count),
            Order::Shuffled => {
                ((u128::from(self.next) * u128::from(self.stride)) % u128::from(self.count)) as u64
            }
        };
        self.next = (self.next + 1) % self.count;
        self.first + number
    }

    /// Returns the place of the value in the noise, and its size.
    fn value(&mut self, number: u64) -> (usize, usize) {
        let size = match self.values {
            Values::Fixed(bytes) => bytes,
            Values::Between(least, most) => least + self.prng.below((most - least + 1) as u64) as usize,
            Values::ByKey(least, most) => size_by_key(number, least, most),
            Values::Number => 0,
        };
        let room = (self.noise.len() - size) as u64;
        (self.prng.below(room) as usize, size)
    }
}

impl Commands for Shape {
    fn write(&mut self, out: &mut Vec<u8>) {
        match self.verb {
            Verb::Mset(keys) => self.write_mset(keys, out),
            _ => self.write_with_key(out),
        }
    }
}

/// The size that `Values::ByKey` gives to a key.
pub fn size_by_key(number: u64, least: usize, most: usize) -> usize {
    least + (scramble(!number) % (most - least + 1) as u64) as usize
}

pub const KEY_BYTES: usize = 16;

fn key(keys: Keys, number: u64) -> [u8; KEY_BYTES] {
    match keys {
        Keys::Named => named(number),
        Keys::Binary => {
            let halves = [scramble(number), scramble(number ^ 0x5bd1_e995_0000_0000)];
            let mut key = [0; KEY_BYTES];
            key[..8].copy_from_slice(&halves[0].to_le_bytes());
            key[8..].copy_from_slice(&halves[1].to_le_bytes());
            key
        }
    }
}

/// `key:` and twelve digits.
pub fn named(mut number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key:000000000000";
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

/// A number that looks random but belongs to `number`.
pub fn scramble(number: u64) -> u64 {
    Prng::new(number).next_u64()
}

/// A step that meets every number below `count` once: near the golden section of it, and without a common
/// divisor.
pub fn stride_through(count: u64) -> u64 {
    let mut stride = (count as f64 * 0.618) as u64 | 1;
    while divisor(stride, count) != 1 {
        stride += 2;
    }
    stride
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_meets_every_key_once() {
        for count in [1, 2, 10, 1000, 6_320] {
            let mut shape = Shape::new(Verb::Del, count).order(Order::Shuffled);
            let mut met: Vec<u64> = (0..count).map(|_| shape.draw()).collect();
            met.sort_unstable();
            assert!(met.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn writes_what_a_client_would() {
        let mut out = Vec::new();
        Shape::new(Verb::Get, 5).first(42).write(&mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n");
        out.clear();
        Shape::new(Verb::Set, 5).values(Values::Number).write(&mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$1\r\n0\r\n");
    }
}
