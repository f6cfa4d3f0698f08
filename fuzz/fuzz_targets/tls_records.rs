//! Any bytes to the server's side of TLS: no panic, nothing kept or said without a bound, and an end once
//! something was wrong.
//!
//! ```text
//!   piece  kind  rest
//!          even         the rest is what the server gets
//!          odd          a client shakes hands and sends plain text; the rest are changes of what it says: [place, place, deed, byte] ..
//! ```
//! Random bytes seldom get beyond the first record: it is the changed client that reaches certificates,
//! tickets and plain text.
#![no_main]

use isotherm_tls::context::{AuthClients, client_only};
use isotherm_tls::session::{RECORD_OVERHEAD_BYTES, RECORD_PLAIN_BYTES, UNOPENED_BYTES_MAX};
use isotherm_tls::settings::{Authorities, Identity, Resumption};
use isotherm_tls::{ClientConfig, Contexts, Failed, ServerName, Session, Settings};
use libfuzzer_sys::fuzz_target;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::sync::{Arc, LazyLock};

/// Maximum output of a server by itself after one piece: a handshake with its certificates, tickets, an
/// alert.
const SAID_BYTES_MAX: usize = 16 << 10;
const PLAIN: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// A handshake is two rounds, or three; a ticket and plain text follow.
const ROUNDS_MAX: usize = 8;

/// A server, and clients of TLS 1.2 and 1.3 that have a certificate.
static MADE: LazyLock<(Contexts, [Arc<ClientConfig>; 2])> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("isotherm-fuzz-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let put = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).expect("a file");
        Some(folder.join(name))
    };
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("signed").pem();
    let key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(["localhost".to_string()]).expect("a name");
    let own = own.signed_by(&key, &Issuer::new(params, authority_key)).expect("signed").pem();
    let mut settings = Settings {
        own: Identity {
            certificate: put("own.crt", own),
            key: put("own.key", key.serialize_pem()),
            password: None,
        },
        authorities: Authorities { file: put("ca.crt", authority), folder: None },
        resumption: Some(Resumption { sessions_max: 100, lifetime_s: 300 }),
        ..Settings::default()
    };
    let contexts = Contexts::load(&settings).unwrap_or_else(|failure| panic!("{}", failure.0));
    let clients = ["TLSv1.2", "TLSv1.3"].map(|version| {
        settings.protocols = version.into();
        Arc::new(client_only(&settings, false).unwrap_or_else(|failure| panic!("{}", failure.0)))
    });
    let _ = std::fs::remove_dir_all(&folder);
    (contexts, clients)
});

/// One side, with what has come and is not opened.
struct Side {
    session: Session,
    kept: Vec<u8>,
    plain: Vec<u8>,
}

impl Side {
    fn new(session: Result<Session, Failed>) -> Side {
        Side { session: session.expect("its settings are right"), kept: Vec::new(), plain: Vec::new() }
    }

    /// Takes `bytes`, and appends to `said` what it says by itself.
    fn take(&mut self, bytes: &[u8], said: &mut Vec<u8>) -> Result<(), Failed> {
        let before = said.len();
        self.kept.extend_from_slice(bytes);
        let result = self.session.open(&mut self.kept, said);
        assert!(said.len() - before <= SAID_BYTES_MAX);
        let opened = result?;
        assert!(opened.plain <= opened.used && opened.used <= self.kept.len());
        self.plain.extend_from_slice(&self.kept[..opened.plain]);
        self.kept.drain(..opened.used);
        assert!(self.kept.len() <= UNOPENED_BYTES_MAX);
        Ok(())
    }
}

fn server() -> Side {
    let auth = AuthClients::Optional;
    Side::new(Session::server(Arc::clone(MADE.0.server(auth).expect("there is an authority"))))
}

/// Hands over in pieces; once it has failed, it stays so and opens nothing more.
fn take_in_pieces(side: &mut Side, bytes: &[u8], piece: usize, said: &mut Vec<u8>) -> bool {
    for piece in bytes.chunks(piece) {
        if side.take(piece, said).is_err() {
            let (plain, before) = (side.plain.len(), said.len());
            assert!(side.take(b"more", said).is_err());
            assert!(!side.session.seal(&mut [], PLAIN, said));
            assert!(side.plain.len() == plain && said.len() == before);
            return false;
        }
    }
    true
}

/// Does what the input says at its place in what the client says; later places are counted from here.
fn change(bytes: &mut Vec<u8>, changes: &mut &[[u8; 4]], said_before: usize) -> bool {
    let mut is_changed = false;
    while let [[high, low, deed, byte], rest @ ..] = *changes {
        let place = usize::from(u16::from_be_bytes([*high, *low]) % 4096);
        let Some(at) = place.checked_sub(said_before).filter(|at| *at < bytes.len()) else { break };
        *changes = rest;
        is_changed = true;
        match deed % 6 {
            0 => bytes[at] ^= (*byte).max(1),
            1 => bytes.truncate(at),
            2 => drop(bytes.splice(at..at, std::iter::repeat_n(*byte, usize::from(*byte) * 80))),
            3 => drop(bytes.drain(at..(at + usize::from(*byte)).min(bytes.len()))),
            4 => {
                let again = bytes[at..].to_vec();
                bytes.extend(again);
            }
            _ => {
                // A record of any kind stands in front.
                let record = [20 + byte % 6, 3, 3, 0, 2, 1, *byte];
                bytes.splice(at..at, record);
            }
        }
    }
    is_changed
}

fn with_client(version: usize, changes: &[u8], piece: usize) {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = Side::new(Session::client(Arc::clone(&MADE.1[version]), name));
    let (mut server, mut changes) = (server(), changes.as_chunks().0);
    let (mut to_server, mut is_changed, mut said_bytes, mut is_sent) = (Vec::new(), false, 0, false);
    client.take(&[], &mut to_server).expect("a hello");
    for _ in 0..ROUNDS_MAX {
        if !client.session.is_handshaking() && !std::mem::replace(&mut is_sent, true) {
            assert!(client.session.seal(&mut client.kept, PLAIN, &mut to_server));
        }
        let said = to_server.len();
        is_changed |= change(&mut to_server, &mut changes, said_bytes);
        said_bytes += said;
        let mut to_client = Vec::new();
        if !take_in_pieces(&mut server, &to_server, piece, &mut to_client) {
            assert!(is_changed, "a right client is not refused");
            return;
        }
        to_server.clear();
        // A client that was answered to what it has not said may fail.
        if !take_in_pieces(&mut client, &to_client, usize::MAX, &mut to_server) {
            assert!(is_changed, "a right server is not refused");
            return;
        }
    }
    if !is_changed {
        assert_eq!(server.plain, PLAIN);
    }
    assert!(server.plain.len() <= 100 * RECORD_PLAIN_BYTES);
    let mut sealed = Vec::new();
    if server.session.seal(&mut server.kept, PLAIN, &mut sealed) {
        assert!(sealed.len() <= PLAIN.len() + RECORD_OVERHEAD_BYTES);
    }
}

fuzz_target!(|input: &[u8]| {
    let [piece, kind, rest @ ..] = input else { return };
    let piece = usize::from(*piece) * 16 + 1;
    match kind % 2 {
        0 => drop(take_in_pieces(&mut server(), rest, piece, &mut Vec::new())),
        _ => with_client(usize::from(kind / 2 % 2), rest, piece),
    }
});
