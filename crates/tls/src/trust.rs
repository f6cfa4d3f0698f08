//! Whose certificates are believed.
//!
//! A server is asked for a certificate that an authority has signed, and not for its name, as OpenSSL does it for Valkey: nodes know each
//! other by address.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::certificate::{self, Facts};
use crate::settings::Authorities;

/// Files of a folder that are looked at.
const FILES_MAX: usize = 10_000;

/// The authorities, and the one of them that ends first.
pub struct Roots {
    pub store: RootCertStore,
    pub first_to_end: Option<Facts>,
}

impl Roots {
    pub fn read(given: &Authorities) -> Result<Roots, String> {
        let mut roots = Roots { store: RootCertStore::empty(), first_to_end: None };
        let mut known = HashSet::new();
        if let Some(path) = &given.file {
            let pem = fs::read(path).map_err(|why| format!("{}: {}", path.display(), os_text(&why)))?;
            let found = certificate::read_all(&pem).filter(|found| !found.is_empty());
            let found = found.ok_or_else(|| format!("{}: it holds no certificates", path.display()))?;
            roots.add(found, &mut known);
            if roots.store.is_empty() {
                return Err(format!("{}: none of its certificates is an authority's", path.display()));
            }
        }
        if let Some(path) = &given.folder {
            roots
                .add_folder(path, &mut known)
                .map_err(|why| format!("{}: {}", path.display(), os_text(&why)))?;
        }
        Ok(roots)
    }

    /// What cannot be read, or holds no certificate, is passed over.
    fn add_folder(&mut self, path: &Path, known: &mut HashSet<Vec<u8>>) -> std::io::Result<()> {
        for entry in fs::read_dir(path)?.take(FILES_MAX).flatten() {
            let path = entry.path();
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if is_hidden || !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                continue;
            }
            if let Some(found) = fs::read(&path).ok().and_then(|pem| certificate::read_all(&pem)) {
                self.add(found, known);
            }
        }
        Ok(())
    }

    /// A certificate that is no authority's signs no others, whatever file it stands in.
    fn add(&mut self, found: Vec<CertificateDer<'static>>, known: &mut HashSet<Vec<u8>>) {
        for certificate in found {
            let Some(facts) = Facts::of(&certificate) else { continue };
            let ends_first =
                self.first_to_end.as_ref().is_none_or(|first| facts.not_after_s < first.not_after_s);
            if known.insert(certificate.to_vec()) && facts.is_authority {
                let _ = self.store.add(certificate);
            }
            if ends_first {
                self.first_to_end = Some(facts);
            }
        }
    }
}

/// "No such file or directory", without the number that Rust adds.
pub fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// A server's certificate has to be signed by one of the roots; with no roots at all it is not looked at.
#[derive(Debug)]
pub struct SignedOnly {
    roots: Option<Arc<RootCertStore>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SignedOnly {
    pub fn new(roots: Option<Arc<RootCertStore>>, provider: &CryptoProvider) -> SignedOnly {
        SignedOnly { roots, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for SignedOnly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
