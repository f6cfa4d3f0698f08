//! LLEN LINDEX LRANGE LPOS.

use crate::call::is_word;
use crate::element::reply_element;
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Element, End, ListView, Lookup, Value};
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;

pub const LLEN: Command<Handler> = Command::new(
    Spec {
        name: "llen",
        summary: "Returns how many elements a list has; 0 for an absent key.",
        group: Group::List,
        complexity: "O(1)",
        arity: 2,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RO)],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BASE
    },
    llen,
);

fn llen(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::List(list)) => call.reply.integer(list.len() as i64),
        Some(_) => return call.fail(errors::WRONG_TYPE),
        None => {
            call.reply.integer(0);
        }
    }
    Outcome::Done
}

pub const LINDEX: Command<Handler> = Command::new(
    Spec {
        name: "lindex",
        summary: "Returns the element at an index, negative from the end; null out of range.",
        group: Group::List,
        complexity: "O(N), N the elements between the index and the nearer end",
        arity: 3,
        flags: Flags::READONLY,
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::integer("index")],
        ..Spec::BASE
    },
    lindex,
);

fn lindex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, index) = (call.key(1), parse_i64(call.args.get(2)));
    let reply = &mut *call.reply;
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::List(list)) => {
            let Some(index) = index else { return call.fail(errors::NOT_AN_INTEGER) };
            match super::absolute(index, list.len()).and_then(|index| list.get(index)) {
                Some(element) => reply_element(reply, element),
                None => reply.null(),
            }
        }
        Some(_) => return call.fail(errors::WRONG_TYPE),
        None => {
            reply.null();
        }
    }
    Outcome::Done
}

pub const LRANGE: Command<Handler> = Command::new(
    Spec {
        name: "lrange",
        summary: "Returns the elements from one index to another, both included; empty for an absent key.",
        group: Group::List,
        complexity: "O(S+N), S the distance of the start from the nearer end, N the elements returned",
        arity: 4,
        flags: Flags::READONLY,
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::integer("start"), Argument::integer("stop")],
        ..Spec::BASE
    },
    lrange,
);

fn lrange(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let (Some(start), Some(stop)) = (parse_i64(call.args.get(2)), parse_i64(call.args.get(3))) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    let reply = &mut *call.reply;
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::List(list)) => {
            let range = super::range(start, stop, list.len()).unwrap_or(0..0);
            let count = (range.end - range.start) as usize;
            reply.array(count);
            if count > 0 {
                let elements = list.iter(range.start, End::Front).take(count);
                elements.for_each(|element| reply_element(reply, element));
            }
        }
        Some(_) => return call.fail(errors::WRONG_TYPE),
        None => {
            reply.array(0);
        }
    }
    Outcome::Done
}

pub const LPOS: Command<Handler> = Command::new(
    Spec {
        name: "lpos",
        summary: "Returns the index of elements that equal a value; null or empty when none does.",
        since: "6.0.6",
        group: Group::List,
        complexity: "O(N), N the elements that are compared: at most all, at most MAXLEN",
        arity: -3,
        flags: Flags::READONLY,
        acl: AclCategories::LIST,
        need: NeedFrom::Stated(Need::Elements),
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("element"),
            Argument::integer("rank").token("RANK").optional(),
            Argument::integer("num-matches").token("COUNT").optional(),
            Argument::integer("len").token("MAXLEN").optional(),
        ],
        ..Spec::BASE
    },
    lpos,
);

struct Search {
    from: End,
    /// The first match that counts.
    rank: u64,
    /// Number of matches that are wanted; 0 for all. `None` for one match that is not in an array.
    count: Option<u64>,
    /// Maximum number of elements to look at; 0 for all.
    len_max: u64,
}

impl Search {
    fn parse(args: Args<'_>) -> Result<Search, String> {
        let mut search = Search { from: End::Front, rank: 1, count: None, len_max: 0 };
        let mut at = 3;
        while at < args.len() {
            let (word, value) = (args.get(at), args.try_get(at + 1).ok_or(errors::SYNTAX)?);
            let number = parse_i64(value);
            if is_word(word, "RANK") {
                let rank = number.ok_or(errors::NOT_AN_INTEGER)?;
                if rank == i64::MIN {
                    return Err(errors::out_of_range_between(-i64::MAX, i64::MAX));
                }
                if rank == 0 {
                    return Err(RANK_ZERO.into());
                }
                search.from = if rank < 0 { End::Back } else { End::Front };
                search.rank = rank.unsigned_abs();
            } else if is_word(word, "COUNT") {
                search.count = Some(positive(number, "ERR COUNT can't be negative")?);
            } else if is_word(word, "MAXLEN") {
                search.len_max = positive(number, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(errors::SYNTAX.into());
            }
            at += 2;
        }
        Ok(search)
    }

    /// Returns the places of the matches, in the order of the search.
    fn matches(&self, list: ListView<'_>, text: &[u8]) -> impl Iterator<Item = u64> {
        let last = list.len() - 1;
        let (first, backwards) = if self.from == End::Front { (0, false) } else { (last, true) };
        let len_max = if self.len_max == 0 { u64::MAX } else { self.len_max };
        let found = list.iter(first, self.from).search(Element::of(text), len_max);
        let found = found.map(move |at| if backwards { last - at } else { at });
        found.skip((self.rank - 1) as usize)
    }
}

const RANK_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                         negative to start from the end of the list";

fn positive(number: Option<i64>, error: &str) -> Result<u64, String> {
    number.and_then(|number| u64::try_from(number).ok()).ok_or_else(|| error.into())
}

fn lpos(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, text) = (call.key(1), call.args.get(2));
    let search = match Search::parse(call.args) {
        Ok(search) => search,
        Err(error) => return call.fail(error),
    };
    let reply = &mut *call.reply;
    match call.txn.find(call.db, &key, Lookup::Read).map(|entry| entry.value) {
        Some(Value::List(list)) => match search.count {
            None => match search.matches(list, text).next() {
                Some(at) => reply.integer(at as i64),
                None => reply.null(),
            },
            Some(count) => {
                let open = reply.defer();
                let most = if count == 0 { usize::MAX } else { count as usize };
                let mut found = 0;
                for at in search.matches(list, text).take(most) {
                    reply.integer(at as i64);
                    found += 1;
                }
                reply.close_array(open, found);
            }
        },
        Some(_) => return call.fail(errors::WRONG_TYPE),
        None => match search.count {
            Some(_) => reply.array(0),
            None => reply.null(),
        },
    }
    Outcome::Done
}
