//! Certificates of every kind, each shown to a client, by a client, to a replica and over the bus: which ones
//! are believed. Where `ISOTHERM_PEER_BIN` says where Valkey's programs are, they judge the same
//! certificates.
//!
//! ```text
//!   a server for each row, which shows it   <--  a client, a replica, a node of a cluster, which judge
//!   a client for each row, which shows it   -->  a server, which judges
//!   another authority, while all are running     nothing of the former one is believed
//! ```

use crate::aof::Data;
use crate::common::{Client, PATIENCE, Server, command, free_port, wait_until};
use crate::peers;
use crate::tls::TlsServer;
use isotherm_tls::Settings;
use isotherm_tls::context::client_only;
use isotherm_tls::settings::{Authorities, Identity};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData, SanType,
    SignatureAlgorithm,
};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const OK: &str = "+OK\r\n";
const PONG: &[u8; 7] = b"+PONG\r\n";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Believed,
    Refused,
    /// Refused by the server that is to show it: it does not start.
    Unusable,
}
use Verdict::{Believed, Refused, Unusable};

/// Names of the files, and what becomes of each.
const ROWS: [(&str, Verdict); 13] = [
    ("signed", Believed),
    ("rsa", Believed),
    ("elliptic-384", Believed),
    ("chain-of-two", Believed),
    ("chain-cut", Refused),
    ("self-signed-trusted", Believed),
    ("self-signed", Refused),
    ("of-another-authority", Refused),
    ("expired", Refused),
    ("not-yet-valid", Refused),
    // Names are not compared, as Valkey compares none.
    ("other-name", Believed),
    ("key-of-another", Unusable),
    ("rsa-1024", Unusable),
];

// ---- the files ----

/// A key whose private part no library here would take.
struct ShortKey;

