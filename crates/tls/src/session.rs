//! Session of one side of a TLS connection: it opens arrived bytes in place, and seals bytes to send.
//!
//! ```text
//! before    [ record | record | rec ]              what a socket has brought, behind what was left before
//! after     [ plain text ] ... [ rec ]              plain text at the front, what is no whole record yet at the end
//! ```
//! The session owns no buffer of cipher text: the reader of the socket keeps the rest, and passes it again
//! with the bytes that follow. A handshake message that spans records is left until it is whole; rustls
//! limits such a message to 64 KB, and a record to 18 KB.
//!
//! Messages that the session itself has to send (a handshake, an alert, new keys) are appended to `out` by
//! each call.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{ClientConfig, CommonState, HandshakeKind, ServerConfig};
use std::fmt;
use std::sync::Arc;

/// Maximum bytes of a record beyond its plain text: header, nonce, padding and tag.
pub const RECORD_OVERHEAD_BYTES: usize = 64;
/// The most plain text of one record.
pub const RECORD_PLAIN_BYTES: usize = 16 << 10;
/// Maximum number of bytes without a whole message: the largest of a handshake, in records with their
/// headers.
pub const UNOPENED_BYTES_MAX: usize = 80 << 10;

pub struct Session {
    side: Side,
    has_ended: bool,
    /// Once it is there rustls is asked nothing more: it would take that for a fault of ours.
    failed: Option<Failed>,
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// Result of opening cipher text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Opened {
    /// Bytes of plain text at the front of the buffer.
    pub plain: usize,
    /// Bytes of cipher text that are done with, also from the front; the rest is to be brought again.
    pub used: usize,
}

/// Why a connection cannot go on: nothing more can be opened.
#[derive(Clone, PartialEq, Debug)]
pub struct Failed(Box<rustls::Error>);

impl Failed {
    fn of(error: rustls::Error) -> Failed {
        Failed(Box::new(error))
    }

    /// Returns whether the bytes were no record at all: the sender speaks another protocol, and would take an
    /// alert for an answer.
    pub fn is_no_tls(&self) -> bool {
        use rustls::InvalidMessage::{InvalidContentType, InvalidEmptyPayload, UnknownProtocolVersion};
        let rustls::Error::InvalidMessage(why) = &*self.0 else { return false };
        matches!(why, InvalidContentType | UnknownProtocolVersion | InvalidEmptyPayload)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Server(_) => "server",
            Side::Client(_) => "client",
        };
        f.debug_struct("Session").field("side", &side).field("has_ended", &self.has_ended).finish()
    }
}

impl Session {
    pub fn server(config: Arc<ServerConfig>) -> Result<Session, Failed> {
        let side = UnbufferedServerConnection::new(config).map_err(Failed::of)?;
        Ok(Session { side: Side::Server(Box::new(side)), has_ended: false, failed: None })
    }

    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Session, Failed> {
        let side = UnbufferedClientConnection::new(config, name).map_err(Failed::of)?;
        Ok(Session { side: Side::Client(Box::new(side)), has_ended: false, failed: None })
    }

    /// Until then plain text neither comes nor goes.
    pub fn is_handshaking(&self) -> bool {
        self.state().is_handshaking()
    }

    /// The peer has said that it sends no more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the certificates of the peer, its own first.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.state().peer_certificates().unwrap_or_default()
    }

    /// The handshake took up an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.state().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The protocol's version and the suite, as OpenSSL shows them.
    pub fn agreed(&self) -> Option<(String, String)> {
        let version = format!("{:?}", self.state().protocol_version()?).replace('_', ".");
        let suite = format!("{:?}", self.state().negotiated_cipher_suite()?.suite());
        Some((version, suite.replace("TLS13_", "TLS_")))
    }

    fn state(&self) -> &CommonState {
        match &self.side {
            Side::Server(side) => side,
            Side::Client(side) => side,
        }
    }

    /// Opens all whole records of `bytes`, and continues the handshake: a client begins it with no bytes at
    /// all.
    pub fn open(&mut self, bytes: &mut [u8], out: &mut Vec<u8>) -> Result<Opened, Failed> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let result = match &mut self.side {
            Side::Server(side) => open(&mut **side, bytes, out),
            Side::Client(side) => open(&mut **side, bytes, out),
        };
        match result {
            Ok((opened, has_ended)) => {
                self.has_ended |= has_ended;
                Ok(opened)
            }
            Err(failed) => {
                self.failed = Some(failed.clone());
                Err(failed)
            }
        }
    }

    /// Appends `plain` to `out` as records. `kept` is what `open` has left, for rustls may know of a message
    /// in it. False: not now, for there is a handshake; or never again.
    pub fn seal(&mut self, kept: &mut [u8], plain: &[u8], out: &mut Vec<u8>) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let room = plain.len() + RECORD_OVERHEAD_BYTES * plain.len().div_ceil(RECORD_PLAIN_BYTES);
        match &mut self.side {
            Side::Server(side) => write(&mut **side, kept, out, room, |to, room| to.encrypt(plain, room)),
            Side::Client(side) => write(&mut **side, kept, out, room, |to, room| to.encrypt(plain, room)),
        }
    }

    /// Says that nothing more follows.
    pub fn seal_end(&mut self, kept: &mut [u8], out: &mut Vec<u8>) {
        if self.failed.is_some() {
            return;
        }
        let room = 2 * RECORD_OVERHEAD_BYTES;
        match &mut self.side {
            Side::Server(side) => write(&mut **side, kept, out, room, |to, room| to.queue_close_notify(room)),
            Side::Client(side) => write(&mut **side, kept, out, room, |to, room| to.queue_close_notify(room)),
        };
    }
}

