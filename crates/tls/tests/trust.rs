//! Certificates that are believed: each is shown by a server to a client, and by a client to a server.

use isotherm_tls::context::{AuthClients, client_only};
use isotherm_tls::settings::{Authorities, Identity};
use isotherm_tls::{Contexts, Failed, Session, Settings};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A certificate with its key, and what makes it an issuer.
struct Made {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

fn params(name: &str, is_authority: bool) -> CertificateParams {
    let mut params = CertificateParams::new(["localhost".to_string()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    if is_authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params
}

fn alone(params: CertificateParams) -> Made {
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Made { params, key, pem }
}

impl Made {
    fn sign_for(&self, params: CertificateParams, key: KeyPair) -> Made {
        let issuer = Issuer::from_params(&self.params, &self.key);
        let pem = params.signed_by(&key, &issuer).unwrap().pem();
        Made { params, key, pem }
    }

    fn sign(&self, params: CertificateParams) -> Made {
        self.sign_for(params, KeyPair::generate().unwrap())
    }
}

/// Certificates that are shown, the one that is meant first, and a key, which may be another's.
struct Shown(Arc<SingleCertAndKey>);

impl Shown {
    fn new(chain: &[&Made], key: &KeyPair) -> Shown {
        let chain =
            chain.iter().map(|made| CertificateDer::from_pem_slice(made.pem.as_bytes()).unwrap()).collect();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
        Shown(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))
    }
}

/// The verdict of both sides under both versions, which has to be one.
fn verdict(folder: &Path, shown: &Shown, trusted: &[&Made]) -> Result<(), String> {
    let own = alone(params("other side", false));
    let put = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        Some(folder.join(name))
    };
    let all: String = trusted.iter().map(|made| &*made.pem).collect();
    let settings = Settings {
        own: Identity {
            certificate: put("own.crt", &own.pem),
            key: put("own.key", &own.key.serialize_pem()),
            password: None,
        },
        authorities: Authorities { file: put("trusted.crt", &all), folder: None },
        ..Settings::default()
    };
    let contexts = Contexts::load(&settings).unwrap_or_else(|failure| panic!("{}", failure.0));
    let verdicts = [&TLS12, &TLS13].map(|version| {
        [to_client(&contexts, shown, version), to_server(&contexts, shown, version)]
            .map(|verdict| verdict.map_err(|why| without_time(&why.to_string())))
    });
    let first = verdicts[0][0].clone();
    assert!(verdicts.as_flattened().iter().all(|verdict| *verdict == first), "{verdicts:?}");
    first
}

/// Cuts the time off a verdict: time passes between two of them.
fn without_time(why: &str) -> String {
    why.split(": verification time").next().unwrap_or(why).to_string()
}

fn to_client(
    contexts: &Contexts,
    shown: &Shown,
    version: &'static SupportedProtocolVersion,
) -> Result<(), Failed> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(&shown.0) as _);
    // Another name than any certificate has.
    let name = ServerName::try_from("elsewhere").unwrap();
    shake_hands(
        Session::client(Arc::clone(contexts.client()), name).unwrap(),
        Session::server(Arc::new(server)).unwrap(),
    )
}

fn to_server(
    contexts: &Contexts,
    shown: &Shown,
    version: &'static SupportedProtocolVersion,
) -> Result<(), Failed> {
    let protocols = if *version == TLS12 { "TLSv1.2" } else { "TLSv1.3" };
    let careless = Settings { protocols: protocols.into(), ..Settings::default() };
    let mut client = client_only(&careless, true).unwrap();
    client.client_auth_cert_resolver = Arc::clone(&shown.0) as _;
    let server = contexts.server(AuthClients::Yes).expect("there is something to believe");
    let name = ServerName::try_from("localhost").unwrap();
    shake_hands(
        Session::client(Arc::new(client), name).unwrap(),
        Session::server(Arc::clone(server)).unwrap(),
    )
}

fn shake_hands(mut client: Session, mut server: Session) -> Result<(), Failed> {
    let (mut of_client, mut of_server) = (Vec::new(), Vec::new());
    let mut to_server = say(&mut client, &mut of_client, &[])?;
    let mut rounds = 0;
    while !to_server.is_empty() || server.is_handshaking() {
        rounds += 1;
        assert!(rounds < 10, "a handshake is two rounds, or three");
        let to_client = say(&mut server, &mut of_server, &to_server)?;
        to_server = say(&mut client, &mut of_client, &to_client)?;
    }
    Ok(())
}

/// Takes bytes, after those that are kept, and returns the answer.
fn say(session: &mut Session, kept: &mut Vec<u8>, bytes: &[u8]) -> Result<Vec<u8>, Failed> {
    let mut out = Vec::new();
    kept.extend_from_slice(bytes);
    let opened = session.open(kept, &mut out)?;
    kept.drain(..opened.used);
    Ok(out)
}

