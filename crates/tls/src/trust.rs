//! Certificates that are believed.
//!
//! A server is asked for a certificate that an authority has signed, and not for its name, as OpenSSL does it
//! for Valkey: nodes know each other by address.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::certificate::{self, Facts, Side};
use crate::settings::Authorities;

/// Files of a folder that are looked at.
const FILES_MAX: usize = 10_000;
/// Names of authorities that clients are sent. A message of 64 KB is the longest that a peer takes; half of
/// it for these.
const NAMES_BYTES_MAX: usize = 32 << 10;
/// Length in front of a name.
const NAME_HEAD_BYTES: usize = 2;

/// Certificates that are given as believed.
#[derive(Debug)]
pub struct Trusted {
    authorities: Arc<RootCertStore>,
    /// Certificates that have signed themselves, by all their bytes.
    self_signed: HashMap<Vec<u8>, Facts>,
}

impl Trusted {
    /// Returns whether there is no certificate that could be believed.
    pub fn is_empty(&self) -> bool {
        self.authorities.is_empty() && self.self_signed.is_empty()
    }

    /// Returns what is wrong with a certificate that no authority has signed: nothing if it is one of those
    /// given.
    fn judge(&self, shown: &[u8], now: UnixTime, side: Side, not_signed: Error) -> Result<(), Error> {
        let Some(facts) = self.self_signed.get(shown) else { return Err(not_signed) };
        let [not_before, not_after] = [facts.not_before_s, facts.not_after_s]
            .map(|at_s| UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at_s).unwrap_or(0))));
        if now < not_before {
            return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
        }
        if now > not_after {
            return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
        }
        if !facts.allows(side) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        Ok(())
    }
}

/// The certificates of files and folders, and the one of them that ends first.
pub struct Roots {
    store: RootCertStore,
    self_signed: HashMap<Vec<u8>, Facts>,
    pub first_to_end: Option<Facts>,
}

impl Roots {
    pub fn read(given: &Authorities) -> Result<Roots, String> {
        let mut roots =
            Roots { store: RootCertStore::empty(), self_signed: HashMap::new(), first_to_end: None };
        let mut known = HashSet::new();
        if let Some(path) = &given.file {
            let pem = fs::read(path).map_err(|why| format!("{}: {}", path.display(), os_text(&why)))?;
            let found = certificate::read_all(&pem).filter(|found| !found.is_empty());
            let found = found.ok_or_else(|| format!("{}: it holds no certificates", path.display()))?;
            roots.add(found, &mut known);
            if roots.store.is_empty() && roots.self_signed.is_empty() {
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

    pub fn into_trusted(self) -> Trusted {
        Trusted { authorities: Arc::new(self.store), self_signed: self.self_signed }
    }

    /// Adds the certificates of a folder. A file that cannot be read, or holds no certificate, is skipped.
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
            if known.insert(certificate.to_vec()) {
                if facts.is_self_issued {
                    self.self_signed.insert(certificate.to_vec(), facts.clone());
                }
                if facts.is_authority {
                    let _ = self.store.add(certificate);
                }
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

/// Looks at servers' certificates; given none that are believed, at nothing.
#[derive(Debug)]
pub struct SignedOnly {
    trusted: Option<Arc<Trusted>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SignedOnly {
    pub fn new(trusted: Option<Arc<Trusted>>, provider: &CryptoProvider) -> SignedOnly {
        SignedOnly { trusted, algorithms: provider.signature_verification_algorithms }
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
        if let Some(trusted) = &self.trusted {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let (roots, algorithms) = (&trusted.authorities, self.algorithms.all);
            let signed = verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            );
            signed.or_else(|why| trusted.judge(end_entity, now, Side::Server, why))?;
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

/// Looks at clients' certificates.
#[derive(Debug)]
pub struct Clients {
    trusted: Arc<Trusted>,
    /// Verifier of certificates that authorities have signed, if there are authorities.
    signed: Option<Arc<dyn ClientCertVerifier>>,
    /// Names that clients choose their certificate by.
    names: Vec<DistinguishedName>,
    may_be_absent: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Clients {
    /// Returns nothing where no certificate could be believed.
    pub fn new(
        trusted: &Arc<Trusted>,
        provider: &Arc<CryptoProvider>,
        may_be_absent: bool,
    ) -> Option<Clients> {
        if trusted.is_empty() {
            return None;
        }
        let roots = &trusted.authorities;
        let signed = match roots.is_empty() {
            true => None,
            false => {
                let builder =
                    WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
                Some(builder.build().ok()?)
            }
        };
        let mut names = roots.subjects();
        let alone = trusted.self_signed.values().filter(|facts| !facts.is_authority);
        names.extend(alone.map(|facts| facts.subject.clone().into()));
        // Without names a client shows what it has.
        if names.iter().map(|name| name.as_ref().len() + NAME_HEAD_BYTES).sum::<usize>() > NAMES_BYTES_MAX {
            names.clear();
        }
        let algorithms = provider.signature_verification_algorithms;
        Some(Clients { trusted: Arc::clone(trusted), signed, names, may_be_absent, algorithms })
    }
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        !self.may_be_absent
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        ParsedCertificate::try_from(end_entity)?;
        let signed = match &self.signed {
            Some(signed) => signed.verify_client_cert(end_entity, intermediates, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        signed.or_else(|why| {
            let judged = self.trusted.judge(end_entity, now, Side::Client, why);
            judged.map(|()| ClientCertVerified::assertion())
        })
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
