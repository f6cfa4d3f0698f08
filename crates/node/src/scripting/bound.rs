//! Analysis of the text of a script: does it show that the script looks at no key but those that it is called
//! with? Such a script needs no token (`runs`), so that workers run many of them at a time.
//!
//! ```text
//!   local key, call = KEYS[1], redis.call      key: a name of a key, call: a name of the function; neither is given a value again
//!   call('SET', key, ARGV[1])                  the command is a text, and its key is KEYS[...] or such a name
//!   redis.call('DEL', unpack(KEYS))            all that follows is a key
//! ```
//! The analysis is cautious: it knows the words of Lua and no more, and a text that it does not understand
//! shows nothing. `KEYS` and `redis` may be used in these ways only, so neither can be changed or handed on.
//! If the analysis is wrong all the same, a script gets an error for a key that it reaches while another
//! script has the token; no rule of isolation depends on the analysis.

use isotherm_commands::spec::{Begin, Find};
use std::collections::HashMap;

use crate::request::entry::{Entry, Locks};
use crate::request::registry::Commands;

/// Texts that are longer are not looked at.
const TEXT_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word<'t> {
    Name(&'t [u8]),
    /// A text without escapes.
    Text(&'t [u8]),
    /// Any other text, or a number.
    Value,
    Sign(&'t [u8]),
}

/// Meaning of a local name, all over the script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Key,
    Call,
}

/// Names through which a script could reach `KEYS` or `redis` under another name.
const FORBIDDEN: [&[u8]; 9] = [
    b"_G",
    b"getfenv",
    b"setfenv",
    b"load",
    b"loadstring",
    b"getmetatable",
    b"setmetatable",
    b"rawset",
    b"debug",
];

/// Members of `redis` that look at no key.
const KEYLESS_MEMBERS: [&[u8]; 4] = [b"error_reply", b"status_reply", b"sha1hex", b"log"];

/// Function that returns whether a command that locks nothing needs no lock in a script either. Other
/// commands report on the whole server.
pub type NeedsNothing = fn(&Entry) -> bool;

/// `code`: without its first line, if that says how it is to be run.
pub fn is_bound(code: &[u8], commands: &Commands, needs_nothing: NeedsNothing) -> bool {
    if code.len() > TEXT_BYTES_MAX {
        return false;
    }
    words_of(code).is_some_and(|words| {
        Look { words: &words, commands, needs_nothing, meanings: HashMap::new() }.is_bound()
    })
}

struct Look<'l, 't> {
    words: &'l [Word<'t>],
    commands: &'l Commands,
    needs_nothing: NeedsNothing,
    meanings: HashMap<&'t [u8], Meaning>,
}

