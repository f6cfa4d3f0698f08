//! Configurations of connections: read from the files of `Settings` as a whole, or not at all.

use rustls::client::Resumption as ClientResumption;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::certificate::{self, Facts};
use crate::key;
use crate::resumption::{Sessions, Tickets};
use crate::settings::{Identity, Materials, Settings};
use crate::suites;
use crate::trust::{Clients, Roots, SignedOnly, Trusted, os_text};

/// Demand for certificates of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthClients {
    No,
    Yes,
    /// Clients may show a certificate; one that is shown has to be good.
    Optional,
}

pub struct Contexts {
    /// Configurations by `AuthClients`. `None`: certificates are demanded, and there is no authority that
    /// could have signed one.
    servers: [Option<Arc<ServerConfig>>; 3],
    client: Arc<ClientConfig>,
    /// Facts of this side's certificate, of the one that it shows as a client, and of the authority that ends
    /// first.
    pub server_facts: Facts,
    pub client_facts: Option<Facts>,
    pub authority_facts: Option<Facts>,
    pub materials: Materials,
}

/// Why there are no contexts: a line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure(pub String);

impl Contexts {
    pub fn load(settings: &Settings) -> Result<Contexts, Failure> {
        // Before what is read: a change while it is read is seen afterwards.
        let materials = Materials::of(settings);
        let own = &settings.own;
        if own.certificate.is_none() {
            return Err(Failure("No tls-cert-file configured!".into()));
        }
        if own.key.is_none() {
            return Err(Failure("No tls-key-file configured!".into()));
        }
        if settings.needs_authorities && !settings.authorities.are_given() {
            return Err(Failure(
                "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or \
                 tls-auth-clients are enabled!"
                    .into(),
            ));
        }
        let versions = suites::versions(&settings.protocols).map_err(Failure)?;
        let (own, server_facts) = certified(own)?;
        let roots = Roots::read(&settings.authorities)
            .map_err(|why| Failure(format!("Failed to configure CA certificate(s) file/directory: {why}")))?;
        let client_own = settings.as_client.as_ref().map(certified).transpose()?;
        let provider = Arc::new(provider(settings)?);
        let authority_facts = roots.first_to_end.clone();
        let trusted = Arc::new(roots.into_trusted());
        let resumption = Resumed::new(settings)?;
        let server = |auth: AuthClients| {
            let config = server_config(&provider, &versions, &own, &trusted, auth);
            config.map(|mut config| {
                config.ignore_client_order = settings.prefers_own_order;
                resumption.set(&mut config);
                Arc::new(config)
            })
        };
        let (client_key, client_facts) = match client_own {
            Some((key, facts)) => (key, Some(facts)),
            None => (Arc::clone(&own), None),
        };
        let servers = [AuthClients::No, AuthClients::Yes, AuthClients::Optional].map(server);
        let client = client_config(provider, &versions, Some(trusted), Some(client_key))?;
        Ok(Contexts {
            servers,
            client: Arc::new(client),
            server_facts,
            client_facts,
            authority_facts,
            materials,
        })
    }

    pub fn server(&self, auth: AuthClients) -> Option<&Arc<ServerConfig>> {
        self.servers[auth as usize].as_ref()
    }

    pub fn client(&self) -> &Arc<ClientConfig> {
        &self.client
    }
}

/// Creates the configuration of a program that is only a client. `is_insecure`: the server's certificate is
/// not checked.
pub fn client_only(settings: &Settings, is_insecure: bool) -> Result<ClientConfig, Failure> {
    let versions = suites::versions(&settings.protocols).map_err(Failure)?;
    let provider = Arc::new(provider(settings)?);
    let trusted = match is_insecure {
        true => None,
        false => {
            let roots = Roots::read(&settings.authorities)
                .map_err(|why| Failure(format!("Invalid CA Certificate File/Directory: {why}")))?;
            Some(Arc::new(roots.into_trusted()))
        }
    };
    let own = match (&settings.own.certificate, &settings.own.key) {
        (None, None) => None,
        _ => Some(certified(&settings.own)?.0),
    };
    client_config(provider, &versions, trusted, own)
}

