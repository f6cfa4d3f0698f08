//! The part of its full size that a measurement is run at: `--scale 1/10`.

use crate::Fallible;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    part: u64,
    whole: u64,
}

impl Scale {
    pub const FULL: Scale = Scale { part: 1, whole: 1 };

    pub fn parse(text: &str) -> Fallible<Scale> {
        let (part, whole) = text.split_once('/').unwrap_or((text, "1"));
        match (part.parse(), whole.parse()) {
            (Ok(part), Ok(whole)) if 0 < part && part <= whole => Ok(Scale { part, whole }),
            _ => Err(format!("'{text}' is no scale: 1/10 is one")),
        }
    }

    pub fn is_full(self) -> bool {
        self.part == self.whole
    }

    /// At least one is left of everything.
    pub fn of(self, count: u64) -> u64 {
        let scaled = u128::from(count) * u128::from(self.part) / u128::from(self.whole);
        // No more than `count`, since the part is none.
        (scaled as u64).max(1)
    }

    /// ", at 1/10 of the size", or nothing: for titles.
    pub fn note(self) -> String {
        if self.is_full() { String::new() } else { format!(", at {}/{} of the size", self.part, self.whole) }
    }

    /// " --scale 1/10", or nothing: for the command that repeats it.
    pub fn option(self) -> String {
        if self.is_full() { String::new() } else { format!(" --scale {}/{}", self.part, self.whole) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth() {
        let tenth = Scale::parse("1/10").unwrap();
        assert_eq!(tenth.of(15_000_000), 1_500_000);
        assert_eq!(tenth.of(3), 1);
        assert_eq!(tenth.of(u64::MAX), u64::MAX / 10);
        assert_eq!(tenth.note(), ", at 1/10 of the size");
        assert_eq!(tenth.option(), " --scale 1/10");
        assert!(Scale::parse("1").unwrap().is_full() && Scale::parse("3/3").unwrap().is_full());
        assert_eq!(Scale::FULL.note() + &Scale::FULL.option(), "");
        for wrong in ["", "0", "2", "2/1", "1/0", "1/", "/2", "0.1", "-1/2", "1/99999999999999999999"] {
            assert!(Scale::parse(wrong).is_err(), "{wrong}");
        }
    }
}
