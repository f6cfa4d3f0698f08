//! Reading: what a client sends comes into the worker's buffer, or into bytes of the connection's own, and is
//! run.
//!
//! ```text
//! a turn      read, run | read, run | read, run            16 reads, and no further one when the share is over
//! or          read, run ........ 4 ms |                    what has not run by then is kept, and nothing more is read
//! the next    run what was kept | read, run | ...          behind all others that have something to do
//! ```

use isotherm_reactor::stream::Progress;

use super::batch::run_requests;
use super::connection::{Connection, Sends};
use super::input_buffer::Input;
use super::lending::{LENT_BYTES_MIN, run_lent};
use super::send::count_read;
use super::{Inner, group};
use isotherm_runtime::log;
use isotherm_runtime::time::unix_now;

/// Bytes of an unfinished request up to which it is copied back in front of the next read; and room for a
/// read into the connection's own bytes.
const COPY_BYTES_MAX: usize = 16 << 10;
/// Reads of one connection before the others have their turn.
const READS_PER_TURN_MAX: usize = 16;
/// Bytes at which a request is accounted for before it runs: it may be what makes its client take too much.
const ACCOUNTED_BYTES_MIN: usize = 64 << 10;

impl Inner {
    #[inline]
    pub fn read(&mut self, connection: &mut Connection, ended: bool) {
        connection.edge.readable = true;
        if connection.stream.is_handshaking() && !self.shake_hands(connection) {
            return;
        }
        self.dispatcher.begin_share();
        self.run_unrun(connection);
        for _ in 0..READS_PER_TURN_MAX {
            if connection.is_deaf() {
                return connection.leave_pause();
            }
            // Bytes that have to wait for the next turn wait in the socket: there they slow their client
            // down.
            if connection.can_go_on() || connection.edge.writable || self.dispatcher.budget.is_share_over() {
                break;
            }
            // It stays in the socket.
            if connection.is_debugging() && connection.reads_too_little() {
                return;
            }
            let aside = connection.reads_too_little() || connection.is_blocked() || connection.is_debugging();
            let (progress, filled) = match aside {
                true => self.read_aside(connection),
                false => self.read_once(connection),
            };
            if aside {
                self.feed_debugger(connection);
            }
            match progress {
                Progress::Ended if connection.is_debugging() => {
                    connection.edge.readable = false;
                    return self.end_debugger_input(connection);
                }
                // Requests that it has sent before are run before the end is looked at again.
                Progress::Ended if aside && !connection.is_blocked() => return,
                // A read that leaves room has emptied the socket, unless the end is near.
                Progress::Bytes(_) if filled || ended => {}
                // Under TLS there may be more that is no request.
                Progress::Later if !connection.stream.is_drained(0, 1) => break,
                Progress::Bytes(_) | Progress::Later => {
                    connection.edge.readable = false;
                    return;
                }
                Progress::Ended | Progress::Broken(_) => {
                    if progress != Progress::Ended {
                        connection.outbox = None;
                    }
                    connection.edge.readable = false;
                    connection.begin_closing();
                    return;
                }
            }
        }
        self.go_on_later(connection);
    }

    /// Reads once from a connection and runs the requests that were read. Returns the progress, and whether
    /// all room was filled.
    #[inline]
    pub fn read_once(&mut self, connection: &mut Connection) -> (Progress, bool) {
        let kept = connection.input.len();
        if kept > COPY_BYTES_MAX || connection.wanted > COPY_BYTES_MAX {
            return self.read_own(connection);
        }
        self.input[..kept].copy_from_slice(&connection.input);
        let room = self.input.len() - kept;
        let progress = connection.stream.read(&mut self.input[kept..]);
        if let Progress::Bytes(count) = progress {
            self.dispatcher.budget.pay(count);
            count_read(self.dispatcher.exec.stats, &connection.session, count);
            let bytes = &mut self.input[..kept + count];
            let done = run_requests(&mut self.dispatcher, connection, bytes, &mut self.requests);
            connection.keep(&bytes[done..]);
            connection.sends = match connection.sends {
                Sends::Large if !connection.input.is_empty() => Sends::Large,
                _ if count >= group::REGION_BYTES => Sends::Much,
                _ => Sends::Little,
            };
            self.finish(connection);
            return (progress, !connection.stream.is_drained(count, room));
        }
        (progress, false)
    }

