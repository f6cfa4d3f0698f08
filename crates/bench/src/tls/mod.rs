//! The costs of TLS: CPU of commands over plain and over encrypted connections, of handshakes, and memory of
//! connections that wait.
//!
//! ```text
//! valkey-benchmark [--tls] --> server with two ports       the sum of its threads' CPU, over the commands
//! a client of our own      --> handshake, PING, end        one after the other: full, or taken up again
//! ```
//! Both servers have the same certificates, made by `openssl`, and ask clients for none. Nothing of the
//! clients is counted.

mod clients;
mod files;

use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::durability::{median, ratio};
use crate::options::Options;
use crate::process::{SIDES, Server, Setting, Side};
use crate::report::Table;
use crate::{Fallible, progress};
use clients::{Clients, Version};
use files::{Files, KINDS, KeyKind};

pub const ROWS: [&str; 3] = ["tls-commands", "tls-handshakes", "tls-idle"];

/// Commands of one measurement.
const COMMANDS: u64 = 200_000;
const COMMANDS_PIPELINED: u64 = 2_000_000;
const HANDSHAKES: u64 = 200;
const IDLE: u64 = 500;
/// Before those that are counted.
const WARM: u64 = 20;

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let files = Files::make(&options.scratch)?;
    Ok(vec![commands(&files, options)?, handshakes(&files, options)?, idle(&files, options)?])
}

/// A server with a port for TLS in addition to its own.
struct TlsServer {
    server: Server,
    port: u16,
}

impl TlsServer {
    fn start(side: Side, files: &Files, key: KeyKind, options: &Options) -> Fallible<TlsServer> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|why| format!("no port: {why}"))?;
        let port = listener.local_addr().map_err(|why| format!("no port: {why}"))?.port();
        drop(listener);
        let setting = Setting::one_core()
            .with("tls-port", port)
            .with("tls-auth-clients", "no")
            .with("tls-cert-file", files.certificate(key).display())
            .with("tls-key-file", files.key(key).display())
            .with("tls-ca-cert-file", files.certificate(key).display());
        Ok(TlsServer { server: Server::start(side, &setting, options)?, port })
    }

    /// Microseconds of the server's CPU for each of `count`.
    fn cost_us(&self, count: u64, deed: impl FnOnce() -> Fallible) -> Fallible<f64> {
        let before = self.server.cpu_ns()?;
        deed()?;
        Ok((self.server.cpu_ns()? - before) as f64 / count as f64 / 1000.0)
    }
}

// --------------------------------------------------------------------------------------------------------- commands

struct Load {
    name: &'static str,
    verb: &'static str,
    value_bytes: u64,
    pipeline: u64,
}

const LOADS: [Load; 6] = [
    Load { name: "SET, 3 B", verb: "set", value_bytes: 3, pipeline: 1 },
    Load { name: "GET, 3 B", verb: "get", value_bytes: 3, pipeline: 1 },
    Load { name: "SET, pipelined 32", verb: "set", value_bytes: 3, pipeline: 32 },
    Load { name: "GET, pipelined 32", verb: "get", value_bytes: 3, pipeline: 32 },
    Load { name: "SET, 1 KB", verb: "set", value_bytes: 1024, pipeline: 1 },
    Load { name: "GET, 1 KB", verb: "get", value_bytes: 1024, pipeline: 1 },
];

impl Load {
    /// Over TLS, or not.
    fn cost_us(&self, server: &TlsServer, files: &Files, is_tls: bool, options: &Options) -> Fallible<f64> {
        let count = options.scaled(if self.pipeline > 1 { COMMANDS_PIPELINED } else { COMMANDS });
        let mut command = Command::new(options.valkey_benchmark());
        let port = if is_tls { server.port } else { server.server.port };
        for (name, value) in [
            ("-p", port.to_string()),
            ("-t", self.verb.to_string()),
            ("-n", count.to_string()),
            ("-d", self.value_bytes.to_string()),
            ("-P", self.pipeline.to_string()),
            ("-c", "50".to_string()),
        ] {
            command.args([name, &value]);
        }
        if is_tls {
            command.arg("--tls").arg("--cacert").arg(files.certificate(KeyKind::Ecdsa));
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        server.cost_us(count, || match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("valkey-benchmark failed ({status}): is it built with TLS?")),
            Err(why) => Err(format!("cannot run valkey-benchmark: {why}")),
        })
    }
}

