//! Units: a moment, and an amount of memory as configuration files and INFO write it.

/// A moment as milliseconds since 1970. Time is an argument everywhere below the server: nothing here reads a
/// clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixMs(pub i64);

impl UnixMs {
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whole seconds, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    pub const fn from_seconds(seconds: i64) -> Option<UnixMs> {
        match seconds.checked_mul(1000) {
            Some(ms) => Some(UnixMs(ms)),
            None => None,
        }
    }

    /// Adds milliseconds; `None` when the sum leaves the range: the caller answers "invalid expire time".
    pub const fn checked_add_ms(self, ms: i64) -> Option<UnixMs> {
        match self.0.checked_add(ms) {
            Some(ms) => Some(UnixMs(ms)),
            None => None,
        }
    }

    /// Milliseconds from `earlier` to `self`; negative if the clock stepped back.
    pub const fn ms_since(self, earlier: UnixMs) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

const KIB: u64 = 1024;
/// More digits than this are refused before they are read.
const MEMORY_DIGITS_MAX: usize = 127;

/// "100", "10k" (x 1000), "10kb" (x 1024), "1mb", "1gb" and so on, in any case. The product wraps as Valkey's
/// does.
pub fn parse_memory_bytes(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unit: u64 = match text[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => KIB,
        b"m" => 1000 * 1000,
        b"mb" => KIB * KIB,
        b"g" => 1000 * 1000 * 1000,
        b"gb" => KIB * KIB * KIB,
        _ => return None,
    };
    if digits > MEMORY_DIGITS_MAX {
        return None;
    }
    let mut value = 0u64;
    for &byte in &text[..digits] {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    Some(value.wrapping_mul(unit))
}

/// "512B", "1.50K", "12.00M" as INFO shows amounts.
pub fn human_bytes(bytes: u64) -> String {
    let characters = ['K', 'M', 'G', 'T', 'P'];
    let power = if bytes == 0 { 0 } else { bytes.ilog2() / 10 };
    match power {
        1..=5 => {
            let unit = KIB.pow(power) as f64;
            format!("{:.2}{}", bytes as f64 / unit, characters[power as usize - 1])
        }
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes() {
        let check =
            |text: &str, expected| assert_eq!(parse_memory_bytes(text.as_bytes()), expected, "{text:?}");
        check("0", Some(0));
        check("100", Some(100));
        check("100b", Some(100));
        check("1k", Some(1000));
        check("1Kb", Some(1024));
        check("100MB", Some(100 << 20));
        check("1g", Some(1_000_000_000));
        check("2GB", Some(2 << 30));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", None);
        // Valkey accepts a bare unit and nothing at all as zero.
        check("", Some(0));
        check("mb", Some(0));
        for bad in ["-1", "1tb", "1 mb", "mb1", "1.5gb", "x"] {
            check(bad, None);
        }
    }

    #[test]
    fn amounts_for_people() {
        let check = |bytes, expected: &str| assert_eq!(human_bytes(bytes), expected);
        check(0, "0B");
        check(1023, "1023B");
        check(1024, "1.00K");
        check(1536, "1.50K");
        check(1 << 20, "1.00M");
        check((1 << 30) - 1, "1024.00M");
        check(5 << 40, "5.00T");
        check(u64::MAX, "18446744073709551615B");
    }

    #[test]
    fn moments() {
        assert_eq!(UnixMs(-1).seconds(), -1);
        assert_eq!(UnixMs::from_seconds(i64::MAX), None);
        assert_eq!(UnixMs::from_seconds(2), Some(UnixMs(2000)));
        assert_eq!(UnixMs(i64::MAX).checked_add_ms(1), None);
        assert_eq!(UnixMs(1500).ms_since(UnixMs(500)), 1000);
    }
}