/// Operations that both sides of rustls have in common.
trait Unbuffered {
    type Data;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Unbuffered for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }
}

impl Unbuffered for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, bytes: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(bytes)
    }
}

fn open(side: &mut impl Unbuffered, bytes: &mut [u8], out: &mut Vec<u8>) -> Result<(Opened, bool), Failed> {
    let (mut opened, mut has_ended) = (Opened::default(), false);
    loop {
        let UnbufferedStatus { discard, state } = side.process(&mut bytes[opened.used..]);
        opened.used += discard;
        match state {
            Ok(ConnectionState::ReadTraffic(_)) => {
                // Asked again without bytes: what was opened is still there, and the buffer is free to take
                // it.
                let room = &mut bytes[opened.plain..opened.used];
                opened.plain += take_plain(side, room).map_err(Failed::of)?;
            }
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => has_ended = true,
            // No early data is ever allowed, and what follows the end is of no use.
            Ok(_) => return Ok((opened, has_ended)),
            Err(error) => {
                let failed = Failed::of(error);
                // The alert for a peer that has made a mistake comes after the error.
                let rest = &mut bytes[opened.used..];
                if !failed.is_no_tls()
                    && let Ok(ConnectionState::EncodeTlsData(data)) = side.process(rest).state
                {
                    encode(data, out);
                }
                return Err(failed);
            }
        }
    }
}

/// The records that were opened, which are shorter than they were.
fn take_plain(side: &mut impl Unbuffered, room: &mut [u8]) -> Result<usize, rustls::Error> {
    let mut len = 0;
    if let Ok(ConnectionState::ReadTraffic(mut records)) = side.process(&mut []).state {
        while let Some(record) = records.next_record() {
            let payload = record?.payload;
            room[len..len + payload.len()].copy_from_slice(payload);
            len += payload.len();
        }
    }
    Ok(len)
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, out: &mut Vec<u8>) {
    let before = out.len();
    let mut room = RECORD_OVERHEAD_BYTES;
    loop {
        out.resize(before + room, 0);
        match data.encode(&mut out[before..]) {
            Ok(len) => return out.truncate(before + len),
            Err(EncodeError::InsufficientSize(size)) => room = size.required_size,
            Err(EncodeError::AlreadyEncoded) => return out.truncate(before),
        }
    }
}

/// Lets `put` append to `out`, where `room` bytes are expected to do. False: nothing can be written.
fn write<S: Unbuffered>(
    side: &mut S,
    kept: &mut [u8],
    out: &mut Vec<u8>,
    mut room: usize,
    put: impl Fn(&mut WriteTraffic<'_, S::Data>, &mut [u8]) -> Result<usize, EncryptError>,
) -> bool {
    loop {
        match side.process(kept).state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
            Ok(ConnectionState::PeerClosed) => {}
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                let before = out.len();
                out.resize(before + room, 0);
                match put(&mut traffic, &mut out[before..]) {
                    Ok(len) => {
                        out.truncate(before + len);
                        return true;
                    }
                    Err(EncryptError::InsufficientSize(size)) => room = size.required_size,
                    Err(EncryptError::EncryptExhausted) => {
                        out.truncate(before);
                        return false;
                    }
                }
                out.truncate(before);
            }
            _ => return false,
        }
    }
}