fn commands(files: &Files, options: &Options) -> Fallible<Table> {
    let head =
        ["", "Valkey, plain", "Valkey, TLS", "Isotherm, plain", "Isotherm, TLS", "TLS, Isotherm / Valkey"];
    let title = format!("TLS: CPU of commands{}", options.scale_note());
    let mut table = Table::new("tls-commands", title, &head);
    table.note(format!(
        "Microseconds of the server's CPU for one command, one worker on one core, 50 connections of valkey-benchmark, TLS 1.3 with a \
         key of ECDSA; {} rounds A B, medians.",
        options.rounds
    ));
    if !options.wants(ROWS[0]) {
        return Ok(table);
    }
    for load in LOADS {
        // By side, and there plain and TLS.
        let mut costs: [[Vec<f64>; 2]; 2] = Default::default();
        for _ in 0..options.rounds {
            for (side, costs) in SIDES.into_iter().zip(&mut costs) {
                let server = TlsServer::start(side, files, KeyKind::Ecdsa, options)?;
                if load.verb == "get" {
                    Load { verb: "set", ..load }.cost_us(&server, files, false, options)?;
                }
                for (is_tls, costs) in [false, true].into_iter().zip(costs) {
                    costs.push(load.cost_us(&server, files, is_tls, options)?);
                }
            }
        }
        let [[valkey_plain, valkey], [plain, ours]] =
            costs.map(|costs| costs.map(|costs| median(costs).unwrap_or(f64::NAN)));
        progress(&format!("tls {}: Valkey {valkey:.2} us, Isotherm {ours:.2} us", load.name));
        let figure = |figure: f64| format!("{figure:.2}");
        let figures = [valkey_plain, valkey, plain, ours].map(figure);
        let [valkey_plain, valkey_tls, plain, ours_tls] = figures;
        table.row([load.name.into(), valkey_plain, valkey_tls, plain, ours_tls, ratio(ours / valkey)]);
    }
    Ok(table)
}

// ------------------------------------------------------------------------------------------------------- handshakes

fn handshakes(files: &Files, options: &Options) -> Fallible<Table> {
    let title = format!("TLS: CPU of a connection{}", options.scale_note());
    let mut table = Table::new("tls-handshakes", title, &["", "Valkey", "Isotherm", "ratio"]);
    let count = options.scaled(HANDSHAKES);
    table.note(format!(
        "Microseconds of the server's CPU for a handshake, one PING and the end, one after the other, {count} each, {} rounds A B, \
         medians; resumed: by a ticket or a session of the connection before.",
        options.rounds
    ));
    if !options.wants(ROWS[1]) {
        return Ok(table);
    }
    for key in KINDS {
        for version in [Version::Tls13, Version::Tls12] {
            for is_resumed in [false, true] {
                let mut costs: [Vec<f64>; 2] = Default::default();
                for _ in 0..options.rounds {
                    for (side, costs) in SIDES.into_iter().zip(&mut costs) {
                        let server = TlsServer::start(side, files, key, options)?;
                        let clients = Clients::new(server.port, version, is_resumed)?;
                        (0..WARM).try_for_each(|_| clients.greet().map(drop))?;
                        costs.push(server.cost_us(count, || {
                            (0..count).try_for_each(|_| match clients.greet()?.is_resumed() == is_resumed {
                                true => Ok(()),
                                false => Err(format!("{} takes up sessions otherwise", side.name())),
                            })
                        })?);
                    }
                }
                let [valkey, ours] = costs.map(|costs| median(costs).unwrap_or(f64::NAN));
                let how = if is_resumed { "resumed" } else { "full" };
                let name = format!("{}, {}, {how}", key.name(), version.name());
                progress(&format!("tls {name}: Valkey {valkey:.0} us, Isotherm {ours:.0} us"));
                table.row([name, format!("{valkey:.0}"), format!("{ours:.0}"), ratio(ours / valkey)]);
            }
        }
    }
    Ok(table)
}

// ------------------------------------------------------------------------------------------------------------- idle

fn idle(files: &Files, options: &Options) -> Fallible<Table> {
    let title = format!("TLS: memory of connections that wait{}", options.scale_note());
    let mut table = Table::new("tls-idle", title, &["", "Valkey", "Isotherm", "ratio"]);
    let count = options.scaled(IDLE);
    table.note(format!(
        "KB of RSS for each of {count} connections that have sent one PING; {WARM} were there before."
    ));
    if !options.wants(ROWS[2]) {
        return Ok(table);
    }
    let mut each_kb = [0.0; 2];
    for (side, each_kb) in SIDES.into_iter().zip(&mut each_kb) {
        let server = TlsServer::start(side, files, KeyKind::Ecdsa, options)?;
        let clients = Clients::new(server.port, Version::Tls13, false)?;
        let open = |count: u64| -> Fallible<Vec<_>> { (0..count).map(|_| clients.greet()).collect() };
        let _warm = open(WARM)?;
        let before = server.server.resident_bytes()?;
        let _idle = open(count)?;
        let grown = server.server.resident_bytes()?.saturating_sub(before);
        *each_kb = grown as f64 / count as f64 / 1024.0;
        progress(&format!("tls idle {}: {each_kb:.1} KB", side.name()));
    }
    let [valkey, ours] = each_kb;
    table.row(["a connection".into(), format!("{valkey:.1}"), format!("{ours:.1}"), ratio(ours / valkey)]);
    Ok(table)
}