impl<'t> Look<'_, 't> {
    fn is_bound(&mut self) -> bool {
        if !self.find_meanings() {
            return false;
        }
        let mut at = 0;
        while let Some(word) = self.words.get(at) {
            let next = match word {
                Word::Name(b"KEYS") => self.behind_keys(at),
                Word::Name(b"redis" | b"server") => self.behind_member(at),
                Word::Name(name) if self.meanings.get(name) == Some(&Meaning::Call) => {
                    if self.is_declared_at(at) { Some(at + 1) } else { self.behind_call(at + 1) }
                }
                Word::Name(b"unpack") if self.may_be_given_a_value(at) => None,
                Word::Name(name) if FORBIDDEN.contains(name) => None,
                _ => Some(at + 1),
            };
            match next {
                Some(next) => at = next,
                None => return false,
            }
        }
        true
    }

    fn is_sign(&self, at: usize, sign: &[u8]) -> bool {
        self.words.get(at) == Some(&Word::Sign(sign))
    }

    fn is_name(&self, at: usize, name: &[u8]) -> bool {
        self.words.get(at) == Some(&Word::Name(name))
    }

    // ---- local names ----

    /// `local a, b = KEYS[1], redis.call`. False if one of these names is given a value, or declared,
    /// anywhere else.
    fn find_meanings(&mut self) -> bool {
        let mut declared: HashMap<&'t [u8], usize> = HashMap::new();
        for at in 0..self.words.len() {
            if !self.is_name(at, b"local") {
                continue;
            }
            let (names, values_at) = self.names_at(at + 1);
            if !self.is_sign(values_at, b"=") {
                continue;
            }
            let mut value_at = values_at + 1;
            for (name, name_at) in names {
                let Some((meaning, behind)) = self.meaning_at(value_at) else { break };
                if self.meanings.insert(name, meaning).is_some() {
                    return false;
                }
                declared.insert(name, name_at);
                if !self.is_sign(behind, b",") {
                    break;
                }
                value_at = behind + 1;
            }
        }
        (0..self.words.len()).all(|at| match self.words[at] {
            Word::Name(name) if self.meanings.contains_key(name) => {
                declared[name] == at || !self.may_be_given_a_value(at)
            }
            _ => true,
        })
    }

    fn is_declared_at(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| self.words[before]);
        matches!(before, Some(Word::Name(b"local"))) || self.is_in_local_list(at)
    }

    /// `local x, NAME`
    fn is_in_local_list(&self, at: usize) -> bool {
        let mut at = at;
        while at >= 2 && self.is_sign(at - 1, b",") && matches!(self.words[at - 2], Word::Name(_)) {
            at -= 2;
        }
        at >= 1 && self.is_name(at - 1, b"local")
    }

    fn names_at(&self, mut at: usize) -> (Vec<(&'t [u8], usize)>, usize) {
        let mut names = Vec::new();
        while let Some(Word::Name(name)) = self.words.get(at) {
            names.push((*name, at));
            at += 1;
            if !self.is_sign(at, b",") {
                break;
            }
            at += 1;
        }
        (names, at)
    }

    /// `KEYS[...]` or `redis.call`, alone. Returns the place after it too.
    fn meaning_at(&self, at: usize) -> Option<(Meaning, usize)> {
        let (meaning, behind) = match self.words.get(at)? {
            Word::Name(b"KEYS") => (Meaning::Key, self.behind_index(at + 1)?),
            Word::Name(b"redis" | b"server") if self.is_call_member(at) => (Meaning::Call, at + 3),
            _ => return None,
        };
        let ends = match self.words.get(behind) {
            None => true,
            Some(Word::Sign(sign)) => matches!(*sign, b"," | b";"),
            // A statement begins.
            Some(Word::Name(name)) => !matches!(*name, b"and" | b"or"),
            Some(_) => false,
        };
        ends.then_some((meaning, behind))
    }

    /// A name of ours stands where it could be declared again or assigned: `NAME =`, `NAME, other =`, a
    /// parameter, a loop.
    fn may_be_given_a_value(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| self.words[before]);
        let declares = matches!(before, Some(Word::Name(b"local" | b"function" | b"for")));
        let is_member = matches!(before, Some(Word::Sign(b"." | b":")));
        if is_member {
            return false;
        }
        // In a list of names: of parameters, of a loop, of an assignment.
        let mut behind = at + 1;
        while self.is_sign(behind, b",") && matches!(self.words.get(behind + 1), Some(Word::Name(_))) {
            behind += 2;
        }
        let is_assigned = self.is_assigned_behind(at + 1) || self.is_name(behind, b"in");
        declares || is_assigned || self.is_parameter(at)
    }

    /// Returns whether the name is within the brackets after `function` or `function name`.
    fn is_parameter(&self, at: usize) -> bool {
        let mut at = at;
        while at >= 2 && self.is_sign(at - 1, b",") && matches!(self.words[at - 2], Word::Name(_)) {
            at -= 2;
        }
        if at < 2 || !self.is_sign(at - 1, b"(") {
            return false;
        }
        let mut head = at - 2;
        while head >= 1
            && !self.is_name(head, b"function")
            && matches!(self.words[head], Word::Name(_) | Word::Sign(b"." | b":"))
        {
            head -= 1;
        }
        self.is_name(head, b"function")
    }

    // ---- KEYS and redis ----

    /// `[...]`: where it ends.
    fn behind_index(&self, at: usize) -> Option<usize> {
        if !self.is_sign(at, b"[") {
            return None;
        }
        self.behind_brackets(at)
    }

    /// The place after the bracket that closes the one at `at`.
    fn behind_brackets(&self, at: usize) -> Option<usize> {
        let mut depth = 0;
        for (place, word) in self.words.iter().enumerate().skip(at) {
            if let Word::Sign(sign) = word {
                match *sign {
                    b"[" | b"(" | b"{" => depth += 1,
                    b"]" | b")" | b"}" => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(place + 1);
                        }
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// `#KEYS`, `unpack(KEYS)`, or `KEYS[...]` that is read.
    fn behind_keys(&self, at: usize) -> Option<usize> {
        let is_unpacked = at >= 2 && self.is_all_keys((at - 2, at + 2));
        let is_of_other = at >= 3 && matches!(self.words[at - 3], Word::Sign(b"." | b":"));
        if at >= 1 && self.is_sign(at - 1, b"#") || is_unpacked && !is_of_other {
            return Some(at + 1);
        }
        let behind = self.behind_index(at + 1)?;
        // What stands in the index is looked at as well.
        let is_read = !self.is_assigned_behind(behind);
        is_read.then_some(at + 2)
    }

    /// `KEYS[1] =`, `KEYS[1], x =`
    fn is_assigned_behind(&self, behind: usize) -> bool {
        self.is_sign(behind, b"=") || self.is_sign(behind, b",") && self.list_is_assigned(behind)
    }

    fn list_is_assigned(&self, comma: usize) -> bool {
        let mut at = comma;
        let mut depth = 0;
        while let Some(word) = self.words.get(at) {
            match word {
                Word::Sign(b"(" | b"[" | b"{") => depth += 1,
                Word::Sign(b")" | b"]" | b"}") if depth == 0 => return false,
                Word::Sign(b")" | b"]" | b"}") => depth -= 1,
                Word::Sign(b"=") if depth == 0 => return true,
                Word::Sign(b"," | b"." | b":") | Word::Text(_) | Word::Value => {}
                Word::Name(b"local" | b"end" | b"if" | b"for" | b"while" | b"return" | b"do" | b"then") => {
                    return false;
                }
                _ => {}
            }
            at += 1;
        }
        false
    }

    fn is_call_member(&self, at: usize) -> bool {
        self.is_sign(at + 1, b".") && (self.is_name(at + 2, b"call") || self.is_name(at + 2, b"pcall"))
    }

    fn behind_member(&self, at: usize) -> Option<usize> {
        if at >= 1 && self.is_sign(at - 1, b".") {
            // A field of something else.
            return Some(at + 1);
        }
        if self.is_call_member(at) {
            return match self.is_sign(at + 3, b"(") {
                true => self.behind_call(at + 3),
                // It is given a name, which `find_meanings` knows.
                false => self.is_value_of_local(at).then_some(at + 3),
            };
        }
        let Some(Word::Name(member)) = self.words.get(at + 2).filter(|_| self.is_sign(at + 1, b".")) else {
            return None;
        };
        let is_constant = member.starts_with(b"REPL_") || member.starts_with(b"LOG_");
        let is_called = KEYLESS_MEMBERS.contains(member) && self.is_sign(at + 3, b"(");
        (is_called || is_constant && !self.is_sign(at + 3, b"=")).then_some(at + 3)
    }

    /// Returns whether it is one of the values of `local a, b = x, redis.call`, all of which are ours.
    fn is_value_of_local(&self, at: usize) -> bool {
        (0..at).rev().take(64).any(|local| {
            if !self.is_name(local, b"local") {
                return false;
            }
            let (names, values_at) = self.names_at(local + 1);
            let mut value_at = values_at + 1;
            self.is_sign(values_at, b"=")
                && names.iter().any(|(name, _)| {
                    let Some((meaning, behind)) = self.meaning_at(value_at) else { return false };
                    let is_it =
                        value_at == at && meaning == Meaning::Call && self.meanings.contains_key(name);
                    value_at = behind + 1;
                    is_it
                })
        })
    }

    // ---- calls ----

    /// The arguments of a call that begin at `at`: where they begin, so that what is within them is looked at
    /// as well.
    fn behind_call(&self, at: usize) -> Option<usize> {
        if !self.is_sign(at, b"(") {
            return None;
        }
        let end = self.behind_brackets(at)? - 1;
        let arguments = self.arguments(at + 1, end);
        let Some((Word::Text(name), 1)) = arguments.first().map(|(from, to)| (self.words[*from], to - from))
        else {
            return None;
        };
        let command = self.commands.find(name)?;
        self.has_bound_keys(command, &arguments).then_some(at + 1)
    }

    /// Returns the range of words of each argument.
    fn arguments(&self, from: usize, end: usize) -> Vec<(usize, usize)> {
        let (mut arguments, mut start, mut depth) = (Vec::new(), from, 0);
        for at in from..end {
            match self.words[at] {
                Word::Sign(b"(" | b"[" | b"{") => depth += 1,
                Word::Sign(b")" | b"]" | b"}") => depth -= 1,
                Word::Sign(b",") if depth == 0 => {
                    arguments.push((start, at));
                    start = at + 1;
                }
                _ => {}
            }
        }
        if start < end {
            arguments.push((start, end));
        }
        arguments
    }

    fn has_bound_keys(&self, command: &Entry, arguments: &[(usize, usize)]) -> bool {
        match command.locks {
            Locks::None => {
                return command.spec.key_specs.is_empty()
                    && !command.is_container()
                    && (self.needs_nothing)(command);
            }
            Locks::One | Locks::Keys => {}
            _ => return false,
        }
        command.spec.key_specs.iter().all(|keys| {
            let (Begin::Index(first), Find::Range { last, step, limit: 0 }) = (keys.begin, keys.find) else {
                return false;
            };
            let (first, step) = (first as usize, step as usize);
            let to = match last {
                // To the end: an argument that may be several is all keys, or not known.
                -1 => arguments.len(),
                0.. => first + last as usize + 1,
                _ => return false,
            };
            first < arguments.len()
                && to <= arguments.len()
                && (first..to).step_by(step).all(|at| self.is_key(arguments[at]) || last == -1 && step == 1 && at + 1 == to && self.is_all_keys(arguments[at]))
                // What stands before the last key is one argument.
                && (last != -1 || (first..to).all(|at| at + 1 < to || step == 1 || !self.may_be_several(arguments[at])))
        })
    }

    fn is_key(&self, (from, to): (usize, usize)) -> bool {
        match self.words[from] {
            Word::Name(b"KEYS") => self.behind_index(from + 1) == Some(to),
            Word::Name(name) => to - from == 1 && self.meanings.get(name) == Some(&Meaning::Key),
            _ => false,
        }
    }

    fn is_all_keys(&self, (from, to): (usize, usize)) -> bool {
        to - from == 4
            && self.is_name(from, b"unpack")
            && self.is_sign(from + 1, b"(")
            && self.is_name(from + 2, b"KEYS")
            && self.is_sign(from + 3, b")")
    }

    /// A call, or `...`.
    fn may_be_several(&self, (from, to): (usize, usize)) -> bool {
        self.words[from..to].iter().any(|word| matches!(word, Word::Sign(b"(" | b"...")))
            || (from + 1..to).any(|at| self.is_lone_argument(at))
    }

    /// `f{...}`, `f"..."`, `t[1][[...]]`: a call without round brackets.
    fn is_lone_argument(&self, at: usize) -> bool {
        let is_value = matches!(self.words[at], Word::Text(_) | Word::Value | Word::Sign(b"{"));
        let is_behind_value = !matches!(self.words[at - 1], Word::Sign(sign) if !b"])}".contains(&sign[0]));
        is_value && is_behind_value
    }
}

// ---- the words of Lua ----

/// Splits a text into the words of Lua; `None` if it is not a text of Lua.
fn words_of(text: &[u8]) -> Option<Vec<Word<'_>>> {
    let (mut words, mut at) = (Vec::new(), 0);
    while let Some(&byte) = text.get(at) {
        let rest = &text[at..];
        match byte {
            _ if byte.is_ascii_whitespace() => at += 1,
            b'-' if rest.starts_with(b"--") => at += comment_len(rest)?,
            b'[' if long_level(rest).is_some() => {
                at += long_len(rest)?;
                words.push(Word::Value);
            }
            b'"' | b'\'' => {
                let len = text_len(rest)?;
                let inner = &rest[1..len - 1];
                words.push(if inner.contains(&b'\\') { Word::Value } else { Word::Text(inner) });
                at += len;
            }
            b'0'..=b'9' => {
                let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'.';
                at += rest.iter().take_while(is_part).count();
                words.push(Word::Value);
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                let len =
                    rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
                words.push(Word::Name(&rest[..len]));
                at += len;
            }
            _ => {
                const LONG: [&[u8]; 6] = [b"...", b"..", b"==", b"~=", b"<=", b">="];
                let len = LONG.iter().find(|sign| rest.starts_with(sign)).map_or(1, |sign| sign.len());
                words.push(Word::Sign(&rest[..len]));
                at += len;
            }
        }
    }
    Some(words)
}

fn comment_len(rest: &[u8]) -> Option<usize> {
    match long_level(&rest[2..]) {
        Some(_) => Some(2 + long_len(&rest[2..])?),
        None => Some(rest.iter().position(|byte| b"\r\n".contains(byte)).unwrap_or(rest.len())),
    }
}

/// Returns the number of `=` in the bracket that opens a long text here; `None` if there is no such bracket.
fn long_level(rest: &[u8]) -> Option<usize> {
    let level = rest.get(1..)?.iter().take_while(|&&byte| byte == b'=').count();
    (rest[0] == b'[' && rest.get(1 + level) == Some(&b'[')).then_some(level)
}

fn long_len(rest: &[u8]) -> Option<usize> {
    let level = long_level(rest)?;
    let close = [&b"]"[..], &vec![b'='; level], b"]"].concat();
    let inner = rest.windows(close.len()).position(|window| window == close)?;
    Some(inner + close.len())
}

fn text_len(rest: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match rest.get(at)? {
            b'\\' => at += 2,
            b'\n' => return None,
            &byte if byte == rest[0] => return Some(at + 1),
            _ => at += 1,
        }
    }
}
