//! TLS of both tools: their options, and a connection under it.
//!
//! The certificate of a server has to be signed by an authority that is believed, as in valkey-cli, and may
//! name any host.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use isotherm_reactor::stream::Progress;
use isotherm_reactor::{Stream, TlsStream};
use isotherm_tls::context::{Failure, client_only};
use isotherm_tls::settings::{Authorities, Identity};
use isotherm_tls::{ClientConfig, ServerName, Session, Settings};

/// Files in which systems keep the certificate authorities that all their programs trust.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// TLS options of the command line.
#[derive(Clone, Default, Debug)]
pub struct TlsOptions {
    pub is_on: bool,
    is_insecure: bool,
    /// The name of the server, which is sent to it.
    sni: Option<String>,
    settings: Settings,
}

impl TlsOptions {
    /// An option without a value. Whether it is one of these.
    pub fn switch(&mut self, word: &str) -> bool {
        match word {
            "--tls" => self.is_on = true,
            "--insecure" => self.is_insecure = true,
            _ => return false,
        }
        true
    }

    /// Reads an option with a value. Returns whether it is a TLS option.
    pub fn value(&mut self, word: &str, value: &str) -> bool {
        let (settings, path) = (&mut self.settings, Some(PathBuf::from(value)));
        match word {
            "--sni" => self.sni = Some(value.to_string()),
            "--cacert" => settings.authorities.file = path,
            "--cacertdir" => settings.authorities.folder = path,
            "--cert" => settings.own.certificate = path,
            "--key" => settings.own.key = path,
            "--tls-ciphers" => settings.ciphers = value.to_string(),
            "--tls-ciphersuites" => settings.suites = value.to_string(),
            _ => return false,
        }
        true
    }

    pub fn takes_value(word: &str) -> bool {
        TlsOptions::default().value(word, "")
    }

    /// Returns the TLS settings for connections, or `None` if TLS is off.
    pub fn finish(mut self) -> Result<Option<Tls>, String> {
        if !self.is_on {
            return Ok(None);
        }
        if !self.settings.authorities.are_given() && !self.is_insecure {
            let system = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from).into_iter();
            let known = SYSTEM_FILES.iter().map(PathBuf::from);
            let file =
                system.chain(known).find(|path| path.exists()).ok_or("Failed to use default CA paths")?;
            self.settings.authorities = Authorities { file: Some(file), folder: None };
        }
        if matches!(&self.settings.own, Identity { certificate: Some(_), key: None, .. }) {
            // Both may stand in one file.
            self.settings.own.key = self.settings.own.certificate.clone();
        }
        let Failure(why) = match client_only(&self.settings, self.is_insecure) {
            Ok(mut config) => {
                config.enable_sni = self.sni.is_some();
                let name = self.sni.map(ServerName::try_from).transpose();
                let name = name.map_err(|_| "Failed to configure SNI")?;
                return Ok(Some(Tls(Box::leak(Box::new(Shared { config: Arc::new(config), name })))));
            }
            Err(failure) => failure,
        };
        Err(why)
    }
}

/// TLS settings for connections: one for the process, never freed.
#[derive(Clone, Copy)]
pub struct Tls(&'static Shared);

struct Shared {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.0.name).finish()
    }
}

impl Tls {
    /// Waits for the handshake over a socket that blocks.
    pub fn connect(self, socket: TcpStream) -> io::Result<Stream> {
        let name = match &self.0.name {
            Some(name) => name.clone(),
            None => socket.peer_addr()?.ip().into(),
        };
        let failed = |why: String| io::Error::other(failure(&why));
        let session =
            Session::client(Arc::clone(&self.0.config), name).map_err(|why| failed(why.to_string()))?;
        let mut tls = TlsStream::client(socket, session);
        loop {
            match tls.shake_hands() {
                Progress::Bytes(_) => return Ok(Stream::Tls(Box::new(tls))),
                Progress::Later => {}
                Progress::Ended => return Err(failed("the server has closed the connection".into())),
                Progress::Broken(kind) => {
                    let why = tls.take_failed();
                    return Err(why.map_or(kind.into(), |why| failed(why.to_string())));
                }
            }
        }
    }
}