impl PublicKeyData for ShortKey {
    fn der_bytes(&self) -> &[u8] {
        include_bytes!("certificates/short.der")
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_RSA_SHA256
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(["localhost".to_string()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.self_signed(&key).unwrap().pem(), Issuer::new(params, key))
}

struct Files(Data);

impl Files {
    fn path(&self, name: &str, end: &str) -> String {
        self.0.0.join(format!("{name}.{end}")).display().to_string()
    }

    fn put(&self, name: &str, certificates: &str, key: &str) {
        std::fs::write(self.path(name, "crt"), certificates).unwrap();
        std::fs::write(self.path(name, "key"), key).unwrap();
    }

    /// A certificate with a key of its own, changed before it is signed.
    fn sign(&self, name: &str, by: &Issuer<'_, KeyPair>, change: impl FnOnce(&mut CertificateParams)) {
        let (mut params, key) = (params(name), KeyPair::generate().unwrap());
        change(&mut params);
        self.put(name, &params.signed_by(&key, by).unwrap().pem(), &key.serialize_pem());
    }

    fn make() -> Files {
        let files = Files(Data::new());
        let (root_pem, root) = authority("root");
        let (other_pem, other) = authority("other");
        files.sign("good", &root, |_| {});
        files.sign("signed", &root, |_| {});
        files.sign("of-another-authority", &other, |_| {});
        files.sign("expired", &root, |params| {
            params.not_before = rcgen::date_time_ymd(2019, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        });
        files.sign("not-yet-valid", &root, |params| params.not_before = rcgen::date_time_ymd(2090, 1, 1));
        files.sign("other-name", &root, |params| {
            params.subject_alt_names = vec![SanType::DnsName("elsewhere.example".try_into().unwrap())];
        });
        let rsa = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tls/tests/data/rsa.key");
        let rsa = KeyPair::from_pem(&std::fs::read_to_string(rsa).unwrap()).unwrap();
        let long = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        for (name, key) in [("rsa", &rsa), ("elliptic-384", &long)] {
            files.put(name, &params(name).signed_by(key, &root).unwrap().pem(), &key.serialize_pem());
        }
        files.put(
            "rsa-1024",
            &params("short").signed_by(&ShortKey, &root).unwrap().pem(),
            include_str!("certificates/short.key"),
        );
        // An authority between both.
        let (mut middle, middle_key) = (params("middle"), KeyPair::generate().unwrap());
        middle.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let middle_pem = middle.signed_by(&middle_key, &root).unwrap().pem();
        let (middle, key) = (Issuer::new(middle, middle_key), KeyPair::generate().unwrap());
        let below = params("below").signed_by(&key, &middle).unwrap().pem();
        files.put("chain-of-two", &[&*below, &*middle_pem].concat(), &key.serialize_pem());
        files.put("chain-cut", &below, &key.serialize_pem());
        let mut trusted = root_pem;
        for name in ["self-signed-trusted", "self-signed"] {
            let key = KeyPair::generate().unwrap();
            let pem = params(name).self_signed(&key).unwrap().pem();
            files.put(name, &pem, &key.serialize_pem());
            if name == "self-signed-trusted" {
                trusted += &pem;
            }
        }
        let read = |name: &str, end: &str| std::fs::read_to_string(files.path(name, end)).unwrap();
        files.put("key-of-another", &read("signed", "crt"), &read("good", "key"));
        std::fs::write(files.path("trusted", "crt"), trusted).unwrap();
        std::fs::write(files.path("other", "crt"), other_pem).unwrap();
        files
    }

    /// Parameters of a server that shows `name`, and a port for TLS.
    fn parameters(&self, name: &str, tls_port: u16, more: &[&str]) -> Vec<String> {
        let own = [
            "--tls-port",
            &tls_port.to_string(),
            "--tls-cert-file",
            &self.path(name, "crt"),
            "--tls-key-file",
            &self.path(name, "key"),
            "--tls-ca-cert-file",
            &self.path("trusted", "crt"),
            "--loglevel",
            "verbose",
            "--repl-diskless-sync-delay",
            "0",
        ]
        .map(String::from);
        own.into_iter().chain(more.iter().map(|word| word.to_string())).collect()
    }

    /// Returns settings of a client of this project that trusts `authorities` and shows `name`, if it can.
    fn client(&self, name: Option<&str>, authorities: &str) -> Option<ClientConfig> {
        let path = |name: &str, end: &str| Some(PathBuf::from(self.path(name, end)));
        let settings = Settings {
            own: Identity {
                certificate: name.and_then(|name| path(name, "crt")),
                key: name.and_then(|name| path(name, "key")),
                password: None,
            },
            authorities: Authorities { file: path(authorities, "crt"), folder: None },
            ..Settings::default()
        };
        client_only(&settings, false).ok()
    }
}

fn is_answered(port: u16, config: ClientConfig) -> bool {
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket);
    let mut reply = [0; PONG.len()];
    stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut reply).is_ok() && reply == *PONG
}

// ---- the sides that show them, and those that judge ----

const NODE: [&str; 8] = [
    "--cluster-enabled",
    "yes",
    "--tls-cluster",
    "yes",
    "--tls-replication",
    "yes",
    "--cluster-node-timeout",
    "1000",
];

/// A server that shows a row, with the port of its bus.
struct Shower {
    name: &'static str,
    is_believed: bool,
    server: TlsServer,
    bus_port: u16,
}

/// Programs of one make that judge.
struct Make {
    /// `None`: this project's.
    valkey: Option<(PathBuf, PathBuf)>,
    folders: [Data; 3],
}

struct Judge {
    server: Server,
    client: Client,
    tls_port: u16,
}

impl Make {
    fn new(valkey: Option<(PathBuf, PathBuf)>) -> Make {
        Make { valkey, folders: [Data::new(), Data::new(), Data::new()] }
    }

    fn judge(&self, files: &Files, folder: usize, more: &[&str]) -> Judge {
        let tls_port = free_port();
        let arguments = files.parameters("good", tls_port, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let server = match &self.valkey {
            None => Server::with_workers(1, &arguments),
            Some((program, _)) => peers::start_with(program.clone(), &self.folders[folder].0, &arguments),
        };
        server.wait_for_log("Ready to accept connections tls");
        let client = server.client();
        Judge { server, client, tls_port }
    }

    /// Returns whether a client of this make believes the certificate of a server.
    fn believes(&self, files: &Files, port: u16) -> bool {
        match &self.valkey {
            None => is_answered(port, files.client(Some("good"), "trusted").unwrap()),
            Some((_, cli)) => {
                let mut command = Command::new(cli);
                command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "--tls"]);
                for (name, file) in
                    [("--cacert", "trusted.crt"), ("--cert", "good.crt"), ("--key", "good.key")]
                {
                    command.arg(name).arg(files.0.0.join(file));
                }
                command.arg("PING").output().unwrap().stdout == b"PONG\n"
            }
        }
    }
}

/// Returns whether a replica comes to follow a server.
fn follows(judge: &mut Judge, port: u16) -> bool {
    let before = judge.server.log().len();
    judge.client.check(&format!("REPLICAOF 127.0.0.1 {port}"), OK);
    let mut is_up = false;
    wait_until("the replica has decided", || {
        is_up = judge.client.ask("INFO replication").contains("master_link_status:up");
        let log = judge.server.log();
        let said = ["Error condition on socket for SYNC", "Unable to connect to PRIMARY"];
        is_up || said.iter().any(|said| log[before..].contains(said))
    });
    judge.client.check("REPLICAOF NO ONE", OK);
    is_up
}

