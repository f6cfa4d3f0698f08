//! Facts of a certificate: its end, its number, the names in it, its key.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::der::{self, Der};

/// OIDs, as their content.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// Bits of the usage of a key, in its first byte.
const DIGITAL_SIGNATURE: u8 = 0x80;
const KEY_ENCIPHERMENT: u8 = 0x20;
const KEY_AGREEMENT: u8 = 0x08;
const URI: u8 = 0x86;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Serial number in hexadecimal digits, as OpenSSL shows it.
    pub serial: String,
    /// Unix time in seconds before which it does not hold yet.
    pub not_before_s: i64,
    /// Unix time in seconds from which on it does not hold.
    pub not_after_s: i64,
    /// Name of its subject, in DER.
    pub subject: Vec<u8>,
    /// Issuer and subject have one name: it has signed itself.
    pub is_self_issued: bool,
    /// The subject's, all its bytes.
    pub common_name: Option<Vec<u8>>,
    /// Alternative names that are URIs.
    pub uris: Vec<Vec<u8>>,
    /// The certificate may sign others.
    pub is_authority: bool,
    /// The public key, in DER.
    pub public_key: Vec<u8>,
    /// Bits that say what its key is for; `None`: anything.
    key_usage: Option<u8>,
    /// Purposes, as OIDs, that it is for; `None`: any.
    purposes: Option<Vec<Vec<u8>>>,
}

/// Side of a connection that shows a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Server,
    Client,
}

impl Facts {
    /// Reads the facts of a certificate; `None` if the bytes are no certificate.
    pub fn of(certificate: &[u8]) -> Option<Facts> {
        let mut body = Der::new(certificate).sequence()?.sequence()?;
        let has_version = body.take_if(VERSION).is_some();
        let serial = body.take(der::INTEGER)?.content;
        body.sequence()?;
        let issuer = body.take(der::SEQUENCE)?.whole;
        let mut validity = body.sequence()?;
        let not_before_s = time(validity.next()?)?;
        let not_after_s = time(validity.next()?)?;
        let subject = body.take(der::SEQUENCE)?;
        let public_key = body.take(der::SEQUENCE)?.whole.to_vec();
        let mut facts = Facts {
            serial: hex_number(serial),
            not_before_s,
            not_after_s,
            subject: subject.whole.to_vec(),
            is_self_issued: subject.whole == issuer,
            common_name: common_name(subject.inner()),
            public_key,
            ..Facts::default()
        };
        let mut says_authority = None;
        while let Some(part) = body.next() {
            if part.tag == EXTENSIONS {
                says_authority = facts.read_extensions(part.inner().sequence()?);
            }
        }
        // Of version 1, where nothing can be said of it, are old authorities, which have signed themselves.
        facts.is_authority = says_authority.unwrap_or(!has_version && facts.is_self_issued);
        Some(facts)
    }

    /// Returns whether a server, or a client, may show it: OpenSSL reads the usage of its key and its
    /// purposes so.
    pub fn allows(&self, side: Side) -> bool {
        let (bits, purpose) = match side {
            Side::Server => (DIGITAL_SIGNATURE | KEY_ENCIPHERMENT | KEY_AGREEMENT, SERVER_AUTH),
            Side::Client => (DIGITAL_SIGNATURE | KEY_AGREEMENT, CLIENT_AUTH),
        };
        self.key_usage.is_none_or(|usage| usage & bits != 0)
            && self.purposes.as_ref().is_none_or(|all| all.iter().any(|one| one == purpose))
    }

    /// Returns what is said of its being an authority.
    fn read_extensions(&mut self, mut extensions: Der<'_>) -> Option<bool> {
        let mut says_authority = None;
        while let Some(mut extension) = extensions.sequence() {
            let Some(name) = extension.take(der::OID) else { continue };
            extension.take_if(der::BOOLEAN);
            let Some(value) = extension.take(der::OCTET_STRING) else { continue };
            let mut value = value.inner();
            if name.content == KEY_USAGE {
                // One byte says how many of the last bits mean nothing.
                let bits = value.take(der::BIT_STRING).and_then(|bits| bits.content.get(1).copied());
                self.key_usage = Some(bits.unwrap_or(0));
                continue;
            }
            let Some(mut value) = value.sequence() else { continue };
            match name.content {
                EXTENDED_KEY_USAGE => {
                    let oids = std::iter::from_fn(|| value.take(der::OID));
                    self.purposes = Some(oids.map(|oid| oid.content.to_vec()).collect());
                }
                ALTERNATIVE_NAMES => {
                    while let Some(general) = value.next() {
                        if general.tag == URI {
                            self.uris.push(general.content.to_vec());
                        }
                    }
                }
                BASIC_CONSTRAINTS => {
                    says_authority = Some(value.take_if(der::BOOLEAN).is_some_and(|yes| yes.content != [0]));
                }
                _ => {}
            }
        }
        says_authority
    }
}

