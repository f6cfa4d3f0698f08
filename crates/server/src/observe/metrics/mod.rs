//! An HTTP port for Prometheus: `/metrics` in its text format, and `/healthz`. Opt-in, on the loopback by
//! default.
//!
//! The names are those of redis_exporter, so its dashboards and alerts work without it. It reports what INFO
//! reports: rows of INFO declare the metric that they are (`info::row`). The exporter's map holds more, of
//! other servers (KeyDB, Tile38), of modules and of a cluster: docs/metrics.md names it.
//!
//! ```text
//! GET /metrics  ->  # HELP redis_memory_used_bytes `used_memory` of INFO.
//!                   # TYPE redis_memory_used_bytes gauge
//!                   redis_memory_used_bytes 1048576
//!                   redis_commands_total{cmd="get"} 42
//! ```
//! Reading order: `http` (connections, requests), `health`, `page`, `prefixes`, `text`.

mod health;
mod host;
mod http;
mod page;
mod prefixes;
mod text;

use std::io;
use std::net::TcpListener;

use isotherm_config::Config;
use isotherm_node::Node;
use isotherm_runtime::log::{self, os_text};

/// Descriptors that the port has at most: 2 of its listener and event loop, 16 connections without a request,
/// 8 probes, 7 that get their page or wait for it.
pub const FILES_MAX: u64 = 33;
const _: () = assert!(FILES_MAX == http::CONNECTIONS_MAX as u64 + 2);

/// Listening socket for metrics, open before connections to it are answered.
pub struct Open {
    listener: TcpListener,
    address: String,
    port: u16,
}

/// Listens, if a port is configured. Before clients can connect: monitoring then sees all that they do.
pub fn open(config: &Config) -> Result<Option<Open>, String> {
    let Some((address, port)) = config.metrics_address() else { return Ok(None) };
    let listener = TcpListener::bind((address.as_str(), port)).map_err(|error| failed(port, &error))?;
    Ok(Some(Open { listener, address, port }))
}

fn failed(port: u16, error: &io::Error) -> String {
    format!("Failed listening on port {port} (metrics): {}", os_text(error))
}

/// Answers in threads of its own.
pub fn serve(node: &'static Node, open: Open) -> Result<(), String> {
    let Open { listener, address, port } = open;
    http::serve(node, listener).map_err(|error| failed(port, &error))?;
    log::notice(format!("Metrics are served on http://{address}:{port}/metrics"));
    Ok(())
}
