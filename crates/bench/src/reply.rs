//! Replies as they come: counting them without keeping them, for load at speed.
//!
//! A load generator must not become the thing that is measured, so it only counts. A reply ends when every
//! element that was announced has been seen: a top-level reply opens one element, an array of n opens n more,
//! anything else closes one.

/// State of the scan between two reads.
#[derive(Default)]
pub struct Scanner {
    /// Bytes of a bulk string, with its line end, that are still to come.
    skip: usize,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Elements of the current reply that are still to come; 0 between replies.
    open: u64,
}

/// Contents of the bytes that were scanned.
#[derive(Default, Debug, PartialEq)]
pub struct Seen {
    pub replies: u64,
    pub nulls: u64,
    pub first_error: Option<String>,
}

impl Scanner {
    pub fn scan(&mut self, mut bytes: &[u8], seen: &mut Seen) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if self.skip == 0 && skipped > 0 {
                self.close(seen);
            }
            if bytes.is_empty() {
                return;
            }
            let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
                self.line.extend_from_slice(bytes);
                return;
            };
            if self.line.is_empty() {
                self.element(&bytes[..end], seen);
            } else {
                self.line.extend_from_slice(&bytes[..end]);
                let line = std::mem::take(&mut self.line);
                self.element(&line, seen);
            }
            bytes = &bytes[end + 1..];
        }
    }

    /// Reads a line without its `\n`, the head of an element.
    fn element(&mut self, line: &[u8], seen: &mut Seen) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.open == 0 {
            self.open = 1;
        }
        let (kind, rest) = line.split_first().expect("a reply line has a type byte");
        match kind {
            b'$' => match length(rest) {
                Some(bytes) => self.skip = bytes + 2,
                None => self.null(seen),
            },
            b'*' | b'~' | b'>' => match length(rest) {
                Some(elements) => self.announce(elements as u64, seen),
                None => self.null(seen),
            },
            b'%' => self.announce(2 * length(rest).unwrap_or(0) as u64, seen),
            b'_' => self.null(seen),
            b'-' => {
                seen.first_error.get_or_insert_with(|| String::from_utf8_lossy(rest).into_owned());
                self.close(seen);
            }
            b'+' | b':' | b'#' | b',' | b'(' => self.close(seen),
            other => panic!("a reply began with {:?}", *other as char),
        }
    }

    fn announce(&mut self, elements: u64, seen: &mut Seen) {
        self.open += elements;
        self.close(seen);
    }

    fn null(&mut self, seen: &mut Seen) {
        seen.nulls += 1;
        self.close(seen);
    }

    fn close(&mut self, seen: &mut Seen) {
        self.open -= 1;
        if self.open == 0 {
            seen.replies += 1;
        }
    }
}

/// A length; none for the -1 of a null.
fn length(digits: &[u8]) -> Option<usize> {
    if digits == b"-1" {
        return None;
    }
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_same_however_the_bytes_are_cut() {
        let bytes = b"+OK\r\n$3\r\na\nb\r\n$-1\r\n:12\r\n*2\r\n$1\r\nx\r\n*1\r\n:1\r\n-ERR no\r\n*0\r\n$0\r\n\r\n%1\r\n+a\r\n_\r\n";
        let whole = Seen { replies: 9, nulls: 2, first_error: Some("ERR no".to_string()) };
        for size in 1..=bytes.len() {
            let (mut scanner, mut seen) = (Scanner::default(), Seen::default());
            bytes.chunks(size).for_each(|chunk| scanner.scan(chunk, &mut seen));
            assert_eq!(seen, whole, "in pieces of {size}");
        }
    }
}
