//! One command, or a sequence of them, as bytes with places to fill in.
//!
//! ```text
//! *3\r\n$3\r\nSET\r\n$16\r\nkey:__rand_int__\r\n$3\r\nxyz\r\n
//!                             ^ 12 digits, new for every command
//! __rand_int__                each occurrence is a number of its own
//! __rand_1st__ ... 9th        all occurrences in a sequence are the same number
//! {tag}                       becomes the tag of a slot: {aB}}}, {06S}
//! ```
//! A place is as long as what it becomes, so the lengths in the protocol stay true and a request is filled in
//! where it lies.

use std::sync::atomic::{AtomicU64, Ordering};

use isotherm_stdx::Prng;

use crate::connection::push_request;

const PLACE_BYTES: usize = 12;
const PLACES: [&[u8; PLACE_BYTES]; 10] = [
    b"__rand_int__",
    b"__rand_1st__",
    b"__rand_2nd__",
    b"__rand_3rd__",
    b"__rand_4th__",
    b"__rand_5th__",
    b"__rand_6th__",
    b"__rand_7th__",
    b"__rand_8th__",
    b"__rand_9th__",
];
const TAG: &[u8] = b"{tag}";
/// Number of bytes between the braces.
const TAG_BYTES: usize = TAG.len() - 2;

/// Source of the numbers in a template.
#[derive(Debug)]
pub struct Numbers {
    /// Numbers are below this; 0: they are 0.
    pub below: u64,
    /// True if the numbers ascend by one, for all connections together; otherwise they are random.
    pub sequential: bool,
    next: [AtomicU64; PLACES.len()],
}

impl Numbers {
    pub fn new(below: u64, sequential: bool) -> Numbers {
        Numbers { below, sequential, next: Default::default() }
    }

