//! Private keys: PKCS#8, PKCS#1 and SEC 1 in PEM; PKCS#8 encrypted with a password too (PBES2: PBKDF2 and AES
//! in CBC mode, which is what OpenSSL writes).

use libaes::{AES_128_KEY_LEN, AES_192_KEY_LEN, AES_256_KEY_LEN, Cipher};
use ring::pbkdf2;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::num::NonZeroU32;

use crate::der::{self, Der};

const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
const PLAIN: &str = "PRIVATE KEY";
/// Mark of an encrypted key in the older form: only the text around the key says that it is encrypted.
const ENCRYPTED_PKCS1: &str = "Proc-Type: 4,ENCRYPTED";
/// Rounds of PBKDF2: some seconds. More is no key but a trap.
const ROUNDS_MAX: u32 = 10_000_000;

const BLOCK_BYTES: usize = 16;

const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
/// Followed by the number of a hash.
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02];
/// Followed by the number of a length and mode.
const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];

/// The key of a PEM file, or why there is none.
pub fn read(pem: &[u8], password: Option<&[u8]>) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::str::from_utf8(pem).map_err(|_| "it is no PEM file".to_string())?;
    if text.contains(ENCRYPTED_PKCS1) {
        return Err(
            "its encryption is of an old kind: `openssl pkcs8 -topk8` makes a PKCS#8 file of it".into()
        );
    }
    if !text.contains(ENCRYPTED) {
        return PrivateKeyDer::from_pem_slice(pem).map_err(|_| "it holds no private key".into());
    }
    let password = password.ok_or("it is encrypted, and there is no password")?;
    let sealed = PrivatePkcs8KeyDer::from_pem_slice(text.replace(ENCRYPTED, PLAIN).as_bytes())
        .map_err(|_| "it holds no private key")?;
    decrypt(sealed.secret_pkcs8_der(), password).map(|key| PrivatePkcs8KeyDer::from(key).into())
}

/// EncryptedPrivateKeyInfo: how it is encrypted, and the bytes.
fn decrypt(sealed: &[u8], password: &[u8]) -> Result<Vec<u8>, String> {
    const FORM: &str = "its encryption is none that is known (PBES2 with PBKDF2 and AES-CBC is)";
    let scheme = Scheme::read(sealed).ok_or(FORM)?;
    if scheme.rounds.get() > ROUNDS_MAX {
        return Err(format!("its password takes {} rounds to try, more than {ROUNDS_MAX}", scheme.rounds));
    }
    let mut key = [0; AES_256_KEY_LEN];
    let key = &mut key[..scheme.key_len];
    pbkdf2::derive(scheme.hash, scheme.rounds, scheme.salt, password, key);
    let cipher = match key.len() {
        AES_128_KEY_LEN => Cipher::new_128((&*key).try_into().expect("so long")),
        AES_192_KEY_LEN => Cipher::new_192((&*key).try_into().expect("so long")),
        _ => Cipher::new_256((&*key).try_into().expect("so long")),
    };
    let plain = open_cbc(cipher, scheme.first, scheme.bytes);
    // A wrong password leaves no padding, or once in 256 times no key.
    plain.filter(|plain| Der::new(plain).sequence().is_some()).ok_or_else(|| "its password is another".into())
}

struct Scheme<'a> {
    hash: pbkdf2::Algorithm,
    rounds: NonZeroU32,
    salt: &'a [u8],
    key_len: usize,
    /// Initialisation vector, which the first block is combined with.
    first: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Scheme<'a> {
    fn read(sealed: &'a [u8]) -> Option<Scheme<'a>> {
        let mut whole = Der::new(sealed).sequence()?;
        let mut scheme = whole.sequence()?;
        let bytes = whole.take(der::OCTET_STRING)?.content;
        scheme.take(der::OID).filter(|name| name.content == PBES2)?;
        let mut parts = scheme.sequence()?;
        let mut derivation = parts.sequence()?;
        derivation.take(der::OID).filter(|name| name.content == PBKDF2)?;
        let mut derivation = derivation.sequence()?;
        let salt = derivation.take(der::OCTET_STRING)?.content;
        let rounds = NonZeroU32::new(derivation.small_number()?)?;
        // The length of the key, which the cipher says too.
        derivation.take_if(der::INTEGER);
        let hash = match derivation.sequence() {
            None => pbkdf2::PBKDF2_HMAC_SHA1,
            Some(mut hash) => match hash.take(der::OID)?.content.strip_prefix(HMAC)? {
                [7] => pbkdf2::PBKDF2_HMAC_SHA1,
                [9] => pbkdf2::PBKDF2_HMAC_SHA256,
                [10] => pbkdf2::PBKDF2_HMAC_SHA384,
                [11] => pbkdf2::PBKDF2_HMAC_SHA512,
                _ => return None,
            },
        };
        let mut cipher = parts.sequence()?;
        let key_len = match cipher.take(der::OID)?.content.strip_prefix(AES)? {
            [2] => AES_128_KEY_LEN,
            [22] => AES_192_KEY_LEN,
            [42] => AES_256_KEY_LEN,
            _ => return None,
        };
        let first = cipher.take(der::OCTET_STRING)?.content;
        Some(Scheme { hash, rounds, salt, key_len, first, bytes })
    }
}

/// AES in CBC mode, with the padding of PKCS#7.
fn open_cbc(mut cipher: Cipher, first: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    if first.len() != BLOCK_BYTES || bytes.is_empty() || !bytes.len().is_multiple_of(BLOCK_BYTES) {
        return None;
    }
    // It takes any padding, and a wrong password leaves some.
    cipher.set_auto_padding(false);
    let mut plain = cipher.cbc_decrypt(first, bytes);
    let padding = usize::from(*plain.last()?);
    let len = plain.len().checked_sub(padding)?;
    let is_padding = |byte: &u8| usize::from(*byte) == padding;
    let is_padded = (1..=BLOCK_BYTES).contains(&padding) && plain[len..].iter().all(is_padding);
    plain.truncate(len);
    is_padded.then_some(plain)
}
