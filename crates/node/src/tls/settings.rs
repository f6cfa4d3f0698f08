//! The parameters of TLS, as `isotherm_tls` takes them.

use isotherm_tls::context::AuthClients;
use isotherm_tls::settings::{Authorities, Identity, Resumption};
use isotherm_tls::{Facts, Session, Settings};

use isotherm_config::{Config, Id, id};

const AUTH_CLIENTS: Id = id("tls-auth-clients");
const CLUSTER: Id = id("tls-cluster");
const REPLICATION: Id = id("tls-replication");

/// Returns whether any connection here uses TLS.
pub fn is_used(config: &Config) -> bool {
    config.tls_port() != 0 || is_for_cluster(config) || is_for_replication(config)
}

/// The bus of a cluster, what its nodes give each other as their port, and MIGRATE.
pub fn is_for_cluster(config: &Config) -> bool {
    config.flag(CLUSTER)
}

pub fn is_for_replication(config: &Config) -> bool {
    config.flag(REPLICATION)
}

/// Names of users in the certificate of a client, which was checked: `tls-auth-clients-user`. A name is all
/// its bytes, whatever they are.
pub fn user_names(config: &Config, session: &Session) -> Vec<Vec<u8>> {
    const CN: i64 = 0;
    const URI: i64 = 1;
    let of = config.number(const { id("tls-auth-clients-user") });
    let shown = session.peer_certificates().first().filter(|_| of == CN || of == URI);
    let Some(facts) = shown.and_then(|certificate| Facts::of(certificate)) else { return Vec::new() };
    match of {
        CN => facts.common_name.into_iter().collect(),
        _ => facts.uris.into_iter().filter(|uri| !uri.is_empty() && !uri.contains(&0)).collect(),
    }
}

pub fn auth_clients(config: &Config) -> AuthClients {
    match config.number(AUTH_CLIENTS) {
        0 => AuthClients::No,
        2 => AuthClients::Optional,
        _ => AuthClients::Yes,
    }
}

pub fn of(config: &Config) -> Settings {
    let text = |id: Id| String::from_utf8_lossy(&config.text(id)).into_owned();
    let password = |id: Id| Some(config.text(id).to_vec()).filter(|password| !password.is_empty());
    let own = Identity {
        certificate: config.path(const { id("tls-cert-file") }),
        key: config.path(const { id("tls-key-file") }),
        password: password(const { id("tls-key-file-pass") }),
    };
    let client = Identity {
        certificate: config.path(const { id("tls-client-cert-file") }),
        key: config.path(const { id("tls-client-key-file") }),
        password: password(const { id("tls-client-key-file-pass") }),
    };
    let resumption = Resumption {
        // 0 is OpenSSL's word for no limit.
        sessions_max: match config.number(const { id("tls-session-cache-size") }) {
            0 => SESSIONS_MAX,
            size => (size as usize).min(SESSIONS_MAX),
        },
        lifetime_s: config.number(const { id("tls-session-cache-timeout") }) as u32,
    };
    Settings {
        own,
        as_client: Some(client).filter(|client| client.certificate.is_some() && client.key.is_some()),
        authorities: Authorities {
            file: config.path(const { id("tls-ca-cert-file") }),
            folder: config.path(const { id("tls-ca-cert-dir") }),
        },
        protocols: text(const { id("tls-protocols") }),
        ciphers: text(const { id("tls-ciphers") }),
        suites: text(const { id("tls-ciphersuites") }),
        prefers_own_order: config.flag(const { id("tls-prefer-server-ciphers") }),
        resumption: config.flag(const { id("tls-session-caching") }).then_some(resumption),
        needs_authorities: auth_clients(config) != AuthClients::No
            || config.flag(CLUSTER)
            || config.flag(REPLICATION),
    }
}

/// The most sessions that are ever remembered: some 10 MB.
const SESSIONS_MAX: usize = 100_000;
