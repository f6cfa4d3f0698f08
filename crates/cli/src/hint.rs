//! The text that may still be typed, derived from the text that has been typed.
//!
//! ```text
//! typed    SET key value EX 10 ...         "..." is the hint: [NX|XX|IFEQ comparison-value] [GET]
//! ```
//! The words are matched against the command's arguments: an argument that has been met whole is not shown
//! again, one that has been begun is shown first and without its brackets, and where a word fits nowhere
//! there is no hint at all.

use isotherm_stdx::args_split::{Dialect, args_split};

use crate::docs::{Arg, Docs, Entry, Kind};

/// The hint after `input`; empty if everything has been said, `None` if this is no command.
pub fn hint_for(docs: &Docs, input: &str) -> Option<String> {
    let mut words = args_split(input.as_bytes(), Dialect::File).ok()?;
    // The last word may still grow.
    if !input.ends_with(|c: char| c.is_ascii_whitespace()) {
        words.pop();
    }
    let entry = docs.find(&words)?;
    let typed: Vec<&[u8]> = words[entry.words.len()..].iter().map(Vec::as_slice).collect();
    Some(hint(entry, &typed))
}

/// The whole syntax of a command's arguments.
pub fn syntax(entry: &Entry) -> String {
    hint(entry, &[])
}

fn hint(entry: &Entry, typed: &[&[u8]]) -> String {
    let mut matched: Vec<Matched<'_>> = entry.args.iter().map(Matched::new).collect();
    let mut out = String::new();
    if match_all(typed, &mut matched) == typed.len() {
        show_all(&mut out, &mut matched, " ");
    }
    out
}

/// An argument, and how much of it has been met.
struct Matched<'a> {
    arg: &'a Arg,
    /// Number of words or parts that were matched; above zero once the argument has begun.
    begun: usize,
    token: bool,
    value: bool,
    whole: bool,
    inner: Vec<Matched<'a>>,
}

