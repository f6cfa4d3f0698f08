//! Lists, sets and sorted sets put in order: SORT SORT_RO.
//!
//! ```text
//! SORT k BY w_* GET o_*->name LIMIT 0 2        k = a b c
//!
//! load      a b c                              the elements
//! weigh     w_a w_b w_c                        what they are sorted by: themselves, or the values of other keys
//! sort      c a b
//! cut       c a                                LIMIT
//! answer    o_c->name o_a->name                themselves, or the values of other keys; replied or stored as a list
//! ```
//! The keys that are looked at are known only with the elements, so both commands hold all partitions.

mod options;
mod partial;
mod pattern;

use crate::arguments::LIMIT;
use crate::call::ColdKeys;
use crate::spec::*;
use crate::texts::Texts;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Element, End, EventClass, Key, Lookup, TextRoom, Value};
use isotherm_resp::{Args, errors};
use isotherm_stdx::{parse_f64, parse_i64, steps};
use options::Options;
use std::cmp::Ordering;

/// Both patterns make names of keys: the second key spec is theirs.
const BY: Argument = Argument::pattern("by-pattern").of_key_spec(1).token("BY").optional().display("pattern");
const GET: Argument = Argument::pattern("get-pattern")
    .of_key_spec(1)
    .token("GET")
    .optional()
    .multiple_token()
    .display("pattern");

pub const SORT: Command<Handler> = Command::new(
    Spec {
        name: "sort",
        summary: "Returns the elements of a list, set or sorted set in order, or stores them.",
        group: Group::Generic,
        complexity: "O(N+M*log(M)), N the elements of the key, M the elements returned; O(N) without sorting",
        arity: -2,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::DANGEROUS
            .or(AclCategories::LIST)
            .or(AclCategories::SET)
            .or(AclCategories::SORTEDSET),
        reach: Reach::All,
        key_positions: Some(sort_keys),
        key_specs: &[
            KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
            KeySpec {
                notes: "The keys that BY and GET make of the elements",
                flags: KeyFlags::RO.or(KeyFlags::ACCESS),
                begin: Begin::Unknown,
                find: Find::Unknown,
            },
            KeySpec {
                notes: "The key of STORE, which may stand among the other options in any order",
                flags: KeyFlags::OW.or(KeyFlags::UPDATE),
                begin: Begin::Unknown,
                find: Find::Unknown,
            },
        ],
        arguments: &[
            Argument::key("key", 0),
            BY,
            LIMIT,
            GET,
            Argument::one_of(
                "order",
                &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
            )
            .optional(),
            Argument::pure_token("sorting", "ALPHA").optional(),
            Argument::key("destination", 2).token("STORE").optional(),
        ],
        ..Spec::BASE
    },
    sort,
);

fn sort(call: &mut Call<'_, '_, '_>) -> Outcome {
    run(call, true)
}

pub const SORT_RO: Command<Handler> = Command::new(
    Spec {
        name: "sort_ro",
        summary: "Returns the elements of a list, set or sorted set in order.",
        since: "7.0.0",
        group: Group::Generic,
        complexity: "O(N+M*log(M)), N the elements of the key, M the elements returned; O(N) without sorting",
        arity: -2,
        flags: Flags::READONLY,
        acl: AclCategories::DANGEROUS
            .or(AclCategories::LIST)
            .or(AclCategories::SET)
            .or(AclCategories::SORTEDSET),
        reach: Reach::All,
        key_positions: Some(sort_ro_keys),
        key_specs: &[
            KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
            KeySpec {
                notes: "The keys that BY and GET make of the elements",
                flags: KeyFlags::RO.or(KeyFlags::ACCESS),
                begin: Begin::Unknown,
                find: Find::Unknown,
            },
        ],
        arguments: &[
            Argument::key("key", 0),
            BY,
            LIMIT,
            GET,
            Argument::one_of(
                "order",
                &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
            )
            .optional(),
            Argument::pure_token("sorting", "ALPHA").optional(),
        ],
        ..Spec::BASE
    },
    sort_ro,
);

fn sort_ro(call: &mut Call<'_, '_, '_>) -> Outcome {
    run(call, false)
}

/// The key to sort, and the one after the last STORE.
fn sort_keys(args: Args<'_>, out: &mut Vec<(usize, KeyFlags)>) {
    sort_ro_keys(args, out);
    let store = options::store_position(args);
    out.extend(store.map(|at| (at, KeyFlags::OW.or(KeyFlags::UPDATE))));
}

fn sort_ro_keys(_: Args<'_>, out: &mut Vec<(usize, KeyFlags)>) {
    out.push((1, KeyFlags::RO.or(KeyFlags::ACCESS)));
}

