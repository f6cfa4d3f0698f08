//! Texts that other nodes send and that are written to nodes.conf, where some characters would end a word or
//! a line.

/// `NET_IP_STR_LEN` less the NUL: an address, or a name in its place.
pub const IP_BYTES_MAX: usize = 45;
/// `NET_HOST_STR_LEN` less the NUL.
pub const HOSTNAME_BYTES_MAX: usize = 255;
/// Longest human name of a node, or availability zone, in bytes. Valkey does not bound them.
pub const LABEL_BYTES_MAX: usize = 1024;

/// Valkey's rule for words of nodes.conf: no space, no control character, and none of the punctuation that
/// the file uses.
pub fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte > b',' && byte != 0x7f && !b";<=>?@[]^{|}~\\".contains(&byte))
}

/// A text that fits, or `None`.
pub fn word(bytes: &[u8], bytes_max: usize) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= bytes_max && is_word(text)).then_some(text)
}

pub fn is_ipv4(text: &str) -> bool {
    text.parse::<std::net::Ipv4Addr>().is_ok()
}

pub fn is_ipv6(text: &str) -> bool {
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for good in ["", "a.example-1", "::1", "10.0.0.1", "_x/y", "zone\u{fc}"] {
            assert!(is_word(good), "{good:?}");
        }
        for bad in ["a b", "a,b", "a=b", "a\nb", "a@b", "[a]", "a\"", "a\x7f", "a\\"] {
            assert!(!is_word(bad), "{bad:?}");
        }
        assert_eq!(word(b"abc", 2), None);
        assert_eq!(word(b"\xff", 2), None);
        assert!(
            is_ipv4("1.2.3.4") && !is_ipv4("1.2.3.4.") && !is_ipv4("1.2.3.04x") && is_ipv6("::ffff:1.2.3.4")
        );
    }
}
