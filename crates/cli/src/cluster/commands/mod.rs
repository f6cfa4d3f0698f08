//! The commands of the cluster manager, one or two a file.

pub mod add_delete;
pub mod backup;
pub mod call;
pub mod check;
pub mod create;
pub mod help;
pub mod import;
pub mod rebalance;
pub mod reshard;

use super::node::split_address;
use crate::Fallible;
use crate::text::leading_i64;

const NO_ADDRESS: &str = "[ERR] Invalid arguments: you need to pass either a valid address (ie. 120.0.0.1:7000) or \
                          space separated IP and port (ie. 120.0.0.1 7000)";

/// `host:port`, or host and port.
pub fn place(args: &[Vec<u8>]) -> Fallible<(String, u16)> {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let found = match args {
        [one] => split_address(&text(one)).map(|(host, port, _)| (host, port)),
        [host, port, ..] => u16::try_from(leading_i64(&text(port))).ok().map(|port| (text(host), port)),
        [] => None,
    };
    found.filter(|(host, port)| !host.is_empty() && *port > 0).ok_or_else(|| {
        eprintln!("{NO_ADDRESS}");
        String::new()
    })
}
