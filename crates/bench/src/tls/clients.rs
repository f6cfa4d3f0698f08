//! Clients that do little but shake hands. They look at no certificate: their own work is not measured.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme,
    StreamOwned, SupportedProtocolVersion,
};

use crate::Fallible;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    Tls12,
    Tls13,
}

impl Version {
    pub fn name(self) -> &'static str {
        match self {
            Version::Tls12 => "TLS 1.2",
            Version::Tls13 => "TLS 1.3",
        }
    }

    fn supported(self) -> &'static SupportedProtocolVersion {
        match self {
            Version::Tls12 => &rustls::version::TLS12,
            Version::Tls13 => &rustls::version::TLS13,
        }
    }
}

/// Believes everything.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

pub struct Clients {
    port: u16,
    config: Arc<ClientConfig>,
}

/// A connection that stands. It ends when it is dropped.
pub struct Greeted(StreamOwned<ClientConnection, TcpStream>);

impl Greeted {
    pub fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

impl Clients {
    pub fn new(port: u16, version: Version, are_resumed: bool) -> Fallible<Clients> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version.supported()])
            .map_err(|why| format!("a client under TLS: {why}"))?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
            .with_no_client_auth();
        config.resumption = match are_resumed {
            true => Resumption::in_memory_sessions(8),
            false => Resumption::disabled(),
        };
        Ok(Clients { port, config: Arc::new(config) })
    }

    /// Connects, and sends a PING.
    pub fn greet(&self) -> Fallible<Greeted> {
        let greet = || -> Result<Greeted, Box<dyn std::error::Error>> {
            let socket = TcpStream::connect(("127.0.0.1", self.port))?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            let session =
                ClientConnection::new(Arc::clone(&self.config), ServerName::try_from("localhost")?)?;
            let mut stream = StreamOwned::new(session, socket);
            stream.write_all(b"PING\r\n")?;
            let mut reply = [0; 7];
            stream.read_exact(&mut reply)?;
            match &reply {
                b"+PONG\r\n" => Ok(Greeted(stream)),
                other => Err(format!("PING is answered by {}", other.escape_ascii()).into()),
            }
        };
        greet().map_err(|why| format!("a client under TLS: {why}"))
    }
}
