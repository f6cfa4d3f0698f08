//! Modes besides running commands: looks at a server from outside, each a file.

pub mod big_keys;
pub mod debug;
pub mod eval;
pub mod hot_keys;
pub mod intrinsic;
pub mod latency;
pub mod lru_test;
pub mod pipe;
pub mod scan;
pub mod spectrum;
pub mod stat;
pub mod transfer;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::connection::Broken;
use crate::session::Session;
use crate::terminal::put;
use crate::text::reason;

/// Pause between two attempts to reach a lost server, in modes that never end.
const RETRY: Duration = Duration::from_secs(1);

/// The reply to a command of ours, or what is wrong with it.
fn call(session: &mut Session, args: &[&str]) -> Fallible<Value> {
    session.connection()?.call(args).map_err(|_| "\nI/O error".to_string())
}

/// Sends a command and returns its reply. Waits as long as it takes: the server may go away and come back.
fn call_patiently(session: &mut Session, args: &[&str]) -> Fallible<Value> {
    let mut tries = 0;
    loop {
        let outcome = match session.connection() {
            Ok(connection) => connection.call(args),
            Err(_) => Err(Broken::Closed),
        };
        match outcome {
            Ok(reply) => {
                if tries > 0 {
                    put("\r\x1b[0K");
                }
                return Ok(reply);
            }
            Err(Broken::Protocol(why)) => return Err(format!("Error: {why}")),
            Err(_) => {
                tries += 1;
                put(format!("\r\x1b[0KReconnecting... {tries}\r"));
                session.connect(true);
                std::thread::sleep(RETRY);
            }
        }
    }
}

/// A flag that Ctrl-C raises: the walk stops, and what was found is reported.
fn stop_flag() -> Fallible<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, flag.clone())
        .map_err(|why| format!("Cannot hear Ctrl-C: {}", reason(&why)))?;
    Ok(flag)
}

fn error_text(reply: &Value) -> Option<String> {
    reply.as_error().map(|text| String::from_utf8_lossy(text).into_owned())
}