fn run(call: &mut Call<'_, '_, '_>, may_store: bool) -> Outcome {
    let read = Options::read(call.args, may_store).and_then(|options| match call.settings.in_cluster {
        true => options.check_slots(call.args).map(|()| options),
        false => Ok(options),
    });
    let read = read.and_then(|options| options.check_rights(call.may_read_all).map(|()| options));
    let mut options = match read {
        Ok(options) => options,
        Err(error) => return call.fail(error),
    };
    let key = call.key(1);
    call.txn.read_first();
    let Some((loaded, is_set)) = load(call, &key) else {
        return call.fail(errors::WRONG_TYPE);
    };
    let mut elements: Vec<&[u8]> = loaded.iter().collect();
    // The order of a set is arbitrary; what is stored should not depend on it, nor what a script does.
    if is_set && options.keeps_order && (options.store.is_some() || call.in_script) {
        (options.keeps_order, options.alpha, options.by) = (false, true, None);
    }
    match cold_keys(call, &elements, &options) {
        Ok(None) => {}
        Ok(Some(keys)) => return Outcome::Cold(keys),
        Err(error) => return call.fail(error),
    }
    if options.keeps_order {
        if options.descending && !is_set {
            elements.reverse();
        }
    } else if let Err(error) = arrange(call, &mut elements, &options) {
        return call.fail(error);
    }
    let range = options.range(elements.len());
    match options.store {
        None => answer(call, &elements[range], &options),
        Some(at) => store(call, &elements[range], &options, at),
    }
}

/// Returns the keys that the patterns find and that are not in memory.
fn cold_keys(
    call: &mut Call<'_, '_, '_>,
    elements: &[&[u8]],
    options: &Options<'_>,
) -> Result<Option<Box<ColdKeys>>, &'static str> {
    let mut keys = Vec::new();
    if call.txn.has_cold() {
        let patterns: Vec<&[u8]> = options.by.into_iter().chain(options.gets.iter().copied()).collect();
        for element in elements {
            for pattern in &patterns {
                steps::note(1);
                if !pattern::add_cold(call, pattern, element, &mut keys) {
                    return Err(errors::UNREADABLE);
                }
            }
        }
    }
    Ok((!keys.is_empty()).then(|| Box::new(ColdKeys { keys })))
}

/// The elements in their own order, and whether they are those of a set. `None` if the key holds something
/// else.
fn load(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Option<(Texts, bool)> {
    let mut elements = Texts::default();
    let mut push = |element: Element<'_>| elements.push(element.text(&mut TextRoom::default()));
    let is_set = match call.txn.find(call.db, key, Lookup::Read).map(|entry| entry.value) {
        None => false,
        Some(Value::List(list)) => {
            list.iter(0, End::Front).for_each(push);
            false
        }
        Some(Value::Set(set)) => {
            set.for_each(push);
            true
        }
        // COMPAT(sort): SORT leaves the encoding of a sorted set as it is; Valkey converts it to a skiplist.
        // Why: reading does not need another form.
        Some(Value::Zset(set)) => {
            set.for_each(0, set.len(), true, |member, _| push(member));
            false
        }
        Some(_) => return None,
    };
    Some((elements, is_set))
}

// ---- the order ----

/// Sort key of an element.
enum Weight {
    Number(f64),
    /// Absent values come first.
    Text(Option<Vec<u8>>),
}

const NO_NUMBER: &str = "ERR One or more scores can't be converted into double";

fn arrange(
    call: &mut Call<'_, '_, '_>,
    elements: &mut Vec<&[u8]>,
    options: &Options<'_>,
) -> Result<(), &'static str> {
    match options.by {
        Some(by) => arrange_by(call, by, elements, options)?,
        None if options.alpha => elements.sort_unstable(),
        None => arrange_numbers(elements)?,
    }
    if options.descending && options.by.is_none() {
        elements.reverse();
    }
    Ok(())
}

/// Sorts by the numbers that they are. Those that are equal as numbers and as text are the same in any order.
fn arrange_numbers<'e>(elements: &mut Vec<&'e [u8]>) -> Result<(), &'static str> {
    let mut ranked: Vec<(u64, &'e [u8])> = Vec::with_capacity(elements.len());
    for &element in elements.iter() {
        ranked.push((rank_of(number_of(element).ok_or(NO_NUMBER)?), element));
    }
    ranked.sort_unstable();
    elements.clear();
    elements.extend(ranked.into_iter().map(|(_, element)| element));
    Ok(())
}