#[test]
fn certificates_are_believed_as_openssl_believes_them() {
    let folder = Folder(std::env::temp_dir().join(format!("isotherm-tls-trust-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let changed = |mut params: CertificateParams, change: &dyn Fn(&mut CertificateParams)| {
        change(&mut params);
        params
    };
    let was = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    };
    let will_be = |params: &mut CertificateParams| params.not_before = rcgen::date_time_ymd(2090, 1, 1);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rsa.key");
    let rsa = KeyPair::from_pem(&std::fs::read_to_string(data).unwrap()).unwrap();

    let (root, elsewhere) = (alone(params("root", true)), alone(params("elsewhere", true)));
    let between = root.sign(params("between", true));
    let leaf = root.sign(params("leaf", false));
    let rsa_leaf = root.sign_for(params("rsa", false), rsa);
    let below = between.sign(params("below", false));
    let expired = root.sign(changed(params("expired", false), &was));
    let early = root.sign(changed(params("early", false), &will_be));
    let own = alone(params("own", false));
    let (old_root, old_own) =
        (alone(changed(params("old root", true), &was)), alone(changed(params("old own", false), &was)));
    let early_own = alone(changed(params("early own", false), &will_be));
    let signs_only = alone(changed(params("signs", true), &|params| {
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    }));
    let mails_only = alone(changed(params("mails", false), &|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::EmailProtection];
    }));
    let by_own = own.sign(params("by own", false));
    // Their names and keys are those of the first, their bytes are not.
    let twin = |of: &Made| {
        let key = KeyPair::from_pem(&of.key.serialize_pem()).unwrap();
        let params = changed(of.params.clone(), &|params| params.serial_number = Some(77.into()));
        Made { pem: params.self_signed(&key).unwrap().pem(), params, key }
    };
    let (root_twin, own_twin) = (twin(&root), twin(&own));

    let good = "";
    /// A name, certificates that are shown, their key, those that are trusted, and a part of the refusal.
    type Row<'a> = (&'a str, &'a [&'a Made], &'a KeyPair, &'a [&'a Made], &'a str);
    let rows: [Row<'_>; 24] = [
        ("signed by an authority", &[&leaf], &leaf.key, &[&root], good),
        ("with the authority behind it", &[&leaf, &root], &leaf.key, &[&root], good),
        ("of another kind of key", &[&rsa_leaf], &rsa_leaf.key, &[&root], good),
        ("a chain of two", &[&below, &between], &below.key, &[&root], good),
        ("a chain of two without its middle", &[&below], &below.key, &[&root], "UnknownIssuer"),
        ("signed by another", &[&leaf], &leaf.key, &[&elsewhere], "UnknownIssuer"),
        ("an authority that is trusted", &[&root], &root.key, &[&root], good),
        ("one of several that are trusted", &[&root], &root.key, &[&elsewhere, &own, &root], good),
        ("self-signed and trusted", &[&own], &own.key, &[&own], good),
        ("self-signed and trusted beside an authority", &[&own], &own.key, &[&root, &own], good),
        ("with others behind it", &[&own, &elsewhere], &own.key, &[&own], good),
        ("self-signed and not trusted", &[&own], &own.key, &[&root], "UnknownIssuer"),
        ("an authority that is not trusted", &[&elsewhere], &elsewhere.key, &[&root], "CaUsedAsEndEntity"),
        ("like a trusted authority", &[&root_twin], &root_twin.key, &[&root], "CaUsedAsEndEntity"),
        ("like a trusted one", &[&own_twin], &own_twin.key, &[&own, &root], "UnknownIssuer"),
        ("signed by one that is no authority", &[&by_own], &by_own.key, &[&own], "UnknownIssuer"),
        ("a trusted authority that another has signed", &[&between], &between.key, &[&between, &root], "Ca"),
        ("expired", &[&expired], &expired.key, &[&root], "certificate expired"),
        ("not valid yet", &[&early], &early.key, &[&root], "not valid yet"),
        ("trusted and expired", &[&old_own], &old_own.key, &[&old_own], "certificate expired"),
        ("a trusted authority, expired", &[&old_root], &old_root.key, &[&old_root], "certificate expired"),
        ("trusted and not valid yet", &[&early_own], &early_own.key, &[&early_own], "not valid yet"),
        ("trusted, its key is for certificates", &[&signs_only], &signs_only.key, &[&signs_only], "Purpose"),
        ("trusted, for mail", &[&mails_only], &mails_only.key, &[&mails_only], "Purpose"),
    ];
    for (what, chain, key, trusted, expected) in rows {
        let verdict = verdict(&folder.0, &Shown::new(chain, key), trusted);
        match verdict {
            Ok(()) => assert_eq!(expected, good, "{what}: it is believed"),
            Err(why) => assert!(!expected.is_empty() && why.contains(expected), "{what}: {why}"),
        }
    }
    // Whatever is trusted, its key has to be there.
    for (chain, key) in [([&leaf], &own.key), ([&root], &leaf.key), ([&own], &leaf.key)] {
        let verdict = verdict(&folder.0, &Shown::new(&chain, key), &[&root, &own]);
        assert!(verdict.as_ref().is_err_and(|why| why.contains("BadSignature")), "{verdict:?}");
    }
}

/// A server without anything to believe asks for nothing, or does not start.
#[test]
fn given_nothing_nothing_is_believed() {
    let folder = Folder(std::env::temp_dir().join(format!("isotherm-tls-none-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let own = alone(params("own", false));
    std::fs::write(folder.0.join("own.crt"), &own.pem).unwrap();
    std::fs::write(folder.0.join("own.key"), own.key.serialize_pem()).unwrap();
    let mut settings = Settings {
        own: Identity {
            certificate: Some(folder.0.join("own.crt")),
            key: Some(folder.0.join("own.key")),
            password: None,
        },
        ..Settings::default()
    };
    let without = Contexts::load(&settings).unwrap_or_else(|failure| panic!("{}", failure.0));
    assert!(without.server(AuthClients::Yes).is_none());
    assert!(without.server(AuthClients::Optional).is_some());
    let shown = Shown::new(&[&own], &own.key);
    let refused = to_client(&without, &shown, &TLS13).unwrap_err().to_string();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    settings.authorities.file = Some(folder.0.join("own.crt"));
    let with = Contexts::load(&settings).unwrap_or_else(|failure| panic!("{}", failure.0));
    assert!(with.server(AuthClients::Yes).is_some());
}