fn meet(judge: &mut Judge, port: u16, bus_port: u16) {
    judge.client.check(&format!("CLUSTER MEET 127.0.0.1 {port} {bus_port}"), OK);
}

/// Returns whether a node has come to know one that it was to meet.
fn knows(judge: &mut Judge, bus_port: u16, before: usize) -> bool {
    let mut is_known = false;
    wait_until("the node has decided", || {
        let nodes = judge.client.ask("CLUSTER NODES");
        is_known = nodes.lines().any(|line| {
            line.contains(&format!("@{bus_port} "))
                && line.contains(" connected")
                && !line.contains("handshake")
        });
        let given_up = format!("handshake timeout 127.0.0.1:{bus_port}");
        is_known || judge.server.log()[before..].contains(&given_up)
    });
    is_known
}

fn show(files: &Files) -> Vec<Shower> {
    let rows = ROWS.into_iter().filter(|(_, verdict)| *verdict != Unusable);
    // One more, which is met when its authority is believed no more.
    let rows = rows.chain([("signed", Refused)]);
    rows.map(|(name, verdict)| {
        let (port, bus_port) = (free_port(), free_port());
        let bus = bus_port.to_string();
        let arguments = files.parameters(name, port, &[&NODE[..], &["--cluster-port", &bus]].concat());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let plain = Server::with_workers(1, &arguments);
        plain.wait_for_log("Ready to accept connections tls");
        Shower { name, is_believed: verdict == Believed, server: TlsServer { plain, port }, bus_port }
    })
    .collect()
}

fn judges(make: &Make, files: &Files, shown: &[Shower]) {
    let make_name = if make.valkey.is_some() { "Valkey" } else { "this server" };
    let (last, rows) = shown.split_last().unwrap();
    let bus = free_port().to_string();
    let mut node = make.judge(files, 0, &[&NODE[..], &["--cluster-port", &bus]].concat());
    let begun = node.server.log().len();
    rows.iter().for_each(|row| meet(&mut node, row.server.port, row.bus_port));
    let mut replica = make.judge(files, 1, &["--tls-replication", "yes"]);
    let server = make.judge(files, 2, &[]);
    for row in rows {
        let as_client = files.client(Some(row.name), "trusted").unwrap();
        let verdicts = [
            make.believes(files, row.server.port),
            is_answered(server.tls_port, as_client),
            follows(&mut replica, row.server.port),
            knows(&mut node, row.bus_port, begun),
        ];
        assert_eq!(verdicts, [row.is_believed; 4], "{make_name}, {}", row.name);
    }
    // Their authority is another from now on.
    for judge in [&replica, &server, &node] {
        let other = files.path("other", "crt");
        judge.server.client().check(&format!("CONFIG SET tls-ca-cert-file {other}"), OK);
    }
    let before = node.server.log().len();
    meet(&mut node, last.server.port, last.bus_port);
    let shown = |name: &str| is_answered(server.tls_port, files.client(Some(name), "trusted").unwrap());
    assert!(!shown("signed") && shown("of-another-authority"), "{make_name}");
    assert!(!follows(&mut replica, last.server.port), "{make_name}");
    assert!(!knows(&mut node, last.bus_port, before), "{make_name}");
}

#[test]
fn certificates_are_believed_everywhere_or_nowhere() {
    let files = Files::make();
    let shown = show(&files);
    judges(&Make::new(None), &files, &shown);
    if let (Some(server), Some(cli)) = (peers::peer("valkey-server"), peers::peer("valkey-cli")) {
        judges(&Make::new(Some((server, cli))), &files, &shown);
    }
}

#[test]
fn no_server_starts_with_what_it_cannot_show() {
    let files = Files::make();
    let valkey = peers::peer("valkey-server");
    for (name, _) in ROWS.into_iter().filter(|(_, verdict)| *verdict == Unusable) {
        assert!(files.client(Some(name), "trusted").is_none(), "{name}: a client shows it");
        let programs = std::iter::once(None).chain(valkey.iter().map(Some));
        for program in programs {
            let port = free_port();
            let plain = port.to_string();
            let folder = Data::new();
            let more = ["--port", &plain, "--bind", "127.0.0.1", "--dir", folder.0.to_str().unwrap()];
            let arguments = files.parameters(name, free_port(), &more);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let command = match program {
                None => command(&arguments),
                Some(program) => {
                    let mut command = Command::new(program);
                    command.args(&arguments);
                    command
                }
            };
            let mut server = Server::spawn(port, command);
            assert!(!server.wait().success(), "{name}, {program:?}: it starts");
            assert!(server.log().contains("Failed to configure TLS"), "{name}: {}", server.log());
        }
    }
}
