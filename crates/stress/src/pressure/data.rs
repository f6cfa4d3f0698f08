//! Keys of one client, numbered: how each is written and read, and which version of it was acknowledged.
//!
//! A value says its key, its number and its version, and the rest follows from these, so a reader knows
//! whether it is the right one. A version that was refused is not there; one that was never answered may be.

use isotherm_probe::command;
use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A string of `bytes` bytes; every other one with a time to live, where the policy drops only such.
    Text { bytes: usize, has_times: bool },
    /// A small hash: it leaves memory, and comes back, as a whole.
    Image,
    /// A field of one of few large hashes.
    Field,
    /// A member of one of few large sorted sets; its version is its score.
    Member,
}

/// Bytes and fields of an [`Shape::Image`].
const IMAGE_FIELDS: usize = 6;
const IMAGE_FIELD_BYTES: usize = 1000;
const FIELD_BYTES: usize = 1000;
/// A member's name is as long.
const MEMBER_BYTES: usize = 60;
/// Large collections of a client.
const COLLECTIONS: u32 = 2;
/// Time to live of a key that is not due as long as a cell lasts.
const FAR_S: &[u8] = b"100000";

impl Shape {
    /// Bytes of an item, about.
    pub fn bytes(self) -> usize {
        match self {
            Shape::Text { bytes, .. } => bytes,
            Shape::Image => IMAGE_FIELDS * IMAGE_FIELD_BYTES,
            Shape::Field => FIELD_BYTES,
            Shape::Member => MEMBER_BYTES,
        }
    }

    /// Returns whether a policy that drops keys with a time to live may drop the item.
    pub fn has_time(self, number: u32) -> bool {
        matches!(self, Shape::Text { has_times: true, .. }) && number % 2 == 1
    }
}

#[derive(Clone, Copy, Default)]
struct Item {
    /// 0: none.
    acknowledged: u32,
    sent: u32,
}

pub struct Data {
    pub shape: Shape,
    pub client: usize,
    items: Vec<Item>,
    /// Expiry of all of them, in milliseconds since 1970.
    pub due_ms: Option<u64>,
}

/// State of an item, as its reply shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Value as it was acknowledged.
    Right,
    Absent,
    /// Another value, or an error, in words.
    Wrong(String),
}

impl Data {
    pub fn new(client: usize, shape: Shape) -> Data {
        Data { shape, client, items: Vec::new(), due_ms: None }
    }

    pub fn len(&self) -> u32 {
        self.items.len() as u32
    }

    pub fn add(&mut self) -> u32 {
        self.items.push(Item::default());
        self.len() - 1
    }

    pub fn is_acknowledged(&self, number: u32) -> bool {
        self.items[number as usize].acknowledged > 0
    }

    /// Forgets those of even numbers, which were deleted.
    pub fn forget_even(&mut self) {
        self.items.iter_mut().step_by(2).for_each(|item| *item = Item::default());
    }

    pub fn key(&self, number: u32) -> String {
        let client = self.client;
        match self.shape {
            Shape::Text { .. } if self.due_ms.is_some() => format!("burst:{client}:{number:07}"),
            Shape::Text { .. } => format!("text:{client}:{number:07}"),
            Shape::Image => format!("image:{client}:{number:07}"),
            Shape::Field => format!("hash:{client}:{}", number % COLLECTIONS),
            Shape::Member => format!("zset:{client}:{}", number % COLLECTIONS),
        }
    }

    fn field(&self, number: u32) -> Vec<u8> {
        match self.shape {
            Shape::Member => content(&format!("m{number}/"), MEMBER_BYTES),
            _ => format!("f{number}").into_bytes(),
        }
    }

    fn value(&self, number: u32, version: u32) -> Vec<u8> {
        let head = format!("{}/{number}/{version} ", self.key(number));
        content(&head, self.shape.bytes() / if self.shape == Shape::Image { IMAGE_FIELDS } else { 1 })
    }

