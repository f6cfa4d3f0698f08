//! The server's address and the user there: host and port, a socket in the file system, or a URI of both.
//!
//! ```text
//! valkey://user:pa%20ss@host:6380/5        redis:// is the same; [::1] is an IPv6 host
//! valkeys://host                           under TLS, as rediss://
//! ```

use std::fmt;
use std::path::PathBuf;

use crate::text::leading_i64;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    pub fn tcp(host: impl Into<String>, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }
}

/// Writes the address as a prompt shows it: an IPv6 host stands in brackets.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// User and password that are sent to the server before any other command.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Login {
    pub user: Option<String>,
    pub password: Option<String>,
}

impl Login {
    /// The AUTH command, if there is a password to send.
    pub fn command(&self) -> Option<Vec<&str>> {
        let password = self.password.as_deref()?;
        Some(match self.user.as_deref() {
            Some(user) => vec!["AUTH", user, password],
            None => vec!["AUTH", password],
        })
    }
}

/// Parts of a URI. A part that is `None` leaves its option unchanged.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Uri {
    pub host: Option<String>,
    pub port: Option<i64>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub db: Option<i64>,
    pub is_tls: bool,
}

pub fn parse_uri(uri: &str) -> Result<Uri, String> {
    let invalid = || "Invalid URI scheme".to_string();
    let (scheme, rest) = uri.split_once("://").ok_or_else(invalid)?;
    let is_tls = match scheme.to_ascii_lowercase().as_str() {
        "valkey" | "redis" => false,
        "valkeys" | "rediss" => true,
        _ => return Err(invalid()),
    };
    let mut found = Uri { is_tls, ..Uri::default() };
    let mut rest = rest;
    if let Some((who, place)) = rest.split_once('@') {
        let password = match who.split_once(':') {
            Some((user, password)) => {
                found.user = Some(percent_decode(user)?);
                password
            }
            None => who,
        };
        found.password = Some(percent_decode(password)?);
        rest = place;
    }
    let (place, path) = match rest.split_once('/') {
        Some((place, path)) => (place, path),
        None => (rest, ""),
    };
    if !place.is_empty() {
        let (host, port) = split_port(place);
        found.host = Some(host.to_string());
        found.port = port.map(leading_i64);
    }
    if !path.is_empty() {
        found.db = Some(leading_i64(path));
    }
    Ok(found)
}

fn split_port(place: &str) -> (&str, Option<&str>) {
    if let Some((host, behind)) = place.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        return (host, behind.strip_prefix(':'));
    }
    match place.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (place, None),
    }
}

fn percent_decode(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (bytes.next(), bytes.next()) else {
            return Err("Incomplete URI encoding".to_string());
        };
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or("Illegal character in URI encoding");
        out.push((digit(high)? * 16 + digit(low)?) as u8);
    }
    String::from_utf8(out).map_err(|_| "Illegal character in URI encoding".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris() {
        let text = |text: &str| Some(text.to_string());
        for (uri, expected) in [
            ("valkey://", Uri::default()),
            ("rediss://h", Uri { host: text("h"), is_tls: true, ..Uri::default() }),
            ("redis://h", Uri { host: text("h"), ..Uri::default() }),
            ("REDIS://h:12/3", Uri { host: text("h"), port: Some(12), db: Some(3), ..Uri::default() }),
            ("valkey://[::1]:7", Uri { host: text("::1"), port: Some(7), ..Uri::default() }),
            ("valkey://pw@h", Uri { host: text("h"), password: text("pw"), ..Uri::default() }),
            (
                "valkey://u:p%40%20@h/",
                Uri { host: text("h"), user: text("u"), password: text("p@ "), ..Uri::default() },
            ),
        ] {
            assert_eq!(parse_uri(uri), Ok(expected), "{uri}");
        }
        for (uri, why) in [
            ("http://h", "Invalid URI scheme"),
            ("h", "Invalid URI scheme"),
            ("redis://a%4@h", "Incomplete URI encoding"),
            ("redis://a%4z@h", "Illegal character in URI encoding"),
        ] {
            assert_eq!(parse_uri(uri), Err(why.to_string()), "{uri}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(Address::tcp("::1", 7).to_string(), "[::1]:7");
        assert_eq!(Address::tcp("h", 7).to_string(), "h:7");
    }
}
