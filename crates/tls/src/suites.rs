//! Versions and suites by the names that Valkey's parameters have for them.
//!
//! Suites of TLS 1.2 are given in OpenSSL's language, as far as six suites need it: names and groups of them,
//! `+` between conditions that have to hold at once; `!` and `-` take out, `+` in front moves to the end.

use rustls::crypto::ring::ALL_CIPHER_SUITES;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

/// OpenSSL's name, and rustls's.
const TLS12_SUITES: &[(&str, CipherSuite)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
];

const TLS13_SUITES: &[(&str, CipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
];

/// A word of OpenSSL's for several suites, and what stands in the names of those that it means; all of them
/// if that is nothing.
const GROUPS: &[(&str, &str)] = &[
    ("ALL", ""),
    ("DEFAULT", ""),
    ("HIGH", ""),
    ("FIPS", "GCM"),
    ("TLSv1.2", ""),
    ("ECDHE", ""),
    ("EECDH", ""),
    ("kECDHE", ""),
    ("kEECDH", ""),
    ("ECDH", ""),
    ("AEAD", ""),
    ("ECDSA", "-ECDSA-"),
    ("aECDSA", "-ECDSA-"),
    ("RSA", "-RSA-"),
    ("aRSA", "-RSA-"),
    ("AES", "AES"),
    ("AESGCM", "GCM"),
    ("AES128", "AES128"),
    ("AES256", "AES256"),
    ("CHACHA20", "CHACHA20"),
    ("SHA256", "SHA256"),
    ("SHA384", "SHA384"),
];

/// Why a word is refused.
pub type Refused = String;

/// `TLSv1.2 TLSv1.3`, in any order; both if nothing is said.
pub fn versions(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, Refused> {
    let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        let version = match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => &TLS12,
            "tlsv1.3" => &TLS13,
            // COMPAT(server): `tls-protocols` refuses TLSv1 and TLSv1.1. Why: they are not safe, and the
            // library does not have them.
            "tlsv1" | "tlsv1.1" => {
                return Err(format!("{word} is not supported. Use 'TLSv1.2' and 'TLSv1.3'."));
            }
            _ => {
                return Err(
                    "Invalid tls-protocols specified. Use a combination of 'TLSv1.2' and 'TLSv1.3'.".into()
                );
            }
        };
        if !versions.iter().any(|known| known.version == version.version) {
            versions.push(version);
        }
    }
    if versions.is_empty() {
        versions = vec![&TLS13, &TLS12];
    }
    Ok(versions)
}

/// Returns the suites that may be agreed on, in the order of preference: those of TLS 1.3 by `suites`, of 1.2
/// by `ciphers`.
pub fn chosen(suites: &str, ciphers: &str) -> Result<Vec<SupportedCipherSuite>, Refused> {
    let mut names = tls13(suites)?;
    names.extend(tls12(ciphers)?);
    let of_name = |name: CipherSuite| ALL_CIPHER_SUITES.iter().find(|suite| suite.suite() == name).copied();
    Ok(names.into_iter().filter_map(of_name).collect())
}

fn tls13(words: &str) -> Result<Vec<CipherSuite>, Refused> {
    let mut chosen: Vec<CipherSuite> = Vec::new();
    for word in words.split(':').filter(|word| !word.is_empty()) {
        match TLS13_SUITES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
            Some((_, suite)) if chosen.contains(suite) => {}
            Some((_, suite)) => chosen.push(*suite),
            None => return Err(format!("there is no suite {word} here")),
        }
    }
    if chosen.is_empty() {
        chosen = TLS13_SUITES.iter().map(|(_, suite)| *suite).collect();
    }
    Ok(chosen)
}