    /// Appends the request that writes the next version.
    pub fn write(&mut self, number: u32, out: &mut Vec<u8>) {
        let version = self.items[number as usize].sent + 1;
        self.items[number as usize].sent = version;
        let (key, value) = (self.key(number), self.value(number, version));
        let (key, value) = (key.as_bytes(), value.as_slice());
        let field = self.field(number);
        match self.shape {
            Shape::Text { .. } => match self.due_ms {
                Some(due_ms) => {
                    let due = due_ms.to_string();
                    command(out, [b"SET", key, value, b"PXAT", due.as_bytes()].into_iter());
                }
                None if self.shape.has_time(number) => {
                    command(out, [b"SET", key, value, b"EX", FAR_S].into_iter());
                }
                None => command(out, [b"SET", key, value].into_iter()),
            },
            Shape::Image => {
                let names: [String; IMAGE_FIELDS] = std::array::from_fn(|at| format!("f{at}"));
                let mut words: Vec<&[u8]> = vec![b"HSET", key];
                names.iter().for_each(|name| words.extend([name.as_bytes(), value]));
                command(out, words.into_iter());
            }
            Shape::Field => command(out, [b"HSET", key, &field, value].into_iter()),
            Shape::Member => {
                command(out, [b"ZADD", key, version.to_string().as_bytes(), &field].into_iter());
            }
        }
    }

    /// Appends the request that reads the item.
    pub fn read(&self, number: u32, out: &mut Vec<u8>) {
        let (key, field) = (self.key(number), self.field(number));
        let key = key.as_bytes();
        match self.shape {
            Shape::Text { .. } => command(out, [b"GET", key].into_iter()),
            Shape::Image => command(out, [b"HGET", key, b"f3"].into_iter()),
            Shape::Field => command(out, [b"HGET", key, &field].into_iter()),
            Shape::Member => command(out, [b"ZSCORE", key, &field].into_iter()),
        }
    }

    /// Notes the answer to the newest version.
    pub fn note(&mut self, number: u32, is_accepted: bool) {
        let item = &mut self.items[number as usize];
        if is_accepted {
            item.acknowledged = item.sent;
        } else {
            item.sent = item.acknowledged;
        }
    }

    /// Judges the reply to a read.
    pub fn judge(&self, number: u32, reply: &Result<Value, String>) -> Found {
        let item = self.items[number as usize];
        let shown = match reply {
            Ok(Value::NullBulk | Value::Null) => return Found::Absent,
            Ok(Value::Bulk(shown)) => shown,
            Ok(other) => return Found::Wrong(format!("{other:?}")),
            Err(why) => return Found::Wrong(why.clone()),
        };
        let is_of = |version: u32| match self.shape {
            Shape::Member => *shown == version.to_string().into_bytes(),
            _ => *shown == self.value(number, version),
        };
        if (item.acknowledged..=item.sent).any(is_of) {
            return Found::Right;
        }
        let begin = String::from_utf8_lossy(&shown[..shown.len().min(40)]).into_owned();
        Found::Wrong(format!("'{begin}' where version {} was acknowledged", item.acknowledged))
    }
}

/// Returns bytes that follow from `head`, which they begin with, and that do not compress.
fn content(head: &str, bytes: usize) -> Vec<u8> {
    let seed = head.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut prng = Prng::new(seed);
    let mut content = head.as_bytes().to_vec();
    while content.len() < bytes {
        content.extend_from_slice(&prng.next_u64().to_le_bytes());
    }
    content.truncate(bytes.max(head.len()));
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Shape = Shape::Text { bytes: 100, has_times: true };

    #[test]
    fn only_what_was_acknowledged_or_may_be_there_is_right() {
        for shape in [TEXT, Shape::Image, Shape::Field, Shape::Member] {
            let mut data = Data::new(0, shape);
            let number = data.add();
            let shown = |data: &Data, version: u32| {
                let text = data.value(number, version);
                let text = if shape == Shape::Member { version.to_string().into_bytes() } else { text };
                data.judge(number, &Ok(Value::Bulk(text)))
            };
            let wrong = |found| matches!(found, Found::Wrong(_));
            data.write(number, &mut Vec::new());
            data.note(number, true);
            assert!(shown(&data, 1) == Found::Right && wrong(shown(&data, 2)), "{shape:?}");
            data.write(number, &mut Vec::new());
            data.note(number, false);
            assert!(shown(&data, 1) == Found::Right && wrong(shown(&data, 2)), "{shape:?}");
            data.write(number, &mut Vec::new());
            assert!(shown(&data, 1) == Found::Right && shown(&data, 2) == Found::Right, "{shape:?}");
            assert_eq!(data.judge(number, &Ok(Value::NullBulk)), Found::Absent);
            assert!(wrong(data.judge(number, &Err("SWAPERR".to_string()))));
        }
    }

    #[test]
    fn every_other_text_has_a_time() {
        assert!(TEXT.has_time(1) && !TEXT.has_time(2) && !Shape::Image.has_time(1));
    }
}