    /// Reads once into the connection's own bytes, which then are not copied. Returns the same as
    /// `read_once`.
    #[cold]
    pub fn read_own(&mut self, connection: &mut Connection) -> (Progress, bool) {
        let kept = connection.input.len();
        let least = connection.wanted.clamp(1, COPY_BYTES_MAX);
        if connection.input.capacity() - kept < least
            && let Err((more, _)) = connection.make_room(connection.wanted)
        {
            refuse_memory(connection, more);
            return (Progress::Later, false);
        }
        let room = (connection.input.capacity() - kept).min(self.dispatcher.budget.piece_bytes());
        let progress = connection.stream.append_to(&mut connection.input, room);
        if let Progress::Bytes(count) = progress {
            self.dispatcher.budget.pay(count);
            count_read(self.dispatcher.exec.stats, &connection.session, count);
            connection.input.note_arrived();
            if count < connection.wanted {
                connection.wanted -= count;
                self.note_partial(connection);
            } else {
                let input = std::mem::take(&mut connection.input);
                self.run_own(connection, input);
            }
            return (progress, !connection.stream.is_drained(count, room));
        }
        (progress, false)
    }

    /// A client that does not read its replies may still be one that reads later, once it has written
    /// everything. So its requests are taken, but not run: they cost what it has sent, which the limit on
    /// queries bounds.
    #[cold]
    pub fn read_aside(&mut self, connection: &mut Connection) -> (Progress, bool) {
        let input = &mut connection.input;
        if connection.input_done > input.len() / 2 {
            input.drain(..std::mem::take(&mut connection.input_done));
        }
        if input.capacity() - input.len() < COPY_BYTES_MAX
            && let Err((more, _)) = connection.make_room(usize::MAX)
        {
            refuse_memory(connection, more);
            return (Progress::Later, false);
        }
        let input = &mut connection.input;
        let room = (input.capacity() - input.len()).min(self.dispatcher.budget.piece_bytes());
        let progress = connection.stream.append_to(input, room);
        if let Progress::Bytes(count) = progress {
            self.dispatcher.budget.pay(count);
            connection.input.note_arrived();
            connection.unrun = true;
            count_read(self.dispatcher.exec.stats, &connection.session, count);
            self.note_partial(connection);
            return (progress, !connection.stream.is_drained(count, room));
        }
        (progress, false)
    }

    /// More of a request has come, and nothing can be run yet.
    pub fn note_partial(&mut self, connection: &mut Connection) {
        connection.session.shared.seen.note_interaction(unix_now());
        connection.input_peak = connection.input_peak.max(connection.input.len());
        self.note_room(connection);
        self.check_query(connection);
        self.account(connection);
    }

    /// Runs the requests of bytes that are the connection's own. The rest is moved to the front, but not
    /// again and again for a client that has sent much and reads little.
    pub fn run_own(&mut self, connection: &mut Connection, mut input: Input) {
        if input.len() > ACCOUNTED_BYTES_MIN {
            connection.input = input;
            self.check_query(connection);
            self.account(connection);
            if connection.is_closing() {
                return;
            }
            input = std::mem::take(&mut connection.input);
        }
        connection.input_peak = connection.input_peak.max(input.len());
        let mut done = std::mem::take(&mut connection.input_done);
        if done == 0 && input.len() >= LENT_BYTES_MIN {
            input = run_lent(&mut self.dispatcher, connection, input, &mut self.requests);
        }
        done += run_requests(&mut self.dispatcher, connection, &mut input[done..], &mut self.requests);
        if (connection.reads_too_little() || connection.unrun) && done < input.len() / 2 {
            connection.input_done = done;
        } else {
            input.finish(done);
        }
        connection.input = input;
        connection.give_back_room();
        self.finish(connection);
    }
}

/// Closes a connection because there is no memory for what the client sends. Other connections continue: the
/// memory does not suffice for large requests only.
fn refuse_memory(connection: &mut Connection, more_bytes: usize) {
    log::warning(format!(
        "Closing client: out of memory for its query buffer: id={} (qbuf={}, {more_bytes} more)",
        connection.session.id(),
        connection.input.len()
    ));
    connection.break_off();
}