/// All certificates of a PEM file, in their order. `None`: one cannot be read.
pub fn read_all(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}

fn common_name(mut subject: Der<'_>) -> Option<Vec<u8>> {
    while let Some(set) = subject.take(der::SET) {
        let mut pairs = set.inner();
        while let Some(mut pair) = pairs.sequence() {
            if pair.take(der::OID).is_some_and(|name| name.content == COMMON_NAME) {
                return pair.next().map(|value| value.content.to_vec()).filter(|name| !name.is_empty());
            }
        }
    }
    None
}

fn hex_number(bytes: &[u8]) -> String {
    let significant = bytes.iter().position(|&byte| byte != 0).unwrap_or(bytes.len());
    match &bytes[significant..] {
        [] => "0".into(),
        digits => digits.iter().map(|byte| format!("{byte:02X}")).collect(),
    }
}

/// `[YY]YYMMDDHHMMSSZ`.
fn time(element: der::Element<'_>) -> Option<i64> {
    let text = std::str::from_utf8(element.content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, len: usize| text.get(from..from + len)?.parse::<i64>().ok();
    let (year, at) = match element.tag {
        UTC_TIME => (number(0, 2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        GENERALIZED_TIME => (number(0, 4)?, 4),
        _ => return None,
    };
    let part = |index: usize| number(at + 2 * index, 2);
    let days = days_since_1970(year, part(0)?, part(1)?);
    Some(((days * 24 + part(2)?) * 60 + part(3)?) * 60 + part(4)?)
}

/// Returns the days of the Gregorian calendar since 1970, counted in years that begin with March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 2, 29), 11_016);
        assert_eq!(days_since_1970(2026, 11, 26), 20_783);
        assert_eq!(days_since_1970(1969, 12, 31), -1);
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).unwrap();
        let whole = made.cert.der().to_vec();
        assert!(Facts::of(&whole).is_some());
        // Cut and changed bytes are read without a fault, whatever comes of it.
        for cut in 0..whole.len() {
            assert_eq!(Facts::of(&whole[..cut]), None);
        }
        let mut prng = isotherm_stdx::Prng::new(1);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=prng.below(3) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] = prng.below(256) as u8;
            }
            let _ = Facts::of(&bytes);
        }
    }

    #[test]
    fn facts_are_those_that_were_signed() {
        let mut params = rcgen::CertificateParams::default();
        params.serial_number = Some(vec![0x0a, 0xbc].into());
        params.not_after = rcgen::date_time_ymd(2049, 12, 31);
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Nothing");
        params.distinguished_name.push(rcgen::DnType::CommonName, "admin\0attacker");
        for uri in ["urn:first", "urn:second"] {
            params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let facts = Facts::of(params.self_signed(&key).unwrap().der()).unwrap();
        assert_eq!(facts.serial, "0ABC");
        assert_eq!(facts.not_after_s, 2_524_521_600);
        assert_eq!(facts.common_name.unwrap(), b"admin\0attacker");
        assert_eq!(facts.uris, [b"urn:first".to_vec(), b"urn:second".to_vec()]);
        assert!(facts.is_self_issued);
        params.not_after = rcgen::date_time_ymd(2050, 1, 1);
        params.is_ca = rcgen::IsCa::ExplicitNoCa;
        let facts = Facts::of(params.self_signed(&key).unwrap().der()).unwrap();
        assert_eq!((facts.not_after_s, facts.is_authority), (2_524_608_000, false));
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        assert!(Facts::of(params.self_signed(&key).unwrap().der()).unwrap().is_authority);
    }

    #[test]
    fn usages_are_for_one_side_or_both() {
        use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, OcspSigning, ServerAuth};
        use rcgen::KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign, KeyEncipherment};
        let key = rcgen::KeyPair::generate().unwrap();
        let check = |usages: &[rcgen::KeyUsagePurpose],
                     purposes: &[rcgen::ExtendedKeyUsagePurpose],
                     server: bool,
                     client: bool| {
            let mut params = rcgen::CertificateParams::default();
            params.key_usages = usages.to_vec();
            params.extended_key_usages = purposes.to_vec();
            let facts = Facts::of(params.self_signed(&key).unwrap().der()).unwrap();
            let allowed = [Side::Server, Side::Client].map(|side| facts.allows(side));
            assert_eq!(allowed, [server, client], "{usages:?} {purposes:?}");
        };
        check(&[], &[], true, true);
        check(&[KeyCertSign, CrlSign], &[], false, false);
        check(&[KeyCertSign, DigitalSignature], &[], true, true);
        check(&[KeyEncipherment], &[], true, false);
        check(&[], &[ServerAuth], true, false);
        check(&[], &[ClientAuth], false, true);
        check(&[], &[OcspSigning], false, false);
        check(&[DigitalSignature], &[ServerAuth, ClientAuth], true, true);
    }
}
