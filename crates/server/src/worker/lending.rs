//! A large argument becomes the value: its request is lent to the command, which stores it as it lies.
//!
//! ```text
//!   read      *3 $3 SET $1 k $268435456 [ value ........ ]          into room of that length
//!   parse     it is most of what was read
//!   lend      the bytes belong to a body of the keyspace, which the command reads its arguments from
//!   run       SET: the entry refers to the body                     another: it is not kept
//!   take back                                                       the room is the connection's again
//! ```
//! The bytes around the argument stay with the value until that grows: they may be a sixteenth of it at most.
//! Below 1 MB, where a connection keeps its room for the next request (`input_buffer`), a copy is cheaper.

use isotherm_allocator::Untouched;
use isotherm_keyspace::RequestMemory;
use isotherm_resp::Parser;
use std::ops::Range;

use super::batch::{Requests, parse, run_found};
use super::connection::Connection;
use super::input_buffer::Input;
use isotherm_engine::request::dispatch::Dispatcher;

/// A shorter argument is copied.
pub const LENT_BYTES_MIN: usize = 1 << 20;
/// Bytes around an argument, as a part of it.
const AROUND_PART_MAX: usize = 16;

/// Runs the first requests of `input`, if the last argument of them is most of it. Returns what has not run.
#[cold]
pub fn run_lent(
    dispatcher: &mut Dispatcher,
    connection: &mut Connection,
    mut input: Input,
    requests: &mut Requests,
) -> Input {
    let under_way = connection.parser.largest_argument_bytes();
    if !connection.parser.is_idle() && !is_most(under_way, input.len()) {
        return input;
    }
    requests.clear();
    let (end, _) = parse(dispatcher, connection, &mut input, 0, requests);
    let Some(argument) = lendable(requests, &input) else {
        // As if it had not been looked at.
        connection.parser = Parser::new();
        requests.undo(0..requests.found.len(), &mut input);
        return input;
    };
    let rest = input.split_off(end);
    if !is_most(argument.len(), input.memory_bytes()) {
        input.give_back_slack();
    }
    let touched_bytes = input.memory_bytes();
    let (request, untouched) = input.into_parts();
    let memory = RequestMemory { touched_bytes, keeps: Box::new(untouched) };
    let lent = dispatcher.exec.node.keyspace.lend_request(request, argument, memory);
    let unrun = lent.lend_to(
        dispatcher,
        |dispatcher| &mut dispatcher.exec.held,
        |dispatcher| run_found(dispatcher, connection, lent.request(), requests),
    );
    let Some(unrun) = unrun else { return rest.into() };
    connection.parser = Parser::new();
    if connection.is_closing() {
        return Input::default();
    }
    // With none left a command has run, and others are not to.
    let Some(first) = requests.found.get(unrun).map(|found| found.start) else { return rest.into() };
    let (request, memory) = lent.take_back().expect("a command that has not run keeps nothing");
    let untouched = memory.keeps.downcast::<Untouched>().map(|keeps| *keeps).unwrap_or_default();
    let mut input = Input::of_parts(request, untouched);
    requests.undo(unrun..requests.found.len(), &mut input);
    input.extend_from_slice(&rest);
    input.finish(first);
    input
}

/// The largest argument of the last request that was found, if it is most of what was read.
fn lendable(requests: &Requests, input: &[u8]) -> Option<Range<usize>> {
    let last = requests.found.len().checked_sub(1)?;
    let start = requests.found[last].start;
    let (_, spans) = requests.args(last, input).parts();
    let largest = spans.iter().max_by_key(|span| span.len)?.range();
    is_most(largest.len(), input.len()).then(|| start + largest.start..start + largest.end)
}

/// Returns whether an argument is nearly all of `all_bytes`; an announced one may be longer than that.
fn is_most(argument_bytes: usize, all_bytes: usize) -> bool {
    let around = all_bytes.checked_sub(argument_bytes);
    argument_bytes >= LENT_BYTES_MIN
        && around.is_some_and(|around| around <= argument_bytes / AROUND_PART_MAX)
}