fn tls12(words: &str) -> Result<Vec<CipherSuite>, Refused> {
    if words.trim().is_empty() {
        return tls12("DEFAULT");
    }
    let mut chosen: Vec<CipherSuite> = Vec::new();
    let mut banned: Vec<CipherSuite> = Vec::new();
    for word in words.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        // How to sort, and a level of strength that all suites here have.
        if word.starts_with('@') {
            continue;
        }
        let (sign, word) = match word.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &word[1..]),
            _ => (b' ', word),
        };
        let meant = meant_by(word);
        match sign {
            b' ' if meant.is_empty() => return Err(format!("there is no suite {word} here")),
            b' ' => chosen.extend(meant.into_iter().filter(|suite| !banned.contains(suite))),
            // Suites that are not there need not be taken out.
            b'+' => {
                let (moved, kept) = chosen.iter().partition(|suite| meant.contains(suite));
                chosen = kept;
                chosen.extend::<Vec<CipherSuite>>(moved);
            }
            _ => {
                chosen.retain(|suite| !meant.contains(suite));
                if sign == b'!' {
                    banned.extend(meant);
                }
            }
        }
        let mut seen = Vec::new();
        chosen.retain(|suite| {
            !seen.contains(suite) && {
                seen.push(*suite);
                true
            }
        });
    }
    if chosen.is_empty() {
        return Err("no suite is left".into());
    }
    Ok(chosen)
}

/// `ECDHE+AESGCM`: those for which each part holds.
fn meant_by(word: &str) -> Vec<CipherSuite> {
    let holds = |name: &str, part: &str| {
        name.eq_ignore_ascii_case(part)
            || GROUPS.iter().any(|(group, within)| *group == part && name.contains(within))
    };
    let meant = |name: &str| word.split('+').all(|part| holds(name, part));
    TLS12_SUITES.iter().filter(|(name, _)| meant(name)).map(|(_, suite)| *suite).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &str, expected: Result<&[&str], &str>) {
        let name = |suite: &CipherSuite| TLS12_SUITES.iter().find(|(_, known)| known == suite).unwrap().0;
        let got = tls12(words);
        let got =
            got.as_ref().map(|suites| suites.iter().map(name).collect::<Vec<_>>()).map_err(String::as_str);
        assert_eq!(got, expected.map(<[_]>::to_vec), "{words}");
    }

    #[test]
    fn ciphers_in_openssls_language() {
        let all: Vec<&str> = TLS12_SUITES.iter().map(|(name, _)| *name).collect();
        check("", Ok(&all));
        check("DEFAULT:-AES128-SHA256", Ok(&all));
        check("HIGH:!aNULL:!MD5:@STRENGTH", Ok(&all));
        check("ECDHE+AESGCM:!ECDSA", Ok(&["ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]));
        check(
            "ecdhe-rsa-aes128-gcm-sha256,ECDHE-RSA-CHACHA20-POLY1305",
            Ok(&["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"]),
        );
        check("aRSA:+CHACHA20", Ok(&[all[1], all[5], all[3]]));
        check("!aRSA:DEFAULT", Ok(&[all[0], all[2], all[4]]));
        check("-aRSA:DEFAULT", Ok(&all));
        check("AES128-SHA256", Err("there is no suite AES128-SHA256 here"));
        check("DEFAULT:-ALL", Err("no suite is left"));
    }

    #[test]
    fn suites_and_versions_by_name() {
        assert_eq!(tls13("").unwrap().len(), 3);
        assert_eq!(tls13("TLS_AES_128_GCM_SHA256").unwrap(), [CipherSuite::TLS13_AES_128_GCM_SHA256]);
        assert_eq!(
            tls13("TLS_AES_128_CCM_SHA256").unwrap_err(),
            "there is no suite TLS_AES_128_CCM_SHA256 here"
        );
        assert_eq!(versions("").unwrap().len(), 2);
        assert_eq!(versions("tlsv1.2 TLSv1.2").unwrap(), [&TLS12]);
        assert!(versions("TLSv1.1").unwrap_err().starts_with("TLSv1.1 is not supported"));
        assert!(versions("SSLv3").unwrap_err().starts_with("Invalid tls-protocols"));
        assert_eq!(chosen("", "").unwrap().len(), 9);
    }
}