impl<'a> Matched<'a> {
    fn new(arg: &'a Arg) -> Matched<'a> {
        let inner = arg.inner.iter().map(Matched::new).collect();
        Matched { arg, begun: 0, token: false, value: false, whole: false, inner }
    }

    fn forget(&mut self) {
        *self = Matched::new(self.arg);
    }
}

/// Matches arguments in order; optional ones next to each other in any order. Returns the words used, 0 if a
/// required argument was not met.
fn match_all(words: &[&[u8]], args: &mut [Matched<'_>]) -> usize {
    let mut used = 0;
    let mut at = 0;
    while used < words.len() && at < args.len() {
        if args[at].arg.optional {
            let group = args[at..].iter().take_while(|arg| arg.arg.optional).count();
            used += match_optional(&words[used..], &mut args[at..at + group]);
            at += group;
        } else {
            match match_repeated(&words[used..], &mut args[at]) {
                0 => return 0,
                more => used += more,
            }
            at += 1;
        }
    }
    used
}

fn match_optional(words: &[&[u8]], args: &mut [Matched<'_>]) -> usize {
    let mut used = 0;
    let mut last: Option<usize> = None;
    while used < words.len() {
        let met = args.iter_mut().enumerate().filter(|(_, arg)| arg.begun == 0).find_map(|(i, arg)| {
            let more = match_repeated(&words[used..], arg);
            (more > 0).then_some((i, more))
        });
        let Some((i, more)) = met else { break };
        // A user who begins the next argument has finished the one before.
        if let Some(last) = last.replace(i) {
            args[last].whole = true;
        }
        used += more;
    }
    used
}

/// Matches an argument as often as it may stand.
fn match_repeated(words: &[&[u8]], arg: &mut Matched<'_>) -> usize {
    let mut used = match_once(words, arg);
    if !arg.arg.multiple {
        return used;
    }
    while arg.whole && used < words.len() {
        arg.forget();
        let rest = &words[used..];
        if arg.arg.token.is_some() && !arg.arg.multiple_token {
            // The token stood before the first value only.
            used += match_value(rest, arg);
            arg.token = arg.begun > 0;
        } else {
            used += match_once(rest, arg);
        }
    }
    // There may always be one more.
    arg.whole = false;
    used
}

/// Token and value, or as much of them as there are words for.
fn match_once(words: &[&[u8]], arg: &mut Matched<'_>) -> usize {
    let Some(token) = &arg.arg.token else { return match_value(words, arg) };
    if !words[0].eq_ignore_ascii_case(token.as_bytes()) {
        return 0;
    }
    arg.token = true;
    arg.begun = 1;
    if arg.arg.kind == Kind::PureToken {
        arg.whole = true;
        return 1;
    }
    if words.len() == 1 {
        return 1;
    }
    if match_value(&words[1..], arg) == 0 { 0 } else { arg.begun }
}

fn match_value(words: &[&[u8]], arg: &mut Matched<'_>) -> usize {
    match arg.arg.kind {
        Kind::Block => {
            arg.begun += match_all(words, &mut arg.inner);
            arg.whole = arg.inner.iter().all(|inner| inner.whole);
        }
        Kind::OneOf => {
            if let Some(choice) =
                arg.inner.iter_mut().find_map(|inner| (match_repeated(words, inner) > 0).then_some(inner))
            {
                arg.begun += choice.begun;
                arg.whole = choice.whole;
            }
        }
        Kind::Integer if !starts_with_number(words[0], false) => (arg.begun, arg.value) = (0, false),
        Kind::Double if !starts_with_number(words[0], true) => (arg.begun, arg.value) = (0, false),
        _ => {
            arg.begun += 1;
            arg.value = true;
            arg.whole = true;
        }
    }
    arg.begun
}

/// A number that is still being typed counts: its front will do.
fn starts_with_number(word: &[u8], fraction: bool) -> bool {
    let text = String::from_utf8_lossy(word);
    let text = text.trim_start();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    digits(unsigned)
        || fraction
            && (unsigned.strip_prefix('.').is_some_and(digits)
                || ["inf", "nan"]
                    .iter()
                    .any(|name| unsigned.get(..3).is_some_and(|front| front.eq_ignore_ascii_case(name))))
}

/// Shows what is left of the arguments.
fn show_all(out: &mut String, args: &mut [Matched<'_>], between: &str) {
    let mut shown = out.len();
    let last = args.len().saturating_sub(1);
    let separate = |out: &mut String, shown: &mut usize, i: usize| {
        if out.len() > *shown && i != last {
            out.push_str(between);
            *shown = out.len();
        }
    };
    let mut at = 0;
    while at < args.len() {
        if !args[at].arg.optional {
            show(out, &mut args[at]);
            separate(out, &mut shown, at);
            at += 1;
            continue;
        }
        // Optional arguments next to each other come in any order: the one that has been begun goes first.
        let end = at + args[at..].iter().take_while(|arg| arg.arg.optional).count();
        let mut begun = None;
        for (i, arg) in args.iter_mut().enumerate().take(end).skip(at) {
            if arg.begun > 0 && !arg.whole {
                show(out, arg);
                separate(out, &mut shown, at);
                begun = Some(i);
            }
        }
        // Once the required argument after them has been met, they can stand no more.
        if args.get(end).is_none_or(|next| next.begun == 0) {
            for i in (at..end).filter(|&i| begun != Some(i)) {
                show(out, &mut args[i]);
                separate(out, &mut shown, i);
            }
        }
        at = end;
    }
}

fn show(out: &mut String, matched: &mut Matched<'_>) {
    if matched.whole {
        return;
    }
    let arg = matched.arg;
    if arg.optional && matched.begun == 0 {
        out.push('[');
    }
    if !matched.token {
        show_token(out, arg);
    }
    match arg.kind {
        Kind::OneOf if matched.begun == 0 => show_all(out, &mut matched.inner, "|"),
        Kind::OneOf => {
            for choice in matched.inner.iter_mut().filter(|choice| choice.begun > 0) {
                show(out, choice);
            }
        }
        Kind::Block => show_all(out, &mut matched.inner, " "),
        Kind::PureToken => {}
        _ if matched.value => {}
        _ => out.push_str(word_or_quotes(&arg.shown)),
    }
    if arg.multiple {
        show_repetition(out, matched);
    }
    // After a repetition this closes a bracket that was never opened. So does valkey-cli, and its hints are
    // the standard.
    if arg.optional && matched.begun == 0 {
        out.push(']');
    }
}

/// `[key ...]`: the part that may come again, whole.
fn show_repetition(out: &mut String, matched: &mut Matched<'_>) {
    let arg = matched.arg;
    matched.forget();
    if !out.is_empty() {
        out.push(' ');
    }
    out.push('[');
    if arg.multiple_token {
        show_token(out, arg);
    }
    match arg.kind {
        Kind::OneOf => show_all(out, &mut matched.inner, "|"),
        Kind::Block => show_all(out, &mut matched.inner, " "),
        Kind::PureToken => {}
        _ => out.push_str(word_or_quotes(&arg.shown)),
    }
    out.push_str(" ...]");
}

fn show_token(out: &mut String, arg: &Arg) {
    if let Some(token) = &arg.token {
        out.push_str(word_or_quotes(token));
        if arg.kind != Kind::PureToken {
            out.push(' ');
        }
    }
}

/// A word that is empty could not be seen.
fn word_or_quotes(word: &str) -> &str {
    if word.is_empty() { "\"\"" } else { word }
}

/// Runs a file of pairs `"input" "expected hint"`; prints what differs, and how many.
pub fn run_suite(docs: &Docs, suite: &str, verbose: bool) -> Result<(usize, usize), String> {
    let (mut passed, mut failed) = (0, 0);
    for line in suite.lines().filter(|line| !line.starts_with('#')) {
        // A line whose quotes do not match is no case.
        let Ok(words) = args_split(line.as_bytes(), Dialect::File) else { continue };
        let words: Vec<String> =
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let (input, expected) = match words.as_slice() {
            [] => continue,
            [input] => return Err(format!("Missing expected hint for input '{input}'")),
            [input, expected, ..] => (input, expected),
        };
        let hint = hint_for(docs, input);
        if verbose {
            let shown = hint.as_deref().unwrap_or("(null)");
            println!("Input: '{input}', Expected: '{expected}', Hint: '{shown}'");
        }
        if hint.as_deref().is_some_and(|hint| hint.trim_end_matches(' ') == expected) {
            passed += 1;
        } else {
            let got = hint.as_deref().unwrap_or("(null)").to_string();
            eprintln!("Test case '{input}' FAILED: expected '{expected}', got '{got}'");
            failed += 1;
        }
    }
    Ok((passed, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        let hint = hint_for(&Docs::built_in(), input);
        assert_eq!(hint.as_deref().map(str::trim_end), Some(expected), "{input:?}");
    }

    #[test]
    fn arguments_in_order() {
        check("GET ", "key");
        check("GET abc ", "");
        check("get abc", "key");
        check("LPOP key ", "[count]");
        check("config set a ", "value [parameter value ...]");
        check("MGET k k ", "[key ...]");
        check("ZADD key CH LT ", "[NX|XX] [INCR] score member [score member ...]");
        check("ZADD key 0 ", "member [score member ...]");
    }

    #[test]
    fn what_was_begun_comes_first() {
        check("SET k v EX ", "seconds [NX|XX|IFEQ comparison-value|IFNE comparison-value] [GET]");
        check("BITFIELD_RO k GET xyz ", "offset [GET encoding offset ...]]");
        check("SCAN 2 COUNT ", "count [MATCH pattern] [TYPE type]");
        check("XRANGE k 4 2 COUNT", "[COUNT count]");
    }

    #[test]
    fn where_a_word_fits_nowhere_there_is_no_hint() {
        check("SET k v FOOBAR ", "");
        check("SET k v EX sec ", "");
        check("ZRANDMEMBER k cnt ", "");
        assert_eq!(hint_for(&Docs::built_in(), "NONSENSE "), None);
        assert_eq!(hint_for(&Docs::built_in(), "GET \"a "), None);
    }

    #[test]
    fn a_suite_can_fail() {
        let docs = Docs::built_in();
        assert_eq!(run_suite(&docs, "# nothing\n\n\"GET \" \"key\"\n\"GET \" \"no\"\n", false), Ok((1, 1)));
        assert!(run_suite(&docs, "\"GET \"\n", false).is_err());
    }
}
