//! The header `Host` of a request to a loopback address: a page from elsewhere whose name leads here (DNS
//! rebinding) names its own host, and a browser would show it the prefixes of keys.

use std::net::IpAddr;

/// Returns whether a request to a loopback address names a host that is none. Without the header it is no
/// browser's.
pub fn is_foreign(request: &[u8]) -> bool {
    let lines = request.split(|&byte| byte == b'\n').skip(1);
    let mut hosts = lines.filter_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        name.trim().eq_ignore_ascii_case("host").then(|| value.trim())
    });
    hosts.any(|host| !is_loopback(host))
}

/// Returns whether a name, with or without a port, is one of this machine for itself.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').filter(|(name, _)| !name.contains(':')).map_or(host, |(name, _)| name),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for host in ["localhost", "LOCALHOST:9121", "127.0.0.1", "127.1.2.3:80", "[::1]:9121", "::1", ""] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["evil.example", "evil.example:9121", "10.0.0.1", "localhost.evil.example", "[::2]:80"] {
            assert!(!is_loopback(host), "{host}");
        }
        assert!(!is_foreign(b"GET /metrics HTTP/1.0\r\n\r\n"));
        assert!(!is_foreign(b"GET /metrics HTTP/1.1\r\nhost: localhost:1\r\n\r\n"));
        assert!(is_foreign(b"GET /metrics HTTP/1.1\r\nAccept: */*\r\nHost: evil.example\r\n\r\n"));
        assert!(is_foreign(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"));
    }
}