    fn draw(&self, kind: usize, prng: &mut Prng) -> u64 {
        match self.below {
            0 => 0,
            below if self.sequential => self.next[kind].fetch_add(1, Ordering::Relaxed) % below,
            below => prng.below(below),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// Number of commands in it, and so of replies.
    pub commands: usize,
    places: [Vec<usize>; PLACES.len()],
    tags: Vec<usize>,
}

impl Template {
    /// Bytes that are `commands` commands.
    pub fn new(bytes: Vec<u8>, commands: usize) -> Template {
        let places = PLACES.map(|place| find_all(&bytes, place));
        let tags = find_all(&bytes, TAG);
        Template { bytes, commands, places, tags }
    }

    pub fn of<A: AsRef<[u8]>>(args: &[A]) -> Template {
        let mut bytes = Vec::new();
        push_request(&mut bytes, args);
        Template::new(bytes, 1)
    }

    /// `[N] command arg ... ; [N] command arg ...`: commands in sequence, each repeated N times. `__data__`
    /// becomes data.
    pub fn sequence(words: &[Vec<u8>], data_bytes: usize, data: &mut Data) -> Template {
        let (mut bytes, mut commands) = (Vec::new(), 0);
        for part in words.split(|word| word == b";") {
            let first = part.first().map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
            let counted = first.starts_with(|c: char| ('1'..='9').contains(&c));
            let repeat = if counted { crate::text::leading_i64(&first).unsigned_abs() as usize } else { 1 };
            let args = &part[usize::from(counted)..];
            if args.is_empty() {
                continue;
            }
            let args: Vec<Vec<u8>> = args.iter().map(|arg| with_data(arg, data_bytes, data)).collect();
            for _ in 0..repeat {
                push_request(&mut bytes, &args);
            }
            commands += repeat;
        }
        Template::new(bytes, commands)
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn has_tags(&self) -> bool {
        !self.tags.is_empty()
    }

    /// Returns the bytes that a connection sends at once: the commands, repeated `pipeline` times.
    pub fn batch(&self, pipeline: usize) -> Vec<u8> {
        self.bytes.repeat(pipeline)
    }

    /// New numbers for a batch.
    pub fn fill_numbers(&self, batch: &mut [u8], numbers: &Numbers, prng: &mut Prng) {
        for one in batch.chunks_exact_mut(self.bytes.len()) {
            for &at in &self.places[0] {
                write_digits(&mut one[at..at + PLACE_BYTES], numbers.draw(0, prng));
            }
            for (kind, places) in
                self.places.iter().enumerate().skip(1).filter(|(_, places)| !places.is_empty())
            {
                let number = numbers.draw(kind, prng);
                for &at in places {
                    write_digits(&mut one[at..at + PLACE_BYTES], number);
                }
            }
        }
    }

    /// Writes the tag of one slot into a whole batch.
    pub fn fill_tags(&self, batch: &mut [u8], tag: &[u8]) {
        for one in batch.chunks_exact_mut(self.bytes.len()) {
            for &at in &self.tags {
                let between = &mut one[at + 1..at + 1 + TAG_BYTES];
                // The first closing brace ends the tag: what is left of the place may be braces.
                between.fill(b'}');
                between[..tag.len()].copy_from_slice(tag);
            }
        }
    }
}

fn find_all(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = bytes[at..].windows(what.len()).position(|window| window == what) {
        found.push(at + next);
        at += next + what.len();
    }
    found
}

fn write_digits(place: &mut [u8], number: u64) {
    let mut rest = number;
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

fn with_data(arg: &[u8], data_bytes: usize, data: &mut Data) -> Vec<u8> {
    const PLACE: &[u8] = b"__data__";
    let mut out = Vec::new();
    let mut rest = arg;
    while let Some(at) = rest.windows(PLACE.len()).position(|window| window == PLACE) {
        out.extend(&rest[..at]);
        out.extend(data.draw(data_bytes));
        rest = &rest[at + PLACE.len()..];
    }
    out.extend(rest);
    out
}

/// Payloads: printable, not repetitive, and the same in every run.
#[derive(Debug)]
pub struct Data(u32);

impl Default for Data {
    fn default() -> Data {
        Data(1234)
    }
}

impl Data {
    pub fn draw(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.0 = self.0.wrapping_mul(1_103_515_245).wrapping_add(12_345);
                b'0' + ((self.0 >> 16) & 63) as u8
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &Template, pipeline: usize, numbers: &Numbers) -> String {
        let mut batch = template.batch(pipeline);
        template.fill_numbers(&mut batch, numbers, &mut Prng::new(1));
        String::from_utf8(batch).unwrap()
    }

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn each_place_of_the_first_kind_is_a_number_of_its_own() {
        let template = Template::new(b"__rand_int__ __rand_int__|".to_vec(), 1);
        let text = filled(&template, 2, &Numbers::new(3, true));
        assert_eq!(text, "000000000000 000000000001|000000000002 000000000000|");
    }

    #[test]
    fn places_of_another_kind_are_one_number() {
        let template = Template::new(b"__rand_1st__ __rand_2nd__ __rand_1st__|".to_vec(), 1);
        let text = filled(&template, 2, &Numbers::new(1 << 40, true));
        assert_eq!(text, "000000000000 000000000000 000000000000|000000000001 000000000001 000000000001|");
    }

    #[test]
    fn random_numbers_stay_below_their_end() {
        let template = Template::new(b"__rand_int__".to_vec(), 1);
        let text = filled(&template, 1000, &Numbers::new(50, false));
        let numbers: std::collections::BTreeSet<u64> = text
            .as_bytes()
            .chunks(12)
            .map(|digits| std::str::from_utf8(digits).unwrap().parse().unwrap())
            .collect();
        assert_eq!(numbers, (0..50).collect());
        assert_eq!(filled(&template, 1, &Numbers::new(0, false)), "000000000000");
    }

    #[test]
    fn sequences() {
        let template = Template::sequence(&words("incr foo ; 3 incr bar"), 3, &mut Data::default());
        assert_eq!(template.commands, 4);
        let text = String::from_utf8(template.batch(1)).unwrap();
        assert_eq!((text.matches("foo").count(), text.matches("bar").count()), (1, 3));
        let template = Template::sequence(&words("set k a__data__b"), 42, &mut Data::default());
        assert!(String::from_utf8(template.batch(1)).unwrap().contains("\r\n$44\r\na"));
        assert_eq!(Template::sequence(&words("; ;"), 3, &mut Data::default()).commands, 0);
    }

    #[test]
    fn tags() {
        let template = Template::of(&["GET", "a{tag}b"]);
        let mut batch = template.batch(1);
        assert!(template.has_tags());
        for (tag, expected) in [("x", "a{x}}}b"), ("xyz", "a{xyz}b"), ("", "a{}}}}b")] {
            template.fill_tags(&mut batch, tag.as_bytes());
            assert!(String::from_utf8(batch.clone()).unwrap().contains(expected), "{tag}");
        }
    }
}
