//! `--latency-dist`: latencies as a line of colours, one line a second. The hotter a place, the more PINGs
//! took the time that it stands for.

use std::time::{Duration, Instant};

use super::call_patiently;
use super::latency::PAUSE;
use crate::Fallible;
use crate::session::Session;
use crate::terminal::put;

const INTERVAL: Duration = Duration::from_secs(1);
const LINES_PER_LEGEND: u64 = 20;

/// The upper end in microseconds, and its character; one more place holds everything beyond.
const PLACES: [(u64, char); 30] = [
    (10, '.'),
    (125, '-'),
    (250, '*'),
    (500, '#'),
    (1_000, '1'),
    (2_000, '2'),
    (3_000, '3'),
    (4_000, '4'),
    (5_000, '5'),
    (6_000, '6'),
    (7_000, '7'),
    (8_000, '8'),
    (9_000, '9'),
    (10_000, 'A'),
    (20_000, 'B'),
    (30_000, 'C'),
    (40_000, 'D'),
    (50_000, 'E'),
    (100_000, 'F'),
    (200_000, 'G'),
    (300_000, 'H'),
    (400_000, 'I'),
    (500_000, 'J'),
    (1_000_000, 'K'),
    (2_000_000, 'L'),
    (4_000_000, 'M'),
    (8_000_000, 'N'),
    (16_000_000, 'O'),
    (30_000_000, 'P'),
    (60_000_000, 'Q'),
];
const BEYOND: char = '?';

/// Colours of a terminal with 256 of them, from none to all.
const COLORS: [u8; 19] =
    [0, 233, 234, 235, 237, 239, 241, 243, 245, 247, 144, 143, 142, 184, 226, 214, 208, 202, 196];
const GREYS: [u8; 13] = [0, 233, 234, 235, 237, 239, 241, 243, 245, 247, 249, 251, 253];

type Counts = [u64; PLACES.len() + 1];

pub fn run(session: &mut Session) -> Fallible<i32> {
    let palette: &[u8] = if session.options.mono { &GREYS } else { &COLORS };
    let given = session.options.interval;
    let interval = if given.is_zero() { INTERVAL } else { given };
    session.connection()?;
    let mut counts: Counts = [0; PLACES.len() + 1];
    let (mut begun, mut lines) = (Instant::now(), 0);
    loop {
        let sent = Instant::now();
        call_patiently(session, &["PING"])?;
        counts[place_of(sent.elapsed())] += 1;
        if begun.elapsed() > interval {
            if lines % LINES_PER_LEGEND == 0 {
                put(legend(palette));
            }
            put(line(&counts, palette));
            lines += 1;
            (counts, begun) = ([0; PLACES.len() + 1], Instant::now());
        }
        std::thread::sleep(PAUSE);
    }
}

fn place_of(latency: Duration) -> usize {
    let us = latency.as_micros();
    PLACES.iter().position(|&(end, _)| us <= u128::from(end)).unwrap_or(PLACES.len())
}

fn line(counts: &Counts, palette: &[u8]) -> String {
    let total: u64 = counts.iter().sum();
    let characters = PLACES.iter().map(|&(_, character)| character).chain([BEYOND]);
    let mut out = "\x1b[38;5;0m".to_string();
    for (&count, character) in counts.iter().zip(characters) {
        let heat = (count as f64 / total.max(1) as f64 * (palette.len() - 1) as f64).ceil() as usize;
        out += &format!("\x1b[48;5;{}m{character}", palette[heat]);
    }
    out + "\x1b[0m\n"
}

fn legend(palette: &[u8]) -> String {
    let colors: String = palette.iter().map(|color| format!("\x1b[48;5;{color}m ")).collect();
    format!(
        "---------------------------------------------\n\
         . - * #          .01 .125 .25 .5 milliseconds\n\
         1,2,3,...,9      from 1 to 9     milliseconds\n\
         A,B,C,D,E        10,20,30,40,50  milliseconds\n\
         F,G,H,I,J        .1,.2,.3,.4,.5       seconds\n\
         K,L,M,N,O,P,Q,?  1,2,4,8,16,30,60,>60 seconds\n\
         From 0 to 100%: {colors}\x1b[0m\n\
         ---------------------------------------------\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_has_a_place() {
        let character =
            |us| PLACES.get(place_of(Duration::from_micros(us))).map_or(BEYOND, |&(_, character)| character);
        let found = [0, 10, 11, 1_000, 1_001, 60_000_000, 60_000_001].map(character);
        assert_eq!(found, ['.', '.', '-', '1', '2', 'Q', '?']);
        assert!(PLACES.is_sorted());
    }

    #[test]
    fn heat_is_a_share() {
        let mut counts: Counts = [0; PLACES.len() + 1];
        counts[0] = 5;
        counts[1] = 5;
        let text = line(&counts, &COLORS);
        assert!(text.starts_with("\x1b[38;5;0m\x1b[48;5;247m.\x1b[48;5;247m-\x1b[48;5;0m*"), "{text:?}");
        assert!(text.ends_with("?\x1b[0m\n"));
    }
}
