//! Clients under TLS: what they get, what they have to show, and what becomes of those that do something
//! else.

use crate::common::{Client, PATIENCE, Server, encode, free_port, scaled, wait_until};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const OK: &str = "+OK\r\n";

/// An authority, and what it has signed, as files.
pub struct Files {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Drop for Files {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

impl Files {
    pub fn make() -> Files {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("isotherm-certificates-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("Authority {number}"));
        std::fs::write(folder.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        let files = Files { folder, issuer: Issuer::new(params, key) };
        files.sign("own", |_| {});
        files
    }

    /// One certificate, which is its own authority, as `openssl req -x509` makes it.
    pub fn alone() -> Files {
        let files = Files::make();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "Alone");
        let certificate = params.self_signed(&key).unwrap().pem();
        for (name, text) in
            [("own.crt", &certificate), ("ca.crt", &certificate), ("own.key", &key.serialize_pem())]
        {
            std::fs::write(files.folder.join(name), text).unwrap();
        }
        files
    }

    /// `name.crt` and `name.key`.
    pub fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_string()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.folder.join(format!("{name}.crt")), certificate.pem()).unwrap();
        std::fs::write(self.folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Parameters of a server that has `own`.
    pub fn parameters(&self) -> Vec<String> {
        let files =
            [("--tls-cert-file", "own.crt"), ("--tls-key-file", "own.key"), ("--tls-ca-cert-file", "ca.crt")];
        files.iter().flat_map(|(name, file)| [name.to_string(), self.path(file)]).collect()
    }

    /// A server with a port for TLS in addition to the other.
    pub fn server(&self, workers: usize, more: &[&str]) -> TlsServer {
        let port = free_port();
        let mut arguments = self.parameters();
        arguments.extend(["--tls-port".to_string(), port.to_string()]);
        arguments.extend(more.iter().map(|word| word.to_string()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let plain = Server::with_workers(workers, &arguments);
        // It is opened after the plain one, which answers already.
        plain.wait_for_log("Ready to accept connections tls");
        TlsServer { plain, port }
    }

    pub fn client_config(
        &self,
        shown: Option<&str>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.crt")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        match shown {
            Some(name) => {
                let certificate = CertificateDer::from_pem_file(self.path(&format!("{name}.crt"))).unwrap();
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        }
    }
}

pub struct TlsServer {
    pub plain: Server,
    pub port: u16,
}

pub type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

impl TlsServer {
    pub fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    pub fn client_with(&self, config: ClientConfig) -> TlsClient {
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        Client::over_any(StreamOwned::new(session, self.socket()))
    }

    pub fn client(&self, files: &Files) -> TlsClient {
        self.client_with(files.client_config(Some("own"), rustls::ALL_VERSIONS))
    }
}

/// Whether a request is answered.
fn is_answered(client: &mut TlsClient) -> bool {
    let mut bytes = [0; 7];
    client.stream.write_all(b"PING\r\n").is_ok()
        && client.stream.read_exact(&mut bytes).is_ok()
        && bytes == *b"+PONG\r\n"
}

#[test]
fn requests_are_answered_as_without() {
    let files = Files::make();
    let server = files.server(2, &[]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut client = server.client_with(files.client_config(Some("own"), &[version]));
        client.check("SET k v", OK);
        client.check("GET k", "$1\r\nv\r\n");
        // A pipeline in one record, larger than what is read at once.
        let many = 20_000;
        client.send(encode(&["PING"]).repeat(many));
        (0..many).for_each(|_| client.expect("+PONG\r\n"));
        // Values of many records, both ways.
        let value = "x".repeat(5_000_000);
        client.send(encode(&["SET", "large", &value]));
        client.expect(OK);
        assert_eq!(client.ask_bytes("GET large").len(), value.len());
        // Requests in pieces, each in a record of its own.
        for byte in encode(&["GET", "k"]) {
            client.send([byte]);
        }
        client.expect("$1\r\nv\r\n");
        client.check("QUIT", OK);
        client.expect_end();
    }
    let mut plain = server.plain.client();
    plain.check("GET k", "$1\r\nv\r\n");
    assert_eq!(plain.info("tls", "tls_client_cert_expires_in_seconds"), 0);
    assert!(plain.info("tls", "tls_server_cert_expires_in_seconds") > 0);
}

#[test]
fn a_client_that_reads_late_gets_all() {
    let files = Files::make();
    let server = files.server(1, &[]);
    let mut client = server.client(&files);
    let value = "x".repeat(1_000_000);
    client.send(encode(&["SET", "large", &value]));
    client.expect(OK);
    let id = client.id();
    client.send(encode(&["GET", "large"]).repeat(30));
    client.send(encode(&["PING"]));
    let mut other = server.plain.client();
    wait_until("replies wait", || other.unread_bytes(id) > 5_000_000);
    (0..30).for_each(|_| assert_eq!(client.read_reply().len(), value.len() + 12));
    client.expect("+PONG\r\n");
}

#[test]
fn certificates_are_asked_for_as_it_is_set() {
    let (files, others) = (Files::make(), Files::make());
    let server = files.server(1, &[]);
    let mut plain = server.plain.client();
    let shown = |config: ClientConfig| is_answered(&mut server.client_with(config));
    let all = rustls::ALL_VERSIONS;
    let with_authority = |shown: &str| {
        // Theirs, and it believes our server.
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(files.path("ca.crt")).unwrap()).unwrap();
        let certificate = CertificateDer::from_pem_file(others.path(&format!("{shown}.crt"))).unwrap();
        let key = PrivateKeyDer::from_pem_file(others.path(&format!("{shown}.key"))).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .unwrap()
    };
    files.sign("expired", |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    for (mode, nothing, ours, theirs, expired) in [
        ("yes", false, true, false, false),
        ("no", true, true, true, true),
        ("optional", true, true, false, false),
    ] {
        plain.check(&format!("CONFIG SET tls-auth-clients {mode}"), OK);
        assert_eq!(shown(files.client_config(None, all)), nothing, "{mode}, nothing shown");
        assert_eq!(shown(files.client_config(Some("own"), all)), ours, "{mode}, ours");
        assert_eq!(shown(with_authority("own")), theirs, "{mode}, another authority's");
        assert_eq!(shown(files.client_config(Some("expired"), all)), expired, "{mode}, expired");
    }
}

#[test]
fn a_certificate_names_its_user() {
    let files = Files::make();
    let server = files.server(1, &[]);
    let mut plain = server.plain.client();
    files.sign("ann", |params| {
        for uri in ["urn:first", "urn:second"] {
            params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
        }
    });
    files.sign("nul", |params| params.distinguished_name.push(DnType::CommonName, "ann\0attacker"));
    let check = |shown: &str, expected: &str| {
        let mut client = server.client_with(files.client_config(Some(shown), rustls::ALL_VERSIONS));
        client.check("ACL WHOAMI", &format!("${}\r\n{expected}\r\n", expected.len()));
    };
    for name in ["ann", "urn:first", "urn:second"] {
        plain.check(&format!("ACL SETUSER {name} on +@all ~*"), OK);
    }
    check("ann", "default");
    plain.check("CONFIG SET tls-auth-clients-user CN", OK);
    check("ann", "ann");
    // A name is all its bytes.
    check("nul", "default");
    assert_eq!(plain.info("stats", "acl_access_denied_tls_cert"), 1);
    plain.check("CONFIG SET tls-auth-clients-user URI", OK);
    check("ann", "urn:first");
    plain.check("ACL SETUSER urn:first off", OK);
    check("ann", "urn:second");
    plain.check("ACL DELUSER urn:second", ":1\r\n");
    check("ann", "default");
    check("own", "default");
    assert_eq!(plain.info("stats", "acl_access_denied_tls_cert"), 2);
    // It holds for what commands may do, too.
    plain.check("CONFIG SET tls-auth-clients-user CN", OK);
    plain.check("ACL SETUSER ann -@all +ping", OK);
    let mut client = server.client_with(files.client_config(Some("ann"), rustls::ALL_VERSIONS));
    client.check("PING", "+PONG\r\n");
    assert!(client.ask("GET k").starts_with("-NOPERM"));
}

#[test]
fn what_is_no_handshake_is_closed() {
    let files = Files::make();
    let server = files.server(1, &[]);
    let mut plain = server.plain.client();
    plain.check("PING", "+PONG\r\n");
    for wrong in [&b"PING\r\n"[..], &encode(&["PING"]), b"GET / HTTP/1.1\r\n\r\n", &[0; 1000]] {
        let mut client = Client::over(server.socket());
        client.send(wrong);
        // Not even an alert, which would look like a reply.
        client.expect_end();
    }
    // Of a hello of 64 KB in records, as much as there may be is read, and no more kept.
    let mut client = Client::over(server.socket());
    let mut record = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    record.resize(5 + 0x4000, 0);
    for _ in 0..20 {
        if client.stream.write_all(&record).is_err() {
            break;
        }
    }
    assert!(client.read_to_end().len() <= 7);
    // TLS to the port without.
    let name = ServerName::try_from("localhost").unwrap();
    let session =
        ClientConnection::new(Arc::new(files.client_config(None, rustls::ALL_VERSIONS)), name).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", server.plain.port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.shutdown(Shutdown::Read).unwrap();
    assert!(!is_answered(&mut Client::over_any(StreamOwned::new(session, socket))));
    wait_until("all are gone", || plain.info("clients", "connected_clients") == 1);
    assert_eq!(plain.ask("PING"), "+PONG\r\n");
}

#[test]
fn half_a_handshake_can_be_killed() {
    let files = Files::make();
    let server = files.server(1, &[]);
    let mut plain = server.plain.client();
    let mut halves = Vec::new();
    for _ in 0..50 {
        let config = Arc::new(files.client_config(Some("own"), rustls::ALL_VERSIONS));
        let mut session = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
        let mut hello = Vec::new();
        session.write_tls(&mut hello).unwrap();
        let mut socket = server.socket();
        socket.write_all(&hello[..hello.len() / 2]).unwrap();
        halves.push((socket, hello));
    }
    wait_until("all are there", || plain.info("clients", "connected_clients") == 51);
    // Others come and go meanwhile.
    server.client(&files).check("PING", "+PONG\r\n");
    wait_until("it has left", || plain.info("clients", "connected_clients") == 51);
    let killed = plain.ask("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(killed, ":50\r\n");
    wait_until("they are gone", || plain.info("clients", "connected_clients") == 1);
    for (mut socket, hello) in halves {
        let _ = socket.write_all(&hello[hello.len() / 2..]);
        let mut said = Vec::new();
        let _ = socket.read_to_end(&mut said);
        assert_eq!(said, b"");
    }
    server.client(&files).check("PING", "+PONG\r\n");
}

#[test]
fn an_end_without_a_word_is_an_end() {
    let files = Files::make();
    let server = files.server(1, &[]);
    let mut plain = server.plain.client();
    let mut client = server.client(&files);
    client.check("PING", "+PONG\r\n");
    client.stream.sock.shutdown(Shutdown::Both).unwrap();
    wait_until("it has left", || plain.info("clients", "connected_clients") == 1);
    // Requests that were sent before the end are run.
    let mut client = server.client(&files);
    client.check("PING", "+PONG\r\n");
    client.send(encode(&["SET", "last", "word"]));
    client.stream.conn.send_close_notify();
    client.stream.flush().unwrap();
    wait_until("it is run", || plain.ask("GET last") == "$4\r\nword\r\n");
    wait_until("it has left", || plain.info("clients", "connected_clients") == 1);
}

#[test]
fn files_are_swapped_as_a_whole_or_not_at_all() {
    let (files, others) = (Files::make(), Files::make());
    let server = files.server(1, &[]);
    let mut plain = server.plain.client();
    let serial = |plain: &mut Client| {
        let info = plain.ask("INFO tls");
        info.lines().find_map(|line| line.strip_prefix("tls_server_cert_serial:")).unwrap().to_string()
    };
    let first = serial(&mut plain);
    const REFUSED: &str = ") - Unable to update TLS configuration. Check server logs.\r\n";
    for wrong in [
        format!("tls-cert-file {}", others.path("own.crt")),
        format!("tls-key-file {}", others.path("own.key")),
        format!("tls-key-file {}", files.path("nothing")),
        format!("tls-ca-cert-file {}", files.path("own.key")),
        "tls-ciphers AES128-SHA".to_string(),
        "tls-ciphersuites TLS_AES_128_CCM_SHA256".to_string(),
        "tls-protocols TLSv1.1".to_string(),
    ] {
        let reply = plain.ask(&format!("CONFIG SET {wrong}"));
        assert!(reply.starts_with("-ERR CONFIG SET failed") && reply.ends_with(REFUSED), "{wrong}: {reply}");
        let name = wrong.split(' ').next().unwrap();
        assert!(
            !plain.ask(&format!("CONFIG GET {name}")).contains(wrong.split(' ').nth(1).unwrap()),
            "{wrong}"
        );
    }
    assert_eq!(serial(&mut plain), first);
    server.client(&files).check("PING", "+PONG\r\n");
    // Both at once are good; connections that stand go on.
    let mut client = server.client(&files);
    client.check("PING", "+PONG\r\n");
    let (certificate, key) = (others.path("own.crt"), others.path("own.key"));
    let authority = others.path("ca.crt");
    plain.check(
        &format!("CONFIG SET tls-cert-file {certificate} tls-key-file {key} tls-ca-cert-file {authority}"),
        OK,
    );
    assert_ne!(serial(&mut plain), first);
    client.check("PING", "+PONG\r\n");
    assert!(!is_answered(&mut server.client(&files)));
    server.client(&others).check("PING", "+PONG\r\n");
}

#[test]
fn changed_files_are_seen() {
    let files = Files::make();
    let server = files.server(1, &["--tls-auto-reload-interval", "1"]);
    let mut plain = server.plain.client();
    files.sign("own", |_| {});
    server.plain.wait_for_log("TLS materials reloaded successfully");
    server.client(&files).check("PING", "+PONG\r\n");
    // A file that cannot be read changes nothing.
    std::fs::write(files.path("own.crt"), "nothing").unwrap();
    server.plain.wait_for_log("Background TLS reload failed");
    let config = files.client_config(None, rustls::ALL_VERSIONS);
    plain.check("CONFIG SET tls-auth-clients no", OK);
    server.client_with(config).check("PING", "+PONG\r\n");
}

/// With ISOTHERM_SCALE=1 a thousand.
#[test]
fn many_connect_while_files_are_read_anew() {
    let files = Files::make();
    let server = files.server(2, &[]);
    let config = files.client_config(Some("own"), rustls::ALL_VERSIONS);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut plain = server.plain.client();
            let path = files.path("own.crt");
            while !is_over.load(Ordering::Relaxed) {
                plain.check(&format!("CONFIG SET tls-cert-file {path}"), OK);
            }
        });
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..scaled(1000, 0.4) / 4 {
                        server.client_with(config.clone()).check("PING", "+PONG\r\n");
                    }
                })
            })
            .collect();
        let _stop = crate::common::OnDrop(|| is_over.store(true, Ordering::Relaxed));
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

#[test]
fn ports_are_opened_and_closed() {
    let files = Files::make();
    let server = files.server(1, &[]);
    let mut client = server.client(&files);
    client.check("CONFIG SET port 0", OK);
    assert!(TcpStream::connect(("127.0.0.1", server.plain.port)).is_err());
    client.check(&format!("CONFIG SET tls-port {}", server.plain.port), OK);
    let port = server.plain.port;
    let moved = TlsServer { plain: server.plain, port };
    moved.client(&files).check("PING", "+PONG\r\n");
    client.check("CONFIG SET tls-port 0", OK);
    client.check(&format!("CONFIG SET port {}", moved.port), OK);
    moved.plain.client().check("PING", "+PONG\r\n");
    assert!(client.ask("INFO tls").contains("tls_server_cert_serial:none"));
}

#[test]
fn idle_connections_own_no_buffers() {
    let files = Files::make();
    let server = files.server(1, &["--tls-auth-clients", "no"]);
    let config = files.client_config(None, rustls::ALL_VERSIONS);
    let open = |count: usize| -> Vec<TlsClient> {
        let open = |_| {
            let mut client = server.client_with(config.clone());
            client.check("SET k v", OK);
            client
        };
        (0..count).map(open).collect()
    };
    let warm = open(20);
    let before = server.plain.resident_bytes();
    let count = 300;
    let clients = open(count);
    let grown = server.plain.resident_bytes().saturating_sub(before) / count as u64;
    assert!(grown < 8 << 10, "{grown} bytes each");
    drop((warm, clients));
}

#[test]
fn a_server_without_its_files_does_not_start() {
    let files = Files::make();
    let others = Files::make();
    files.sign("mine", |_| {});
    let own = |certificate: &str, key: &str| {
        let mut words = vec!["--tls-cert-file".to_string(), certificate.to_string()];
        words.extend(["--tls-key-file".to_string(), key.to_string()]);
        words
    };
    let authority = ["--tls-ca-cert-file".to_string(), files.path("ca.crt")].to_vec();
    let none = files.path("none");
    let missing = format!("Failed to load certificate: {none}: No such file or directory");
    let mismatch = format!("Failed to load private key: {}: key values mismatch", others.path("own.key"));
    for (words, said) in [
        (vec![], "No tls-cert-file configured!"),
        (
            own(&files.path("own.crt"), &files.path("own.key")),
            "Either tls-ca-cert-file or tls-ca-cert-dir must be",
        ),
        ([own(&none, &files.path("own.key")), authority.clone()].concat(), &*missing),
        ([own(&files.path("own.crt"), &others.path("own.key")), authority].concat(), &*mismatch),
    ] {
        let mut command = Command::new(crate::common::binary());
        command.args(["--port", "0", "--tls-port", &free_port().to_string()]).args(&words);
        let mut server = Server::spawn(free_port(), command);
        assert_eq!(server.wait().code(), Some(1), "{words:?}");
        let log = server.log();
        assert!(
            log.contains(said) && log.contains("Failed to configure TLS. Check logs for more info."),
            "{log}"
        );
    }
    assert!(Path::new(&files.path("own.crt")).exists());
}
