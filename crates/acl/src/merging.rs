//! Selectors that are spread over several words: `(+get` `~a)` is `(+get ~a)`.

use crate::until_nul;

/// The word at this place opens a selector that does not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unmatched(pub usize);

pub fn merge_selectors<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, Unmatched> {
    let mut merged = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (at, word) in words.into_iter().enumerate() {
        let ends = word.last() == Some(&b')');
        match &mut open {
            None if word.first() == Some(&b'(') && !ends => open = Some((at, word.to_vec())),
            None => merged.push(word.to_vec()),
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(until_nul(word));
                if ends {
                    merged.extend(open.take().map(|(_, selector)| selector));
                }
            }
        }
    }
    match open {
        Some((at, _)) => Err(Unmatched(at)),
        None => Ok(merged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_join_words() {
        let merged = |words: &str| {
            merge_selectors(words.split(' ').map(str::as_bytes)).map(|words| {
                words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect::<Vec<_>>()
            })
        };
        assert_eq!(merged("on (+get ~a) off"), Ok(vec!["on".into(), "(+get ~a)".into(), "off".into()]));
        assert_eq!(merged("(+get) ()"), Ok(vec!["(+get)".into(), "()".into()]));
        assert_eq!(merged("on (+get (~a"), Err(Unmatched(1)));
        assert_eq!(merged("("), Err(Unmatched(0)));
        assert_eq!(merged("( )"), Ok(vec!["( )".into()]));
        assert_eq!(merged("a) )"), Ok(vec!["a)".into(), ")".into()]));
    }
}