fn provider(settings: &Settings) -> Result<CryptoProvider, Failure> {
    let mut provider = rustls::crypto::ring::default_provider();
    // Both are looked at by themselves, so that the line says which is wrong.
    suites::chosen("", &settings.ciphers)
        .map_err(|why| Failure(format!("Failed to configure ciphers: {} ({why})", settings.ciphers)))?;
    provider.cipher_suites = suites::chosen(&settings.suites, &settings.ciphers)
        .map_err(|why| Failure(format!("Failed to configure ciphersuites: {} ({why})", settings.suites)))?;
    Ok(provider)
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    own: &Arc<CertifiedKey>,
    trusted: &Arc<Trusted>,
    auth: AuthClients,
) -> Option<ServerConfig> {
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(versions).ok()?;
    let verifier =
        |may_be_absent: bool| Some(Arc::new(Clients::new(trusted, provider, may_be_absent)?) as Arc<_>);
    let builder = match auth {
        AuthClients::No => builder.with_no_client_auth(),
        // Without an authority no certificate is good, but none has to be shown.
        AuthClients::Optional if trusted.is_empty() => builder.with_no_client_auth(),
        AuthClients::Optional => builder.with_client_cert_verifier(verifier(true)?),
        AuthClients::Yes => builder.with_client_cert_verifier(verifier(false)?),
    };
    Some(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own)))))
}

fn client_config(
    provider: Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    trusted: Option<Arc<Trusted>>,
    own: Option<Arc<CertifiedKey>>,
) -> Result<ClientConfig, Failure> {
    let verifier = Arc::new(SignedOnly::new(trusted, &provider));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|why| Failure(format!("Failed to configure ciphersuites: {why}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match own {
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
        None => builder.with_no_client_auth(),
    };
    // Links are few, and stand for long.
    config.resumption = ClientResumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// Shared by the three kinds of server: what one has remembered, the others know.
struct Resumed(Option<(Arc<Tickets>, Arc<Sessions>)>);

impl Resumed {
    fn new(settings: &Settings) -> Result<Resumed, Failure> {
        let Some(resumption) = settings.resumption else { return Ok(Resumed(None)) };
        let tickets = Tickets::new(resumption).map_err(|why| Failure(format!("No random numbers: {why}")))?;
        Ok(Resumed(Some((Arc::new(tickets), Arc::new(Sessions::new(resumption))))))
    }

    fn set(&self, config: &mut ServerConfig) {
        match &self.0 {
            Some((tickets, sessions)) => {
                config.ticketer = Arc::clone(tickets) as _;
                config.session_storage = Arc::clone(sessions) as _;
            }
            None => {
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
            }
        }
    }
}

/// A certificate with those above it, and the key that belongs to it.
fn certified(identity: &Identity) -> Result<(Arc<CertifiedKey>, Facts), Failure> {
    let cannot = |what: &str, path: &Path, why: &str| {
        Failure(format!("Failed to load {what}: {}: {why}", path.display()))
    };
    let (certificate, key) = match (&identity.certificate, &identity.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        _ => return Err(Failure("A certificate needs a key, and a key a certificate".into())),
    };
    let of_certificate = |why: &str| cannot("certificate", certificate, why);
    let pem = fs::read(certificate).map_err(|why| of_certificate(&os_text(&why)))?;
    let chain = certificate::read_all(&pem).filter(|chain| !chain.is_empty());
    let chain = chain.ok_or_else(|| of_certificate("it holds no certificate"))?;
    let facts = Facts::of(&chain[0]).ok_or_else(|| of_certificate("it holds no certificate"))?;
    let of_key = |why: &str| cannot("private key", key, why);
    let pem = fs::read(key).map_err(|why| of_key(&os_text(&why)))?;
    let secret = key::read(&pem, identity.password.as_deref()).map_err(|why| of_key(&why))?;
    let signing =
        rustls::crypto::ring::sign::any_supported_type(&secret).map_err(|why| of_key(&why.to_string()))?;
    // Not rustls's own comparison, which refuses certificates of version 1.
    if signing.public_key().is_some_and(|public| public.as_ref() != facts.public_key) {
        return Err(of_key("key values mismatch"));
    }
    Ok((Arc::new(CertifiedKey::new(chain, signing)), facts))
}