/// Returns Valkey's words for a handshake that fails, which scripts look for, with the reason of the library.
fn failure(why: &str) -> String {
    match why.strip_prefix("invalid peer certificate: ") {
        Some(why) => format!("SSL_connect failed: certificate verify failed ({why})"),
        None => format!("SSL_connect failed: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::connection::{Connection, Dial};
    use isotherm_resp::reply_parse::Value;
    use isotherm_tls::Contexts;
    use isotherm_tls::context::AuthClients;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::Path;

    /// An authority that is a server's certificate too, and its key.
    fn make(folder: &Path) -> (String, String) {
        std::fs::create_dir_all(folder).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&authority_key).unwrap();
        let issuer = rcgen::Issuer::new(params, authority_key);
        let key = KeyPair::generate().unwrap();
        let own =
            CertificateParams::new(["elsewhere".to_string()]).unwrap().signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.join("ca.crt"), authority.pem()).unwrap();
        // Certificate and key in one file.
        let both = folder.join("own.pem");
        std::fs::write(&both, own.pem() + &key.serialize_pem()).unwrap();
        (folder.join("ca.crt").display().to_string(), both.display().to_string())
    }

    /// Answers `count` connections with PONG, each once.
    fn serve(listener: TcpListener, own: &str, authority: &str, auth: AuthClients, count: usize) {
        let own = Identity { certificate: Some(own.into()), key: Some(own.into()), password: None };
        let authorities = Authorities { file: Some(authority.into()), folder: None };
        let contexts = Contexts::load(&Settings { own, authorities, ..Settings::default() }).ok().unwrap();
        for _ in 0..count {
            let (socket, _) = listener.accept().unwrap();
            let session = Session::server(Arc::clone(contexts.server(auth).unwrap())).unwrap();
            let mut tls = TlsStream::server(socket, session);
            let mut steps = std::iter::repeat_with(|| tls.shake_hands());
            if !matches!(steps.find(|step| *step != Progress::Later), Some(Progress::Bytes(_))) {
                continue;
            }
            let mut stream = Stream::Tls(Box::new(tls));
            let mut request = [0; 14];
            if stream.read_exact(&mut request).is_ok() {
                stream.write_all(b"+PONG\r\n").unwrap();
            }
        }
    }

    fn dial(words: &[(&str, &str)]) -> Result<Dial, String> {
        let mut options = TlsOptions::default();
        for (word, value) in words {
            assert!(options.switch(word) || options.value(word, value), "{word}");
        }
        Ok(Dial { tls: options.finish()?, ..Dial::default() })
    }

    #[test]
    fn a_server_is_asked_under_tls() {
        let folder = std::env::temp_dir().join(format!("isotherm-cli-tls-{}", std::process::id()));
        let (authority, own) = make(&folder);
        let (other_authority, _) = make(&folder.join("other"));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = Address::tcp("127.0.0.1", listener.local_addr().unwrap().port());
        let ask = |words: &[(&str, &str)]| {
            let mut connection =
                Connection::open(&address, dial(words).unwrap()).map_err(|why| why.to_string())?;
            connection.call(&["PING"]).map_err(|why| why.to_string())
        };
        std::thread::scope(|scope| {
            scope.spawn(|| serve(listener, &own, &authority, AuthClients::Yes, 4));
            let shown = ("--cert", &*own);
            let pong = Ok(Value::Simple(b"PONG".to_vec()));
            assert_eq!(ask(&[("--tls", ""), ("--cacert", &authority), shown, ("--sni", "some.name")]), pong);
            assert_eq!(ask(&[("--tls", ""), ("--insecure", ""), shown]), pong);
            let refused = ask(&[("--tls", ""), ("--cacert", &other_authority), shown]).unwrap_err();
            assert!(refused.contains("SSL_connect failed: certificate verify failed ("), "{refused}");
            // The server refuses a client that shows nothing, when that has said its part.
            assert!(ask(&[("--tls", ""), ("--cacert", &authority)]).is_err());
        });
        assert!(dial(&[("--cacert", "/nonexistent")]).unwrap().tls.is_none(), "TLS was not asked for");
        let absent = dial(&[("--tls", ""), ("--cacert", "/nonexistent")]).unwrap_err();
        assert_eq!(absent, "Invalid CA Certificate File/Directory: /nonexistent: No such file or directory");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
