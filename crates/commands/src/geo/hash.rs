//! Geohashes: a position as the score of a sorted set.
//!
//! ```text
//!   latitude   -85.05112878 .. 85.05112878   -> 26 bits  y      the square that web maps show
//!   longitude  -180 .. 180                   -> 26 bits  x
//!   score      x25 y25 x24 y24 .. x0 y0                         52 bits, exact in a double
//!
//!   a cell of step s: the first 2 s bits; its members have the scores [bits << (52 - 2 s), (bits + 1) << (52 - 2 s))
//! ```

pub(super) const LONGITUDE_MAX: f64 = 180.0;
pub(super) const LATITUDE_MAX: f64 = 85.05112878;
pub(super) const STEP_MAX: u32 = 26;

const EVEN_BITS: u64 = 0x5555_5555_5555_5555;
const ODD_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// A position in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Position {
    pub longitude: f64,
    pub latitude: f64,
}

impl Position {
    pub fn is_valid(self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    /// The score that stands for it.
    pub fn score(self) -> u64 {
        Cell::of(self, STEP_MAX, LATITUDE_MAX).bits
    }

    /// Returns the position that a score encodes.
    pub fn of_score(score: f64) -> Position {
        let area = Cell { bits: truncate(score), step: STEP_MAX }.area();
        let middle = |min: f64, max: f64, limit: f64| ((min + max) / 2.0).clamp(-limit, limit);
        Position {
            longitude: middle(area.west, area.east, LONGITUDE_MAX),
            latitude: middle(area.south, area.north, LATITUDE_MAX),
        }
    }
}

/// A double as 64 bits, as an x86 does it: below zero modulo 2^64, what is too large becomes 0.
fn truncate(score: f64) -> u64 {
    const TOP: f64 = 9_223_372_036_854_775_808.0;
    match score {
        _ if score >= 2.0 * TOP => 0,
        _ if score >= TOP => score as u64,
        _ => score as i64 as u64,
    }
}

/// Degrees on all four sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Area {
    pub west: f64,
    pub south: f64,
    pub east: f64,
    pub north: f64,
}

/// All positions whose scores begin with the same `2 x step` bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub bits: u64,
    pub step: u32,
}

impl Cell {
    /// The cell of a position; latitudes go from `-latitude_max` to `latitude_max`.
    pub fn of(position: Position, step: u32, latitude_max: f64) -> Cell {
        let part = |value: f64, max: f64| (value + max) / (max + max) * (1u64 << step) as f64;
        let (x, y) = (part(position.longitude, LONGITUDE_MAX), part(position.latitude, latitude_max));
        Cell { bits: spread(x as u64 as u32) << 1 | spread(y as u64 as u32), step }
    }

    pub fn area(self) -> Area {
        let (y, x) = (gather(self.bits), gather(self.bits >> 1));
        let degree = |part: u32, max: f64| {
            let unit = f64::from(part) / (1u64 << self.step) as f64;
            -max + unit * (max + max)
        };
        Area {
            west: degree(x, LONGITUDE_MAX),
            south: degree(y, LATITUDE_MAX),
            east: degree(x.wrapping_add(1), LONGITUDE_MAX),
            north: degree(y.wrapping_add(1), LATITUDE_MAX),
        }
    }

    /// Scores of the members in it: from the first up to, and without, the second.
    pub fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        ((self.bits << shift) as f64, ((self.bits + 1) << shift) as f64)
    }

    /// The cell that lies `east` cells to the east and `north` cells to the north; the world has no edge.
    pub fn neighbour(self, east: i32, north: i32) -> Cell {
        let unused = 64 - 2 * self.step;
        let (x_bits, y_bits) = (ODD_BITS >> unused, EVEN_BITS >> unused);
        let x = moved(self.bits & ODD_BITS, x_bits, y_bits, east);
        let y = moved(self.bits & EVEN_BITS, y_bits, x_bits, north);
        Cell { bits: x | y, step: self.step }
    }
}

/// Adds -1, 0 or 1 to a coordinate that has every second bit; the bits between (`gaps`) carry over.
fn moved(coordinate: u64, own: u64, gaps: u64, by: i32) -> u64 {
    let sum = match by {
        0 => return coordinate,
        1.. => coordinate.wrapping_add(gaps.wrapping_add(1)),
        _ => (coordinate | gaps).wrapping_sub(gaps.wrapping_add(1)),
    };
    sum & own
}

/// Puts a zero in front of each bit.
fn spread(value: u32) -> u64 {
    let mut bits = u64::from(value);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, EVEN_BITS),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Takes every second bit.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & EVEN_BITS;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333u64),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// The 11 characters that other systems know a position by. They count latitudes from -90 to 90.
pub(super) fn text_of(position: Position) -> [u8; 11] {
    const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    let bits = Cell::of(position, STEP_MAX, 90.0).bits;
    let mut text = [ALPHABET[0]; 11];
    // Ten characters of five bits are all that 52 bits give; the last one is always the first of the
    // alphabet.
    for (at, character) in text[..10].iter_mut().enumerate() {
        *character = ALPHABET[(bits >> (52 - (at + 1) * 5) & 31) as usize];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_the_manual() {
        let palermo = Position { longitude: 13.361389, latitude: 38.115556 };
        assert_eq!(palermo.score(), 3479099956230698);
        assert_eq!(&text_of(Position::of_score(3479099956230698.0)), b"sqc8b49rny0");
        let back = Position::of_score(palermo.score() as f64);
        assert!((back.longitude - 13.361389).abs() < 1e-5 && (back.latitude - 38.115556).abs() < 1e-5);
    }

    #[test]
    fn neighbours_come_back() {
        for bits in [0, 5, 0x3ff, 0x2ab] {
            let cell = Cell { bits, step: 5 };
            for (east, north) in [(1, 0), (0, 1), (-1, 1), (1, 1)] {
                assert_eq!(cell.neighbour(east, north).neighbour(-east, -north), cell);
            }
        }
    }

    #[test]
    fn bits_are_spread_and_gathered() {
        for value in [0, 1, 0x1234_5678, u32::MAX, 0x3ff_ffff] {
            assert_eq!(gather(spread(value)), value);
            assert_eq!(gather(spread(value) << 1 >> 1), value);
        }
    }
}
