//! Both sides of a connection without a socket: bytes are handed over whole, in pieces, cut and changed.

use isotherm_stdx::Prng;
use isotherm_tls::context::{AuthClients, client_only};
use isotherm_tls::session::{RECORD_PLAIN_BYTES, UNOPENED_BYTES_MAX};
use isotherm_tls::settings::{Authorities, Identity, Resumption};
use isotherm_tls::{Contexts, Failed, Session, Settings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder with an authority, a certificate that it has signed, and its key.
struct Files {
    folder: PathBuf,
    settings: Settings,
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Files {
    fn make(name: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("isotherm-tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let authority = params.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate().unwrap();
        let signed =
            CertificateParams::new(["localhost".to_string()]).unwrap().signed_by(&key, &issuer).unwrap();
        let put = |name: &str, text: String| {
            std::fs::write(folder.join(name), text).unwrap();
            Some(folder.join(name))
        };
        let settings = Settings {
            own: Identity {
                certificate: put("own.crt", signed.pem()),
                key: put("own.key", key.serialize_pem()),
                password: None,
            },
            authorities: Authorities { file: put("ca.crt", authority.pem()), folder: None },
            resumption: Some(Resumption { sessions_max: 100, lifetime_s: 300 }),
            ..Settings::default()
        };
        Files { folder, settings }
    }

    fn contexts(&self) -> Contexts {
        Contexts::load(&self.settings).unwrap_or_else(|failure| panic!("{}", failure.0))
    }
}

/// Side of a connection, with the bytes that have arrived and are not opened.
struct Side {
    session: Session,
    kept: Vec<u8>,
    plain: Vec<u8>,
}

impl Side {
    fn new(session: Result<Session, Failed>) -> Side {
        Side { session: session.unwrap(), kept: Vec::new(), plain: Vec::new() }
    }

    /// Takes `bytes`, and returns what is said in turn.
    fn take(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failed> {
        let mut out = Vec::new();
        self.kept.extend_from_slice(bytes);
        let opened = self.session.open(&mut self.kept, &mut out)?;
        self.plain.extend_from_slice(&self.kept[..opened.plain]);
        self.kept.drain(..opened.used);
        assert!(self.kept.len() <= UNOPENED_BYTES_MAX, "{}", self.kept.len());
        Ok(out)
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(self.session.seal(&mut self.kept, plain, &mut out));
        out
    }
}

struct Pair {
    client: Side,
    server: Side,
}

impl Pair {
    fn new(contexts: &Contexts) -> Pair {
        let server = contexts.server(AuthClients::Yes).expect("there is an authority");
        let name = ServerName::try_from("localhost").unwrap();
        Pair {
            client: Side::new(Session::client(Arc::clone(contexts.client()), name)),
            server: Side::new(Session::server(Arc::clone(server))),
        }
    }

    /// To the end of the handshake, each side's bytes in pieces of at most `piece`.
    fn shake_hands(&mut self, piece: usize) -> Result<(), Failed> {
        let mut to_server = self.client.take(&[])?;
        let mut rounds = 0;
        while !to_server.is_empty() || self.server.session.is_handshaking() {
            rounds += 1;
            assert!(rounds < 10, "a handshake is two rounds, or three");
            let to_client = in_pieces(&mut self.server, &to_server, piece)?;
            to_server = in_pieces(&mut self.client, &to_client, piece)?;
        }
        assert!(!self.client.session.is_handshaking());
        Ok(())
    }
}

fn in_pieces(side: &mut Side, bytes: &[u8], piece: usize) -> Result<Vec<u8>, Failed> {
    let mut said = Vec::new();
    for piece in bytes.chunks(piece) {
        said.extend(side.take(piece)?);
    }
    Ok(said)
}

fn bytes(prng: &mut Prng, len: usize) -> Vec<u8> {
    (0..len).map(|_| prng.below(256) as u8).collect()
}

#[test]
fn what_is_sealed_is_opened_however_it_comes() {
    let mut files = Files::make("opened");
    let mut prng = Prng::new(1);
    for protocols in ["TLSv1.2", "TLSv1.3", ""] {
        files.settings.protocols = protocols.into();
        let contexts = files.contexts();
        for piece in [1, 7, 1000, usize::MAX] {
            let mut pair = Pair::new(&contexts);
            pair.shake_hands(piece).unwrap();
            assert_eq!(pair.server.session.peer_certificates().len(), 1);
            for len in [1, 100, RECORD_PLAIN_BYTES, RECORD_PLAIN_BYTES + 1, 5 * RECORD_PLAIN_BYTES] {
                let plain = bytes(&mut prng, len);
                let piece = piece.max(len / 50);
                let sealed = pair.client.seal(&plain);
                in_pieces(&mut pair.server, &sealed, piece).unwrap();
                assert!(std::mem::take(&mut pair.server.plain) == plain, "{len} in pieces of {piece}");
                let sealed = pair.server.seal(&plain);
                in_pieces(&mut pair.client, &sealed, piece).unwrap();
                assert!(std::mem::take(&mut pair.client.plain) == plain, "{len} in pieces of {piece}");
            }
        }
    }
}

#[test]
fn the_end_is_heard() {
    let files = Files::make("end");
    let contexts = files.contexts();
    let mut pair = Pair::new(&contexts);
    pair.shake_hands(usize::MAX).unwrap();
    let mut sealed = pair.client.seal(b"last words");
    pair.client.session.seal_end(&mut [], &mut sealed);
    pair.server.take(&sealed).unwrap();
    assert_eq!(pair.server.plain, b"last words");
    assert!(pair.server.session.has_ended());
    // The other direction still stands.
    let sealed = pair.server.seal(b"answer");
    pair.client.take(&sealed).unwrap();
    assert_eq!(pair.client.plain, b"answer");
}

#[test]
fn what_is_no_tls_ends_in_an_error() {
    let files = Files::make("no-tls");
    let contexts = files.contexts();
    for wrong in [&b"*1\r\n$4\r\nPING\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 100]] {
        let mut pair = Pair::new(&contexts);
        let failed = pair.server.take(wrong).unwrap_err();
        assert!(failed.is_no_tls(), "{failed}");
        // It continues to fail, and says nothing more.
        assert!(pair.server.take(b"more").is_err());
        assert!(!pair.server.session.seal(&mut [], b"plain", &mut Vec::new()));
    }
    // A message of a handshake that is longer than any.
    let mut pair = Pair::new(&contexts);
    let mut hello = vec![0x16, 3, 1, 0x40, 0, 1, 0x0f, 0xff, 0xff];
    hello.resize(5 + 0x4000, 0);
    let mut left = 100;
    while pair.server.take(&hello).is_ok() {
        left -= 1;
        assert!(left > 0, "it takes all of it");
    }
}

/// Whatever is changed of what is said, each side comes to an error or waits: never to plain text that was
/// not sealed.
#[test]
fn changed_bytes_are_never_plain_text() {
    let files = Files::make("changed");
    let contexts = files.contexts();
    let mut prng = Prng::new(3);
    for round in 0..300 {
        let mut pair = Pair::new(&contexts);
        let in_handshake = round % 2 == 0;
        let mut flight = pair.client.take(&[]).unwrap();
        if !in_handshake {
            pair.shake_hands_from(flight);
            flight = pair.client.seal(b"*1\r\n$4\r\nPING\r\n");
        }
        let at = prng.below(flight.len() as u64) as usize;
        match prng.below(3) {
            0 => flight[at] ^= 1 << prng.below(8),
            1 => flight.truncate(at),
            _ => flight.insert(at, prng.below(256) as u8),
        }
        let _ = pair.server.take(&flight);
        // The bytes that came before the change, and nothing else.
        assert!(pair.server.plain.is_empty() || pair.server.plain == b"*1\r\n$4\r\nPING\r\n");
    }
}

impl Pair {
    fn shake_hands_from(&mut self, mut to_server: Vec<u8>) {
        while !to_server.is_empty() || self.server.session.is_handshaking() {
            let to_client = self.server.take(&to_server).unwrap();
            to_server = self.client.take(&to_client).unwrap();
        }
    }
}

#[test]
fn a_peer_of_another_authority_is_refused() {
    let (ours, theirs) = (Files::make("ours"), Files::make("theirs"));
    let (ours, theirs) = (ours.contexts(), theirs.contexts());
    let name = ServerName::try_from("localhost").unwrap();
    let server = || Side::new(Session::server(Arc::clone(ours.server(AuthClients::Yes).unwrap())));
    let mut pair = Pair {
        client: Side::new(Session::client(Arc::clone(theirs.client()), name.clone())),
        server: server(),
    };
    assert!(pair.shake_hands(usize::MAX).unwrap_err().to_string().contains("UnknownIssuer"));
    // One that looks at nothing, and has nothing to show.
    let careless = client_only(&Settings::default(), true).unwrap();
    let mut pair = Pair { client: Side::new(Session::client(Arc::new(careless), name)), server: server() };
    let failed = pair.shake_hands(usize::MAX).unwrap_err();
    assert!(failed.to_string().contains("no certificates"), "{failed}");
}

#[track_caller]
fn check_failure(settings: &Settings, expected: &str) {
    let failure = Contexts::load(settings).err().expect("it cannot be loaded");
    assert!(failure.0.starts_with(expected), "{}", failure.0);
}

#[test]
fn what_is_wrong_with_files_is_said() {
    let files = Files::make("wrong");
    let other = Files::make("other");
    let good = &files.settings;
    let shown = |path: &Option<PathBuf>| path.as_ref().unwrap().display().to_string();
    let with = |change: &dyn Fn(&mut Settings)| {
        let mut settings = good.clone();
        change(&mut settings);
        settings
    };
    check_failure(&with(&|s| s.own.certificate = None), "No tls-cert-file configured!");
    check_failure(&with(&|s| s.own.key = None), "No tls-key-file configured!");
    let needs = with(&|s| {
        s.authorities = Authorities::default();
        s.needs_authorities = true;
    });
    check_failure(&needs, "Either tls-ca-cert-file or tls-ca-cert-dir must be specified");
    let absent = Path::new("/nonexistent/file").to_path_buf();
    let no_file = "/nonexistent/file: No such file or directory";
    check_failure(
        &with(&|s| s.own.certificate = Some(absent.clone())),
        &format!("Failed to load certificate: {no_file}"),
    );
    check_failure(
        &with(&|s| s.own.key = Some(absent.clone())),
        &format!("Failed to load private key: {no_file}"),
    );
    let authority = |s: &mut Settings| s.authorities.file = Some(absent.clone());
    check_failure(
        &with(&authority),
        &format!("Failed to configure CA certificate(s) file/directory: {no_file}"),
    );
    let others_key =
        format!("Failed to load private key: {}: key values mismatch", shown(&other.settings.own.key));
    check_failure(&with(&|s| s.own.key = other.settings.own.key.clone()), &others_key);
    let no_key =
        format!("Failed to load private key: {}: it holds no private key", shown(&good.own.certificate));
    check_failure(&with(&|s| s.own.key = good.own.certificate.clone()), &no_key);
    let no_certificate =
        format!("Failed to load certificate: {}: it holds no certificate", shown(&good.own.key));
    check_failure(&with(&|s| s.own.certificate = good.own.key.clone()), &no_certificate);
    let leaf = format!(
        "Failed to configure CA certificate(s) file/directory: {}: none of",
        shown(&good.own.certificate)
    );
    check_failure(&with(&|s| s.authorities.file = good.own.certificate.clone()), &leaf);
    check_failure(&with(&|s| s.ciphers = "AES128-SHA".into()), "Failed to configure ciphers: AES128-SHA");
    check_failure(&with(&|s| s.suites = "TLS_NONE".into()), "Failed to configure ciphersuites: TLS_NONE");
    check_failure(&with(&|s| s.protocols = "TLSv1".into()), "TLSv1 is not supported");
}

#[test]
fn encrypted_keys_need_their_password() {
    // Made by `openssl pkcs8 -topk8 -v2 aes-256-cbc -v2prf hmacWithSHA256 -iter 2048`, for the key `own.key`
    // next to it.
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |name: &str, password: Option<&[u8]>| {
        isotherm_tls::key::read(&std::fs::read(data.join(name)).unwrap(), password)
    };
    let plain = read("plain.key", None).unwrap();
    for encrypted in ["aes256-sha256.key", "aes128-sha1.key", "aes192-sha512.key"] {
        let opened = read(encrypted, Some(b"1234")).unwrap();
        assert_eq!(opened.secret_der(), plain.secret_der(), "{encrypted}");
        assert!(read(encrypted, Some(b"12345")).unwrap_err().contains("password"));
        assert!(read(encrypted, None).unwrap_err().contains("there is no password"));
    }
    assert!(read("pkcs1-encrypted.key", Some(b"1234")).unwrap_err().contains("pkcs8 -topk8"));
}

#[test]
fn a_session_is_taken_up_again() {
    let mut files = Files::make("resumed");
    for (protocols, resumption) in
        [("TLSv1.3", true), ("TLSv1.2", true), ("TLSv1.3", false), ("TLSv1.2", false)]
    {
        files.settings.protocols = protocols.into();
        files.settings.resumption = resumption.then_some(Resumption { sessions_max: 100, lifetime_s: 300 });
        let contexts = files.contexts();
        let mut client = client_only(&files.settings, false).unwrap();
        client.resumption = rustls::client::Resumption::in_memory_sessions(4);
        let client = Arc::new(client);
        let name = ServerName::try_from("localhost").unwrap();
        for is_later in [false, true] {
            let server = contexts.server(AuthClients::Yes).unwrap();
            let mut pair = Pair {
                client: Side::new(Session::client(Arc::clone(&client), name.clone())),
                server: Side::new(Session::server(Arc::clone(server))),
            };
            pair.shake_hands(usize::MAX).unwrap();
            assert_eq!(pair.server.session.is_resumed(), is_later && resumption, "{protocols}");
            // The peer's identity stays known.
            assert_eq!(pair.server.session.peer_certificates().len(), 1);
        }
    }
}