/// Makes an integer that orders as the number does, which is no NaN: integers are sorted in a quarter of the
/// time.
fn rank_of(number: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    // Zero and its negative are one number.
    let bits = (number + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

fn arrange_by<'e>(
    call: &mut Call<'_, '_, '_>,
    by: &[u8],
    elements: &mut Vec<&'e [u8]>,
    options: &Options<'_>,
) -> Result<(), &'static str> {
    let mut weighed = Vec::with_capacity(elements.len());
    let mut all_numbers = true;
    for element in elements.drain(..) {
        let weight = match (pattern::look_up(call, by, element), options.alpha) {
            (value, true) => Weight::Text(value),
            (None, false) => Weight::Number(0.0),
            (Some(value), false) => weight_of(&value, &mut all_numbers),
        };
        weighed.push((weight, element));
    }
    if !all_numbers {
        return Err(NO_NUMBER);
    }
    // Stored or not, with a locale of "C": only there a NUL ends what is compared, and here nothing does.
    // COMPAT(sort): SORT ALPHA compares all bytes, those behind a NUL too; Valkey ends the comparison at a
    // NUL. Elements with equal weights (sets and sorted sets BY a pattern, lists BY a pattern with ALPHA) may
    // come in another order than in Valkey. Why: elements are bytes without a terminator, and the order of
    // equals is unspecified.
    let by_weight = |a: &(Weight, &'e [u8]), b: &(Weight, &'e [u8])| match (&a.0, &b.0) {
        (Weight::Number(x), Weight::Number(y)) => {
            x.partial_cmp(y).unwrap_or(Ordering::Equal).then_with(|| a.1.cmp(b.1))
        }
        (Weight::Text(x), Weight::Text(y)) => x.cmp(y),
        _ => a.1.cmp(b.1),
    };
    let compare = |a: &(Weight, &'e [u8]), b: &(Weight, &'e [u8])| match options.descending {
        true => by_weight(a, b).reverse(),
        false => by_weight(a, b),
    };
    let wanted = options.range(weighed.len());
    if wanted != (0..weighed.len()) {
        partial::sort_part(&mut weighed, wanted, &compare);
    } else {
        weighed.sort_by(compare);
    }
    elements.extend(weighed.into_iter().map(|(_, element)| element));
    Ok(())
}

/// Reads a number. Most are integers, which are read faster, and rounded as others are.
fn number_of(text: &[u8]) -> Option<f64> {
    parse_i64(text).map(|int| int as f64).or_else(|| parse_f64(text))
}

fn weight_of(text: &[u8], all_numbers: &mut bool) -> Weight {
    let number = number_of(text);
    *all_numbers &= number.is_some();
    Weight::Number(number.unwrap_or_default())
}

// ---- the result ----

/// Calls `give` with everything that is answered.
fn each_answer(
    call: &mut Call<'_, '_, '_>,
    elements: &[&[u8]],
    options: &Options<'_>,
    mut give: impl FnMut(&mut Call<'_, '_, '_>, Option<&[u8]>),
) {
    for element in elements {
        if options.gets.is_empty() {
            give(call, Some(element));
        }
        for get in &options.gets {
            steps::note(1);
            let value = pattern::look_up(call, get, element);
            give(call, value.as_deref());
        }
    }
}

fn answer(call: &mut Call<'_, '_, '_>, elements: &[&[u8]], options: &Options<'_>) -> Outcome {
    call.reply.array(elements.len() * options.gets.len().max(1));
    each_answer(call, elements, options, |call, value| match value {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    });
    Outcome::Done
}

/// An empty result is none: the key leaves.
fn store(call: &mut Call<'_, '_, '_>, elements: &[&[u8]], options: &Options<'_>, at: usize) -> Outcome {
    let mut looked_up: Vec<Vec<u8>> = Vec::new();
    if !options.gets.is_empty() {
        each_answer(call, elements, options, |_, value| looked_up.push(value.unwrap_or_default().to_vec()));
    }
    if !call.txn.begin_changes() {
        // Values that could not be shown are read, and the command runs again.
        return call.out_of_memory();
    }
    match options.gets.is_empty() {
        true => store_texts(call, elements.iter().copied(), options, at),
        false => store_texts(call, looked_up.iter().map(Vec::as_slice), options, at),
    }
}

fn store_texts<'t>(
    call: &mut Call<'_, '_, '_>,
    texts: impl ExactSizeIterator<Item = &'t [u8]> + Clone,
    options: &Options<'_>,
    at: usize,
) -> Outcome {
    let (target, count) = (call.key(at), texts.len());
    let existed = call.txn.clear(call.db, &target);
    if count == 0 {
        call.result_is_empty(&target, existed);
    } else {
        let limits = &call.settings.limits;
        let edited = call.txn.edit_list(call.db, &target, limits, |list| list.push(End::Back, texts.clone()));
        if !edited.is_ok_and(|edited| edited.result.is_ok()) {
            return call.result_is_cut_short(&target, existed);
        }
        call.wrote(EventClass::List, "sortstore", &target, count as u64);
    }
    if options.reads_fields() {
        let values: Vec<Vec<u8>> = texts.map(<[u8]>::to_vec).collect();
        record_result(call, &target, existed, &values);
    }
    call.reply.integer(count as i64);
    Outcome::Done
}

/// Records the resulting list instead of the request, for a result that depends on fields of hashes: a
/// replica can still see a field that is past its time here.
fn record_result(call: &mut Call<'_, '_, '_>, target: &Key<'_>, existed: bool, values: &[Vec<u8>]) {
    call.records.replace_request();
    if existed {
        call.record(&[b"DEL", target.bytes]);
    }
    call.record_elements(&[b"RPUSH", target.bytes], values);
}
