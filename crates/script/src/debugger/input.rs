//! Commands as the client sends them: arrays of bulk strings, read as leniently and within the same bounds as
//! Valkey's debugger does.

// COMPAT(scripts): Commands that reach the debugger together are all carried out; Valkey carries out the
// first and drops what came with it. Why: it is what their sender means.

/// Maximum number of words of a command, and of bytes of a word.
const WORDS_MAX: i64 = 1024;
const WORD_BYTES_MAX: i64 = 1024;
const INPUT_BYTES_MAX: usize = 1 << 20;

pub const PROTOCOL_ERROR: &str = "protocol error";
pub const TOO_MUCH: &str = "max client buffer reached";

pub type Words = Vec<Vec<u8>>;

/// Bytes that have arrived and were not read yet.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
    is_too_much: bool,
}

impl Input {
    pub fn feed(&mut self, bytes: &[u8]) {
        match self.bytes.len() + bytes.len() > INPUT_BYTES_MAX {
            // The session ends with that.
            true => (self.bytes, self.is_too_much) = (Vec::new(), true),
            false => self.bytes.extend_from_slice(bytes),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_too_much
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The next command, if it is complete. After an error nothing is left.
    pub fn take(&mut self) -> Result<Option<Words>, &'static str> {
        if std::mem::take(&mut self.is_too_much) {
            return Err(TOO_MUCH);
        }
        match parse(&self.bytes) {
            Ok(None) => Ok(None),
            Ok(Some((words, end))) => {
                self.bytes.drain(..end);
                Ok(Some(words))
            }
            Err(()) => {
                self.bytes = Vec::new();
                Err(PROTOCOL_ERROR)
            }
        }
    }
}

/// A command and where it ends; none if it is not complete.
fn parse(bytes: &[u8]) -> Result<Option<(Words, usize)>, ()> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut at = bytes.iter().position(|&byte| byte == b'*').ok_or(())?;
    let Some(count) = number(bytes, &mut at) else { return Ok(None) };
    if !(1..=WORDS_MAX).contains(&count) {
        return Err(());
    }
    let mut words = Vec::new();
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(()),
        }
        let Some(len) = number(bytes, &mut at) else { return Ok(None) };
        if !(1..=WORD_BYTES_MAX).contains(&len) {
            return Err(());
        }
        let end = at + len as usize;
        let Some(rest) = bytes.get(end..end + 2) else { return Ok(None) };
        if rest != b"\r\n" {
            return Err(());
        }
        words.push(bytes[at..end].to_vec());
        at = end + 2;
    }
    Ok(Some((words, at)))
}

/// The number after the sign at `at`, which moves to the end of the line; none if the line is not complete.
fn number(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let line = &bytes[*at + 1..];
    let len = line.windows(2).position(|two| two == b"\r\n")?;
    *at += 1 + len + 2;
    Some(leading_number(&line[..len]))
}

/// The number that a text begins with, as C's atoi reads it; 0 if there is none.
pub fn leading_number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, text),
    };
    let value = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0i64, |value, byte| (value * 10 + i64::from(byte - b'0')).min(i64::from(i32::MAX)));
    if is_negative { -value } else { value }
}
